/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coll.c, coll/host/move.c, coll/host/reduce.c */
/* Collectives: each against what it should give, by hand, in ordinary and symmetric memory, at
 * sizes of every algorithm. */
#include "jobs.h"

#include "coll/calls/run.h"

#include <weft/weft.h>

static const int64_t counts[] = {0, 1, 7, 14, 15, 100, 513, 5000, 40000, 100003};
enum { COUNTS = sizeof counts / sizeof *counts };

/* A tensor of `count` float32, symmetric or not; symmetric ones have met. */
static weft_tensor *make(int symmetric, int64_t count, weft_group *world)
{
    if (!symmetric)
        return weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(weft_symm_rendezvous(x, world));
    return x;
}

/* Element i of rank r: small whole numbers, so that sums are exact.  Inline, as the next one:
 * ThreadSanitizer notes every call. */
static inline float value(int rank, int64_t i)
{
    return (float)((i * 7 + rank * 3) % 101 - 50);
}

static void fill(weft_tensor *x, int rank)
{
    float *data = weft_tensor_data(x);
    int64_t count = weft_tensor_numel(x);
    for (int64_t i = 0; i < count; i++)
        data[i] = value(rank, i);
}

static inline float sum(int size, int64_t i)
{
    float total = 0;
    for (int rank = 0; rank < size; rank++)
        total += value(rank, i);
    return total;
}

#define CHECK_ALL(x_, expected_)                                                            \
    do {                                                                                    \
        const float *data_ = weft_tensor_data(x_);                                          \
        int64_t count_ = weft_tensor_numel(x_);                                             \
        for (int64_t i = 0; i < count_; i++)                                                \
            if (data_[i] != (expected_))                                                    \
                FAIL("element %lld of %lld is %g, not %g", (long long)i, (long long)count_, \
                     (double)data_[i], (double)(expected_));                                \
    } while (0)

/* Runs `body(count, symmetric in, symmetric out)` for all of them, each in a scope. */
#define FOR_ALL(...)                           \
    for (int c = 0; c < COUNTS; c++)           \
        for (int kind = 0; kind < 4; kind++) { \
            weft_scope_open();                 \
            int64_t count = counts[c];         \
            int si = kind & 1, so = kind >> 1; \
            __VA_ARGS__;                       \
            weft_scope_close();                \
        }

static void all_reduce(int rank, int size)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *in = make(si, count, world), *out = make(so, count, world);
        fill(in, rank);
        CHECK_OK(weft_all_reduce_into(out, in, WEFT_SUM, world));
        CHECK_ALL(out, sum(size, i));
        CHECK_ALL(in, value(rank, i));
        CHECK_OK(weft_all_reduce_into(in, in, WEFT_SUM, world));
        CHECK_ALL(in, sum(size, i));
    })
    CHECK(!weft_finish(world));
}

/* Whichever floor has it; messages go another way. */
TEST(test_coll_runners)
{
    for (weft_i_coll_kind kind = 0; kind < WEFT_I_COLL_KINDS; kind++) {
        bool message = kind == WEFT_I_SEND || kind == WEFT_I_RECV || kind == WEFT_I_SEND_RECV;
        if (!weft_i_kind_runner(kind) != message)
            FAIL("%s %s", weft_i_coll_name(kind), message ? "has an algorithm" : "has none");
    }
}

RANKS_TEST(test_coll_all_reduce_1, 1)
{
    all_reduce(rank, size);
}

RANKS_TEST(test_coll_all_reduce_2, 2)
{
    all_reduce(rank, size);
}

RANKS_TEST(test_coll_all_reduce_3, 3)
{
    all_reduce(rank, size);
}

RANKS_TEST(test_coll_all_reduce_7, 7)
{
    all_reduce(rank, size);
}

