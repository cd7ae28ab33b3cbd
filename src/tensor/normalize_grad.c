/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of layer_norm: one row with three results, for x, weight and bias.  Those of weight
 * and bias are sums over rows: 64 rows are added up one after the other, such blocks in f64.
 */
#include "kernels/copy.h"
#include "kernels/vector.h"
#include "tensor/loops.h"
#include "tensor/ops.h"
#include "weft/op.h"

#include <string.h>

enum { GRAD, X, DIMS, WEIGHT, EPSILON, BIAS }; /* arguments: `bias` says whether its is wanted */
enum { BLOCK_ROWS = 64 };

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

/* Adds a block of n elements to totals in f64 and clears it. */
static void take_block(weft_dtype compute, double *totals, void *block, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        totals[i] += compute == WEFT_F64 ? ((double *)block)[i] : (double)((float *)block)[i];
        if (compute == WEFT_F64)
            ((double *)block)[i] = 0;
        else
            ((float *)block)[i] = 0;
    }
}

/* Rows of x and grad are worked on where they are, or in `row` if they have another type. */
struct work {
    const weft_i_op_call *call;
    weft_dtype dtype, compute;
    int64_t n;                        /* of a row */
    weft_tensor *grad, *x, *weight;   /* packed; held; `weight`, of the compute type, may be NULL */
    weft_tensor *row;                 /* three of them, for grad, x and the result; or NULL */
    weft_tensor *block[2], *total[2]; /* for weight and bias; NULL if not wanted */
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

static bool make_work(struct work *w)
{
    const weft_i_op_call *call = w->call;
    bool made = (w->grad = packed(call->args[GRAD].tensor, w->dtype)) &&
                (w->x = packed(call->args[X].tensor, w->dtype));
    if (made && w->dtype != w->compute)
        made = (w->row =
                    weft_keep(weft_i_tensor_new(w->compute, WEFT_CPU, WEFT_SHAPE(3, w->n), NULL)));
    if (made && call->args[WEIGHT].kind == WEFT_I_ARG_TENSOR)
        made = (w->weight = packed(call->args[WEIGHT].tensor, w->compute));
    for (int k = 0; made && k < 2; k++)
        if (call->outs[k + 1])
            made = (w->block[k] = zeros(w->compute, w->n)) && (w->total[k] = zeros(WEFT_F64, w->n));
    return made;
}

static void drop_work(const struct work *w)
{
    weft_tensor *all[] = {w->grad,     w->x,        w->weight,   w->row,
                          w->block[0], w->block[1], w->total[0], w->total[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        weft_i_object_drop(all[i]);
}

static void *data_of(const weft_tensor *x)
{
    return x ? weft_i_tensor_data(x) : NULL;
}

static void run_row(const struct work *w, int64_t i)
{
    size_t n = (size_t)w->n, size = weft_i_dtype_size(w->dtype);
    int64_t at = i * w->n * (int64_t)size;
    const char *grad = weft_i_tensor_data(w->grad) + at, *x = weft_i_tensor_data(w->x) + at;
    char *to = weft_i_tensor_data(w->call->outs[0]) + at, *out = to;
    if (w->row) {
        char *room = weft_i_tensor_data(w->row);
        size_t bytes = n * weft_i_dtype_size(w->compute);
        grad = weft_i_load_run(w->compute, room, w->dtype, grad, (int64_t)size, n);
        x = weft_i_load_run(w->compute, room + bytes, w->dtype, x, (int64_t)size, n);
        out = room + 2 * bytes;
    }
    weft_i_vector()->normalize[w->compute]->layer_grad(out, grad, x, n, data_of(w->weight),
                                                       w->call->args[EPSILON].number,
                                                       data_of(w->block[0]), data_of(w->block[1]));
    if (w->row)
        weft_i_store_run(w->dtype, to, (int64_t)size, w->compute, out, n);
}

static void run_rows(const struct work *w)
{
    int64_t rows = w->x->numel / w->n;
    for (int64_t i = 0; i < rows; i++) {
        run_row(w, i);
        for (int k = 0; k < 2; k++)
            if (w->block[k] && (i % BLOCK_ROWS == BLOCK_ROWS - 1 || i == rows - 1))
                take_block(w->compute, data_of(w->total[k]), data_of(w->block[k]), w->n);
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
    bool made = make_work(&w);
    if (made && x->numel)
        run_rows(&w);
    for (int k = 0; made && k < 2; k++)
        if (w.total[k])
            store_total(call->outs[k + 1], w.total[k]);
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
