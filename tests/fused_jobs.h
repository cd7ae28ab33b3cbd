/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AsyncTPTest of the reference, on the device that a program defines as FUSED_DEVICE: each fused
 * operation against the collective and the product one after the other, which are weft's own plain
 * operations and its fallback alike.  The program also says how many ranks a test has (FUSED_TEST)
 * and how large the large products are (FUSED_ROWS, FUSED_INNER).
 */
#ifndef WEFT_TESTS_FUSED_JOBS_H
#define WEFT_TESTS_FUSED_JOBS_H

#include "functional_jobs.h"

#include "fabric/group.h"

enum { FUSED_RIGHTS = 3 };

/* ---- what the tests share ---- */

static weft_tensor *here(weft_tensor *x)
{
    return x ? weft_to(x, weft_tensor_dtype(x), WEFT_CPU) : NULL;
}

static bool same_layout(weft_tensor *a, weft_tensor *b)
{
    bool same = a && b && a->ndim == b->ndim && a->dtype == b->dtype;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == b->dim[i] && (a->dim[i] < 2 || a->stride[i] == b->stride[i]);
    return same;
}

/* The reference's tolerances, by dtype. */
static bool is_close(weft_tensor *a, weft_tensor *b)
{
    if (!a || !b)
        return false;
    double relative = a->dtype == WEFT_BF16            ? 1.6e-2
                      : weft_dtype_size(a->dtype) == 1 ? 0.13
                                                       : 1.3e-6;
    weft_tensor *x = weft_to_dtype(here(a), WEFT_F32), *y = weft_to_dtype(here(b), WEFT_F32);
    return weft_allclose(x, y, relative, 1e-5, false);
}

static weft_tensor *uniform(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, shape);
    return weft_to(weft_to_dtype(x, dtype), dtype, FUSED_DEVICE);
}

static weft_tensor *full_of(weft_shape shape, double value)
{
    return weft_full(WEFT_F32, FUSED_DEVICE, shape, value);
}

static weft_tensor *column_major(weft_tensor *x)
{
    return weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
}

static weft_group *begin(int rank)
{
    weft_group *world = join(30000);
    weft_seed(42 + (uint64_t)rank);
    return world;
}

/* The way of the newest operation of that name in the flight record. */
static int way_of(weft_group *group, const char *name)
{
    weft_i_record_entry entries[256];
    size_t count = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(entries[i].name, name))
            return entries[i].channel;
    return -1;
}

/* The ranks whose chunks were multiplied, the last `count` of them, oldest first.  A chunk may have
 * been multiplied in several pieces, one after the other. */
static void chunk_order(weft_group *group, int count, int *ranks)
{
    weft_i_record_entry entries[256];
    size_t n = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    int newer = -1;
    for (size_t i = 0; i < n && count; i++)
        if (!strcmp(entries[i].name, "chunk") && entries[i].peer != newer)
            ranks[--count] = newer = entries[i].peer;
    CHECK_INT(count, 0);
}

/* ---- all_gather_matmul ---- */

static weft_shape shard_of(weft_shape whole, int dim, int size)
{
    whole.dim[dim] /= size;
    return whole;
}

static void check_gather(weft_group *world, int dim)
{
    int size = weft_size(world);
    weft_tensor *shard = uniform(WEFT_F32, shard_of(WEFT_SHAPE(8, 64, 32), dim, size));
    weft_tensor *b[FUSED_RIGHTS], *a[2] = {NULL}, *out[2][FUSED_RIGHTS] = {{NULL}};
    for (int i = 0; i < FUSED_RIGHTS; i++)
        b[i] = uniform(WEFT_F32, WEFT_SHAPE(32, 16));
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_CHOOSE);
        CHECK_OK(weft_all_gather_matmul(&a[i], out[i], shard, b, FUSED_RIGHTS, dim, world));
        CHECK_INT(way_of(world, "ag_matmul"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    weft_tensor *plain = weft_all_gather_tensor(shard, dim, world);
    CHECK(weft_equal(here(a[0]), here(plain)) && weft_equal(here(a[1]), here(plain)));
    CHECK(same_layout(a[0], a[1]));
    CHECK(weft_tensor_is_contiguous(dim == 2 ? a[0] : weft_movedim(a[0], dim, 0)));
    for (int i = 0; i < FUSED_RIGHTS; i++) {
        CHECK(is_close(out[0][i], weft_matmul(plain, b[i])) && is_close(out[1][i], out[0][i]));
        CHECK(same_layout(out[0][i], out[1][i]));
        CHECK(weft_tensor_is_contiguous(dim == 2 ? out[0][i] : weft_movedim(out[0][i], dim, 0)));
    }
}

FUSED_TEST(test_fused_all_gather_matmul)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        check_gather(world, dim);
    leave(world);
}

