/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom a time-out names: everybody who is missing, and nobody else.  Those who came and gave up a
 * moment earlier are not missing, nor are those who wait for the missing one themselves.
 */
#include "base/os.h"
#include "fabric/group.h"
#include "jobs.h"
#include "standing.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>

/* Long enough that who comes at the same time is not late on a loaded machine. */
enum { ROUNDS = 3, SHORT_MS = 150 };

/* "rank 2 (" is how messages name a rank; "rank 2 of 3" is who speaks. */
static void check_names(int rank, int size, unsigned missing, const char *what)
{
    char name[32];
    for (int other = 0; other < size; other++) {
        bool named = false;
        snprintf(name, sizeof name, "rank %d (", other);
        named = strstr(weft_last_error(), name) != NULL;
        if (named != (missing >> other & 1))
            FAIL("%s: rank %d %s rank %d: %s", what, rank, named ? "names" : "does not name", other,
                 weft_last_error());
    }
}

typedef enum op { BARRIER, ALL_REDUCE, LARGE, SYMM_BARRIER, RENDEZVOUS, SPLIT, NEW, OPS } op;
static const char *const names[] = {"barrier",    "all_reduce", "large all_reduce", "symm barrier",
                                    "rendezvous", "split",      "group_new"};

static weft_status run(op what, weft_group *group, weft_symm *mem, int size)
{
    int all[8];
    for (int i = 0; i < size; i++)
        all[i] = i;
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(what == LARGE ? 100000 : 3));
    switch (what) {
    case BARRIER:
        return weft_group_barrier(group, WEFT_DEFAULT);
    case ALL_REDUCE:
    case LARGE:
        return weft_all_reduce_into(x, x, WEFT_SUM, group);
    case SYMM_BARRIER:
        return weft_symm_barrier(mem, 1, WEFT_DEFAULT);
    case RENDEZVOUS:
        return weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), group)
                   ? WEFT_OK
                   : weft_last_status();
    case SPLIT:
        return weft_group_split(group, 0, 0) ? WEFT_OK : weft_last_status();
    default:
        return weft_group_new(group, all, size, NULL) ? WEFT_OK : weft_last_status();
    }
}

/* Have all who were to come begun the operation at about the same time?  On a loaded machine one may
 * be held up before its call; then the others are right to name it, and the round shows nothing. */
static bool came_together(const weft_group *world, int size, unsigned missing)
{
    int64_t first = INT64_MAX, last = 0;
    for (int rank = 0; rank < size; rank++) {
        weft_i_record_entry newest;
        if (missing >> rank & 1)
            continue;
        if (!weft_i_record_last(&world->world->peers[rank].rank_record->record, &newest))
            return false;
        int64_t begin = weft_i_os_ticks_to_ns(newest.begin);
        first = begin < first ? begin : first;
        last = begin > last ? begin : last;
    }
    return last - first < SHORT_MS * (int64_t)1000000 / 2;
}

/* Does any rank want another round? */
static bool any_wants(bool mine, weft_group *world)
{
    int32_t want = mine;
    CHECK_OK(weft_all_reduce_ptr(&want, &want, 1, WEFT_I32, WEFT_MAX, world));
    return want;
}

/* `missing` are the ranks that do not come; all others give up at about the same time.  Every
 * operation is judged at least once. */
static void run_late(int rank, int size, unsigned missing)
{
    unsigned judged = missing >> rank & 1 ? ~0u : 0; /* a bit for each operation */
    weft_group *world = join(20000);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), world);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    int came = size - __builtin_popcount(missing), marks = 0;
    for (int round = 0; round < ROUNDS || any_wants(~judged & ((1u << OPS) - 1), world); round++)
        for (op what = 0; what < OPS; what++) {
            weft_scope_open();
            CHECK_OK(weft_group_barrier(world, 20000));
            CHECK_OK(weft_group_set_timeout(world, missing >> rank & 1 ? 20000 : SHORT_MS));
            if (!(missing >> rank & 1)) {
                harness_mark(); /* those who come come together */
                while (harness_marks() < marks + came)
                    sched_yield();
                weft_status status = run(what, world, mem, size);
                if (status != WEFT_ERR_TIMEOUT)
                    FAIL("%s gives %d: %s", names[what], (int)status, weft_last_error());
                /* Who waits for the first member to make the board knows of no other. */
                bool unmade = what == NEW && (missing & 1);
                if (came_together(world, size, missing)) {
                    check_names(rank, size, unmade ? 1 : missing, names[what]);
                    judged |= 1u << what;
                }
                weft_clear_error();
                harness_mark();
            }
            for (marks += 2 * came; harness_marks() < marks;)
                rest_us(100);
            CHECK_OK(weft_group_set_timeout(world, 20000));
            weft_scope_close();
        }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_blame_last, 3)
{
    run_late(rank, size, 1u << 2);
}

