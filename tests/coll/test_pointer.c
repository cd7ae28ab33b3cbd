/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/pointer.c */
/* Collectives and messages on pointers, the peer that is nobody, and batches of nothing. */
#include "harness_ranks.h"

#include <weft/weft.h>

enum { COUNT = 5000, LARGE = 1 << 19 };

static void fill(float *x, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 97) + (float)(1000 * rank);
}

/* Sums over ranks of what fill() puts there, from element `at` on. */
static bool is_sum(const float *x, size_t count, size_t at, int size)
{
    float ranks = (float)(500 * size * (size - 1)); /* 1000 times 0 + 1 + ... */
    for (size_t i = 0; i < count; i++)
        if (x[i] != (float)((at + i) % 97) * (float)size + ranks)
            return false;
    return true;
}

RANKS_TEST(test_pointer_collectives, 3)
{
    static const size_t counts[] = {1, COUNT, LARGE};
    weft_group *world = weft_init(NULL);
    for (int i = 0; i < 3; i++) {
        size_t count = counts[i], all = count * (size_t)size;
        float *x = malloc(all * sizeof *x), *y = malloc(all * sizeof *y);
        CHECK(x && y);
        fill(x, count, rank);
        CHECK_OK(weft_all_reduce_ptr(y, x, count, WEFT_F32, WEFT_SUM, world));
        CHECK(is_sum(y, count, 0, size) && x[0] == (float)(1000 * rank));
        CHECK_OK(weft_all_reduce_ptr(x, x, count, WEFT_F32, WEFT_SUM, world));
        CHECK(is_sum(x, count, 0, size));
        fill(x, count, rank);
        CHECK_OK(weft_all_gather_ptr(y, x, count, WEFT_F32, world));
        for (int other = 0; other < size; other++)
            CHECK(y[count * (size_t)other] == (float)(1000 * other) &&
                  y[count * (size_t)other + count - 1] ==
                      (float)((count - 1) % 97) + (float)(1000 * other));
        fill(x, all, rank);
        CHECK_OK(weft_reduce_scatter_ptr(y, x, count, WEFT_F32, WEFT_SUM, world));
        CHECK(is_sum(y, count, count * (size_t)rank, size));
        fill(x, count, rank);
        CHECK_OK(weft_broadcast_ptr(x, count, WEFT_F32, 2, world));
        CHECK(x[0] == 2000 && x[count - 1] == (float)((count - 1) % 97) + 2000);
        free(x);
        free(y);
    }
    CHECK_INT(weft_finish(world), 0);
}

/* A rank with tensors and a rank with pointers make the same call. */
RANKS_TEST(test_pointer_beside_tensors, 2)
{
    weft_group *world = weft_init(NULL);
    float x[4] = {1, 2, 3, 4};
    weft_tensor *t = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2), x, NULL, NULL);
    CHECK(t);
    if (rank)
        CHECK_OK(weft_all_reduce_into(t, t, WEFT_SUM, world));
    else
        CHECK_OK(weft_all_reduce_ptr(x, x, 4, WEFT_F32, WEFT_SUM, world));
    CHECK(x[0] == 2 && x[3] == 8);
    float parts[4] = {1, 2, 3, 4}, mine[2] = {0, 0}, all[4] = {0, 0, 0, 0};
    weft_tensor *in = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), parts, NULL, NULL),
                *own = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), mine, NULL, NULL),
                *out = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), all, NULL, NULL);
    CHECK_OK(rank ? weft_reduce_scatter_into(own, in, WEFT_SUM, world)
                  : weft_reduce_scatter_ptr(mine, parts, 2, WEFT_F32, WEFT_SUM, world));
    CHECK(mine[0] == (rank ? 6 : 2) && mine[1] == (rank ? 8 : 4));
    CHECK_OK(rank ? weft_all_gather_into(out, own, world)
                  : weft_all_gather_ptr(all, mine, 2, WEFT_F32, world));
    CHECK(all[0] == 2 && all[1] == 4 && all[2] == 6 && all[3] == 8);
    CHECK_OK(rank ? weft_broadcast_in_place(own, 1, world)
                  : weft_broadcast_ptr(mine, 2, WEFT_F32, 1, world));
    CHECK(mine[0] == 6 && mine[1] == 8);
    CHECK_OK(weft_all_reduce_ptr(NULL, NULL, 0, WEFT_F32, WEFT_SUM, world));
    CHECK_OK(rank ? weft_send(t, 0, world) : weft_recv_ptr(x, 4, WEFT_F32, 1, world));
    CHECK_OK(rank ? weft_recv(t, 0, world) : weft_send_ptr(x, 4, WEFT_F32, 1, world));
    CHECK(x[0] == 2 && x[3] == 8);
    CHECK_INT(weft_finish(world), 0);
}

