/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/offset.c */
/*
 * Blocks of one dimension reduced to their owners, and exchanged along another dimension: PyTorch's tests
 * under their names, every shape beside a plain loop, and arguments that are wrong on all ranks or on one.
 */
#include "device.h"

#include "jobs.h"

#include "weft/weft.h"

#include <stdlib.h>

static weft_status sync_stream(void)
{
    return weft_stream_sync(weft_stream_current(DEVICE), 30000);
}

static weft_tensor *here(weft_tensor *x)
{
    weft_tensor *there = weft_to(x, WEFT_F32, WEFT_CPU);
    return weft_view(weft_contiguous(there), WEFT_SHAPE(weft_tensor_numel(x)));
}

/* x[i] = (rank + 1) * (i % 97), in symmetric memory. */
static weft_tensor *counted(int rank, weft_shape shape)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, DEVICE, shape);
    if (!x)
        FAIL("%s", weft_last_error());
    weft_tensor *values = weft_zeros(WEFT_F32, WEFT_CPU, shape);
    float *at = weft_tensor_data(values);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        at[i] = (float)((rank + 1) * (int)(i % 97));
    CHECK_OK(weft_copy(x, weft_to(values, WEFT_F32, DEVICE)));
    return x;
}

/* ---- reduce_scatter_offset ---- */

/* Element (before, along, behind) of the input. */
static int64_t place(const weft_shape *shape, int dim, int64_t before, int64_t along,
                     int64_t behind)
{
    int64_t inner = 1;
    for (int d = dim + 1; d < shape->ndim; d++)
        inner *= shape->dim[d];
    return (before * shape->dim[dim] + along) * inner + behind;
}

static void reduce(weft_group *world, int rank, int size, weft_shape shape, int dim,
                   const int64_t *ends, const int *owners, int count)
{
    weft_tensor *x = counted(rank, shape), *out[16];
    int outs = 0;
    CHECK_OK(weft_scope_open());
    for (int i = 0; i < count; i++)
        if ((owners ? owners[i] : i % size) == rank) {
            weft_shape part = shape;
            part.dim[dim] = ends[i] - (i ? ends[i - 1] : 0);
            out[outs++] = weft_full(WEFT_F32, DEVICE, part, -1);
        }
    weft_status status =
        weft_symm_reduce_scatter_offset(out, outs, x, dim, ends, owners, count, WEFT_SUM, world);
    if (status < 0)
        FAIL("%s", weft_last_error());
    CHECK_OK(sync_stream());
    int mine = 0;
    int64_t before = 1, inner = 1;
    for (int d = 0; d < shape.ndim; d++)
        *(d < dim ? &before : &inner) *= d == dim ? 1 : shape.dim[d];
    for (int i = 0; i < count; i++) {
        if ((owners ? owners[i] : i % size) != rank)
            continue;
        const float *got = weft_tensor_data(here(out[mine++]));
        int64_t begin = i ? ends[i - 1] : 0, length = ends[i] - begin;
        for (int64_t b = 0; b < before; b++)
            for (int64_t a = 0; a < length; a++)
                for (int64_t k = 0; k < inner; k++) {
                    int64_t from = place(&shape, dim, b, begin + a, k);
                    CHECK_NEAR(got[(b * length + a) * inner + k],
                               (double)(from % 97) * size * (size + 1) / 2, 0);
                }
    }
    const float *same = weft_tensor_data(here(x)); /* the input is as it was */
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(same[i], (rank + 1) * (int)(i % 97), 0);
    CHECK_OK(weft_scope_close());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
}

static void even(weft_group *world, int rank, int size, int experts, int dim)
{
    int64_t ends[16], rows = 24, columns = 20;
    int blocks = experts * size;
    int64_t part = dim ? columns : rows;
    for (int i = 0; i < blocks; i++)
        ends[i] = (i + 1) * part;
    weft_shape shape =
        dim ? WEFT_SHAPE(rows, blocks * columns) : WEFT_SHAPE(blocks * rows, columns);
    reduce(world, rank, size, shape, dim, ends, NULL, blocks);
}

RANKS_TEST(test_reduce_scatter_offset, 2)
{
    weft_group *world = join(0);
    for (int experts = 1; experts <= 2; experts++)
        for (int dim = 0; dim < 2; dim++)
            even(world, rank, size, experts, dim);
    finish(world);
}

