/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of most tests come, rest and go. */
#ifndef WEFT_TESTS_JOBS_H
#define WEFT_TESTS_JOBS_H

#include "harness_ranks.h"

#include <weft/weft.h>

/* The world, with a limit of operations; 0: weft's own. */
__attribute__((unused)) static weft_group *join(int64_t timeout_ms)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    opts.timeout_ms = timeout_ms;
    weft_group *world = weft_init(&opts);
    if (!world)
        FAIL("weft_init: %s", weft_last_error());
    return world;
}

/* Leaves; errors that the test has looked at do not count. */
__attribute__((unused)) static void finish(weft_group *world)
{
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* A new group of all ranks of the world, whose lane is there. */
__attribute__((unused)) static weft_group *fresh_group(weft_group *world)
{
    int all[HARNESS_RANKS_MAX], ranks = weft_size(world);
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = rank;
    weft_group *group = weft_group_new(world, all, ranks, NULL);
    if (!group)
        FAIL("weft_group_new: %s", weft_last_error());
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group)); /* makes the lane */
    return group;
}

__attribute__((unused)) static void rest_us(long us)
{
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

/* A child of this rank stops it after `after_us` and lets it go on when the ranks have made `marks`
 * marks in all, and not before `length_us` have passed. */
__attribute__((unused)) static pid_t arrange_stop(long after_us, long length_us, int marks)
{
    pid_t victim = getpid(), child = fork();
    if (child == 0) {
        rest_us(after_us);
        kill(victim, SIGSTOP);
        rest_us(length_us);
        for (int ms = 0; ms < 30000 && harness_marks() < marks; ms++)
            rest_us(1000);
        kill(victim, SIGCONT);
        _exit(0);
    }
    return child;
}

#endif
