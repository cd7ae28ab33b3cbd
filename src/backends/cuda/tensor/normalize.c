/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax, layer_norm and their gradients on CUDA devices. */
#include "kernels/vector/normalize.h"

#include "backends/cuda/device/launch.h"
#include "columns.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

#include <string.h>

_Static_assert((int)WEFT_K_SOFTMAX == (int)WEFT_I_NORMALIZE_SOFTMAX &&
                   (int)WEFT_K_LOG_SOFTMAX == (int)WEFT_I_NORMALIZE_LOG_SOFTMAX &&
                   WEFT_K_LOG_SOFTMAX_GRAD - WEFT_K_SOFTMAX_GRAD == WEFT_K_LOG_SOFTMAX,
               "as in kernels/vector/normalize.h");

/* Do pairs of elements lie adjacent and aligned, so that rows can be held in registers?  Of weights
 * too. */
static bool has_pairs(const weft_k_rows *c)
{
    if (((uintptr_t)c->weight | (uintptr_t)c->bias) % 8)
        return false;
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)c->dtype), pair = 2 * size;
    bool even = c->in_step == size && c->out_step == size && c->length % 2 == 0 &&
                ((uintptr_t)c->from | (uintptr_t)c->to) % (uintptr_t)pair == 0;
    for (int d = 0; d < c->kept; d++)
        even = even && c->kept_in[d] % pair == 0 && c->kept_out[d] % pair == 0;
    return even && c->length <= WEFT_K_UNITS * WEFT_K_BLOCK;
}

/* Rows that fit the registers of a block go through memory once; false: these do not. */
static bool held_by(const weft_i_cuda_stream *stream, const weft_k_rows *c, weft_i_cuda_kernel *out,
                    uint64_t *per)
{
    bool layer = c->which == WEFT_K_LAYER;
    switch (c->dtype) {
    case WEFT_F32:
        *out = layer ? WEFT_I_CUDA_layer_f32 : WEFT_I_CUDA_softmax_f32;
        break;
    case WEFT_BF16:
        *out = layer ? WEFT_I_CUDA_layer_bf16 : WEFT_I_CUDA_softmax_bf16;
        break;
    case WEFT_F16:
        *out = layer ? WEFT_I_CUDA_layer_f16 : WEFT_I_CUDA_softmax_f16;
        break;
    default:
        return false;
    }
    *per = weft_i_cuda_held_rows(stream, *out, c->span);
    return *per && (layer || c->which <= WEFT_K_LOG_SOFTMAX) && has_pairs(c);
}

/* Blocks are as small as a row allows, and there is one for every row or some rows: while one waits
 * for memory others compute. */
static weft_status launch_held(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                               const weft_k_rows *c)
{
    enum { UNIT = WEFT_K_LANES / 2, LEAST = 64, MOST_BLOCKS = 1 << 30 };
    uint32_t threads = c->span * UNIT;
    uint32_t most = (uint32_t)stream->device->kernel_threads[kernel];
    threads = threads > LEAST ? threads : most < LEAST ? most : LEAST;
    uint64_t rows = threads / UNIT / c->span, blocks = (c->rows + rows - 1) / rows;
    return weft_i_cuda_launch(stream, kernel, blocks < MOST_BLOCKS ? (int)blocks : MOST_BLOCKS,
                              (int)threads, c, false);
}

static weft_status launch(weft_i_cuda_stream *stream, weft_k_rows *c)
{
    weft_i_cuda_kernel held;
    uint64_t rows;
    if (held_by(stream, c, &held, &rows))
        return launch_held(stream, held, c);
    uint64_t per = WEFT_K_UNITS / c->span;
    return weft_i_cuda_launch_blocks(
        stream, c->dtype == (int32_t)WEFT_F64 ? WEFT_I_CUDA_rows_f64 : WEFT_I_CUDA_rows_f32,
        (c->rows + per - 1) / per, c);
}

