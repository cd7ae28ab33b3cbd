/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/job_look.c */
/* A look at the page of a job, whose ranks are words that the test writes: who is in which state,
 * in which operation, and for whom it waits.  On a clock of the test's own. */
#include "fault.h"
#include "harness.h"

#include "base/os/os.h"
#include "fabric/world/job.h"
#include "fabric/world/job_look.h"

#include <weft/job.h>
#include <weft/weft.h>

#include <linux/futex.h>
#include <unistd.h>

enum { SIZE = 19 };

static weft_i_segment *page;
static weft_i_os table;
static int64_t now = INT64_C(50000000000);

static int64_t test_clock(void)
{
    return now;
}

static weft_i_rank_record *record_of(int rank)
{
    return weft_i_job_rank(weft_i_job_of(page), rank);
}

static void begin(void)
{
    CHECK_OK(weft_scope_open());
    CHECK_OK(weft_i_job_new(SIZE, WEFT_I_BETWEEN_PROCESSES, &page));
    for (int rank = 0; rank < SIZE; rank++) {
        weft_i_rank_record *record = record_of(rank);
        weft_i_record_init(&record->record);
        record->address.process = getpid();
        record->address.world_rank = rank;
        record->heart.beat_ns = now;
        record->life.word = 1;
        record->life.state = WEFT_I_RANK_HERE;
    }
}

