/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on symmetric memory.  The tests that bear the names of the reference do what it says
 * of them, with its loops and tolerances; the operands are left to the operations to rendezvous.
 * The others go where the reference does not: other dtypes, reductions, numbers of ranks, and
 * everything that can be wrong.
 */
#include "fault.h"
#include "harness_ranks.h"

#include <weft/weft.h>

static weft_group *join(int rank)
{
    weft_group *world = weft_init(NULL);
    if (!world)
        FAIL("weft_init: %s", weft_last_error());
    weft_seed(42 + (uint64_t)rank);
    return world;
}

#define FINISH(world_)                 \
    do {                               \
        weft_clear_error();            \
        CHECK(!weft_finish((world_))); \
    } while (0)

static weft_tensor *symmetric(weft_dtype dtype, int64_t count)
{
    weft_tensor *x = weft_symm_empty(dtype, WEFT_CPU, WEFT_SHAPE(count));
    if (!x)
        FAIL("weft_symm_empty: %s", weft_last_error());
    return x;
}

/* What all ranks have in `x`, as float64, one row each. */
static const double *gather(weft_tensor *x, int size, weft_group *world)
{
    int64_t count = weft_tensor_numel(x);
    weft_tensor *flat = weft_reshape(x, WEFT_SHAPE(count));
    weft_tensor *all = weft_empty(weft_tensor_dtype(x), WEFT_CPU, WEFT_SHAPE(size, count));
    CHECK_OK(weft_all_gather_into(all, flat, world));
    return weft_tensor_data(weft_to_dtype(all, WEFT_F64));
}

static bool near(double actual, double expected, double relative, double absolute)
{
    return fabs(actual - expected) <= absolute + relative * fabs(expected);
}

static double sum_at(const double *all, int size, int64_t count, int64_t i)
{
    double sum = 0;
    for (int rank = 0; rank < size; rank++)
        sum += all[rank * count + i];
    return sum;
}

/* `before` is the gathered input.  All ranks have the same bits, close to the sum. */
static void verify_all_reduce(const double *before, weft_tensor *result, int size,
                              weft_group *world)
{
    int64_t count = weft_tensor_numel(result);
    const double *all = gather(result, size, world);
    for (int64_t i = 0; i < count; i++) {
        for (int rank = 1; rank < size; rank++)
            CHECK(!memcmp(&all[rank * count + i], &all[i], sizeof *all));
        if (!near(all[i], sum_at(before, size, count, i), 0.1, 0.1))
            FAIL("element %lld of %lld is %g, not %g", (long long)i, (long long)count, all[i],
                 sum_at(before, size, count, i));
    }
}

/* As the reference's "close" for this dtype. */
static void check_close(weft_tensor *x, const double *before, int size)
{
    bool bf16 = weft_tensor_dtype(x) == WEFT_BF16;
    int64_t count = weft_tensor_numel(x);
    for (int64_t i = 0; i < count; i++)
        if (!near(weft_item(x, i), sum_at(before, size, count, i), bf16 ? 1.6e-2 : 1.3e-6, 1e-5))
            FAIL("element %lld is %.9g, not %.9g", (long long)i, weft_item(x, i),
                 sum_at(before, size, count, i));
}

/* Everything but [first, first + count) is still 0. */
static void check_zero_around(weft_tensor *x, int64_t first, int64_t count)
{
    weft_tensor *wide = weft_to_dtype(x, WEFT_F64);
    const double *data = weft_tensor_data(wide);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK((i >= first && i < first + count) || data[i] == 0);
}

static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16};

#define FOR_DTYPES_AND_SIZES(sizes_, ...)                                      \
    for (int d = 0; d < 2; d++)                                                \
        for (int s = 0; s < 3; s++) {                                          \
            weft_scope_open();                                                 \
            weft_dtype dtype = dtypes[d];                                      \
            int64_t item = (int64_t)weft_dtype_size(dtype), bytes = sizes_[s]; \
            int64_t count = bytes / item;                                      \
            __VA_ARGS__                                                        \
            weft_scope_close();                                                \
        }