RANKS_TEST(test_reduce_scatter_offset_uneven, 2)
{
    weft_group *world = join(0);
    for (int dim = 0; dim < 2; dim++) {
        int64_t ends[16], total = 0;
        for (int i = 0; i < 2 * size; i++)
            ends[i] = total += i < size ? 16 : 48;
        weft_shape shape = dim ? WEFT_SHAPE(10, total) : WEFT_SHAPE(total, 10);
        reduce(world, rank, size, shape, dim, ends, NULL, 2 * size);
    }
    finish(world);
}

/* Other shapes: owners of any order and number, blocks of nothing, odd lengths, 1 to 4 dimensions. */
RANKS_TEST(test_reduce_scatter_offset_any, 3)
{
    weft_group *world = join(0);
    reduce(world, rank, size, WEFT_SHAPE(31), 0, (const int64_t[]){7, 8, 31},
           (const int[]){2, 2, 2}, 3);
    reduce(world, rank, size, WEFT_SHAPE(4, 9, 3), 1, (const int64_t[]){2, 2, 9},
           (const int[]){1, 0, 1}, 3);
    reduce(world, rank, size, WEFT_SHAPE(2, 3, 2, 11), 3, (const int64_t[]){1, 5, 6, 11},
           (const int[]){0, 2, 2, 0}, 4);
    reduce(world, rank, size, WEFT_SHAPE(6, 5), 0, (const int64_t[]){6}, (const int[]){1}, 1);
    finish(world);
}

RANKS_TEST(test_reduce_scatter_offset_refused, 2)
{
    weft_group *world = join(5000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(8, 4));
    weft_tensor *out = weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4)), *none = NULL;
    const int64_t ends[] = {4, 8}, falling[] = {6, 4}, beyond[] = {4, 9}, fewer[] = {4, 7};
    const int owners[] = {0, 2};
#define REFUSED(...)                                                                      \
    do {                                                                                  \
        CHECK_STATUS(weft_symm_reduce_scatter_offset(__VA_ARGS__), WEFT_ERR_INVALID_ARG); \
        weft_clear_error();                                                               \
    } while (0)
    REFUSED(&out, 1, NULL, 0, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 2, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, -1, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 0, falling, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 0, beyond, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 0, fewer, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 0, ends, owners, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 0, NULL, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 2, x, 0, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 0, x, 0, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&none, 1, x, 0, ends, NULL, 2, WEFT_SUM, world);
    REFUSED(&out, 1, x, 1, (const int64_t[]){2, 4}, NULL, 2, WEFT_SUM, world);
#undef REFUSED
    CHECK_STATUS(weft_symm_reduce_scatter_offset(&out, 1, x, 0, ends, NULL, 2, WEFT_SUM, NULL),
                 WEFT_ERR_INVALID_ARG);
    weft_tensor *plain = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(8, 4));
    CHECK_STATUS(weft_symm_reduce_scatter_offset(&out, 1, plain, 0, ends, NULL, 2, WEFT_SUM, world),
                 WEFT_ERR_TYPE);
    weft_clear_error();
    (void)size;
    /* Ranks that cut differently are told on both. */
    const int64_t other[] = {3, 8};
    weft_tensor *mine = weft_empty(WEFT_F32, DEVICE, WEFT_SHAPE(rank ? 5 : 4, 4));
    weft_status status = weft_symm_reduce_scatter_offset(&mine, 1, x, 0, rank ? other : ends, NULL,
                                                         2, WEFT_SUM, world);
    weft_status later = sync_stream();
    CHECK_INT(status < 0 ? status : later, WEFT_ERR_MISMATCH);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* ---- all_to_all_nd ---- */

