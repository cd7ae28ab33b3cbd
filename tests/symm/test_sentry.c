/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/sentry.c */
/*
 * The sentry, look by look: its thread is this one, the clock is the test's, and the other ranks are
 * words that the test writes.  Every rest of the thread is a step of a script.
 */
#include "group_by_hand.h"

#include "symm/sentry.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MS = 1000 * 1000, QUICK = MS / 4, SLOW = 50 * MS, LINGER = 160 };

static weft_i_os table;
static void *(*body)(void *arg);
static int threads, wakes, steps, idle_looks;
static uint32_t bell_was;
static int64_t now, rest_ns;
static void (*const *script)(void); /* ends with NULL */
static weft_i_post *post;

static struct {
    int count, rank;
    weft_status status;
    bool waiting;
    uint64_t needs;
    int awaited;
} told;

static void condemn(void *arg, weft_status status, int rank)
{
    CHECK(arg == &told);
    told.count++;
    told.status = status;
    told.rank = rank;
}

static bool is_waiting(void *arg)
{
    CHECK(arg == &told);
    return told.waiting;
}

static uint64_t needs(void *arg)
{
    CHECK(arg == &told);
    return told.needs;
}

static bool awaits(void *arg, int rank)
{
    CHECK(arg == &told && told.waiting);
    return rank == told.awaited;
}

static int take_body(pthread_t *thread, void *(*given)(void *), void *arg)
{
    CHECK(!arg);
    *thread = pthread_self();
    body = given;
    threads++;
    return 0;
}

static int detached;

static void stay_attached(void)
{
    detached++;
}

static int64_t test_clock(void)
{
    return now;
}

static void count_wake(_Atomic uint32_t *word, int count)
{
    CHECK(atomic_load(word) != bell_was); /* or who is about to rest would not see it */
    bell_was = atomic_load(word);
    wakes += count;
}

/* The thread rests: the next step of the script; after the last it runs out by itself. */
static void step(_Atomic uint32_t *word, uint32_t seen, int64_t rest)
{
    (void)word, (void)seen;
    rest_ns = rest;
    now += MS / 1000;
    if (script[steps])
        script[steps++]();
    else
        CHECK(++idle_looks <= LINGER + 1 && rest == QUICK);
}

static void open_post_with(uint64_t (*counts)(void *arg), bool (*knows)(void *arg, int rank))
{
    hand_open();
    memset(&told, 0, sizeof told);
    threads = wakes = steps = idle_looks = 0;
    detached = 0;
    bell_was = UINT32_MAX;
    now = 5000 * (int64_t)MS;
    table = weft_i_os_linux;
    table.thread_create = take_body;
    table.thread_detach = stay_attached;
    table.clock_ns = test_clock;
    table.futex_wake = count_wake;
    table.futex_wait = step;
    weft_i_os_now = &table;
    weft_i_circle circle = {.group = hand.group};
    weft_i_post_duty duty = {condemn, is_waiting, &told, counts, knows};
    CHECK_OK(weft_i_post_open(&circle, &duty, &post));
    CHECK_INT(threads, 1);
}

static void open_post(bool counts)
{
    open_post_with(counts ? needs : NULL, NULL);
}

/* Runs the thread over all steps, the last of which closes the post, and to its end. */
static void stand(void (*const *wanted)(void))
{
    script = wanted;
    CHECK(!body(NULL) && !script[steps]);
    CHECK_INT(idle_looks, LINGER);
    CHECK_INT(detached, 1); /* nobody joins it */
    weft_i_os_now = &weft_i_os_linux;
    hand_close();
}

static void close_it(void)
{
    weft_i_post_close(post);
    weft_i_post_close(NULL);
}

static void check_told(int count, weft_status status, int rank)
{
    CHECK_INT(told.count, count);
    CHECK_INT(told.status, status);
    CHECK_INT(told.rank, rank);
}

static void again(void)
{
    for (int rank = 0; rank < HAND_SIZE; rank++)
        hand_revive(hand_members[rank]);
    weft_i_post_renew(post);
    memset(&told, 0, sizeof told);
}