static const int64_t usual[] = {4, 8192, 8196};

/* ---- the reference's tests ---- */

static void one_shot(weft_dtype dtype, int64_t count, int copy, int64_t offset, int size,
                     weft_group *world)
{
    weft_tensor *buffer = symmetric(dtype, count + offset);
    weft_tensor *x = weft_slice(buffer, 0, offset, count + offset, 1);
    weft_tensor *in = copy ? weft_randn(dtype, WEFT_CPU, WEFT_SHAPE(count)) : x;
    if (!copy)
        CHECK_OK(weft_normal(x, 0, 1));
    const double *before = gather(in, size, world);
    weft_tensor *out = copy ? weft_symm_one_shot_all_reduce_copy(x, in, WEFT_SUM, world)
                            : weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
    if (!out)
        FAIL("%s", weft_last_error());
    verify_all_reduce(before, out, size, world);
}

RANKS_TEST(test_one_shot_all_reduce, 4)
{
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(usual, {
        for (int copy = 0; copy < 2; copy++)
            for (int64_t offset = 0; offset <= 16; offset += 16)
                one_shot(dtype, count, copy, offset, size, world);
    })
    FINISH(world);
}

RANKS_TEST(test_two_shot_all_reduce, 4)
{
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(usual, {
        for (int in_place = 0; in_place < 2; in_place++) {
            weft_tensor *t = symmetric(dtype, 16384);
            CHECK((uintptr_t)weft_tensor_data(t) % 16 == 0);
            int64_t shift = 8 / item;
            weft_tensor *x = weft_slice(t, 0, shift, shift + count, 1);
            CHECK_OK(weft_normal(x, 0, 1));
            const double *before = gather(x, size, world);
            weft_tensor *out = in_place ? x : weft_empty_like(x);
            if (in_place)
                CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
            else
                CHECK_OK(weft_symm_two_shot_all_reduce_out(out, x, WEFT_SUM, world));
            check_zero_around(t, shift, count);
            verify_all_reduce(before, out, size, world);
        }
    })
    FINISH(world);
}

/* Row by row (one row if they are not split): rank i has columns of the sum from i * part on. */
static void verify_reduce_scatter(const double *before, weft_tensor *result, int64_t count,
                                  int64_t row, int size, weft_group *world)
{
    const double *all = gather(result, size, world);
    int64_t part = row / size, each = count / size;
    for (int64_t i = 0; i < count; i++) {
        int64_t owner = i % row / part, at = i / row * part + i % part;
        if (!near(all[owner * each + at], sum_at(before, size, count, i), 0.1, 0.11))
            FAIL("element %lld is %g, not %g", (long long)i, all[owner * each + at],
                 sum_at(before, size, count, i));
    }
}

RANKS_TEST(test_reduce_scatter, 4)
{
    static const int64_t large[] = {128, 8192, 589824};
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(large, {
        for (int split = 0; split < 2; split++) {
            weft_tensor *t = symmetric(dtype, 589824);
            int64_t shift = 8 / item;
            int64_t row = split ? 128 / item : count;
            weft_tensor *x = weft_slice(t, 0, shift, shift + count, 1);
            CHECK_OK(weft_normal(x, 0, 1));
            const double *before = gather(x, size, world);
            weft_shape part = WEFT_SHAPE(count / size);
            if (split) {
                x = weft_view(x, WEFT_SHAPE(-1, row));
                part = WEFT_SHAPE(count / row, row / size);
            }
            weft_tensor *out = weft_empty(dtype, WEFT_CPU, part);
            CHECK_OK(weft_symm_reduce_scatter_out(out, x, split, WEFT_SUM, world));
            check_zero_around(t, shift, count);
            verify_reduce_scatter(before, out, count, row, size, world);
        }
    })
    FINISH(world);
}

