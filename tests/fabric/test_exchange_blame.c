/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange.c, fabric/group/monitor.c */
/*
 * Whom a time-out names: everybody who is missing, and nobody else.  Those who came and gave up a
 * moment earlier are not missing, nor are those who wait for the missing one themselves.
 */
#include "base/os/os.h"
#include "fabric/group/group.h"
#include "jobs.h"
#include "standing.h"

#include <errno.h>
#include <limits.h>

/* Long enough that who comes at the same time is not late on a machine with some load; where one was,
 * up to the last, which no load explains. */
enum { ROUNDS = 3, SHORT_MS = 150, LAST_MS = 32 * SHORT_MS };

/* "rank 2 (" is how messages name a rank; "rank 2 of 3" is who speaks. */
static unsigned named_ranks(int size)
{
    char name[32];
    unsigned named = 0;
    for (int other = 0; other < size; other++) {
        snprintf(name, sizeof name, "rank %d (", other);
        named |= (unsigned)(strstr(weft_last_error(), name) != NULL) << other;
    }
    return named;
}

static void check_names(int rank, int size, unsigned missing, const char *what)
{
    unsigned named = named_ranks(size);
    for (int other = 0; other < size; other++)
        if ((named ^ missing) >> other & 1)
            FAIL("%s: rank %d %s rank %d: %s", what, rank,
                 named >> other & 1 ? "names" : "does not name", other, weft_last_error());
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
static bool came_together(const weft_group *world, int size, unsigned missing, int limit_ms)
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
    return last - first < limit_ms * (int64_t)1000000 / 2;
}

/* Judges what a rank that came was told.  One that is held up between its beginning and its arrival
 * is named rightly as well, and nobody sees that it was: so a wrong name counts at the last limit,
 * and until then asks for a round with a longer one. */
static bool is_judged(const weft_group *world, int rank, int size, unsigned missing, op what,
                      int limit_ms)
{
    /* Who waits for the first member to make the board knows of no other. */
    unsigned wanted = what == NEW && (missing & 1) ? 1 : missing;
    if (!came_together(world, size, missing, limit_ms))
        return false;
    if (limit_ms >= LAST_MS)
        check_names(rank, size, wanted, names[what]);
    return named_ranks(size) == wanted;
}

/* The limit of the next round: longer where any rank has not judged all; 0: all have, often
 * enough. */
static int next_limit(int limit_ms, bool judged, int round, weft_group *world)
{
    int32_t want = judged               ? round < ROUNDS ? limit_ms : 0
                   : limit_ms < LAST_MS ? 2 * limit_ms
                                        : limit_ms;
    CHECK_OK(weft_all_reduce_ptr(&want, &want, 1, WEFT_I32, WEFT_MAX, world));
    return want;
}

/* One operation, to which the ranks of `missing` do not come; all others give up at about the same
 * time.  True if this rank has judged it. */
static bool run_one_late(weft_group *world, weft_symm *mem, int rank, int size, unsigned missing,
                         op what, int limit_ms, int *marks)
{
    bool comes = !(missing >> rank & 1), judged = !comes;
    int came = size - __builtin_popcount(missing);
    weft_scope_open();
    CHECK_OK(weft_group_barrier(world, 20000));
    CHECK_OK(weft_group_set_timeout(world, comes ? limit_ms : 20000));
    if (comes) {
        harness_mark(); /* those who come come together */
        harness_await_marks(*marks + came);
        weft_status status = run(what, world, mem, size);
        if (status != WEFT_ERR_TIMEOUT)
            FAIL("%s gives %d: %s", names[what], (int)status, weft_last_error());
        judged = is_judged(world, rank, size, missing, what, limit_ms);
        weft_clear_error();
        harness_mark();
    }
    harness_await_marks(*marks += 2 * came);
    CHECK_OK(weft_group_set_timeout(world, 20000));
    weft_scope_close();
    return judged;
}

/* Until every rank that comes has judged every operation, at least once. */
static void run_late(int rank, int size, unsigned missing)
{
    weft_group *world = join(20000);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), world);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    int marks = 0, limit_ms = SHORT_MS;
    unsigned open = (1u << OPS) - 1; /* operations that this rank has not judged yet */
    for (int round = 1; limit_ms; round++) {
        for (op what = 0; what < OPS; what++)
            if (run_one_late(world, mem, rank, size, missing, what, limit_ms, &marks))
                open &= ~(1u << what);
        limit_ms = next_limit(limit_ms, !open, round, world);
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
    harness_await_marks(2);
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
    harness_await_marks(3);
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
    harness_await_marks(3);
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