/* ---- deaths ---- */

static void nothing_then_kill(void)
{
    check_told(0, WEFT_OK, 0);
    CHECK_INT(rest_ns, SLOW);
    hand_leave(hand_members[0]);
    hand_kill(hand_members[2]);
    hand_kill(hand_members[3]);
}

static void told_of_death(void)
{
    check_told(1, WEFT_ERR_PEER_DEAD, 2); /* at once, the first that died, before who has left */
}

static void told_once(void)
{
    check_told(1, WEFT_ERR_PEER_DEAD, 2);
    weft_i_post_renew(post);
}

static void told_anew(void)
{
    check_told(2, WEFT_ERR_PEER_DEAD, 2);
    again();
    hand_kill(hand_members[HAND_ME]); /* oneself is not looked for */
}

static void not_of_oneself(void)
{
    check_told(0, WEFT_OK, 0);
    again();
    hand_kill(hand_members[3]);
    atomic_store(&hand.world->finished, true); /* who has left waits for nobody */
}

static void not_when_finished(void)
{
    check_told(0, WEFT_OK, 0);
    atomic_store(&hand.world->finished, false);
    again();
    close_it();
}

TEST(test_sentry_deaths)
{
    static void (*const steps_of_it[])(void) = {
        nothing_then_kill, told_of_death,     told_once, told_anew,
        not_of_oneself,    not_when_finished, NULL};
    open_post(false);
    stand(steps_of_it);
}

/* ---- who has left ---- */

static void leave_unwaited(void)
{
    hand_leave(hand_members[3]);
}

static void much_later(void)
{
    now += 200 * MS; /* nothing waits */
}

static void now_it_waits(void)
{
    check_told(0, WEFT_OK, 0);
    told.waiting = true;
}

static void told_that_it_left(void)
{
    check_told(1, WEFT_ERR_PEER_LEFT, 3);
    CHECK_INT(rest_ns, QUICK);
    again();
    told.waiting = true;
}

static void well_then_leave(void)
{
    check_told(0, WEFT_OK, 0);
    hand.row[0].left = 1; /* the group, not the job */
}

static int64_t left_at;

static void left_just_now(void)
{
    check_told(0, WEFT_OK, 0);
    left_at = now - MS / 1000; /* when it looked */
    now = left_at + 100 * MS - 1;
}

static void left_almost_long_ago(void)
{
    check_told(0, WEFT_OK, 0);
    now = left_at + 100 * MS;
}

static void told_of_group(void)
{
    check_told(1, WEFT_ERR_PEER_LEFT, 0);
    hand.row[0].left = 0;
    again();
    told.waiting = true;
    hand.group->board->revoked = 1;
}

static void revoked_long_ago(void)
{
    check_told(0, WEFT_OK, 0);
    now += 100 * MS;
}

static void told_of_revoking(void)
{
    weft_i_board *board = hand.group->board;
    check_told(1, WEFT_ERR_REVOKED, 0);
    CHECK(!weft_i_post_quarrel(post));
    again();
    told.waiting = true;
    board->failure = WEFT_ERR_MISMATCH;
    board->quarrel = 2;
    snprintf(board->quarrel_text, sizeof board->quarrel_text, "two calls");
}

static void told_of_quarrel(void)
{
    weft_i_board *board = hand.group->board;
    check_told(1, WEFT_ERR_MISMATCH, 0);
    CHECK_CONTAINS(weft_i_post_quarrel(post), "two calls");
    board->failure = WEFT_ERR_TIMEOUT; /* that is not why it has ended */
    CHECK(!weft_i_post_quarrel(post));
    board->revoked = board->quarrel = 0;
    board->failure = 0;
    close_it();
}