RANKS_TEST(test_reduce_scatter_corner_cases, 4)
{
    weft_group *world = join(rank);
    weft_tensor *t = symmetric(WEFT_BF16, 16384);
    weft_tensor *none = weft_empty(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(0));
    CHECK_OK(weft_symm_reduce_scatter_out(none, weft_slice(t, 0, 0, 0, 1), false, WEFT_SUM, world));
    weft_tensor *flat = weft_slice(t, 0, 0, 48, 1);
    weft_tensor *out = weft_empty(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(48 / size));
    CHECK_STATUS(weft_symm_reduce_scatter_out(out, flat, false, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "divisible");
    weft_tensor *rows = weft_view(weft_slice(t, 0, 0, 96, 1), WEFT_SHAPE(2, 48));
    out = weft_empty(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(2, 48 / size));
    CHECK_STATUS(weft_symm_reduce_scatter_out(out, rows, true, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "divisible");
    FINISH(world);
}

RANKS_TEST(test_multimem_all_reduce, 4)
{
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(usual, {
        for (int64_t align = 4; align <= 16; align *= 2) {
            weft_tensor *t = symmetric(dtype, 16384);
            int64_t shift = align / item;
            weft_tensor *x = weft_slice(t, 0, shift, shift + count, 1);
            CHECK_OK(weft_normal(x, 0, 1));
            const double *before = gather(x, size, world);
            CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
            check_zero_around(t, shift, count);
            verify_all_reduce(before, x, size, world);
        }
    })
    FINISH(world);
}

RANKS_TEST(test_multimem_one_shot_all_reduce, 4)
{
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(usual, {
        for (int64_t align = 4; align <= 16; align *= 2) {
            weft_tensor *x = symmetric(dtype, count);
            CHECK_OK(weft_normal(x, 0, 1));
            const double *before = gather(x, size, world);
            weft_tensor *out = weft_symm_multimem_one_shot_all_reduce(x, WEFT_SUM, world);
            CHECK(out);
            check_close(out, before, size);
        }
    })
    FINISH(world);
}

RANKS_TEST(test_multimem_one_shot_reduce_out, 4)
{
    weft_group *world = join(rank);
    FOR_DTYPES_AND_SIZES(usual, {
        weft_tensor *x = symmetric(dtype, count);
        weft_tensor *out = weft_empty_like(x);
        CHECK_OK(weft_normal(x, 0, 1));
        const double *before = gather(x, size, world);
        CHECK_OK(weft_symm_multimem_one_shot_reduce_out(out, x, WEFT_SUM, 0, world));
        if (rank == 0)
            check_close(out, before, size);
    })
    FINISH(world);
}

RANKS_TEST(test_multimem_all_gather, 4)
{
    weft_group *world = join(rank);
    for (int64_t align = 4; align <= 16; align *= 2) {
        int64_t shift = align / 4;
        weft_tensor *room = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(shift + 32));
        weft_tensor *x = weft_slice(room, 0, shift, shift + 32, 1);
        weft_fill(x, rank);
        weft_tensor *t = symmetric(WEFT_F32, shift + 32 * size);
        weft_tensor *out = weft_slice(t, 0, shift, shift + 32 * size, 1);
        CHECK_OK(weft_symm_multimem_all_gather_out(out, x, world));
        weft_tensor *expected = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(32 * size));
        CHECK_OK(weft_all_gather_into(expected, x, world));
        CHECK(weft_equal(out, expected));
        check_zero_around(t, shift, 32 * size);
    }
    FINISH(world);
}

/* (64, 64) of float32, symmetric with the world for its default group, or ordinary. */
static weft_tensor *square(int in_symmetric_memory, weft_group *world)
{
    return in_symmetric_memory
               ? weft_symm_empty_strided_p2p(WEFT_SHAPE(64, 64), NULL, WEFT_F32, WEFT_CPU, world, 0)
               : weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 64));
}

RANKS_TEST(test_low_contention_all_gather, 4)
{
    weft_group *world = join(rank);
    for (int symm = 0; symm < 2; symm++) {
        weft_tensor *x = square(symm, world);
        weft_fill(x, rank);
        weft_work *work = NULL;
        weft_tensor *out = weft_symm_low_contention_all_gather(x, world, &work);
        CHECK(out && work);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(weft_tensor_size(out, 0) == 64 * size && weft_tensor_size(out, 1) == 64);
        const float *data = weft_tensor_data(out);
        for (int64_t i = 0; i < weft_tensor_numel(out); i++)
            CHECK(data[i] == (float)(i / (64 * 64)));
    }
    FINISH(world);
}

