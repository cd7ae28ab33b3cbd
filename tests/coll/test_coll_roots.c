/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/lane.c, fabric/group/quarrel.c */
/*
 * Ranks that differ in the root of a small broadcast.  Whoever takes itself for the root waits for
 * nobody, so two of them do not see each other at once; they are told all the same.
 */
#include "coll/lane/lane.h"
#include "jobs.h"

/* Two ranks that wait for nobody, since each takes itself for the root, are told all the same. */
RANKS_TEST(test_roots_told, 3)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2 * WEFT_I_TURNS && status == WEFT_OK; i++)
        status = weft_broadcast_in_place(x, rank % 2, world);
    CHECK_STATUS(status, WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "broadcast of 10 f32, root 0, shape [10]");
    CHECK_CONTAINS(weft_last_error(), "broadcast of 10 f32, root 1, shape [10]");
    (void)size;
    finish(world);
}

/* The same at the next barrier, where all have come: with one call, with several that go on, in short
 * and in eager buffers.  Until then nothing waits. */
RANKS_TEST(test_roots_at_barrier, 3)
{
    static const int64_t counts[] = {0, 10, 1000, 10000};
    weft_group *world = join(20000);
    for (int number = 0; number < 8; number++) {
        char one[80], other[80];
        int64_t count = counts[number % 4];
        weft_scope_open();
        weft_group *group = fresh_group(world);
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
        for (int i = 0; i < 3; i++) /* one way, and all the same */
            CHECK_OK(weft_broadcast_in_place(x, i, group));
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
        if (rank < 2)
            CHECK_OK(weft_broadcast_in_place(x, rank, group));
        else
            weft_broadcast_in_place(x, 0, group); /* it may hear of rank 1 already */
        for (int i = 0; number >= 4 && rank < 2 && i < 1; i++)
            weft_broadcast_in_place(x, rank, group);
        CHECK_STATUS(weft_group_barrier(group, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
        snprintf(one, sizeof one, "broadcast of %lld f32, root 0, shape [%lld]", (long long)count,
                 (long long)count);
        snprintf(other, sizeof other, "broadcast of %lld f32, root 1, shape [%lld]",
                 (long long)count, (long long)count);
        CHECK_CONTAINS(weft_last_error(), one);
        CHECK_CONTAINS(weft_last_error(), other);
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_MISMATCH);
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

/* Posted calls are under way on some ranks when others have come to the barrier: no mismatch. */
RANKS_TEST(test_roots_posted_at_barrier, 3)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    for (int i = 0; i < 50; i++) {
        weft_scope_open();
        weft_work *work = NULL;
        if ((i + rank) % 2)
            CHECK((work = weft_broadcast_start(x, i % size, world)));
        else
            CHECK_OK(weft_broadcast_in_place(x, i % size, world));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_broadcast_in_place(x, (i + 1) % size, world)); /* behind the posted one */
        CHECK(!work || weft_work_wait(work, 20000) == WEFT_OK);
        weft_scope_close();
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/*
 * Rank 1 calls something else than rank 0, which has given its part and gone on.  Rank 2 comes late,
 * posts what is right and goes on to a call that stands at the same number, since the posted one has
 * failed: it is told of rank 1, not that it differs from rank 0.
 */
RANKS_TEST(test_roots_behind_posted, 3)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    if (rank == 0) {
        CHECK_OK(weft_reduce_into(NULL, x, WEFT_SUM, 2, world));
        harness_mark();
        CHECK(harness_await(2, 1)); /* who left would be the news */
    } else if (rank == 1) {
        CHECK(harness_await(0, 1));
        CHECK_STATUS(weft_broadcast_in_place(y, 0, world), WEFT_ERR_MISMATCH);
        harness_mark();
        CHECK(harness_await(2, 1));
    } else {
        CHECK(harness_await(1, 1));
        weft_work *work = weft_reduce_start(x, x, WEFT_SUM, 2, world);
        CHECK(work);
        CHECK_STATUS(weft_broadcast_in_place(y, 0, world), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "rank 1 calls broadcast of 5 f32");
        CHECK_CONTAINS(weft_last_error(), "rank 0 calls reduce of 8 f32");
        CHECK_STATUS(weft_work_wait(work, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
        harness_mark();
    }
    (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
