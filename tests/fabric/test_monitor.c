/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/monitor.c */
/*
 * The monitored barrier: one and two ranks that do not come, ranks that come late or with other
 * limits, that die or leave; who is named to whom, and that the group goes on.
 */
#include "fault.h"
#include "jobs.h"
#include "standing.h"

#include <weft/weft.h>

static weft_group *group_of_all(weft_group *world, int size)
{
    int ranks[8];
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    weft_group *group = weft_group_new(world, ranks, size, NULL);
    CHECK(group);
    return group;
}

static bool is_named(int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d (", rank);
    return strstr(weft_last_error(), name) != NULL;
}

RANKS_TEST(test_monitor_all_come, 4)
{
    (void)rank;
    (void)size;
    weft_group *world = join(20000);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(weft_monitored_barrier(world, i % 2 ? WEFT_DEFAULT : 20000, i % 3 == 0));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    finish(world);
}

/* Does the message name those who are missing and nobody else?  A rank that could not run for as
 * long as the limit is missing too. */
static bool names_well(int present, int size, bool wait_all)
{
    bool well = is_named(present) && is_named(size - 1) == (wait_all || present == size - 1);
    for (int here = 0; here < present; here++)
        well &= !is_named(here);
    return well && strstr(weft_last_error(), "group_barrier");
}

/* Ranks from `present` on do not come: they are in another barrier instead. */
static void run_missing(int rank, int size, int present, bool wait_all)
{
    weft_group *world = join(20000), *group = group_of_all(world, size);
    weft_group *here = rank < present ? group_of_all(world, present) : NULL;
    weft_tensor *well = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    for (int tries = 0; here && weft_item(well, 0) == 0; tries++) {
        CHECK_OK(weft_all_reduce_into(well, well, WEFT_MIN, here));
        long long begin = harness_now();
        CHECK_STATUS(weft_monitored_barrier(group, 100, wait_all), WEFT_ERR_TIMEOUT);
        long long passed = (harness_now() - begin) / 1000000, told = -1;
        const char *after = strstr(weft_last_error(), " after ");
        CHECK(passed < 10000 && after && sscanf(after, " after %lld ms: ", &told) == 1);
        CHECK(told >= 0 && told <= passed);
        CHECK_CONTAINS(weft_last_error(), "\", monitored_barrier");
        weft_fill(well, names_well(present, size, wait_all));
        CHECK_OK(weft_all_reduce_into(well, well, WEFT_MIN, here));
        if (tries == 20)
            FAIL("%s", weft_last_error());
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_monitored_barrier(group, 20000, wait_all)); /* the group goes on */
    CHECK_OK(weft_monitored_barrier(group, 20000, wait_all));
    finish(world);
}

RANKS_TEST(test_monitor_one_missing, 3)
{
    run_missing(rank, size, 2, false);
}

RANKS_TEST(test_monitor_first_of_two_missing, 4)
{
    run_missing(rank, size, 2, false);
}

RANKS_TEST(test_monitor_two_missing, 4)
{
    run_missing(rank, size, 2, true);
}

/* Rank 0 is impatient, rank 1 is not, rank 2 does not come.  When rank 0 gives up, so does rank 1,
 * and both name rank 2 alone. */
RANKS_TEST(test_monitor_first_limit_counts, 3)
{
    weft_group *world = join(20000), *group = group_of_all(world, size);
    static const int both[] = {0, 1};
    if (rank < 2) {
        weft_group *pair = weft_group_new(world, both, 2, "pair");
        CHECK_OK(weft_work_wait(weft_barrier_start(pair), WEFT_DEFAULT));
        weft_work *other = rank ? NULL : weft_barrier_start(pair);
        long long begin = harness_now();
        weft_status told = WEFT_IN_PROGRESS;
        do { /* rank 1 may come when rank 0 has just given up: then it waits for the next time */
            CHECK_STATUS(weft_monitored_barrier(group, rank ? 20000 : 200, true), WEFT_ERR_TIMEOUT);
            CHECK(is_named(2));
            CHECK(rank == 0 || !is_named(0));
            told = rank ? WEFT_OK : weft_work_test(other);
        } while (told == WEFT_IN_PROGRESS);
        CHECK((harness_now() - begin) / 1000000 < 15000);
        CHECK_OK(weft_work_wait(rank ? weft_barrier_start(pair) : other, WEFT_DEFAULT));
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_monitored_barrier(group, WEFT_DEFAULT, false));
    finish(world);
}

/* The last one comes when the others have tried again and again: all of them succeed then. */
RANKS_TEST(test_monitor_late, 3)
{
    (void)size;
    weft_group *world = join(20000);
    if (rank == 1)
        CHECK(harness_await(0, 3) && harness_await(2, 3));
    weft_status status = WEFT_ERR_TIMEOUT;
    int tries = 0;
    while (status == WEFT_ERR_TIMEOUT && tries++ < 400) {
        status = weft_monitored_barrier(world, rank == 1 ? 20000 : 40, false);
        if (status == WEFT_ERR_TIMEOUT)
            harness_mark();
    }
    CHECK_OK(status);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* Rank 1 came, gave up and makes a group now.  That is no quarrel with rank 0, which comes after it:
 * rank 0's own limit ends its wait. */
RANKS_TEST(test_monitor_given_up_before, 2)
{
    static const int both[] = {0, 1};
    weft_group *world = join(20000), *group = group_of_all(world, size), *child;
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT)); /* rank 0 has begun no other call */
    if (rank == 1) {
        CHECK_STATUS(weft_monitored_barrier(group, 20, false), WEFT_ERR_TIMEOUT);
        harness_mark();
    } else {
        CHECK(harness_await(1, 1));
        CHECK_STATUS(weft_monitored_barrier(group, 200, false), WEFT_ERR_TIMEOUT);
    }
    weft_clear_error();
    child = weft_group_new(group, both, 2, NULL);
    if (!child)
        FAIL("weft_group_new: %s", weft_last_error());
    CHECK_OK(weft_group_barrier(child, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_monitor_tries_once, 2)
{
    (void)size;
    weft_group *world = join(20000), *group = group_of_all(world, size);
    if (rank == 0) {
        CHECK_STATUS(weft_monitored_barrier(group, 0, false), WEFT_ERR_TIMEOUT);
        CHECK(is_named(1));
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_monitored_barrier(group, WEFT_FOREVER, false));
    finish(world);
}

/* In a group of its own order, both numbers of a rank are told. */
RANKS_TEST(test_monitor_names_of_groups, 3)
{
    (void)size;
    static const int ranks[] = {2, 0};
    weft_group *world = join(20000);
    weft_group *group = rank == 1 ? NULL : weft_group_new(world, ranks, 2, "turned");
    if (rank == 2) {
        CHECK_STATUS(weft_monitored_barrier(group, 50, true), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1 of the group, world rank 0 (");
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* Dead ranks are told at once, whatever the limit. */
static void run_dead(int rank, bool wait_all)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank > 1) {
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    if (rank == 0) /* both are dead when it comes */
        CHECK(standing_await_death(world, 2) && standing_await_death(world, 3));
    CHECK_STATUS(weft_monitored_barrier(world, 20000, wait_all), WEFT_ERR_PEER_DEAD);
    CHECK(is_named(2) || is_named(3));
    if (rank == 0 && wait_all)
        CHECK(is_named(2) && is_named(3));
    CHECK_STATUS(weft_monitored_barrier(world, 20000, wait_all), WEFT_ERR_PEER_DEAD);
    finish(world);
}

RANKS_TEST(test_monitor_dead, 4)
{
    (void)size;
    run_dead(rank, false);
}

RANKS_TEST(test_monitor_dead_all, 4)
{
    (void)size;
    run_dead(rank, true);
}

RANKS_TEST(test_monitor_left, 3)
{
    (void)size;
    weft_group *world = join(20000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank != 1) { /* rank 0 leaves when it has given up: it had come */
        CHECK_STATUS(weft_monitored_barrier(world, 20000, rank == 0), WEFT_ERR_PEER_LEFT);
        CHECK(is_named(1) || is_named(2 - rank)); /* or had left before */
    }
    finish(world);
}

/* Something else instead: all learn it at once. */
RANKS_TEST(test_monitor_mismatch, 3)
{
    weft_group *world = join(20000), *group = group_of_all(world, size);
    CHECK_STATUS(rank == 1 ? weft_group_barrier(group, 20000)
                           : weft_monitored_barrier(group, 20000, true),
                 WEFT_ERR_MISMATCH);
    finish(world);
}

RANKS_TEST(test_monitor_refused, 1)
{
    (void)rank;
    (void)size;
    weft_group *world = join(20000);
    CHECK_STATUS(weft_monitored_barrier(NULL, 100, false), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_monitored_barrier(world, -7, false), WEFT_ERR_INVALID_ARG);
    if (!harness_in_threads) { /* threads share the table of calls to the system */
        fault_arm(1);
        weft_status status = weft_monitored_barrier(world, 100, false);
        CHECK(fault_disarm());
        CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
    }
    CHECK_OK(weft_monitored_barrier(world, 100, false));
    CHECK_OK(weft_group_revoke(world));
    CHECK_STATUS(weft_monitored_barrier(world, 100, false), WEFT_ERR_REVOKED);
    finish(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_KILL_GRACE", "30000", 1); /* survivors of a death are given their time */
    return harness_main(argc, argv);
}
