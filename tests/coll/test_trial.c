/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/trial.c */
/* Large calls find the faster way by themselves: copies by the kernel, or bounce buffers. */
#include "harness_cache.h"
#include "jobs.h"

#include "base/os/os.h"
#include "base/report/record.h"
#include "coll/lane/lane.h"
#include "coll/lane/trial.h"
#include "coll/lane/trial_file.h"
#include "fabric/group/group.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 2, COUNT = 1 << 18, SETTLED = 16, FULL = WEFT_I_TRIAL_RUNS };

/* How the newest call of that name went. */
static int newest_way(weft_group *world, const char *name)
{
    weft_i_record_entry entries[8];
    size_t count = weft_i_record_newest(weft_i_group_record(world), entries, 8);
    for (size_t i = 0; i < count; i++)
        if (!strncmp(entries[i].name, name, sizeof entries[i].name - 1))
            return entries[i].channel;
    FAIL("%s is not in the record", name);
}

static weft_i_os slow;

/* The ranks' clock, of which the copies by the kernel decide how long a call takes, so that it is
 * the same on a busy machine. */
static _Atomic int64_t clock_ahead;   /* of the machine's */
static _Atomic int64_t clock_stopped; /* at this time; 0: it runs */
static int64_t call_began;

/* Relaxed, as in all of these: the calls of a rank are in one thread, and a thread beside it may
 * see any time. */
static int64_t rank_clock(void)
{
    int64_t at = atomic_load_explicit(&clock_stopped, memory_order_relaxed);
    return at ? at
              : weft_i_os_linux.clock_ns() +
                    atomic_load_explicit(&clock_ahead, memory_order_relaxed);
}

static void before_call(void)
{
    call_began = rank_clock();
}

/* A clock that was stopped goes on from there. */
static void after_call(void)
{
    atomic_store_explicit(&clock_ahead, rank_clock() - weft_i_os_linux.clock_ns(),
                          memory_order_relaxed);
    atomic_store_explicit(&clock_stopped, 0, memory_order_relaxed);
}

/* Any copy takes a second. */
static ssize_t read_slowly(pid_t process, void *to, uint64_t from, size_t bytes)
{
    if (bytes > sizeof(uint64_t)) /* not the look whether it may */
        atomic_fetch_add_explicit(&clock_ahead, 1000000000, memory_order_relaxed);
    return weft_i_os_linux.read_process(process, to, from, bytes);
}

/* Nothing is copied, and the whole call takes no time; the results are not looked at. */
static ssize_t read_at_once(pid_t process, void *to, uint64_t from, size_t bytes)
{
    if (bytes <= sizeof(uint64_t))
        return weft_i_os_linux.read_process(process, to, from, bytes);
    atomic_store_explicit(&clock_stopped, call_began, memory_order_relaxed);
    return (ssize_t)bytes;
}

static void replace(ssize_t (*read_process)(pid_t, void *, uint64_t, size_t))
{
    slow = weft_i_os_linux;
    slow.read_process = read_process;
    slow.clock_ns = rank_clock;
    weft_i_os_now = &slow;
}

static bool is_denied(weft_group *world, weft_tensor *out, weft_tensor *in)
{
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_to_all", RANKS, 1));
    before_call();
    CHECK_OK(weft_all_to_all_into(out, in, NULL, NULL, world));
    after_call();
    return newest_way(world, "all_to_all") != WEFT_I_WAY_CMA;
}

/* Calls all_gather until the ways are tried, then counts how many of `calls` went by CMA. */
static int count_cma(weft_group *world, weft_tensor *out, weft_tensor *in, int calls)
{
    int count = 0;
    for (int i = 0; i < SETTLED + calls; i++) {
        before_call();
        CHECK_OK(weft_all_gather_into(out, in, world));
        after_call();
        count += i >= SETTLED && newest_way(world, "all_gather") == WEFT_I_WAY_CMA;
    }
    return count;
}