RANKS_TEST(test_low_contention_reduce_scatter, 4)
{
    weft_group *world = join(rank);
    for (int kind = 0; kind < 4; kind++) {
        weft_reduction op = kind & 1 ? WEFT_AVG : WEFT_SUM;
        weft_tensor *x = square(kind >> 1, world);
        for (int q = 0; q < size; q++)
            weft_fill(weft_narrow(x, 0, q * (64 / size), 64 / size), q);
        weft_work *work = NULL;
        weft_tensor *out = weft_symm_low_contention_reduce_scatter(x, op, world, &work);
        CHECK(out && work);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(weft_tensor_size(out, 0) == 64 / size && weft_tensor_size(out, 1) == 64);
        const float *data = weft_tensor_data(out);
        for (int64_t i = 0; i < weft_tensor_numel(out); i++)
            CHECK(data[i] == (float)(op == WEFT_SUM ? rank * size : rank));
    }
    FINISH(world);
}

/* ---- any number of ranks, any dtype, any reduction, any place ---- */

/* Small whole numbers, exact in every dtype but the 8-bit floats; all reductions of 8 of them are
 * exact as well. */
static double value(int rank, int64_t i)
{
    return (double)((i + 2 * rank) % 3);
}

static void fill_values(weft_tensor *x, int rank)
{
    weft_tensor *values = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(weft_tensor_numel(x)));
    double *data = weft_tensor_data(values);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        data[i] = value(rank, i);
    CHECK_OK(weft_copy(weft_view(x, WEFT_SHAPE(-1)), values));
}

static double expected_at(weft_reduction op, int size, int64_t i)
{
    double result = value(0, i);
    for (int rank = 1; rank < size; rank++) {
        double v = value(rank, i);
        if (op == WEFT_SUM)
            result += v;
        else if (op == WEFT_PRODUCT)
            result *= v;
        else
            result = v > result ? v : result;
    }
    return result;
}

static void check_values(weft_tensor *x, weft_reduction op, int size, int64_t first)
{
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        if (weft_item(x, i) != expected_at(op, size, first + i))
            FAIL("%s %s: element %lld is %g, not %g", weft_dtype_name(weft_tensor_dtype(x)),
                 weft_reduction_name(op), (long long)i, weft_item(x, i),
                 expected_at(op, size, first + i));
}

/* All reducing operations on one view. */
static void reduce_all_ways(weft_tensor *x, weft_reduction op, int rank, int size,
                            weft_group *world)
{
    fill_values(x, rank);
    check_values(weft_symm_one_shot_all_reduce(x, op, world), op, size, 0);
    check_values(weft_symm_multimem_one_shot_all_reduce(x, op, world), op, size, 0);
    weft_tensor *out = weft_empty_like(x), *local = weft_clone(x);
    int root = size - 1;
    CHECK_OK(weft_symm_multimem_one_shot_reduce_out(rank == root ? out : NULL, x, op, root, world));
    if (rank == root)
        check_values(out, op, size, 0);
    CHECK_OK(weft_symm_multimem_one_shot_reduce_out(rank == root ? x : NULL, x, op, root, world));
    CHECK_OK(weft_symm_one_shot_all_reduce_copy_out(local, x, local, op, world));
    check_values(local, op, size, 0);
    fill_values(x, rank);
    CHECK_OK(weft_symm_two_shot_all_reduce_out(out, x, op, world));
    check_values(out, op, size, 0);
    fill_values(x, rank);
    CHECK_OK(weft_symm_two_shot_all_reduce_out(x, x, op, world));
    check_values(x, op, size, 0);
    fill_values(x, rank);
    CHECK_OK(weft_symm_two_shot_all_reduce(x, op, world));
    check_values(x, op, size, 0);
    fill_values(x, rank);
    CHECK_OK(weft_symm_multimem_all_reduce(x, op, world));
    check_values(x, op, size, 0);
}