/* Rows of x along one dimension, into `out`, which has x's shape and dtype. */
static weft_k_rows rows_along(const weft_i_op_call *call, int which, const weft_tensor *x,
                              int64_t along)
{
    const weft_tensor *out = call->out;
    int dim = x->ndim ? weft_i_dim_wrap(call->op->name, along, x->ndim) : -1;
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    weft_k_rows c = {.from = weft_i_cuda_data(x),
                     .to = weft_i_cuda_data(out),
                     .rows = 1,
                     .length = dim < 0 ? 1 : (uint64_t)x->dim[dim],
                     .in_step = dim < 0 ? size : x->stride[dim] * size,
                     .out_step = dim < 0 ? size : out->stride[dim] * size,
                     .which = which,
                     .dtype = (int32_t)x->dtype};
    for (int d = 0; d < x->ndim; d++) {
        if (d == dim || x->dim[d] == 1)
            continue;
        c.kept_dim[c.kept] = (uint64_t)x->dim[d];
        c.kept_in[c.kept] = x->stride[d] * size;
        c.kept_out[c.kept++] = out->stride[d] * size;
        c.rows *= (uint64_t)x->dim[d];
    }
    if (c.kept == 0)
        c.kept_dim[c.kept++] = 1;
    c.columns = c.length <= WEFT_K_BLOCK && c.in_step != size && c.kept_in[c.kept - 1] == size;
    c.span = weft_i_cuda_row_span(c.length, c.columns);
    return c;
}

weft_status weft_i_cuda_softmax_run(weft_i_op_call *call)
{
    weft_i_cuda_stream *stream;
    if (call->out->numel == 0)
        return WEFT_OK;
    weft_k_rows c = rows_along(call, call->op->kernel, call->args[0].tensor, call->args[1].integer);
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    return launch(stream, &c);
}