static void with_reads(ssize_t (*read_process)(pid_t, void *, uint64_t, size_t), int calls,
                       int wanted, int rank)
{
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    replace(read_process);
    weft_group *world = join(0);
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT), rank + 1);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(RANKS * COUNT));
    CHECK(in && out);
    if (is_denied(world, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT)), in))
        SKIP("the kernel lets nobody look into others");
    CHECK_INT(count_cma(world, out, in, calls), wanted);
    finish(world);
}

RANKS_TEST(test_trial_leaves_slow_copies, RANKS)
{
    (void)size;
    with_reads(read_slowly, 10, 0, rank);
}

RANKS_TEST(test_trial_takes_quick_copies, RANKS)
{
    (void)size;
    with_reads(read_at_once, 10, 10, rank);
}

/* One call in 128 tries the other way. */
RANKS_TEST(test_trial_tries_again, RANKS)
{
    (void)size;
    with_reads(read_at_once, 256, 254, rank);
}

/* What somebody has set is not tried. */
RANKS_TEST(test_trial_leaves_what_is_set, RANKS)
{
    (void)size;
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_gather", RANKS, 1));
    with_reads(read_slowly, 2, 2, rank);
}

/* Nor is anything tried where ranks share cores: the times would say who ran when. */
RANKS_TEST(test_trial_not_on_shared_cores, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    setenv("WEFT_WAIT", "yield", 1);
    bool cma = weft_tune_get(WEFT_TUNE_CMA, "all_gather", RANKS) <= COUNT * sizeof(float);
    with_reads(cma ? read_slowly : read_at_once, 10, cma ? 10 : 0, rank);
}

/* A rank with symmetric memory tries nothing, and those without take the way of the table.  They
 * agree on it although only they have times. */
RANKS_TEST(test_trial_mixed_memory, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    weft_group *world = join(0);
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT), rank + 1);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(RANKS * COUNT));
    weft_tensor *shared = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
    CHECK(in && out && shared);
    CHECK(weft_symm_rendezvous(shared, world));
    CHECK_OK(weft_fill(shared, rank + 1));
    if (is_denied(world, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT)), in))
        SKIP("the kernel lets nobody look into others");
    bool cma = weft_tune_get(WEFT_TUNE_CMA, "all_gather", RANKS) <= COUNT * sizeof(float);
    for (int i = 0; i < 40; i++) {
        CHECK_OK(weft_fill(out, 0));
        CHECK_OK(weft_all_gather_into(out, rank ? in : shared, world));
        CHECK_INT(newest_way(world, "all_gather") == WEFT_I_WAY_CMA, cma);
        const float *got = weft_tensor_data(out);
        CHECK(got[0] == 1 && got[COUNT - 1] == 1 && got[COUNT] == 2 && got[2 * COUNT - 1] == 2);
    }
    finish(world);
}

/* ---- what is kept for later jobs ---- */

/* How many of the very first calls go by CMA, in a job with slow copies by the kernel that knows
 * nothing: one, which is enough to see that they are slow, and one to check it, unless the table
 * says CMA. */
static int calls_by_cma(void)
{
    return weft_tune_get(WEFT_TUNE_CMA, "all_gather", RANKS) > COUNT ? 2 : FULL;
}

/* How many of them did. */
static int first_calls_by_cma(int rank, int calls)
{
    int count = 0;
    setenv("WEFT_LEARN", "1", 1);
    replace(read_slowly);
    weft_group *world = join(0);
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT / 4), rank + 1);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(RANKS * COUNT / 4));
    if (is_denied(world, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT / 4)), in))
        SKIP("the kernel lets nobody look into others");
    for (int i = 0; i < calls; i++) {
        before_call();
        CHECK_OK(weft_all_gather_into(out, in, world));
        after_call();
        count += newest_way(world, "all_gather") == WEFT_I_WAY_CMA;
    }
    finish(world);
    return count;
}