RANKS_TEST(test_blame_first, 3)
{
    run_late(rank, size, 1u << 0);
}

RANKS_TEST(test_blame_two, 4)
{
    run_late(rank, size, 1u << 1 | 1u << 3);
}

/* Who waits for posted work is told who is missing and what it is; the work goes on. */
RANKS_TEST(test_blame_posted, 3)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(40000)); /* the helper runs it */
    weft_tensor *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, world));
    weft_work *first = NULL, *second = NULL;
    if (rank != 1) {
        first = weft_all_reduce_start(x, x, WEFT_SUM, world);
        second = weft_all_gather_start(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9)), y, world);
        for (int i = 0; i < 5; i++) {
            CHECK_STATUS(weft_work_wait(first, SHORT_MS), WEFT_ERR_TIMEOUT);
            check_names(rank, size, 1u << 1, "posted");
            CHECK_CONTAINS(weft_last_error(), "all_reduce in group \"0\"");
            CHECK_STATUS(weft_work_wait(second, SHORT_MS), WEFT_ERR_TIMEOUT);
            check_names(rank, size, 1u << 1, "posted");
            CHECK_CONTAINS(weft_last_error(), "all_gather in group \"0\"");
            CHECK_CONTAINS(weft_last_error(), "behind 1 posted before it");
        }
        harness_mark();
    }
    while (harness_marks() < 2)
        rest_us(100);
    if (rank == 1) {
        first = weft_all_reduce_start(x, x, WEFT_SUM, world);
        second = weft_all_gather_start(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9)), y, world);
    }
    CHECK_OK(weft_work_wait(first, 20000));
    CHECK_OK(weft_work_wait(second, 20000));
    CHECK(weft_item(x, 39999) == 3);
    finish(world);
}

/* ---- a rank whose memory cannot be fetched any more ---- */

static weft_i_os deaf_table;
static atomic_int deaf_after; /* callers it still takes in; relaxed: a count */

static int deaf_accept(int fd, bool blocking)
{
    if (atomic_fetch_sub_explicit(&deaf_after, 1, memory_order_relaxed) > 0)
        return weft_i_os_linux.accept(fd, blocking);
    errno = EAGAIN;
    return -1;
}

/* Rank 2 answers one caller only: one of the others has all memory and waits for the other, which
 * waits for rank 2. */
RANKS_TEST(test_blame_rendezvous, 3)
{
    if (harness_in_threads)
        SKIP("threads fetch nothing");
    if (rank == 2) { /* before any thread of the library is there */
        deaf_table = weft_i_os_linux;
        deaf_table.accept = deaf_accept;
        atomic_store_explicit(&deaf_after, INT_MAX, memory_order_relaxed);
        weft_i_os_now = &deaf_table;
    }
    weft_group *world = join(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_set_timeout(world, 600));
    if (rank == 2)
        atomic_store_explicit(&deaf_after, 1, memory_order_relaxed);
    CHECK_OK(weft_group_barrier(world, 20000));
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    if (rank != 2)
        check_names(rank, size, 1u << 2, "rendezvous");
    if (rank != 2 && strstr(weft_last_error(), " failed ("))
        CHECK_CONTAINS(weft_last_error(), ", waiting for rank 2 (");
    harness_mark();
    while (harness_marks() < 3)
        rest_us(100);
    finish(world);
}

/* ---- a rank that is stopped while it fetches ---- */

static weft_i_os halting_table;
static _Atomic(const weft_group *) halting_in; /* NULL: not now; relaxed, for its own thread */

/* The others have fetched all they need, and wait. */
static int halting_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    const weft_group *halting = atomic_exchange_explicit(&halting_in, NULL, memory_order_relaxed);
    if (halting && standing_await(halting, 0, "rendezvous end", true) &&
        standing_await(halting, 2, "rendezvous end", true))
        raise(SIGSTOP);
    return weft_i_os_linux.connect(fd, to, length);
}