/* Symmetric input is used in place; chunks are taken from the own one on, in cyclic order. */
static void check_native(weft_group *world, bool symmetric, bool rows)
{
    const int64_t m = FUSED_ROWS, k = FUSED_ROWS / 4;
    int size = weft_size(world), me = weft_rank(world), order[8] = {0};
    weft_shape shape = WEFT_SHAPE(m / size, k);
    weft_tensor *shard = symmetric ? weft_symm_empty(WEFT_BF16, FUSED_DEVICE, shape)
                                   : weft_empty(WEFT_BF16, FUSED_DEVICE, shape);
    if (symmetric)
        CHECK(weft_symm_rendezvous(shard, world));
    CHECK_OK(weft_copy(shard, uniform(WEFT_BF16, shape)));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(k, k)), *a = NULL, *out = NULL;
    b = rows ? b : column_major(b);
    CHECK_OK(weft_all_gather_matmul(&a, &out, shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), symmetric ? WEFT_I_WAY_ZERO_COPY : WEFT_I_WAY_PIPELINED);
    chunk_order(world, size, order);
    for (int i = 0; i < size; i++)
        CHECK_INT(order[i], (me + i) % size);
    weft_tensor *plain = weft_all_gather_tensor(shard, 0, world);
    CHECK(weft_equal(here(a), here(plain)));
    CHECK(is_close(out, weft_mm(plain, b)));
}

FUSED_TEST(test_fused_all_gather_matmul_native)
{
    weft_group *world = begin(rank);
    for (int i = 0; i < 4; i++)
        check_native(world, i & 1, i & 2);
    leave(world);
}

/* ---- scaled ---- */

typedef enum scale_mode { TENSOR_WISE, ROWS_REPLICATED, ROWS_SHARDED, SCALE_MODES } scale_mode;

static weft_tensor *scale_for(weft_shape shape, int dim, int size, scale_mode mode)
{
    shape.dim[shape.ndim - 1] = 1;
    if (mode == TENSOR_WISE)
        return full_of(WEFT_SCALAR, 0.1);
    return full_of(mode == ROWS_SHARDED ? shard_of(shape, dim, size) : shape, 0.1);
}

static void check_scaled_gather(weft_group *world, int dim, scale_mode mode)
{
    const int dtypes[] = {-1, WEFT_BF16, WEFT_F32};
    int size = weft_size(world);
    weft_shape whole = WEFT_SHAPE(8, 64, 32);
    weft_tensor *shard = uniform(WEFT_F8E4M3, shard_of(whole, dim, size));
    weft_tensor *scale = scale_for(whole, dim, size, mode);
    weft_scaled right[FUSED_RIGHTS];
    weft_tensor *a[2] = {NULL}, *out[2][FUSED_RIGHTS] = {{NULL}};
    for (int i = 0; i < FUSED_RIGHTS; i++)
        right[i] = (weft_scaled){
            .b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(32, 16))),
            .scale = full_of(mode == TENSOR_WISE ? WEFT_SCALAR : WEFT_SHAPE(1, 16), 0.1),
            .dtype = mode == TENSOR_WISE ? dtypes[i] : (int)WEFT_BF16};
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_CHOOSE);
        CHECK_OK(weft_all_gather_scaled_matmul(&a[i], out[i], shard, scale, right, FUSED_RIGHTS,
                                               dim, world));
        CHECK_INT(way_of(world, "ag_scaled_mm"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    CHECK(same_layout(a[0], a[1]) && is_close(a[0], a[1]));
    weft_tensor *plain = weft_to_dtype(here(weft_all_gather_tensor(shard, dim, world)), WEFT_F32);
    for (int i = 0; i < FUSED_RIGHTS; i++) {
        CHECK(same_layout(out[0][i], out[1][i]) && is_close(out[0][i], out[1][i]));
        weft_tensor *b = weft_to_dtype(here(right[i].b), WEFT_F32);
        weft_tensor *exact = weft_mul_scalar(weft_matmul(plain, b), 0.1 * 0.1);
        CHECK(is_close(out[0][i], weft_to_dtype(exact, out[0][i]->dtype)));
    }
}

FUSED_TEST(test_fused_all_gather_scaled_matmul)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 2; dim++)
        for (int mode = 0; mode < SCALE_MODES; mode++)
            check_scaled_gather(world, dim, (scale_mode)mode);
    leave(world);
}