static void exchange(weft_group *world, int rank, int size, weft_shape shape, int scatter,
                     int gather, bool symmetric)
{
    weft_shape result = shape;
    result.dim[scatter] /= size;
    result.dim[gather] *= size;
    CHECK_OK(weft_scope_open());
    weft_tensor *x = counted(rank, shape);
    weft_tensor *out = symmetric ? weft_symm_empty(WEFT_F32, DEVICE, result)
                                 : weft_full(WEFT_F32, DEVICE, result, -1);
    if (!symmetric)
        x = weft_clone(x);
    weft_status status = weft_symm_all_to_all_nd(out, x, scatter, gather, world);
    if (status < 0)
        FAIL("%s", weft_last_error());
    const float *got = weft_tensor_data(here(out));
    int64_t index[WEFT_MAX_DIMS];
    for (int64_t i = 0; i < weft_tensor_numel(out); i++) {
        int64_t rest = i, from = 0, peer;
        for (int d = shape.ndim - 1; d >= 0; d--) {
            index[d] = rest % result.dim[d];
            rest /= result.dim[d];
        }
        peer = index[gather] / shape.dim[gather]; /* block j of the result is peer j's */
        index[gather] %= shape.dim[gather];
        index[scatter] += rank * result.dim[scatter];
        for (int d = 0; d < shape.ndim; d++)
            from = from * shape.dim[d] + index[d];
        CHECK_NEAR(got[i], (double)(peer + 1) * (int)(from % 97), 0);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_scope_close());
}

RANKS_TEST(test_all_to_all_nd, 2)
{
    weft_group *world = join(0);
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        exchange(world, rank, size, WEFT_SHAPE(12, 8 * size), 1, 0, symmetric);
        exchange(world, rank, size, WEFT_SHAPE(8 * size, 12), 0, 1, symmetric);
        exchange(world, rank, size, WEFT_SHAPE(6, 4 * size, 5), 1, 0, symmetric);
        exchange(world, rank, size, WEFT_SHAPE(4 * size, 6, 5), 0, 1, symmetric);
    }
    finish(world);
}

RANKS_TEST(test_all_to_all_nd_any, 3)
{
    weft_group *world = join(0);
    exchange(world, rank, size, WEFT_SHAPE(3, 2, size), 2, 0, false);
    exchange(world, rank, size, WEFT_SHAPE(3, 2 * size, 2, 5), 1, 3, true);
    exchange(world, rank, size, WEFT_SHAPE(2, 4, 3 * size), 2, 1, false);
    exchange(world, rank, size, WEFT_SHAPE(0, size), 1, 0, false);
    finish(world);
}

RANKS_TEST(test_all_to_all_nd_refused, 2)
{
    weft_group *world = join(5000);
    weft_tensor *x = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 6));
    weft_tensor *out = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(8, 3));
    (void)size;
#define REFUSED(out_, x_, scatter_, gather_, status_)                                         \
    do {                                                                                      \
        CHECK_STATUS(weft_symm_all_to_all_nd(out_, x_, scatter_, gather_, world), (status_)); \
        weft_clear_error();                                                                   \
    } while (0)
    REFUSED(NULL, x, 1, 0, WEFT_ERR_INVALID_ARG);
    REFUSED(out, NULL, 1, 0, WEFT_ERR_INVALID_ARG);
    REFUSED(out, x, 1, 1, WEFT_ERR_INVALID_ARG);
    REFUSED(out, x, 2, 0, WEFT_ERR_INVALID_ARG);
    REFUSED(out, x, 1, -1, WEFT_ERR_INVALID_ARG);
    REFUSED(out, x, 0, 1, WEFT_ERR_INVALID_ARG);
    REFUSED(out, weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 5)), 1, 0, WEFT_ERR_INVALID_ARG);
    REFUSED(out, weft_zeros(WEFT_F16, DEVICE, WEFT_SHAPE(4, 6)), 1, 0, WEFT_ERR_TYPE);
    REFUSED(out, weft_transpose(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(6, 4)), 0, 1), 1, 0,
            WEFT_ERR_INVALID_ARG);
    REFUSED(x, x, 1, 0, WEFT_ERR_INVALID_ARG);
#undef REFUSED
    /* The same counts, another exchange: both are told. */
    weft_tensor *square = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4));
    weft_tensor *result = weft_zeros(WEFT_F32, DEVICE, rank ? WEFT_SHAPE(2, 8) : WEFT_SHAPE(8, 2));
    weft_status status = weft_symm_all_to_all_nd(result, square, !rank, rank, world);
    weft_status later = sync_stream();
    CHECK_INT(status < 0 ? status : later, WEFT_ERR_MISMATCH);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