/* Parts of an odd size at an odd place: vectors of one element. */
static void scatter_rows(weft_tensor *t, weft_reduction op, int rank, int size, weft_group *world)
{
    int64_t part = 3, rows = 5;
    weft_tensor *flat = weft_slice(t, 0, 1, 1 + rows * part * size, 1);
    fill_values(flat, rank);
    weft_tensor *x = weft_view(flat, WEFT_SHAPE(rows, part * size));
    weft_tensor *out = weft_empty(weft_tensor_dtype(t), WEFT_CPU, WEFT_SHAPE(rows, part));
    CHECK_OK(weft_symm_reduce_scatter_out(out, x, true, op, world));
    for (int64_t row = 0; row < rows; row++)
        check_values(weft_select(out, 0, row), op, size, row * part * size + rank * part);
    weft_tensor *whole = weft_slice(flat, 0, 0, part * size, 1);
    out = weft_empty(weft_tensor_dtype(t), WEFT_CPU, WEFT_SHAPE(part));
    CHECK_OK(weft_symm_reduce_scatter_out(out, whole, false, op, world));
    check_values(out, op, size, rank * part);
    /* In place: the output is this rank's part of the input. */
    weft_tensor *mine = weft_narrow(whole, 0, rank * part, part);
    CHECK_OK(weft_symm_reduce_scatter_out(mine, whole, false, op, world));
    check_values(mine, op, size, rank * part);
}

static void gather_low(weft_tensor *x, int rank, int size, weft_group *world)
{
    fill_values(x, rank);
    int64_t count = weft_tensor_numel(x);
    weft_work *work = NULL;
    weft_tensor *all = weft_symm_low_contention_all_gather(x, world, &work);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    for (int64_t i = 0; i < count * size; i++)
        CHECK(weft_item(all, i) == value((int)(i / count), i % count));
    weft_tensor *t = symmetric(weft_tensor_dtype(x), count * size + 3);
    weft_tensor *out = weft_slice(t, 0, 3, count * size + 3, 1);
    CHECK_OK(weft_symm_multimem_all_gather_out(out, x, world));
    CHECK(weft_equal(out, all));
}

static void every_way(int rank, int size)
{
    static const weft_dtype types[] = {WEFT_F64, WEFT_F16, WEFT_I32, WEFT_U8, WEFT_I64};
    static const weft_reduction ops[] = {WEFT_SUM, WEFT_PRODUCT, WEFT_MAX};
    static const int64_t counts[] = {0, 1, 7, 1000};
    weft_group *world = join(rank);
    for (int d = 0; d < 5; d++)
        for (int c = 0; c < 4; c++) {
            weft_scope_open();
            weft_tensor *t = symmetric(types[d], 1200);
            weft_tensor *x = weft_slice(t, 0, 3, 3 + counts[c], 1);
            for (int op = 0; op < 3; op++)
                reduce_all_ways(x, ops[op], rank, size, world);
            scatter_rows(t, ops[c % 3], rank, size, world);
            gather_low(x, rank, size, world);
            weft_scope_close();
        }
    FINISH(world);
}

RANKS_TEST(test_symm_coll_1, 1)
{
    every_way(rank, size);
}

RANKS_TEST(test_symm_coll_2, 2)
{
    every_way(rank, size);
}

RANKS_TEST(test_symm_coll_3, 3)
{
    every_way(rank, size);
}

RANKS_TEST(test_symm_coll_5, 5)
{
    every_way(rank, size);
}

RANKS_TEST(test_symm_coll_8, 8)
{
    every_way(rank, size);
}

