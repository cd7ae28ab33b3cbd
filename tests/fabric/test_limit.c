/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/limit.c */
/* Limits of time: which of the argument, the thread's and the group's counts, and their errors. */
#include "harness_ranks.h"

#include <weft/weft.h>

#include <pthread.h>

TEST(test_limit_nests)
{
    CHECK_INT(weft_limit_now(), WEFT_DEFAULT);
    CHECK_STATUS(weft_limit_close(), WEFT_ERR_STATE);
    CHECK_OK(weft_limit_open(500));
    CHECK_INT(weft_limit_now(), 500);
    CHECK_OK(weft_limit_open(WEFT_FOREVER)); /* the innermost counts, also if it is longer */
    CHECK_INT(weft_limit_now(), WEFT_FOREVER);
    CHECK_OK(weft_limit_close());
    CHECK_INT(weft_limit_now(), 500);
    CHECK_OK(weft_limit_close());
    CHECK_INT(weft_limit_now(), WEFT_DEFAULT);
    CHECK_STATUS(weft_limit_close(), WEFT_ERR_STATE);
}

TEST(test_limit_arguments)
{
    int wrong[] = {0, WEFT_DEFAULT, -17};
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(weft_limit_open(wrong[i]), WEFT_ERR_INVALID_ARG);
    for (int i = 0; i < WEFT_MAX_LIMITS; i++)
        CHECK_OK(weft_limit_open(i + 1));
    CHECK_STATUS(weft_limit_open(5), WEFT_ERR_LIMIT);
    CHECK_INT(weft_limit_now(), WEFT_MAX_LIMITS);
    for (int i = 0; i < WEFT_MAX_LIMITS; i++)
        CHECK_OK(weft_limit_close());
    CHECK_INT(weft_limit_now(), WEFT_DEFAULT);
}

static void *read_limit(void *arg)
{
    *(int64_t *)arg = weft_limit_now();
    return NULL;
}

TEST(test_limit_is_the_threads)
{
    pthread_t thread;
    int64_t seen = 0;
    CHECK_OK(weft_limit_open(77));
    CHECK(!pthread_create(&thread, NULL, read_limit, &seen));
    CHECK(!pthread_join(thread, NULL));
    CHECK_INT(seen, WEFT_DEFAULT);
    CHECK_OK(weft_limit_close());
}

/* How long a call that nobody joins waits; fails unless it ends by its limit. */
static long long wait_alone(weft_group *group, weft_status (*call)(weft_group *))
{
    long long began = harness_now();
    CHECK_STATUS(call(group), WEFT_ERR_TIMEOUT);
    return (harness_now() - began) / 1000000;
}

static weft_status by_group(weft_group *group)
{
    return weft_group_barrier(group, WEFT_DEFAULT);
}

static weft_status by_argument(weft_group *group)
{
    return weft_group_barrier(group, 40);
}

static weft_status by_collective(weft_group *group)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    return weft_all_reduce_into(x, x, WEFT_SUM, group);
}

static weft_status by_making(weft_group *group)
{
    int both[] = {0, 1};
    return weft_group_new(group, both, 2, NULL) ? WEFT_OK : weft_last_status();
}

/* The rule, from the outside in: group, thread, argument. */
RANKS_TEST(test_limit_rule, 2)
{
    weft_group *world = weft_init(NULL);
    CHECK(world);
    CHECK_OK(by_collective(world)); /* collectives have met once */
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.timeout_ms = 150;
    weft_group *brisk = weft_group_new_with(world, NULL, 0, &opts);
    weft_group *child = weft_group_split(brisk, 0, 0);
    CHECK(brisk && child);
    CHECK_INT(weft_group_timeout(world), 600000); /* untouched */
    CHECK_INT(weft_group_timeout(brisk), 150);
    CHECK_INT(weft_group_timeout(child), 150); /* inherited */
    CHECK_OK(weft_group_set_timeout(brisk, 200));
    CHECK_INT(weft_group_timeout(child), 150); /* when it was made */
    if (rank == 0) {
        long long ms = wait_alone(brisk, by_group);
        CHECK(ms >= 199);
        CHECK_OK(weft_limit_open(60)); /* the thread's goes before the group's, longer or shorter */
        ms = wait_alone(world, by_group);
        CHECK(ms >= 59 && ms < 20000);
        ms = wait_alone(world, by_collective);
        CHECK(ms >= 59 && ms < 20000);
        ms = wait_alone(world, by_making);
        CHECK(ms >= 59 && ms < 20000);
        CHECK_CONTAINS(weft_last_error(), "rank 1 ("); /* who is missing */
        CHECK_OK(weft_limit_open(25000));
        ms = wait_alone(brisk, by_argument); /* the argument goes before both */
        CHECK(ms >= 39 && ms < 20000);
        CHECK_OK(weft_limit_close());
        CHECK_OK(weft_limit_close());
    }
    CHECK_OK(weft_group_barrier(child, 25000));
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* ---- cut short ---- */

typedef struct patience {
    int asked, enough; /* questions so far; from when on it is enough */
} patience;

static bool is_enough(void *argument)
{
    patience *p = argument;
    return ++p->asked >= p->enough;
}

/* A wait ends long before its limit when the program says so, and the next call works again. */
RANKS_TEST(test_limit_interrupt, 2)
{
    weft_group *world = weft_init(NULL);
    CHECK_OK(by_collective(world));
    weft_group *side = weft_group_split(world, 0, 0);
    CHECK(side);
    if (rank == 0) {
        patience p = {.enough = 3};
        weft_limit_interrupt(is_enough, &p);
        CHECK(wait_alone(side, by_group) < 20000);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        CHECK_INT(p.asked, 3);
        p.asked = 0;
        CHECK(wait_alone(side, by_collective) < 20000);
        p = (patience){.enough = 1000000}; /* a program that is asked and wants to go on waits on */
        CHECK_OK(weft_limit_open(300));
        wait_alone(side, by_group);
        CHECK(p.asked >= 2 && p.asked <= 10);
        CHECK_OK(weft_limit_close());
        weft_limit_interrupt(NULL, NULL);
        int before = p.asked;
        CHECK_STATUS(weft_group_barrier(side, 200), WEFT_ERR_TIMEOUT);
        CHECK_INT(p.asked, before);
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, 60000));
    weft_clear_error();
    CHECK(!weft_finish(world));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
