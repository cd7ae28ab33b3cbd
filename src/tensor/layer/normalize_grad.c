/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of layer_norm: one row with three results, for x, weight and bias.  Those of weight
 * and bias are sums over rows: 64 rows are added up one after the other, such blocks in f64.  Blocks are
 * worked on by the team, some at a time, and then added to the totals, of which each thread has some.
 */
#include "base/team/berths.h"
#include "base/team/team.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <string.h>

enum { GRAD, X, DIMS, WEIGHT, EPSILON, BIAS }; /* arguments: `bias` says whether its is wanted */
enum { BLOCK_ROWS = 64, BLOCKS = 64 /* so many at a time */, GRAIN = 64 };

weft_status weft_i_layer_norm_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *grad = call->args[GRAD].tensor, *x = call->args[X].tensor;
    weft_i_op_call plain = {.op = &weft_i_op_layer_norm};
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(call->args[X].tensor),
                         call->args[DIMS],
                         call->args[WEIGHT],
                         {.kind = WEFT_I_ARG_NONE},
                         call->args[EPSILON]};
    plain.args = args;
    WEFT_TRY(weft_i_layer_norm_shape(&plain)); /* x, dims and weight are as they must be there */
    if (grad->dtype != x->dtype ||
        !weft_i_shape_equal(weft_i_tensor_shape(grad), weft_i_tensor_shape(x)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "layer_norm_grad: the gradient has not the shape and dtype of x");
    call->result.dtype = x->dtype;
    call->result.compute = plain.result.compute;
    call->result.shape = weft_i_tensor_shape(x);
    if (call->which) {
        int dims = (int)call->args[DIMS].integer;
        call->result.shape.ndim = dims;
        memcpy(call->result.shape.dim, x->dim + x->ndim - dims, (size_t)dims * sizeof *x->dim);
        call->result.absent = call->which == 1 ? call->args[WEIGHT].kind == WEFT_I_ARG_NONE
                                               : !call->args[BIAS].integer;
    }
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

/* Rows of x and grad are worked on where they are, or in `row` if they have another type. */
struct work {
    const weft_i_op_call *call;
    weft_dtype dtype, compute;
    int64_t n;                      /* of a row */
    weft_tensor *grad, *x, *weight; /* packed; held; `weight`, of the compute type, may be NULL */
    weft_i_berths scratch; /* for three rows, of grad, x and the result; no memory: not needed */
    weft_tensor *block[2], *total[2]; /* for weight and bias; NULL if not wanted */
    int64_t rows, blocks;             /* all; those that there is room for */
    int64_t first, count, parts;      /* of the blocks that are worked on, and their sums' parts */
};

static weft_tensor *packed(weft_tensor *x, weft_dtype dtype)
{
    if (x->dtype == dtype && weft_i_tensor_is_contiguous(x))
        return weft_i_object_hold(x);
    weft_tensor *copy = weft_keep(weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL));
    if (copy)
        weft_i_copy_tensor(copy, x);
    return copy;
}

static weft_tensor *zeros(weft_dtype dtype, int64_t n)
{
    weft_tensor *x = weft_keep(weft_i_tensor_new(dtype, WEFT_CPU, WEFT_SHAPE(n), NULL));
    if (x && x->end)
        memset(weft_i_tensor_data(x), 0, x->end);
    return x;
}

/* Is read twice and written, with some work. */
static int64_t work_of(const struct work *w)
{
    return w->rows * w->n * 6 * (int64_t)weft_i_dtype_size(w->dtype);
}

static bool open_rows(struct work *w)
{
    size_t bytes = 0;
    if (w->dtype == w->compute)
        return true;
    if (!__builtin_mul_overflow((size_t)w->n, 3 * weft_i_dtype_size(w->compute), &bytes) &&
        weft_i_berths_open(&w->scratch, bytes, weft_i_team_parts(work_of(w)) > 1))
        return true;
    weft_i_fail(WEFT_ERR_NO_MEMORY, "layer_norm_grad: no memory for a row of %lld elements",
                (long long)w->n);
    return false;
}