/* Rank 1 is stopped while it fetches the memory of rank 0.  It is named, not rank 0, for which it
 * seemed to wait, and which has long been waiting for it. */
RANKS_TEST(test_blame_stopped, 3)
{
    if (harness_in_threads)
        SKIP("threads fetch nothing, and stop together");
    if (rank == 1) { /* before any thread of the library is there */
        halting_table = weft_i_os_linux;
        halting_table.connect = halting_connect;
        weft_i_os_now = &halting_table;
    }
    weft_group *world = join(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_set_timeout(world, 600));
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    standing_mark(world);
    if (rank == 1)
        atomic_store_explicit(&halting_in, world, memory_order_relaxed);
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    if (rank != 1)
        check_names(rank, size, 1u << 1, "rendezvous");
    CHECK(!strstr(weft_last_error(), "rendezvous end")); /* a step, which no user has called */
    harness_mark();
    if (rank == 0) {
        CHECK(harness_await(2, 1));
        CHECK(!kill(world->world->peers[1].rank_record->address.process, SIGCONT));
    }
    while (harness_marks() < 3)
        rest_us(100);
    finish(world);
}

/* ---- a rank that fetches in vain ---- */

static weft_i_os vain_table;
static _Atomic(const weft_group *) vain_in; /* NULL: not now; relaxed, for its own thread */
static int vain_calls;

/* Rank 2's queue is full for this caller, until long after its limit. */
static int vain_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    const weft_group *group = atomic_load_explicit(&vain_in, memory_order_relaxed);
    if (!group || vain_calls++ == 0) /* rank 1 comes first */
        return weft_i_os_linux.connect(fd, to, length);
    standing_await(group, 1, "rendezvous end", true);
    standing_await(group, 2, "rendezvous end", true);
    errno = EAGAIN;
    return -1;
}

/* Rank 0 alone is impatient, and has waited for rank 2, the last one, in vain.  The others are told
 * for whom; and nothing of that is left for the next operation. */
RANKS_TEST(test_blame_fetch, 3)
{
    if (harness_in_threads)
        SKIP("threads fetch nothing");
    if (rank == 0) { /* before any thread of the library is there */
        vain_table = weft_i_os_linux;
        vain_table.connect = vain_connect;
        weft_i_os_now = &vain_table;
    }
    weft_group *world = join(20000);
    _Atomic uint32_t *fetches = &world->board->row[rank].fetches;
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    standing_mark(world);
    CHECK_OK(weft_group_set_timeout(world, rank ? 20000 : 100));
    if (rank == 0)
        atomic_store_explicit(&vain_in, world, memory_order_relaxed);
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), rank ? "rank 0 failed (" : "no answer from rank 2 (");
    if (rank)
        CHECK_CONTAINS(weft_last_error(), ", waiting for rank 2 (");
    CHECK_INT(atomic_load_explicit(fetches, memory_order_relaxed), rank ? 0 : 3);
    harness_mark();
    CHECK(rank || (harness_await(1, 1) && harness_await(2, 1))); /* they have read it */
    CHECK_OK(weft_group_set_timeout(world, 20000));
    CHECK(weft_group_split(world, 0, 0)); /* has a later meeting, too */
    CHECK_INT(atomic_load_explicit(fetches, memory_order_relaxed), 0);
    finish(world);
}

/* ---- a rank that is slow to enter the job ---- */

static weft_i_os slow_table;

/* Holds the rank on its way in, until the others have given up. */
static int slow_thread_create(pthread_t *thread, void *(*body)(void *), void *argument)
{
    weft_i_os_now = &weft_i_os_linux;
    harness_await(0, 1);
    harness_await(1, 1);
    return weft_i_os_linux.thread_create(thread, body, argument);
}

/* Rank 0 gives up first, and leaves: that is not why there is no job.  Rank 1 is told of both. */
RANKS_TEST(test_blame_meeting, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads share one table of system calls");
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.meet_timeout_ms = rank ? 20000 : 300;
    if (rank == 2) {
        slow_table = weft_i_os_linux;
        slow_table.thread_create = slow_thread_create;
        weft_i_os_now = &slow_table;
    }
    CHECK(!weft_init(&opts));
    if (rank == 1)
        check_names(rank, size, 1u << 0 | 1u << 2, "meeting");
    else if (rank == 0)
        CHECK_CONTAINS(weft_last_error(), "rank 2 (");
    harness_mark();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
