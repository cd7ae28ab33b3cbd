/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p.c */
/*
 * Who rings for whom.  A rank that sleeps for messages leaves a mark in its bell, and whoever moves
 * something for it takes the mark away and wakes it.  Without that it would sleep until it looks by
 * itself, which no test of the results would see.  Here the marks are made by hand, while their rank
 * is outside the library.
 */
#include "jobs.h"

#include "coll/lane/lane.h"
#include "fabric/group/group.h"

enum { SMALL = 4, MEDIUM = 4000, SLEEPS = 1 };

static _Atomic uint32_t *bell_of(weft_group *world, int rank)
{
    return &weft_i_lane_head_of(world->lane, rank)->p2p_bell;
}

static void sleep_as(weft_group *world, int rank)
{
    atomic_store(bell_of(world, rank), SLEEPS);
}

static bool is_awake(weft_group *world, int rank)
{
    return atomic_load(bell_of(world, rank)) == 0;
}

/* Rank 0 sends, then rank 1 takes; each alone in the library. */
static void pass_on(int64_t count, int rank, int turn, weft_group *world)
{
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), rank ? 0 : 7);
    if (rank == 0) {
        sleep_as(world, 1);
        CHECK_OK(weft_send(x, 1, world));
        CHECK(is_awake(world, 1)); /* there is something to take */
        harness_mark();
        CHECK(harness_await(1, turn));
        return;
    }
    CHECK(harness_await(0, turn));
    sleep_as(world, 0);
    CHECK_OK(weft_recv(x, 0, world));
    CHECK(is_awake(world, 0)); /* there is room again */
    CHECK(weft_item(x, 0) == 7 && weft_item(x, count - 1) == 7);
    harness_mark();
}

/* Where nothing has moved nobody is woken. */
static void try_in_vain(int rank, int turn, weft_group *world)
{
    if (rank == 0) {
        CHECK(harness_await(1, turn));
        return;
    }
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SMALL));
    sleep_as(world, 0);
    weft_clear_error();
    CHECK_OK(weft_limit_open(1));
    CHECK_STATUS(weft_recv(x, 0, world), WEFT_ERR_TIMEOUT);
    CHECK_OK(weft_limit_close());
    weft_clear_error();
    CHECK(!is_awake(world, 0));
    atomic_store(bell_of(world, 0), 0);
    harness_mark();
}

RANKS_TEST(test_bell_of_messages, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* makes the lane */
    (void)size;
    for (int turn = 1; turn <= 6; turn++)
        pass_on(turn % 2 ? SMALL : MEDIUM, rank, turn, world);
    try_in_vain(rank, 7, world);
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