RANKS_TEST(test_trial_kept_by_one_job, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    if (rank == 0)
        harness_cache_each(harness_cache_remove);
    CHECK_INT(first_calls_by_cma(rank, 14), calls_by_cma());
    weft_i_trials kept;
    memset(kept, 0, sizeof kept);
    if (rank == 0) /* who writes it: now it is there for the next */
        CHECK(weft_i_trial_file_read(RANKS, kept) >= 1);
}

/* As an earlier job has left it: times of all sizes of an all_gather. */
static void write_times(uint32_t staged, uint32_t cma)
{
    weft_i_trials trials;
    memset(trials, 0, sizeof trials);
    for (int class = 0; class < WEFT_I_TRIAL_SIZES; class ++)
        trials[WEFT_I_ALL_GATHER][class] =
            (weft_i_trial){{staged, cma}, {FULL, FULL}, {0, 0}, 0, 0};
    harness_cache_each(harness_cache_remove);
    CHECK(weft_i_trial_file_write(RANKS, trials));
}

/* Bounce buffers are faster. */
static void write_known(void)
{
    write_times(1000, 1000000000);
}

RANKS_TEST(test_trial_known_to_the_next, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    if (rank == 0)
        write_known(); /* read at the first large call, when all have come */
    CHECK_INT(first_calls_by_cma(rank, 6), 0); /* it is checked at the 8th entry */
}

/* A rank that has no file shows that it does not know; so all of them try, and agree.  The
 * times of the other rank's file are far from what it finds, so it may try longer. */
RANKS_TEST(test_trial_known_to_one_rank, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    if (rank == 0)
        write_known();
    else
        setenv("WEFT_CACHE_DIR", "/dev/null", 1);
    int tried = first_calls_by_cma(rank, 20);
    CHECK(tried >= calls_by_cma() && tried < 20);
}

/* A busy machine has taught that bounce buffers are faster.  It is quiet now: copies by the kernel
 * are tried at the 8th and the 16th entry, and from then on they win.  Calls 17 to 76 are counted,
 * which are entries 18 to 77. */
RANKS_TEST(test_trial_kept_by_a_busy_job, RANKS)
{
    (void)size;
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    if (rank == 0)
        write_times(500000000, 1000000000);
    setenv("WEFT_LEARN", "1", 1);
    with_reads(read_at_once, 60, 60, rank);
    weft_i_trials kept;
    memset(kept, 0, sizeof kept);
    CHECK(rank || weft_i_trial_file_read(RANKS, kept) == WEFT_I_TRIAL_SIZES);
    int changed = 0;
    for (int class = 0; class < WEFT_I_TRIAL_SIZES; class ++)
        changed += kept[WEFT_I_ALL_GATHER][class].mean[1] < 500000000;
    CHECK_INT(changed, rank ? WEFT_I_TRIAL_SIZES : 1); /* for the next job */
}

/* What a lane has learned since is kept when it ends, by rank 0, and not what is no news. */
RANKS_TEST(test_trial_kept_at_the_end, RANKS)
{
    (void)size;
    weft_i_trials kept;
    setenv("WEFT_LEARN", "1", 1);
    if (harness_in_threads)
        SKIP("thread ranks copy by themselves");
    if (rank == 0)
        harness_cache_each(harness_cache_remove);
    weft_group *world = join(0);
    for (int round = 0; round < 2; round++) {
        weft_group *group = weft_group_new(world, (int[]){0, 1}, RANKS, NULL);
        weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        weft_i_lane *lane = group->lane;
        lane->learned = round == 1;
        lane->trials[WEFT_I_ALL_REDUCE][0] =
            (weft_i_trial){{100 + (uint32_t)rank, 7}, {FULL, FULL}, {0, 0}, 0, 0};
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_release(group);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        memset(kept, 0, sizeof kept);
        CHECK_INT(weft_i_trial_file_read(RANKS, kept), round);
        CHECK_INT(kept[WEFT_I_ALL_REDUCE][0].mean[0], round ? 100 : 0);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_WAIT", "spin", 1); /* on one core too */
    return harness_cache_main(argc, argv);
}