RANKS_TEST(test_symm_coll_numerics, 4)
{
    weft_group *world = join(rank);
    /* 256 + 1 + 1 + 1: added in bfloat16 it stays 256; in float32, rounded once, it is 260. */
    weft_tensor *x = symmetric(WEFT_BF16, 8);
    weft_fill(x, rank ? 1.25 : 256);
    CHECK(weft_item(weft_symm_one_shot_all_reduce(x, WEFT_SUM, world), 3) == 260);
    CHECK(weft_item(weft_symm_multimem_one_shot_all_reduce(x, WEFT_SUM, world), 3) == 260);
    weft_set_premul(rank + 1);
    weft_fill(x, 2);
    CHECK(weft_item(weft_symm_one_shot_all_reduce(x, WEFT_PREMUL_SUM, world), 7) == 20);
    weft_set_premul(1);
    weft_work *work = NULL;
    weft_fill(x, rank);
    weft_tensor *part = weft_symm_low_contention_reduce_scatter(x, WEFT_AVG, world, &work);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK(weft_item(part, 0) == 1.5);
    FINISH(world);
}

/* Several low-contention operations under way, among plain ones; views with an offset. */
RANKS_TEST(test_symm_coll_low_contention_overlap, 4)
{
    weft_group *world = join(rank);
    enum { WORKS = 6 };
    for (int round = 0; round < 5; round++) {
        weft_scope_open();
        weft_work *work[WORKS];
        weft_tensor *out[WORKS];
        for (int w = 0; w < WORKS; w++) {
            int64_t count = w < 3 ? 100 : 20000;
            weft_tensor *x = w & 1 ? weft_narrow(symmetric(WEFT_F32, count + 5), 0, 5, count)
                                   : weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
            weft_fill(x, 10 * rank + w);
            out[w] = weft_symm_low_contention_all_gather(x, world, &work[w]);
            CHECK(out[w]);
        }
        weft_tensor *x = symmetric(WEFT_F32, 64);
        weft_fill(x, 1);
        CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
        CHECK(weft_item(x, 63) == size);
        for (int w = WORKS - 1; w >= 0; w--) {
            CHECK_OK(weft_work_wait(work[w], WEFT_DEFAULT));
            int64_t count = weft_tensor_numel(out[w]) / size;
            for (int64_t i = 0; i < count * size; i++)
                CHECK(((float *)weft_tensor_data(out[w]))[i] == (float)(10 * (i / count) + w));
        }
        weft_scope_close();
    }
    FINISH(world);
}

/* ---- what is refused ---- */