/* Packed, gradient and result have the same strides. */
weft_status weft_i_cuda_softmax_grad_run(weft_i_op_call *call)
{
    weft_i_cuda_stream *stream;
    if (call->out->numel == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_tensor *grad = weft_i_cuda_packed(call->args[0].tensor, call->out->dtype);
    weft_tensor *y = grad ? weft_i_cuda_packed(call->args[1].tensor, call->out->dtype) : NULL;
    weft_status status = y ? WEFT_OK : weft_last_status();
    if (y) {
        weft_k_rows c =
            rows_along(call, WEFT_K_SOFTMAX_GRAD + call->op->kernel, y, call->args[2].integer);
        c.grad = weft_i_cuda_data(grad);
        status = launch(stream, &c);
    }
    weft_i_object_drop(grad);
    weft_i_object_drop(y);
    return status;
}

/* Rows of `length` packed elements. */
static weft_k_rows packed_rows(int which, const weft_tensor *x, const weft_tensor *out,
                               uint64_t length, double epsilon)
{
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    weft_k_rows c = {.from = weft_i_cuda_data(x),
                     .to = weft_i_cuda_data(out),
                     .rows = (uint64_t)x->numel / length,
                     .length = length,
                     .in_step = size,
                     .out_step = size,
                     .which = which,
                     .dtype = (int32_t)x->dtype,
                     .epsilon = epsilon,
                     .span = weft_i_cuda_row_span(length, false),
                     .kept = 1};
    c.kept_dim[0] = c.rows;
    c.kept_in[0] = c.kept_out[0] = (int64_t)length * size;
    return c;
}

static uint64_t length_of(const weft_tensor *x, int64_t dims)
{
    uint64_t length = 1;
    for (int i = x->ndim - (int)dims; i < x->ndim; i++)
        length *= (uint64_t)x->dim[i];
    return length;
}

/* An argument as packed elements of `dtype`, in `*out`; false if there is no memory. */
static bool take(const weft_i_arg *arg, weft_dtype dtype, weft_tensor **out)
{
    *out = NULL;
    return arg->kind != WEFT_I_ARG_TENSOR || (*out = weft_i_cuda_packed(arg->tensor, dtype));
}

weft_status weft_i_cuda_layer_norm_run(weft_i_op_call *call)
{
    const weft_i_arg *args = call->args;
    weft_tensor *x = NULL, *weight = NULL, *bias = NULL;
    weft_dtype dtype = args[0].tensor->dtype, compute = call->result.compute;
    weft_i_cuda_stream *stream;
    if (call->out->numel == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_status status = WEFT_OK;
    if (take(&args[0], dtype, &x) && take(&args[2], compute, &weight) &&
        take(&args[3], compute, &bias)) {
        weft_k_rows c =
            packed_rows(WEFT_K_LAYER, x, call->out, length_of(x, args[1].integer), args[4].number);
        c.weight = weft_i_cuda_data(weight);
        c.bias = weft_i_cuda_data(bias);
        status = launch(stream, &c);
    } else {
        status = weft_last_status();
    }
    weft_i_object_drop(x);
    weft_i_object_drop(weight);
    weft_i_object_drop(bias);
    return status;
}

enum { GRAD, X, DIMS, WEIGHT, EPSILON, BIAS }; /* arguments of layer_norm_grad */
enum { BLOCK_ROWS = 64 };

struct work {
    weft_tensor *grad, *x, *weight, *room;
    uint64_t length, rows, blocks;
};

/* Room for the moments of the rows, and for blocks of the two gradients. */
static bool make_work(const weft_i_op_call *call, struct work *w, weft_dtype compute)
{
    weft_dtype dtype = call->args[X].tensor->dtype;
    uint64_t size = weft_dtype_size(compute);
    if (!take(&call->args[GRAD], dtype, &w->grad) || !take(&call->args[X], dtype, &w->x) ||
        !take(&call->args[WEIGHT], compute, &w->weight))
        return false;
    w->rows = (uint64_t)w->x->numel / w->length;
    w->blocks = (w->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    w->room = weft_i_cuda_room(weft_i_tensor_device(call->outs[0]),
                               (3 * w->rows + 2 * w->blocks * w->length) * size);
    return w->room;
}

static weft_status sum_columns(const weft_i_op_call *call, weft_i_cuda_stream *stream,
                               const struct work *w, weft_dtype compute)
{
    uint64_t size = weft_dtype_size(compute);
    char *parts = weft_i_tensor_data(w->room) + 3 * w->rows * size;
    weft_k_columns c = {.from = weft_i_cuda_data(w->x),
                        .grad = weft_i_cuda_data(w->grad),
                        .moments = weft_i_tensor_data(w->room),
                        .weight_parts = call->outs[1] ? parts : NULL,
                        .bias_parts = call->outs[2] ? parts + w->blocks * w->length * size : NULL,
                        .weight = weft_i_cuda_data(call->outs[1]),
                        .bias = weft_i_cuda_data(call->outs[2]),
                        .rows = w->rows,
                        .length = w->length,
                        .blocks = w->blocks,
                        .dtype = (int32_t)w->x->dtype,
                        .compute = (int32_t)compute};
    if (!c.weight && !c.bias)
        return WEFT_OK;
    WEFT_TRY(
        weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_layer_columns, w->blocks * w->length, &c));
    return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_layer_totals, w->length, &c);
}

/* Sums over no rows. */
static weft_status clear(const weft_i_op_call *call)
{
    for (int k = 1; k < 3; k++)
        if (call->outs[k] && call->outs[k]->numel)
            WEFT_TRY(weft_i_device_fill(weft_i_tensor_device(call->outs[k]),
                                        weft_i_tensor_data(call->outs[k]), 0, call->outs[k]->end));
    return WEFT_OK;
}

weft_status weft_i_cuda_layer_norm_grad_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    weft_dtype compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    struct work w = {.length = length_of(x, call->args[DIMS].integer)};
    weft_i_cuda_stream *stream;
    if (x->numel == 0)
        return clear(call);
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_status status = WEFT_OK;
    if (make_work(call, &w, compute)) {
        weft_k_rows c = packed_rows(WEFT_K_LAYER_GRAD, w.x, call->outs[0], w.length,
                                    call->args[EPSILON].number);
        c.grad = weft_i_cuda_data(w.grad);
        c.weight = weft_i_cuda_data(w.weight);
        c.moments = weft_i_tensor_data(w.room);
        status = launch(stream, &c);
        if (status >= 0)
            status = sum_columns(call, stream, &w, compute);
    } else {
        status = weft_last_status();
    }
    weft_i_object_drop(w.grad);
    weft_i_object_drop(w.x);
    weft_i_object_drop(w.weight);
    weft_i_object_drop(w.room);
    return status;
}