TEST(test_sentry_left)
{
    static void (*const steps_of_it[])(void) = {
        leave_unwaited,   much_later,           now_it_waits,  told_that_it_left, well_then_leave,
        left_just_now,    left_almost_long_ago, told_of_group, revoked_long_ago,  told_of_revoking,
        revoked_long_ago, told_of_quarrel,      NULL};
    open_post(false);
    stand(steps_of_it);
}

/* One that has enqueued all that waits here is not missed. */
static void leave_after_five(void)
{
    told.waiting = true;
    told.needs = 5;
    hand.row[2].enqueued = 5;
    hand_leave(hand_members[2]);
}

static void later(void)
{
    now += 200 * MS;
}

static void not_missed(void)
{
    check_told(0, WEFT_OK, 0);
    told.needs = 6;
}

static void missed(void)
{
    check_told(1, WEFT_ERR_PEER_LEFT, 2);
    weft_i_post_show(post, 77);
    CHECK_INT(hand.row[HAND_ME].enqueued, 77);
    close_it();
}

TEST(test_sentry_needs)
{
    static void (*const steps_of_it[])(void) = {leave_after_five, later, not_missed, later,
                                                missed,           NULL};
    open_post(true);
    stand(steps_of_it);
}

/* ---- whom it waits for ---- */

static void wait_for_0_while_3_leaves(void)
{
    told.waiting = true;
    told.awaited = 0;
    hand_leave(hand_members[3]);
}

static void not_its_fault(void)
{
    check_told(0, WEFT_OK, 0); /* rank 0 is late, and rank 3 has done its part */
    told.awaited = 2;
    hand_leave(hand_members[2]);
}

static void left_since_a_moment(void)
{
    check_told(0, WEFT_OK, 0); /* rank 2 has just left, whenever rank 3 did */
    now += 50 * MS;
}

static void now_for_another(void)
{
    check_told(0, WEFT_OK, 0);
    told.awaited = 0; /* a block that waits for rank 0 says so last */
    now += 50 * MS;
}

static void and_back(void)
{
    check_told(0, WEFT_OK, 0);
    told.awaited = 2;
}

static void told_of_the_awaited(void)
{
    check_told(1, WEFT_ERR_PEER_LEFT, 2);
    again();
    told.waiting = true;
    told.awaited = 3;
    hand.group->board->revoked = 1;
}

static void told_of_its_group(void)
{
    check_told(1, WEFT_ERR_REVOKED, 3);
    hand.group->board->revoked = 0;
    again();
    told.waiting = true;
    hand_kill(hand_members[2]);
}

static void told_of_any_death(void)
{
    check_told(1, WEFT_ERR_PEER_DEAD, 2);
    again();
    close_it();
}

/* Who has left is blamed by those alone who wait for it. */
TEST(test_sentry_awaits)
{
    static void (*const steps_of_it[])(void) = {wait_for_0_while_3_leaves,
                                                later,
                                                not_its_fault,
                                                left_since_a_moment,
                                                now_for_another,
                                                and_back,
                                                told_of_the_awaited,
                                                later,
                                                told_of_its_group,
                                                told_of_any_death,
                                                NULL};
    open_post_with(NULL, awaits);
    stand(steps_of_it);
}

/* ---- how often it looks ---- */

static int errands;

static bool run_errand(void)
{
    return ++errands == 3;
}

static void slow_then_work(void)
{
    CHECK(rest_ns == SLOW && !wakes);
    weft_i_post_note_work(post);
    CHECK_INT(wakes, 1);
    weft_i_post_note_work(post); /* it is quick already */
    CHECK_INT(wakes, 1);
}

static void quick_for_a_second(void)
{
    CHECK_INT(rest_ns, QUICK);
    now += 999 * MS;
}

static void still_quick(void)
{
    CHECK_INT(rest_ns, QUICK);
    now += MS;
}

static void slow_then_errand(void)
{
    CHECK_INT(rest_ns, SLOW);
    errands = 0;
    CHECK_OK(weft_i_sentry_run(run_errand));
    CHECK(wakes == 2 && threads == 1);
}

static void on_its_errand(void)
{
    CHECK(rest_ns == QUICK && errands < 3);
}

