/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/signal.c */
/*
 * The meeting protocol under fire: ranks on threads meet with deadlines so short that most attempts
 * fail, and every outcome is compared with what the others got.  tests/model/barrier.pml checks the
 * protocol itself; this checks that the code is that protocol.
 */
#include "harness.h"

#include "base/os/os.h"
#include "base/share/signal.h"
#include "weft/status.h"

#include <pthread.h>

enum { MOST = 4, MEETINGS = 2000, ATTEMPTS = 2000 * 1000 };

typedef struct lane {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t word;
    _Alignas(WEFT_I_LINE) _Atomic uint64_t pass;
    _Alignas(WEFT_I_LINE) _Atomic uint32_t bell;
    /* What the test knows; seq_cst everywhere, so that the test adds no order of its own making. */
    _Alignas(WEFT_I_LINE) atomic_int inside, passed;
} lane;

static lane lanes[MOST];
static int ranks;
static atomic_int wrong, failures, mismatches;
static weft_i_wait_mode mode;
static int odd_rank, odd_meeting; /* who calls something else, and when; -1 */

static weft_i_point point_of(int me)
{
    return (weft_i_point){.me = me,
                          .size = ranks,
                          .words = (char *)&lanes[0].word,
                          .passes = (char *)&lanes[0].pass,
                          .bells = (char *)&lanes[0].bell,
                          .stride = sizeof(lane),
                          .mode = mode};
}

/* Everybody must be inside a call of this meeting, or through. */
static void check_passed(int meeting)
{
    for (int rank = 0; rank < ranks; rank++)
        if (lanes[rank].inside != meeting && lanes[rank].passed < meeting)
            wrong++;
}

static void check_failed(int meeting)
{
    for (int rank = 0; rank < ranks; rank++)
        if (lanes[rank].passed >= meeting)
            wrong++;
}

static void *meet_often(void *arg)
{
    int me = (int)((lane *)arg - lanes);
    weft_i_point point = point_of(me);
    uint64_t random = 88172645463325252u + (uint64_t)me;
    for (int meeting = 1, attempts = 0; meeting <= MEETINGS && attempts < ATTEMPTS; attempts++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        lanes[me].inside = meeting;
        uint32_t digest = me == odd_rank && meeting == odd_meeting ? 6 : 4;
        weft_i_meeting outcome;
        weft_status status = weft_i_signal_meet(&point, digest, (int64_t)(random % 2), &outcome);
        if (status == WEFT_ERR_MISMATCH) { /* now and for ever */
            mismatches++;
            break;
        }
        if (status == WEFT_OK) {
            check_passed(meeting);
            lanes[me].passed = meeting;
            meeting++;
        } else {
            check_failed(meeting);
            failures++;
            lanes[me].inside = 0;
            if (random % 64 == 0)
                WEFT_OS->sleep_ns(100 * 1000);
        }
    }
    return NULL;
}

static void meet_all(int size, weft_i_wait_mode how, int who, int when)
{
    pthread_t threads[MOST];
    memset(lanes, 0, sizeof lanes);
    ranks = size, mode = how, odd_rank = who, odd_meeting = when;
    wrong = failures = mismatches = 0;
    weft_i_os_barrier_join();
    for (int rank = 0; rank < ranks; rank++)
        CHECK(pthread_create(&threads[rank], NULL, meet_often, &lanes[rank]) == 0);
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(threads[rank], NULL);
    CHECK_INT(wrong, 0);
    for (int rank = 0; rank < ranks; rank++)
        CHECK_INT(lanes[rank].passed, when ? when - 1 : MEETINGS);
}

TEST(test_signal_meet_two)
{
    meet_all(2, WEFT_I_WAIT_SPIN, -1, 0);
}

TEST(test_signal_meet_three)
{
    meet_all(3, WEFT_I_WAIT_YIELD, -1, 0);
}

TEST(test_signal_meet_four_asleep)
{
    meet_all(4, WEFT_I_WAIT_SLEEP, -1, 0);
}

/* One rank calls something else once: an error at all ranks, however late they come. */
TEST(test_signal_mismatch_is_everybodys)
{
    meet_all(3, WEFT_I_WAIT_YIELD, 2, MEETINGS / 2);
    CHECK_INT(mismatches, 3);
}

TEST(test_signal_names_the_missing)
{
    memset(lanes, 0, sizeof lanes);
    ranks = 3, mode = WEFT_I_WAIT_SPIN;
    weft_i_point first = point_of(0), second = point_of(1);
    weft_i_meeting outcome;
    CHECK_STATUS(weft_i_signal_meet(&first, 2, 0, &outcome), WEFT_ERR_TIMEOUT);
    CHECK_INT(outcome.culprit, 1);
    CHECK_STATUS(weft_i_signal_meet(&second, 2, 0, &outcome), WEFT_ERR_TIMEOUT);
    CHECK_INT(outcome.culprit, 2);
    CHECK(lanes[0].word == 0 && lanes[1].word == 0);
}