RANKS_TEST(test_coll_reduce, 3)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *in = make(si, count, world), *out = make(so, count, world);
        int root = c % size;
        fill(in, rank);
        CHECK_OK(weft_reduce_into(rank == root ? out : NULL, in, WEFT_SUM, root, world));
        if (rank == root)
            CHECK_ALL(out, sum(size, i));
        CHECK_ALL(in, value(rank, i));
        CHECK_OK(weft_reduce_into(rank == root ? in : NULL, in, WEFT_SUM, root, world));
        if (rank == root)
            CHECK_ALL(in, sum(size, i));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_reduce_scatter, 4)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *in = make(si, count * size, world), *out = make(so, count, world);
        fill(in, rank);
        CHECK_OK(weft_reduce_scatter_into(out, in, WEFT_SUM, world));
        CHECK_ALL(out, sum(size, rank * count + i));
        CHECK_ALL(in, value(rank, i));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_broadcast, 3)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *x = make(si || so, count, world);
        int root = (c + kind) % size;
        fill(x, rank);
        CHECK_OK(weft_broadcast_in_place(x, root, world));
        CHECK_ALL(x, value(root, i));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_all_gather, 4)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *in = make(si, count, world), *out = make(so, count * size, world);
        fill(in, rank);
        CHECK_OK(weft_all_gather_into(out, in, world));
        CHECK_ALL(out, value((int)(i / count), i % count));
        /* In place: the input is this rank's part of the output. */
        weft_fill(out, -1);
        weft_tensor *part = weft_narrow(out, 0, rank * count, count);
        fill(part, rank);
        CHECK_OK(weft_all_gather_into(out, part, world));
        CHECK_ALL(out, value((int)(i / count), i % count));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_gather_scatter, 4)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *part = make(si, count, world), *whole = make(so, count * size, world);
        int root = c % size;
        fill(part, rank);
        CHECK_OK(weft_gather_into(rank == root ? whole : NULL, part, root, world));
        if (rank == root)
            CHECK_ALL(whole, value((int)(i / count), i % count));
        fill(whole, rank);
        CHECK_OK(weft_scatter_into(part, rank == root ? whole : NULL, root, world));
        CHECK_ALL(part, value(root, rank * count + i));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_all_to_all, 4)
{
    weft_group *world = join(0);
    FOR_ALL({
        weft_tensor *in = make(si, count * size, world), *out = make(so, count * size, world);
        fill(in, rank);
        CHECK_OK(weft_all_to_all_into(out, in, NULL, NULL, world));
        CHECK_ALL(out, value((int)(i / count), rank * count + i % count));
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_all_to_all_uneven, 3)
{
    weft_group *world = join(0);
    FOR_ALL({
        int64_t in_splits[3], out_splits[3], in_rows = 0, out_rows = 0;
        for (int peer = 0; peer < size; peer++) {
            in_splits[peer] = (rank + 2 * peer) * count;
            out_splits[peer] = (peer + 2 * rank) * count;
            in_rows += in_splits[peer];
            out_rows += out_splits[peer];
        }
        weft_tensor *in = make(0, in_rows, world), *out = make(0, out_rows, world);
        fill(in, rank);
        CHECK_OK(weft_all_to_all_into(out, in, out_splits, in_splits, world));
        const float *data = weft_tensor_data(out);
        for (int peer = 0; peer < size; peer++) {
            int64_t start = 0;
            for (int before = 0; before < rank; before++)
                start += (peer + 2 * before) * count;
            for (int64_t i = 0; i < out_splits[peer]; i++)
                CHECK(*data++ == value(peer, start + i));
        }
        (void)si, (void)so;
    })
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_send_recv, 4)
{
    weft_group *world = join(0);
    for (int c = 0; c < COUNTS; c++) {
        weft_scope_open();
        weft_tensor *out = make(0, counts[c], world), *in = make(0, counts[c], world);
        int next = (rank + 1) % size, last = (rank + size - 1) % size;
        fill(out, rank);
        /* A ring in which everybody sends first: only works because sends go on while a rank waits.
         */
        weft_work *sending = weft_send_start(out, next, world);
        CHECK_OK(weft_recv(in, last, world));
        CHECK_OK(weft_work_wait(sending, WEFT_DEFAULT));
        CHECK_ALL(in, value(last, i));
        weft_scope_close();
    }
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_work, 4)
{
    weft_group *world = join(0);
    enum { WORKS = 12 };
    weft_tensor *x[WORKS];
    weft_work *work[WORKS];
    for (int round = 0; round < 20; round++) {
        weft_scope_open();
        for (int w = 0; w < WORKS; w++) {
            x[w] = make(w & 1, counts[w % COUNTS], world);
            fill(x[w], rank);
        }
        for (int w = 0; w < WORKS; w++)
            CHECK((work[w] = weft_all_reduce_start(x[w], x[w], WEFT_SUM, world)));
        if (round % 2) /* a plain call waits for what was posted before it */
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        for (int w = WORKS - 1; w >= 0; w--)
            CHECK_OK(weft_work_wait(work[w], WEFT_DEFAULT));
        for (int w = 0; w < WORKS; w++)
            CHECK_ALL(x[w], sum(size, i));
        weft_scope_close();
    }
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_coll_mismatch, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = make(0, 100 + rank, world);
    fill(x, rank);
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce");
    CHECK_ALL(x, value(rank, i)); /* inputs are as they were */
    weft_clear_error();
    CHECK(!weft_finish(world));
}

/* Operands that overlap without being the same are refused, on this rank alone and before anything
 * is touched; the same operand, and a rank's own part of it, are not. */
RANKS_TEST(test_coll_overlap, 2)
{
    weft_group *world = join(20000);
    weft_tensor *all = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(40));
    fill(all, 7);
    weft_tensor *low = weft_narrow(all, 0, 0, 10), *high = weft_narrow(all, 0, 1, 10);
    weft_tensor *wide = weft_narrow(all, 0, 3, 20), *other = weft_narrow(all, 0, 5, 20);
    for (int round = 0; round < 2; round++) {
        CHECK_STATUS(weft_all_reduce_into(high, low, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "overlap");
        CHECK_STATUS(weft_all_reduce_into(low, high, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_reduce_into(high, low, WEFT_SUM, rank, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_all_gather_into(wide, low, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_gather_into(wide, low, rank, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_scatter_into(low, wide, rank, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_reduce_scatter_into(low, wide, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_all_to_all_into(other, wide, NULL, NULL, world), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_all_to_all_into(wide, wide, NULL, NULL, world), WEFT_ERR_INVALID_ARG);
        CHECK(!weft_all_reduce_start(high, low, WEFT_SUM, world));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_all_reduce_list_into(&high, &low, 1, WEFT_SUM, world),
                     WEFT_ERR_INVALID_ARG);
    }
    for (int64_t i = 0; i < 40; i++)
        CHECK(weft_item(all, i) == value(7, i));
    weft_clear_error();
    weft_tensor *mine = weft_narrow(wide, 0, 10 * rank, 10); /* at its own place */
    CHECK_OK(weft_all_gather_into(wide, mine, world));
    CHECK_OK(weft_all_reduce_into(low, low, WEFT_SUM, world));
    (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