static void end(void)
{
    weft_i_segment_drop(page);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static weft_job *look(void)
{
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    weft_i_os_now = &table;
    weft_job *job = weft_i_job_look(weft_i_job_of(page), SIZE);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(job);
    return job;
}

static weft_job_rank rank_of(const weft_job *job, int index)
{
    weft_job_rank out;
    CHECK_OK(weft_job_describe_rank(job, index, &out));
    return out;
}

/* ---- states ---- */

TEST(test_job_look_states)
{
    const int64_t second = 1000000000;
    begin();
    record_of(0)->life.state = WEFT_I_RANK_AWAITED;
    record_of(1)->life.state = WEFT_I_RANK_ENTERING;
    record_of(2)->life.state = WEFT_I_RANK_LEFT;
    record_of(3)->life.state = WEFT_I_RANK_FAILED;
    record_of(4)->life.word = FUTEX_OWNER_DIED | 1;
    record_of(5)->heart.beat_ns = now - second;
    record_of(6)->heart.beat_ns = now - second - 1;
    record_of(7)->heart.beat_ns = now + 1;
    record_of(8)->heart.beat_ns = -1;
    record_of(9)->life.exit = WEFT_I_EXIT_SEEN;
    record_of(10)->address.process = 0x3fffffff; /* nobody */
    record_of(11)->address.world_rank = 77;
    record_of(3)->address.world_rank = 88; /* not to be read: it has not entered */
    static const weft_job_state states[12] = {WEFT_JOB_AWAITED, WEFT_JOB_AWAITED, WEFT_JOB_LEFT,
                                              WEFT_JOB_FAILED,  WEFT_JOB_DEAD,    WEFT_JOB_ALIVE,
                                              WEFT_JOB_SILENT,  WEFT_JOB_ALIVE,   WEFT_JOB_ALIVE,
                                              WEFT_JOB_DEAD,    WEFT_JOB_DEAD,    WEFT_JOB_ALIVE};
    weft_job *job = look();
    for (int i = 0; i < 12; i++) {
        weft_job_rank r = rank_of(job, i);
        if (r.state != states[i])
            FAIL("rank %d is %s", i, weft_job_state_name(r.state));
        CHECK_INT(r.rank, i == 11 ? 77 : i);
        bool entered = i != 0 && i != 1 && i != 3;
        CHECK_INT(r.process != 0, entered);
        CHECK_INT(r.silent_ns, i == 5 ? second : i == 6 ? second + 1 : 0);
        CHECK(!r.now.name[0] && r.now.peer == -1 && r.now.channel == -1);
        CHECK(!r.last.name[0] && r.last.peer == -1 && r.last.channel == -1);
    }
    weft_job_info info;
    CHECK_OK(weft_job_describe(job, &info));
    CHECK(info.process == getpid() && info.ranks == SIZE && !info.threads);
    CHECK(!strcmp(info.program, "test_job_look"));
    weft_i_job_of(page)->threads = 1;
    job = look();
    CHECK_INT(rank_of(job, 6).state, WEFT_JOB_ALIVE); /* threads have no heartbeat */
    CHECK(rank_of(job, 6).silent_ns == 0 && rank_of(job, 10).process == getpid());
    end();
}

/* ---- operations ---- */

TEST(test_job_look_operations)
{
    begin();
    weft_i_record *record = &record_of(0)->record;
    int members[] = {0, 3};
    weft_i_job_join(record_of(0), 55, "pair", members, 2);
    uint64_t done = weft_i_record_begin(record, "finished", 55, 12, weft_i_record_turn(3), -1);
    weft_i_record_end(record, done, WEFT_ERR_TIMEOUT);
    weft_job_rank r = rank_of(look(), 0);
    CHECK(!r.now.name[0] && !strcmp(r.last.name, "finished") && !strcmp(r.last.group, "pair"));
    CHECK_INT(r.last.channel, -1);
    weft_i_record *other = &record_of(1)->record; /* a way is no channel */
    weft_i_record_begin(other, "all_reduce", 0, 12, -1, WEFT_I_WAY_EAGER);
    CHECK_INT(rank_of(look(), 1).now.channel, -1);
    weft_i_record_begin(other, "barrier", 0, 0, -1, 4);
    CHECK_INT(rank_of(look(), 1).now.channel, 4);
    CHECK(r.last.number == done && r.last.turn == 3 && r.last.bytes == 12);
    CHECK(r.last.status == WEFT_ERR_TIMEOUT && r.last.peer == -1 && r.last.channel == -1);
    uint64_t outer = weft_i_record_begin(record, "outer", 0, 8, weft_i_record_turn(4), -1);
    r = rank_of(look(), 0);
    CHECK(!strcmp(r.now.name, "outer") && !strcmp(r.now.group, "0") && !r.now.part_of[0]);
    CHECK(r.now.number == outer && r.now.turn == 4 && r.now.status == 0);
    CHECK(r.now.begun_ns >= 0);
    uint64_t inner = weft_i_record_begin(record, "in\1ner", 0, 4, 5, 2);
    r = rank_of(look(), 0);
    CHECK(!strcmp(r.now.name, "in?ner") && !strcmp(r.now.part_of, "outer"));
    CHECK(r.now.number == inner && r.now.peer == 5 && r.now.channel == 2 && r.now.turn == 0);
    CHECK(!strcmp(r.last.name, "finished"));
    weft_i_record_end(record, inner, WEFT_OK);
    r = rank_of(look(), 0);
    CHECK(!strcmp(r.now.name, "outer") && !strcmp(r.last.name, "in?ner"));
    weft_i_record_begin(record, "another", 55, 4, -1, -1); /* in another group: no part of it */
    CHECK(!rank_of(look(), 0).now.part_of[0]);
    weft_i_record_begin(record, "unknown", 99, 4, -1, -1);
    r = rank_of(look(), 0);
    CHECK(!strcmp(r.now.name, "unknown") && !r.now.group[0]);
    weft_i_record_begin(record, "long", 55, 4, -1, -1); /* a name that does not end is cut */
    for (size_t i = 0; i < sizeof record_of(0)->groups / sizeof *record_of(0)->groups; i++)
        if (record_of(0)->groups[i].id == 55)
            memset(record_of(0)->groups[i].name, 'x', sizeof record_of(0)->groups[i].name);
    r = rank_of(look(), 0);
    CHECK_INT(strnlen(r.now.group, sizeof r.now.group), sizeof record_of(0)->groups->name);
    CHECK(!strcmp(r.now.name, "long") && r.now.bytes == 4);
    record_of(0)->life.state = WEFT_I_RANK_LEFT; /* who has left is in none */
    CHECK(!rank_of(look(), 0).now.name[0] && rank_of(look(), 0).last.name[0]);
    end();
}

/* ---- who waits for whom ---- */

static void waits_for(int index, int count, const int *ranks)
{
    int out[SIZE + 1];
    weft_job *job = look();
    int got = weft_job_missing(job, index, out, SIZE + 1);
    if (got != count)
        FAIL("rank %d waits for %d, not for %d", index, got, count);
    for (int i = 0; i < count; i++)
        CHECK_INT(out[i], ranks[i]);
    out[0] = out[1] = -7;
    CHECK_INT(weft_job_missing(job, index, out, 1), count);
    CHECK(out[0] == (count ? ranks[0] : -7) && out[1] == -7);
    CHECK_INT(weft_job_missing(job, index, NULL, 0), count);
}

#define WAITS_FOR(index_, ...)                                              \
    do {                                                                    \
        const int ranks_[] = {__VA_ARGS__};                                 \
        waits_for((index_), (int)(sizeof ranks_ / sizeof *ranks_), ranks_); \
    } while (0)

TEST(test_job_look_missing)
{
    begin();
    for (int rank = 0; rank < SIZE; rank++) { /* all but two have come to this turn */
        weft_i_record *record = &record_of(rank)->record;
        if (rank == 8)
            weft_i_record_begin(record, "barrier", 0, 0, weft_i_record_turn(4), -1);
        else if (rank == 17)
            weft_i_record_begin(record, "other", 0, 0, weft_i_record_turn(5), -1);
        else
            weft_i_record_begin(record, "barrier", 0, 0, weft_i_record_turn(5), -1);
    }
    WAITS_FOR(0, 8, 17);
    WAITS_FOR(18, 8, 17);
    record_of(16)->life.state = WEFT_I_RANK_AWAITED; /* has not even come */
    WAITS_FOR(0, 8, 16, 17);
    record_of(16)->life.state = WEFT_I_RANK_HERE;
    weft_i_record_begin(&record_of(17)->record, "barrier", 0, 0, weft_i_record_turn(5), -1);
    WAITS_FOR(0, 8);
    weft_i_record_begin(&record_of(1)->record, "recv", 0, 0, 0, -1); /* for one peer */
    WAITS_FOR(1, 0);
    weft_i_record_begin(&record_of(1)->record, "recv", 0, 0, 15, -1);
    WAITS_FOR(1, 15);
    waits_for(1, 1, (const int[]){15});
    end();
}

/* Only members count: of the first 512 ranks of the world that is known. */
TEST(test_job_look_missing_members)
{
    begin();
    int members[] = {0, 9, 18, 511}, two[] = {18, 0};
    record_of(5)->address.world_rank = 511;
    record_of(6)->address.world_rank = 512;
    record_of(7)->address.world_rank = -1;
    weft_i_job_join(record_of(0), 55, "some", members, 4);
    weft_i_job_join(record_of(0), 0xffffff, "next", members, 4); /* right behind it: no members */
    weft_i_record_begin(&record_of(0)->record, "barrier", 55, 0, weft_i_record_turn(1), -1);
    WAITS_FOR(0, 5, 9, 18);
    weft_i_job_join(record_of(9), 55, "some", members, 4);
    weft_i_record_begin(&record_of(9)->record, "barrier", 55, 0, weft_i_record_turn(1), -1);
    WAITS_FOR(0, 5, 18);
    WAITS_FOR(9, 5, 18);
    weft_i_job_join(record_of(18), 56, "two", two, 2); /* its peer is 1 there: the world's 0 */
    weft_i_job_join(record_of(0), 56, "two", two, 2);
    weft_i_record_begin(&record_of(18)->record, "recv", 56, 0, 1, -1);
    WAITS_FOR(18, 0);
    weft_i_record_begin(&record_of(18)->record, "recv", 99, 0, weft_i_record_turn(1), -1);
    waits_for(18, 0, NULL); /* nobody knows who is in that group */
    end();
}

/* The first rank of the world is a member like any other. */
TEST(test_job_look_missing_the_first)
{
    begin();
    int members[] = {0, 9};
    weft_i_job_join(record_of(9), 55, "some", members, 2);
    weft_i_record_begin(&record_of(9)->record, "barrier", 55, 0, weft_i_record_turn(1), -1);
    WAITS_FOR(9, 0);
    end();
}

/* What a device carries is counted apart: who gave it number 5 has not come to number 5 of the
 * host, nor the other way round. */
TEST(test_job_look_missing_on_device)
{
    begin();
    uint64_t given = 0;
    for (int rank = 0; rank < SIZE; rank++)
        given = weft_i_record_begin(
            &record_of(rank)->record, "barrier", 0, 0,
            rank == 10 ? weft_i_record_device_turn(5) : weft_i_record_turn(5), -1);
    WAITS_FOR(0, 10);
    CHECK(!rank_of(look(), 0).now.on_device && rank_of(look(), 10).now.on_device);
    CHECK_INT(rank_of(look(), 10).now.turn, 5);
    for (int rank = 0; rank < SIZE; rank++)
        weft_i_record_set_turn(&record_of(rank)->record, given, weft_i_record_device_turn(6));
    waits_for(0, 0, NULL);
    CHECK(rank_of(look(), 0).now.on_device && rank_of(look(), 0).now.turn == 6);
    end();
}

/* Without turns it is the same operation while it is open, on the same channel. */
TEST(test_job_look_missing_without_turns)
{
    begin();
    uint64_t last = 0;
    for (int rank = 0; rank < SIZE; rank++)
        last =
            weft_i_record_begin(&record_of(rank)->record, "barrier", 0, 0, -1, rank == 10 ? 3 : 2);
    WAITS_FOR(0, 10);
    weft_i_record_end(&record_of(SIZE - 1)->record, last, WEFT_OK);
    WAITS_FOR(0, 10, SIZE - 1);
    end();
}

/* ---- what is refused ---- */

TEST(test_job_look_refusals)
{
    begin();
    weft_job *job = look();
    weft_job_rank r;
    weft_job_info info;
    int out[2];
    CHECK_OK(weft_job_describe_rank(job, 0, &r));
    CHECK_OK(weft_job_describe_rank(job, SIZE - 1, &r));
    CHECK_STATUS(weft_job_describe_rank(job, SIZE, &r), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "weft_job_describe_rank: there is no rank 19 among 19"));
    weft_clear_error();
    CHECK_STATUS(weft_job_describe_rank(job, -1, &r), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_job_describe_rank(job, 0, NULL), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "weft_job_describe_rank: the result is NULL, or not one"));
    weft_clear_error();
    CHECK_STATUS(weft_job_describe(NULL, &info), WEFT_ERR_INVALID_ARG);
    CHECK(!strcmp(weft_last_error(), "weft_job_describe: the job is NULL, or not one"));
    CHECK_STATUS(weft_job_missing(NULL, 0, out, 2), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_job_missing(job, 0, NULL, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_job_missing(job, SIZE, out, 2), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!strcmp(weft_job_state_name(WEFT_JOB_DEAD), "dead"));
    CHECK(!strcmp(weft_job_state_name((weft_job_state)(WEFT_JOB_DEAD + 1)), "unknown"));
    CHECK(!strcmp(weft_job_state_name((weft_job_state)-1), "unknown"));
    int n = 1;
    for (bool fired = true; fired; n++) {
        fault_arm(n);
        job = weft_i_job_look(weft_i_job_of(page), SIZE);
        fired = fault_disarm();
        CHECK(job || (fired && weft_last_status() < 0));
        weft_clear_error();
    }
    CHECK(n > 5 && n < 40);
    end();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