RANKS_TEST(test_symm_coll_refused, 2)
{
    weft_group *world = join(rank);
    weft_tensor *x = symmetric(WEFT_F32, 64),
                *ordinary = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    weft_tensor *other = symmetric(WEFT_F32, 64);
    CHECK(!weft_symm_one_shot_all_reduce(ordinary, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_two_shot_all_reduce(ordinary, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_multimem_all_gather_out(ordinary, weft_narrow(x, 0, 0, 32), world),
                 WEFT_ERR_TYPE);
    CHECK(!weft_symm_one_shot_all_reduce_copy(ordinary, x, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    /* Others would still read what is overwritten. */
    CHECK_STATUS(weft_symm_one_shot_all_reduce_out(x, x, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "overlap");
    CHECK_STATUS(weft_symm_multimem_all_gather_out(other, x, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "expected out shape");
    CHECK_STATUS(weft_symm_multimem_one_shot_reduce_out(ordinary, x, WEFT_SUM, 2, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_two_shot_all_reduce(x, WEFT_BAND, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_two_shot_all_reduce(x, (weft_reduction)77, world), WEFT_ERR_INVALID_ARG);
    weft_tensor *square = weft_view(x, WEFT_SHAPE(8, 8));
    CHECK_STATUS(weft_symm_two_shot_all_reduce(weft_transpose(square, 0, 1), WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "contiguous");
    weft_work *work = (weft_work *)x;
    weft_tensor *odd = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK(!weft_symm_low_contention_reduce_scatter(odd, WEFT_SUM, world, &work) && !work);
    CHECK_CONTAINS(weft_last_error(), "divisible");
    weft_clear_error();
    CHECK(!weft_symm_one_shot_all_reduce(NULL, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_symm_two_shot_all_reduce(x, WEFT_SUM, NULL), WEFT_ERR_INVALID_ARG);
    /* Nothing of this has done anything: the group still works. */
    weft_fill(x, 1);
    CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
    CHECK(weft_item(x, 0) == 2);
    FINISH(world);
}

/* Ranks that do not do the same are told so, all of them.  Each case has a group of its own. */
static void mismatch(int what, int rank, weft_group *world)
{
    static const int both[] = {0, 1};
    weft_group *group = weft_group_new(world, both, 2, NULL);
    weft_tensor *x = symmetric(WEFT_F32, 64), *y = symmetric(WEFT_F32, 64);
    if (what != 5)
        CHECK(weft_symm_rendezvous(x, group) && weft_symm_rendezvous(y, group));
    weft_tensor *half = weft_narrow(x, 0, 8 * (what == 1 && rank), 32),
                *out = weft_empty_like(half);
    weft_status status = WEFT_OK;
    if (what == 0) /* the operation */
        status = rank ? weft_symm_two_shot_all_reduce(half, WEFT_SUM, group)
                      : weft_symm_multimem_all_reduce(half, WEFT_SUM, group);
    else if (what == 1) /* the place in the block */
        status = weft_symm_two_shot_all_reduce(half, WEFT_SUM, group);
    else if (what == 2) /* the block */
        status = weft_symm_two_shot_all_reduce(rank ? x : y, WEFT_SUM, group);
    else if (what == 3) /* the reduction */
        status = weft_symm_one_shot_all_reduce_out(out, half, rank ? WEFT_SUM : WEFT_MAX, group);
    else if (what == 4) /* the layout */
        status =
            weft_symm_reduce_scatter_out(weft_narrow(out, 0, 0, 16), half, rank, WEFT_SUM, group);
    else if (what == 5) /* at the first use */
        status = rank ? weft_symm_two_shot_all_reduce(x, WEFT_SUM, group)
                      : weft_all_reduce_into(x, x, WEFT_SUM, group);
    CHECK_STATUS(status, WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), what == 5 ? "two_shot_all_reduce" : "calls");
    weft_clear_error();
}

RANKS_TEST(test_symm_coll_mismatch, 2)
{
    weft_group *world = join(rank);
    for (int what = 0; what < 6; what++)
        mismatch(what, rank, world);
    FINISH(world);
}

/* ---- what runs out ---- */

/* A little of everything that takes memory; the first error. */
static weft_status use_everything(weft_group *world)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    weft_tensor *plain = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(40000));
    weft_tensor *list[3] = {plain, weft_ones(WEFT_I8, WEFT_CPU, WEFT_SHAPE(3)), NULL};
    static const int roots[1] = {0};
    weft_work *work = NULL;
    if (!x || !plain || !list[1])
        return weft_last_status();
    if (!weft_symm_one_shot_all_reduce(x, WEFT_SUM, world) ||
        !weft_symm_low_contention_all_gather(plain, world, &work))
        return weft_last_status();
    weft_status status = weft_work_wait(work, WEFT_DEFAULT);
    weft_tensor *tiles[2] = {x, x};
    if (status == WEFT_OK)
        status = weft_symm_multi_root_tile_reduce(x, tiles, roots, 1, WEFT_SUM, world);
    if (status == WEFT_OK)
        status = weft_all_reduce_list_into(list, list, 2, WEFT_SUM, world);
    work = status == WEFT_OK ? weft_all_reduce_list_start(list, list, 2, WEFT_SUM, world) : NULL;
    return work ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
}

RANKS_TEST(test_symm_coll_shortage, 1)
{
    if (harness_in_threads)
        SKIP("the table of system calls belongs to the whole process");
    weft_group *world = join(rank);
    static const int alone[] = {0};
    bool fired = true;
    for (int n = 1; fired; n++) {
        CHECK(n < 500);
        weft_scope_open();
        weft_group *group = weft_group_new(world, alone, 1, NULL); /* with nothing made yet */
        fault_arm(n);
        weft_status status = use_everything(group);
        fired = fault_disarm();
        CHECK(status == WEFT_OK || (fired && weft_last_error()[0]));
        weft_clear_error();
        status = use_everything(group); /* all of it works when there is enough */
        if (status < 0)
            FAIL("after call %d failed: %s", n, weft_last_error());
        weft_scope_close();
    }
    FINISH(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