static void check_scaled_scatter(weft_group *world, int dim, bool rows)
{
    weft_tensor *a = uniform(WEFT_F8E4M3, WEFT_SHAPE(8, 64, 32)), *out[2];
    weft_scaled right = {.b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(32, 16))),
                         .scale = full_of(rows ? WEFT_SHAPE(1, 16) : WEFT_SCALAR, 0.1),
                         .dtype = WEFT_BF16};
    weft_tensor *scale = full_of(rows ? WEFT_SHAPE(8, 64, 1) : WEFT_SCALAR, 0.1);
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_CHOOSE);
        out[i] = weft_scaled_matmul_reduce_scatter(a, scale, &right, WEFT_AVG, dim, world);
        CHECK_INT(way_of(world, "scaled_mm_rs"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    weft_shape shape = shard_of(WEFT_SHAPE(8, 64, 16), dim, weft_size(world));
    CHECK(out[0] && weft_i_shape_equal(weft_i_tensor_shape(out[0]), shape));
    CHECK(same_layout(out[0], out[1]) && is_close(out[0], out[1]));
    CHECK_INT(out[0]->dtype, WEFT_BF16);
}

FUSED_TEST(test_fused_scaled_matmul_reduce_scatter)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        for (int rows = 0; rows < 2; rows++)
            check_scaled_scatter(world, dim, rows);
    leave(world);
}

/* ---- matmul_reduce_scatter ---- */

static void check_scatter(weft_group *world, int dim)
{
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(8, 64, FUSED_INNER)), *out[2];
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(FUSED_INNER, 16));
    for (int i = 0; i < 2; i++) {
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_CHOOSE);
        out[i] = weft_matmul_reduce_scatter(a, b, WEFT_AVG, dim, world);
        CHECK_INT(way_of(world, "matmul_rs"), i ? WEFT_I_WAY_PAIR : WEFT_I_WAY_PIPELINED);
    }
    weft_fused_use(WEFT_FUSED_CHOOSE);
    weft_tensor *plain = weft_reduce_scatter_tensor(weft_matmul(a, b), WEFT_AVG, dim, world);
    CHECK(is_close(out[0], plain) && is_close(out[1], plain));
    CHECK(same_layout(out[0], plain) && same_layout(out[1], plain));
}

FUSED_TEST(test_fused_matmul_reduce_scatter)
{
    weft_group *world = begin(rank);
    for (int dim = 0; dim < 3; dim++)
        check_scatter(world, dim);
    leave(world);
}

/* Sums of small floats are taken in f32 and rounded once. */
FUSED_TEST(test_fused_matmul_reduce_scatter_bfloat16_custom_reduce)
{
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_BF16, WEFT_SHAPE(64, FUSED_INNER));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(FUSED_INNER, 32));
    weft_tensor *out = weft_matmul_reduce_scatter(a, b, WEFT_AVG, 0, world);
    weft_tensor *plain = weft_reduce_scatter_tensor(weft_mm(a, b), WEFT_AVG, 0, world);
    CHECK(same_layout(out, plain));
    CHECK(weft_allclose(here(out), here(plain), 1e-2, 1e-2, false));
    leave(world);
}

#endif
