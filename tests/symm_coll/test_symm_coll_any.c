/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/reduce.c, symm_coll/gather.c, symm_coll/tile.c */
/*
 * Operations on symmetric memory where the reference does not go: other dtypes, reductions, numbers
 * of ranks, and everything that can be wrong.
 */
#include "fault.h"
#include "symm_jobs.h"

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

/* Elements in order; an item at a time takes longer than all operations here. */
static const double *elements(weft_tensor *x)
{
    weft_tensor *wide = weft_contiguous(weft_to(x, WEFT_F64, WEFT_CPU));
    CHECK(wide);
    return weft_tensor_data(wide);
}

static void check_values(weft_tensor *x, weft_reduction op, int size, int64_t first)
{
    const double *data = elements(x);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        if (data[i] != expected_at(op, size, first + i))
            FAIL("%s %s: element %lld is %g, not %g", weft_dtype_name(weft_tensor_dtype(x)),
                 weft_reduction_name(op), (long long)i, data[i], expected_at(op, size, first + i));
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
    const double *data = elements(all);
    for (int64_t i = 0; i < count * size; i++)
        CHECK(data[i] == value((int)(i / count), i % count));
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
    CHECK(!weft_symm_low_contention_reduce_scatter(x, WEFT_BXOR, world, &work) && !work);
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK(!weft_symm_low_contention_reduce_scatter(x, (weft_reduction)77, world, &work) && !work);
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_symm_low_contention_all_gather(x, world, NULL));
    CHECK_CONTAINS(weft_last_error(), "there is nowhere to put the work");
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

/* What else must be the same on all ranks, one thing at a time; `odd` ranks have it otherwise. */
static weft_status differ(int what, bool odd, weft_group *group)
{
    weft_tensor *t = symmetric(WEFT_F32, 64), *n = symmetric(WEFT_I64, 4);
    CHECK(weft_symm_rendezvous(t, group) && weft_symm_rendezvous(n, group));
    weft_tensor *x = weft_view(t, WEFT_SHAPE(8, 8)), *plain = weft_zeros_like(t);
    weft_tensor *a = weft_narrow(weft_narrow(x, 0, 0, 2), 1, 0, 4);
    weft_tensor *b = weft_narrow(weft_narrow(x, 0, 4, 2), 1, 0, 4);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4)), *two[] = {a, b};
    weft_tensor *table = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, odd && what == 8 ? 4 : 2));
    int roots[] = {0, 1}, turned[] = {1, 0};
    weft_work *work = NULL;
    switch (what) {
    case 0: /* rows of the layout by the last dimension */
        x = weft_view(t, odd ? WEFT_SHAPE(2, 32) : WEFT_SHAPE(4, 16));
        out = weft_zeros(WEFT_F32, WEFT_CPU, odd ? WEFT_SHAPE(2, 16) : WEFT_SHAPE(4, 8));
        return weft_symm_reduce_scatter_out(out, x, true, WEFT_SUM, group);
    case 1: /* the root */
        return weft_symm_multimem_one_shot_reduce_out(plain, t, WEFT_SUM, odd, group);
    case 2: /* whether the input is symmetric */
        if (!weft_symm_low_contention_all_gather(odd ? t : plain, group, &work))
            return weft_last_status();
        return weft_work_wait(work, WEFT_DEFAULT);
    case 3: /* the root of a tile */
        return weft_symm_tile_reduce(out, a, WEFT_SUM, odd, group);
    case 4: /* the roots of tiles */
        return weft_symm_multi_root_tile_reduce(out, two, odd ? roots : turned, 2, WEFT_SUM, group);
    case 5: /* how many tiles there are */
        return weft_symm_multi_root_tile_reduce(out, two, roots, odd ? 0 : 2, WEFT_SUM, group);
    case 6: /* the extents of a tile */
        a = weft_narrow(weft_narrow(x, 0, 0, 4), 1, 0, 2);
        out = odd ? weft_reshape(out, WEFT_SHAPE(4, 2)) : out;
        return weft_symm_tile_reduce(out, odd ? a : two[0], WEFT_SUM, 0, group);
    case 7: /* the strides of a tile */
        a = weft_narrow(weft_view(t, WEFT_SHAPE(16, 4)), 0, 0, 2);
        return weft_symm_tile_reduce(out, odd ? a : two[0], WEFT_SUM, 0, group);
    case 8: /* how many experts a rank has */
        return weft_symm_all_to_all_vdev_2d(plain, table, t, odd ? n : weft_narrow(n, 0, 0, 2), 1,
                                            group);
    default: /* the alignment */
        return weft_symm_all_to_all_vdev_2d(plain, table, t, weft_narrow(n, 0, 0, 2), 1 + odd,
                                            group);
    }
}

RANKS_TEST(test_symm_coll_told_apart, 2)
{
    static const int both[] = {0, 1};
    weft_group *world = join(rank);
    for (int what = 0; what < 10; what++) {
        weft_scope_open();
        weft_group *group = weft_group_new(world, both, 2, NULL);
        weft_status status = differ(what, rank == 1, group);
        if (status != WEFT_ERR_MISMATCH)
            FAIL("case %d: %d, not a mismatch: %s", what, status, weft_last_error());
        CHECK_CONTAINS(weft_last_error(), "calls");
        if (what == 5) /* none are no bytes */
            CHECK_CONTAINS(weft_last_error(), "multi_root_tile_reduce of 0 u8");
        weft_clear_error();
        group = weft_group_new(world, both, 2, NULL); /* alike it is right */
        for (int odd = 0; odd < 2; odd++)
            CHECK_OK(differ(what, odd, group));
        weft_scope_close();
    }
    (void)size;
    FINISH(world);
}

/* ---- what runs out ---- */

static weft_status exchange_rows(weft_tensor *x, weft_group *world)
{
    weft_tensor *splits = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1));
    weft_tensor *table = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 1)),
                *out = weft_empty_like(x);
    if (!splits || !table || !out)
        return weft_last_status();
    *(int64_t *)weft_tensor_data(splits) = 8;
    return weft_symm_all_to_all_vdev(out, table, x, splits, world);
}

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
        status = exchange_rows(x, world);
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
        /* A call that goes well has not met an error on its way and passed over it. */
        CHECK(status < 0 || weft_last_status() == WEFT_OK);
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
