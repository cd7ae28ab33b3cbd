/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/reduce.c, symm_coll/gather.c, symm_coll/reach.c */
/*
 * Operations on symmetric memory.  The tests that bear the names of the reference do what it says
 * of them, with its loops and tolerances; the operands are left to the operations to rendezvous.
 * They are compiled once for each kind of device; what goes further is in test_symm_coll_any.c.
 */
#include "symm_jobs.h"

/* What all ranks have in `x`, as float64, one row each. */
static const double *gather(weft_tensor *x, int size, weft_group *world)
{
    int64_t count = weft_tensor_numel(x);
    weft_tensor *flat = weft_reshape(x, WEFT_SHAPE(count));
    weft_tensor *all = weft_empty(weft_tensor_dtype(x), DEVICE, WEFT_SHAPE(size, count));
    CHECK_OK(weft_all_gather_into(all, flat, world));
    return weft_tensor_data(weft_to(all, WEFT_F64, WEFT_CPU));
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

/* `before` is the gathered input.  All ranks have the same bits, close to the sum; each looks at every
 * size-th element of all. */
static void verify_all_reduce(const double *before, weft_tensor *result, int size,
                              weft_group *world)
{
    int64_t count = weft_tensor_numel(result);
    const double *all = gather(result, size, world);
    for (int64_t i = harness_this_rank; i < count; i += size) {
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
    const double *data = weft_tensor_data(weft_to(x, WEFT_F64, WEFT_CPU));
    for (int64_t i = 0; i < count; i++)
        if (!near(data[i], sum_at(before, size, count, i), bf16 ? 1.6e-2 : 1.3e-6, 1e-5))
            FAIL("element %lld is %.9g, not %.9g", (long long)i, data[i],
                 sum_at(before, size, count, i));
}

/* Everything but [first, first + count) is still 0. */
static void check_zero_around(weft_tensor *x, int64_t first, int64_t count)
{
    weft_tensor *wide = weft_to(x, WEFT_F64, WEFT_CPU);
    const double *data = weft_tensor_data(wide);
    for (int64_t i = 0; i < first; i++)
        CHECK(data[i] == 0);
    for (int64_t i = first + count; i < weft_tensor_numel(x); i++)
        CHECK(data[i] == 0);
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

static void need_multicast(int rank, int size)
{
    const char *why_not = device_spread(rank, size);
    if (why_not)
        SKIP("%s", why_not);
}

static void one_shot(weft_dtype dtype, int64_t count, int copy, int64_t offset, int size,
                     weft_group *world)
{
    weft_tensor *buffer = symmetric(dtype, count + offset);
    weft_tensor *x = weft_slice(buffer, 0, offset, count + offset, 1);
    weft_tensor *in = copy ? weft_randn(dtype, DEVICE, WEFT_SHAPE(count)) : x;
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

/* Row by row (one row if they are not split): rank i has columns of the sum from i * part on.  Each
 * rank looks at every size-th element of all. */
static void verify_reduce_scatter(const double *before, weft_tensor *result, int64_t count,
                                  int64_t row, int size, weft_group *world)
{
    const double *all = gather(result, size, world);
    int64_t part = row / size, each = count / size;
    for (int64_t i = harness_this_rank; i < count; i += size) {
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
            weft_tensor *out = weft_empty(dtype, DEVICE, part);
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
    weft_tensor *none = weft_empty(WEFT_BF16, DEVICE, WEFT_SHAPE(0));
    CHECK_OK(weft_symm_reduce_scatter_out(none, weft_slice(t, 0, 0, 0, 1), false, WEFT_SUM, world));
    weft_tensor *flat = weft_slice(t, 0, 0, 48, 1);
    weft_tensor *out = weft_empty(WEFT_BF16, DEVICE, WEFT_SHAPE(48 / size));
    CHECK_STATUS(weft_symm_reduce_scatter_out(out, flat, false, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "divisible");
    weft_tensor *rows = weft_view(weft_slice(t, 0, 0, 96, 1), WEFT_SHAPE(2, 48));
    out = weft_empty(WEFT_BF16, DEVICE, WEFT_SHAPE(2, 48 / size));
    CHECK_STATUS(weft_symm_reduce_scatter_out(out, rows, true, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "divisible");
    FINISH(world);
}

RANKS_TEST(test_multimem_all_reduce, 4)
{
    need_multicast(rank, size);
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
    need_multicast(rank, size);
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
    need_multicast(rank, size);
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
    need_multicast(rank, size);
    weft_group *world = join(rank);
    for (int64_t align = 4; align <= 16; align *= 2) {
        int64_t shift = align / 4;
        weft_tensor *room = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(shift + 32));
        weft_tensor *x = weft_slice(room, 0, shift, shift + 32, 1);
        weft_fill(x, rank);
        weft_tensor *t = symmetric(WEFT_F32, shift + 32 * size);
        weft_tensor *out = weft_slice(t, 0, shift, shift + 32 * size, 1);
        CHECK_OK(weft_symm_multimem_all_gather_out(out, x, world));
        weft_tensor *expected = weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(32 * size));
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
               ? weft_symm_empty_strided_p2p(WEFT_SHAPE(64, 64), NULL, WEFT_F32, DEVICE, world, 0)
               : weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(64, 64));
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
        const float *data = weft_tensor_data(weft_to(out, WEFT_F32, WEFT_CPU));
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
        const float *data = weft_tensor_data(weft_to(out, WEFT_F32, WEFT_CPU));
        for (int64_t i = 0; i < weft_tensor_numel(out); i++)
            CHECK(data[i] == (float)(op == WEFT_SUM ? rank * size : rank));
    }
    FINISH(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