static _Thread_local int asked;

static weft_status second_is_dead(void *arg, uint64_t missing)
{
    (void)arg;
    asked++;
    return missing == 1 ? WEFT_ERR_PEER_DEAD : WEFT_OK;
}

static bool arrived_once;

/* Rank 1 arrives, is seen, takes its arrival back and dies; rank 2 never comes. */
static weft_status second_gives_up_and_dies(void *arg, uint64_t missing)
{
    if (!arrived_once) {
        arrived_once = true;
        lanes[1].word = 0;
        return WEFT_OK;
    }
    return second_is_dead(arg, missing);
}

TEST(test_signal_death_after_giving_up)
{
    memset(lanes, 0, sizeof lanes);
    ranks = 3, mode = WEFT_I_WAIT_SPIN, asked = 0, arrived_once = false;
    lanes[1].word = (uint64_t)1 << 32 | 2;
    weft_i_point point = point_of(0);
    point.lost = second_gives_up_and_dies;
    weft_i_meeting outcome;
    CHECK_STATUS(weft_i_signal_meet(&point, 2, 1000, &outcome), WEFT_ERR_PEER_DEAD);
    CHECK_INT(outcome.culprit, 1);
    CHECK(asked > 0);
}

/* Epochs are compared on a circle. */
TEST(test_signal_words_wrap)
{
    uint64_t last = (uint64_t)UINT32_MAX << 32, after = 0;
    CHECK(weft_i_arrived(after, UINT32_MAX) && weft_i_arrived(last, UINT32_MAX));
    CHECK(!weft_i_arrived(last, 0) && weft_i_arrived(after, 0));
    memset(lanes, 0, sizeof lanes);
    ranks = 1, mode = WEFT_I_WAIT_SPIN;
    lanes[0].word = last;
    weft_i_point point = point_of(0);
    weft_i_meeting outcome;
    CHECK_STATUS(weft_i_signal_meet(&point, 2, 0, &outcome), WEFT_OK);
    CHECK_INT(outcome.epoch, 0);
}

/* ---- points with turns ---- */

enum { TURNS = 4 };

static _Alignas(WEFT_I_LINE) _Atomic uint64_t turns[MOST][TURNS];

/* Of a rank that is about to come to `epoch`, and waits for all, or for `giver` alone. */
static weft_i_point turning(int me, uint32_t epoch, int giver)
{
    weft_i_point point = point_of(me);
    point.words = (char *)turns;
    point.stride = sizeof turns[0];
    point.turn_stride = sizeof(uint64_t);
    point.turns = TURNS;
    point.epoch = point.settled = epoch - 1;
    point.whom = giver + 1;
    return point;
}

static void begin_turns(void)
{
    memset(lanes, 0, sizeof lanes);
    memset(turns, 0, sizeof turns);
    ranks = 4, mode = WEFT_I_WAIT_SPIN;
}

/*
 * Ranks 0, 1 and 3 wait for rank 2, which is late.  1 and 3 give up, and then rank 3 takes what rank 1
 * gives, which needs neither of the others: rank 0, which gives up last, finds two that have gone on,
 * but not from its call.
 */
static void give_up_behind(uint32_t other, weft_status expected)
{
    enum { LATE = 2, CALL = 4 };
    begin_turns();
    weft_i_point p[MOST];
    weft_i_meeting m[MOST];
    for (int rank = 0; rank < MOST; rank++)
        p[rank] = turning(rank, 1, -1);
    for (int rank = 0; rank < MOST; rank++)
        if (rank != LATE)
            CHECK_STATUS(weft_i_signal_come(&p[rank], CALL, &m[rank]), WEFT_OK);
    CHECK_STATUS(weft_i_signal_await(&p[1], 0, &m[1]), WEFT_ERR_TIMEOUT);
    CHECK_STATUS(weft_i_signal_await(&p[3], 0, &m[3]), WEFT_ERR_TIMEOUT);
    p[3] = turning(3, 1, 1);
    weft_i_signal_arrive(&p[1], other);
    CHECK_STATUS(weft_i_signal_meet(&p[3], other, 0, &m[3]), WEFT_OK);
    CHECK_STATUS(weft_i_signal_await(&p[0], 0, &m[0]), expected);
    CHECK_INT(weft_i_arrival_epoch(turns[0][1]), expected == WEFT_OK);
}

TEST(test_signal_gives_up_behind_another_call)
{
    give_up_behind(6, WEFT_ERR_TIMEOUT);
}

/* The same call again is the one that rank 0 waits in. */
TEST(test_signal_gives_up_behind_the_same_call)
{
    give_up_behind(4, WEFT_OK);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