static bool make_work(struct work *w)
{
    const weft_i_op_call *call = w->call;
    int64_t blocks = (w->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    w->blocks = weft_i_team_parts(work_of(w)) > 1 ? BLOCKS : 1;
    w->blocks = w->blocks < blocks ? w->blocks : blocks;
    bool made = (w->grad = packed(call->args[GRAD].tensor, w->dtype)) &&
                (w->x = packed(call->args[X].tensor, w->dtype)) && open_rows(w);
    if (made && call->args[WEIGHT].kind == WEFT_I_ARG_TENSOR)
        made = (w->weight = packed(call->args[WEIGHT].tensor, w->compute));
    for (int k = 0; made && k < 2; k++)
        if (call->outs[k + 1])
            made = (w->block[k] = zeros(w->compute, w->blocks * w->n)) &&
                   (w->total[k] = zeros(WEFT_F64, w->n));
    return made;
}

static void drop_work(const struct work *w)
{
    weft_tensor *all[] = {w->grad,     w->x,        w->weight,  w->block[0],
                          w->block[1], w->total[0], w->total[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        weft_i_object_drop(all[i]);
}

static void *data_of(const weft_tensor *x)
{
    return x ? weft_i_tensor_data(x) : NULL;
}

/* The sums of block `block`, of those that are worked on. */
static void *sums_of(const struct work *w, int k, int64_t block)
{
    char *data = data_of(w->block[k]);
    return data ? data + (size_t)(block * w->n) * weft_i_dtype_size(w->compute) : NULL;
}

static void run_row(const struct work *w, int64_t i, char *room, int64_t block)
{
    size_t n = (size_t)w->n, size = weft_i_dtype_size(w->dtype);
    int64_t at = i * w->n * (int64_t)size;
    const char *grad = weft_i_tensor_data(w->grad) + at, *x = weft_i_tensor_data(w->x) + at;
    char *to = weft_i_tensor_data(w->call->outs[0]) + at, *out = to;
    if (room) {
        size_t bytes = n * weft_i_dtype_size(w->compute);
        grad = weft_i_load_run(w->compute, room, w->dtype, grad, (int64_t)size, n);
        x = weft_i_load_run(w->compute, room + bytes, w->dtype, x, (int64_t)size, n);
        out = room + 2 * bytes;
    }
    weft_i_vector()->normalize[w->compute]->layer_grad(out, grad, x, n, data_of(w->weight),
                                                       w->call->args[EPSILON].number,
                                                       sums_of(w, 0, block), sums_of(w, 1, block));
    if (room)
        weft_i_store_run(w->dtype, to, (int64_t)size, w->compute, out, n);
}

static void run_block(void *state, int64_t block)
{
    struct work *w = state;
    int64_t from = (w->first + block) * BLOCK_ROWS, to = from + BLOCK_ROWS;
    char *room = w->scratch.memory ? weft_i_berths_take(&w->scratch) : NULL;
    for (int64_t i = from; i < to && i < w->rows; i++)
        run_row(w, i, room, block);
    if (room)
        weft_i_berths_give(&w->scratch, room);
}

/* Adds some columns of the blocks to the totals in f64, in order, and clears them. */
static void take_blocks(void *state, int64_t part)
{
    const struct work *w = state;
    int64_t from = weft_i_team_bound_at(w->n, GRAIN, w->parts, part),
            to = weft_i_team_bound_at(w->n, GRAIN, w->parts, part + 1);
    for (int k = 0; k < 2; k++)
        for (int64_t block = 0; w->block[k] && block < w->count; block++) {
            double *total = data_of(w->total[k]);
            void *sums = sums_of(w, k, block);
            for (int64_t i = from; i < to; i++) {
                total[i] += w->compute == WEFT_F64 ? ((double *)sums)[i] : ((float *)sums)[i];
                if (w->compute == WEFT_F64)
                    ((double *)sums)[i] = 0;
                else
                    ((float *)sums)[i] = 0;
            }
        }
}

static void run_rows(struct work *w)
{
    int64_t blocks = (w->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    for (w->first = 0; w->first < blocks; w->first += w->count) {
        w->count = blocks - w->first < w->blocks ? blocks - w->first : w->blocks;
        weft_i_team_run(w->count, run_block, w);
        w->parts = weft_i_team_parts(w->count * w->n * (int64_t)sizeof(double));
        weft_i_team_run(w->parts, take_blocks, w);
    }
}

/* What was summed as one row gets the shape of the weight. */
static void store_total(weft_tensor *out, weft_tensor *total)
{
    total->ndim = out->ndim;
    memcpy(total->dim, out->dim, sizeof out->dim);
    weft_i_shape_strides(weft_i_tensor_shape(out), total->stride);
    weft_i_tensor_measure(total);
    weft_i_copy_tensor(out, total);
}

weft_status weft_i_layer_norm_grad_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    struct work w = {.call = call, .dtype = x->dtype, .n = 1};
    w.compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    for (int i = x->ndim - (int)call->args[DIMS].integer; i < x->ndim; i++)
        w.n *= x->dim[i];
    w.rows = w.n ? x->numel / w.n : 0;
    bool made = make_work(&w);
    if (made && x->numel)
        run_rows(&w);
    for (int k = 0; made && k < 2; k++)
        if (w.total[k])
            store_total(call->outs[k + 1], w.total[k]);
    weft_i_berths_close(&w.scratch);
    drop_work(&w);
    return made ? WEFT_OK : weft_last_status();
}

weft_status weft_layer_norm_grad(weft_tensor *grad, weft_tensor *x, int dims, weft_tensor *weight,
                                 double epsilon, bool bias, weft_tensor *out[3])
{
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer_norm_grad: the results are NULL");
    return weft_i_op_apply_list(
        &weft_i_op_layer_norm_grad, out,
        (weft_i_arg[]){WEFT_I_TENSOR_ARG(grad), WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dims),
                       WEFT_I_OPTIONAL_ARG(weight), WEFT_I_NUMBER_ARG(epsilon),
                       WEFT_I_INTEGER_ARG(bias)});
}
