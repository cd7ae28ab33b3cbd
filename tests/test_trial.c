/* SPDX-License-Identifier: Apache-2.0 */
/* Large calls find the faster way by themselves: copies by the kernel, or bounce buffers. */
#include "jobs.h"

#include "base/os.h"
#include "base/record.h"
#include "fabric/group.h"

#include <weft/weft.h>

enum { RANKS = 2, COUNT = 1 << 18, SETTLED = 16 };

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

static ssize_t read_slowly(pid_t process, void *to, uint64_t from, size_t bytes)
{
    int64_t end = weft_i_os_linux.clock_ns() + (int64_t)bytes * 20;
    while (weft_i_os_linux.clock_ns() < end)
        ;
    return weft_i_os_linux.read_process(process, to, from, bytes);
}

/* Nothing is copied, so nothing is faster; the results are not looked at. */
static ssize_t read_at_once(pid_t process, void *to, uint64_t from, size_t bytes)
{
    return bytes <= sizeof(uint64_t) ? weft_i_os_linux.read_process(process, to, from, bytes)
                                     : (ssize_t)bytes;
}

static void replace(ssize_t (*read_process)(pid_t, void *, uint64_t, size_t))
{
    slow = weft_i_os_linux;
    slow.read_process = read_process;
    weft_i_os_now = &slow;
}

static bool is_denied(weft_group *world, weft_tensor *out, weft_tensor *in)
{
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_to_all", RANKS, 1));
    CHECK_OK(weft_all_to_all_into(out, in, NULL, NULL, world));
    return newest_way(world, "all_to_all") != WEFT_I_WAY_CMA;
}

/* Calls all_gather until the ways are tried, then counts how many of `calls` went by CMA. */
static int count_cma(weft_group *world, weft_tensor *out, weft_tensor *in, int calls)
{
    int count = 0;
    for (int i = 0; i < SETTLED + calls; i++) {
        CHECK_OK(weft_all_gather_into(out, in, world));
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

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