RANKS_TEST(test_pointer_arguments, 2)
{
    weft_group *world = weft_init(NULL);
    char room[64] __attribute__((aligned(16))) = {0};
    CHECK_STATUS(weft_all_reduce_ptr(room, NULL, 4, WEFT_F32, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "the input is NULL but has 4 elements");
    CHECK_STATUS(weft_all_reduce_ptr(room, room + 1, 4, WEFT_F32, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "is not aligned for f32");
    CHECK_STATUS(weft_all_reduce_ptr(room, room + 4, 4, WEFT_F32, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_gather_ptr(room, room, SIZE_MAX / 4, WEFT_F32, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_broadcast_ptr(room, 4, (weft_dtype)99, 0, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_broadcast_ptr(room, 4, WEFT_F32, 2, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_reduce_scatter_ptr(room, room + 32, 2, WEFT_F32, WEFT_BAND, world),
                 WEFT_ERR_TYPE);
    CHECK_STATUS(weft_send_ptr(room, 4, WEFT_F32, rank, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_send_ptr(NULL, 4, WEFT_F32, 1 - rank, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "is NULL but has 4 elements");
    CHECK_STATUS(weft_recv_ptr(room + 1, 4, WEFT_F32, 1 - rank, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "is not aligned for f32");
    CHECK_STATUS(weft_recv_ptr(room, SIZE_MAX / 2, WEFT_F32, 1 - rank, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_reduce_ptr(room, room, 4, WEFT_F32, WEFT_SUM, NULL),
                 WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* nothing has happened */
    CHECK_INT(weft_finish(world), 0);
}

/* The ends of a line have nobody on one side: every rank makes the same calls. */
RANKS_TEST(test_pointer_nobody, 3)
{
    weft_group *world = weft_init(NULL);
    int left = rank ? rank - 1 : WEFT_NOBODY, right = rank + 1 < size ? rank + 1 : WEFT_NOBODY;
    float mine = (float)rank, theirs = -1;
    weft_tensor *in = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), rank);
    weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), -1);
    CHECK_OK(weft_send_recv(out, left, in, right, world));
    CHECK(weft_item(out, 0) == (rank ? rank - 1 : -1));
    CHECK_OK(weft_send_ptr(&mine, 1, WEFT_F32, WEFT_NOBODY, world));
    CHECK_OK(weft_recv_ptr(&theirs, 1, WEFT_F32, WEFT_NOBODY, world));
    CHECK(theirs == -1);
    weft_p2p_op ops[] = {{WEFT_P2P_RECV, out, left, 3, world},
                         {WEFT_P2P_SEND, in, right, 3, world}};
    weft_work *work = weft_batch_start(ops, 2);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK_INT(weft_batch_source(work, 0), rank ? rank - 1 : -1);
    CHECK_INT(weft_batch_source(work, 1), -1);
    CHECK_OK(weft_work_wait(weft_send_start(in, WEFT_NOBODY, world), WEFT_DEFAULT));
    CHECK_STATUS(weft_send(NULL, WEFT_NOBODY, world), WEFT_ERR_INVALID_ARG); /* checks stay */
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

RANKS_TEST(test_pointer_empty_batch, 2)
{
    weft_group *world = weft_init(NULL);
    char text[200];
    weft_work *work = weft_batch_start(NULL, 0);
    CHECK(work);
    CHECK_OK(weft_work_wait(work, 0));
    CHECK_OK(weft_work_test(work));
    CHECK_OK(weft_work_status(work));
    CHECK(!strcmp(weft_work_describe(work, text, sizeof text), "no sends or receives: done"));
    CHECK(!weft_batch_start(NULL, -1));
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