static void errand_done(void)
{
    CHECK(rest_ns == SLOW && errands == 3);
}

static void not_again(void)
{
    CHECK(rest_ns == SLOW && errands == 3);
    close_it();
}

TEST(test_sentry_paces)
{
    static void (*const steps_of_it[])(void) = {slow_then_work,   quick_for_a_second, still_quick,
                                                slow_then_errand, on_its_errand,      on_its_errand,
                                                errand_done,      not_again,          NULL};
    open_post(false);
    stand(steps_of_it);
}

/* ---- opening ---- */

static int no_thread(pthread_t *thread, void *(*given)(void *), void *arg)
{
    (void)thread, (void)given, (void)arg;
    return EAGAIN;
}

/* Without its thread nobody looks out: no post. */
TEST(test_sentry_without_a_thread)
{
    static void (*const steps_of_it[])(void) = {close_it, NULL};
    weft_i_post *none = NULL;
    weft_i_post_duty duty = {condemn, is_waiting, &told, NULL, NULL};
    hand_open();
    table = weft_i_os_linux;
    table.thread_create = no_thread;
    weft_i_os_now = &table;
    weft_i_circle circle = {.group = hand.group};
    CHECK_STATUS(weft_i_post_open(&circle, &duty, &none), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "no thread to look out for lost ranks");
    CHECK_STATUS(weft_i_sentry_run(run_errand), WEFT_ERR_LIMIT);
    CHECK(!none);
    weft_i_os_now = &weft_i_os_linux;
    hand_close();
    errands = 0;
    open_post(false); /* the next one has it */
    stand(steps_of_it);
    CHECK_INT(errands, 0);
}

/* ---- after a fork ---- */

static bool run_in_parent(void)
{
    errands++;
    return true;
}

/* One look of a child, in which the rank is dead that both posts look out for. */
static int look_in_child(void)
{
    static void (*const steps_of_it[])(void) = {close_it, NULL};
    weft_i_circle circle = {.group = hand.group};
    weft_i_post_duty duty = {condemn, is_waiting, &told, NULL, NULL};
    weft_i_post_close(post); /* of the parent: not ours to close */
    if (weft_i_post_open(&circle, &duty, &post) < 0 || threads != 2)
        return 101;
    hand_kill(hand_members[3]);
    script = steps_of_it;
    body(NULL);
    return 40 + 10 * errands + told.count; /* a failed check ends with 1 */
}

/* A child has neither the posts of its parent nor its errand, and needs a thread of its own. */
TEST(test_sentry_after_a_fork)
{
    static void (*const steps_of_it[])(void) = {close_it, NULL};
    int status = -1;
    open_post(false);
    errands = 0;
    CHECK_OK(weft_i_sentry_run(run_in_parent));
    CHECK_INT(threads, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(look_in_child());
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 41); /* its own post was told, once */
    hand_revive(hand_members[3]);       /* the page is shared */
    stand(steps_of_it);
    CHECK_INT(errands, 1);
    CHECK_INT(told.count, 0);
}

TEST(test_sentry_texts)
{
    static void (*const steps_of_it[])(void) = {close_it, NULL};
    char text[600];
    open_post(false);
    weft_i_post_text(post, text, sizeof text);
    CHECK(!strcmp(text, "rank 1 of 4 in group \"g\""));
    weft_i_post_describe(post, 3, text, sizeof text);
    CHECK(!strncmp(text, "rank 3 (", 8));
    weft_i_post_describe(post, 0, text, sizeof text);
    CHECK(!strncmp(text, "rank 4 (", 8));
    weft_i_post_describe(post, -1, text, sizeof text);
    CHECK(!strcmp(text, "rank -1"));
    weft_i_post_describe(post, HAND_SIZE, text, sizeof text);
    CHECK(!strcmp(text, "rank 4"));
    CHECK(weft_i_post_is_of(post, hand.world) && !weft_i_post_is_of(post, NULL));
    stand(steps_of_it);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
