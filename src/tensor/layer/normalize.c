/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax and layer_norm: rows of adjacent f32 or f64 are normalised where they are,
 * others by way of a buffer. */
#include "kernels/vector/normalize.h"

#include "base/team/berths.h"
#include "base/team/team.h"
#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <string.h>

static weft_status take_float(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    if (!weft_i_dtype_is_float(x->dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: of %s; convert it to a float with weft_to_dtype",
                           call->op->name, weft_dtype_name(x->dtype));
    call->result.dtype = x->dtype;
    call->result.compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    call->result.shape = weft_i_tensor_shape(x);
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

/* A 0-d tensor is one row of one element. */
weft_status weft_i_softmax_shape(weft_i_op_call *call)
{
    int ndim = call->args[0].tensor->ndim;
    if (weft_i_dim_wrap(call->op->name, call->args[1].integer, ndim ? ndim : 1) < 0)
        return weft_last_status();
    return take_float(call);
}

weft_status weft_i_layer_norm_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    int64_t dims = call->args[1].integer;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(take_float(call));
    if (dims < 1 || dims > x->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer_norm: the last %lld of %d dimensions",
                           (long long)dims, x->ndim);
    weft_shape tail = {(int)dims, {0}};
    memcpy(tail.dim, x->dim + x->ndim - dims, (size_t)dims * sizeof *tail.dim);
    for (int i = 2; i <= 3; i++) {
        const weft_tensor *scale = call->args[i].tensor;
        if (call->args[i].kind != WEFT_I_ARG_TENSOR)
            continue;
        if (!weft_i_shape_equal(weft_i_tensor_shape(scale), tail) ||
            !weft_i_dtype_is_float(scale->dtype))
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG, "layer_norm: %s is %s %s; it must be a float of shape %s",
                i == 2 ? "weight" : "bias", weft_dtype_name(scale->dtype),
                weft_i_shape_text(weft_i_tensor_shape(scale), a), weft_i_shape_text(tail, b));
    }
    return WEFT_OK;
}

/* An element is read and written, with some work on it. */
enum { WORK = 4 };

static int64_t work_of(const weft_i_op_call *call)
{
    return weft_i_tensor_numel(call->out) * WORK * (int64_t)weft_i_dtype_size(call->out->dtype);
}

/* Room for two rows of `n` elements of the compute type, for those that cannot be worked on where they
 * are. */
static weft_status open_rows(const weft_i_op_call *call, int64_t n, weft_i_berths *out)
{
    size_t size = weft_i_dtype_size(call->result.compute), bytes = 0;
    bool shared = weft_i_team_parts(work_of(call)) > 1;
    if (!__builtin_mul_overflow((size_t)n, 2 * size, &bytes) &&
        weft_i_berths_open(out, bytes, shared))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a row of %lld elements",
                       call->op->name, (long long)n);
}

/* x with one dimension taken out, to be walked row by row; the rows are along that dimension. */
struct rows {
    int64_t length, in_stride, out_stride; /* of a row; bytes */
    weft_i_loop loop;                      /* over the starts of rows: operand 0 out, operand 1 x */
};

static struct rows rows_along(const weft_tensor *out, const weft_tensor *x, int dim)
{
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    struct rows rows = {1, size, size, weft_i_loop_over(out)};
    weft_i_loop_add(&rows.loop, x);
    if (x->ndim) {
        rows.length = x->dim[dim];
        rows.in_stride = weft_i_tensor_step(x, dim);
        rows.out_stride = weft_i_tensor_step(out, dim);
        rows.loop.dim[dim] = rows.length ? 1 : 0;
    }
    return rows;
}

struct softmax {
    const weft_i_op_call *call;
    const struct rows *rows;
    weft_i_berths *scratch; /* NULL: rows are worked on in place */
};

static void softmax_rows(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct softmax *softmax = state;
    const struct rows *rows = softmax->rows;
    weft_dtype compute = softmax->call->result.compute, dtype = softmax->call->out->dtype;
    size_t length = (size_t)rows->length;
    int which = softmax->call->op->kernel;
    char *first = softmax->scratch ? weft_i_berths_take(softmax->scratch) : NULL,
         *second = first ? first + length * weft_i_dtype_size(compute) : NULL;
    for (size_t i = 0; i < n; i++) {
        const char *from = data[1] + (int64_t)i * stride[1];
        char *to = data[0] + (int64_t)i * stride[0];
        const void *row = from;
        if (first)
            row = weft_i_load_run(compute, first, dtype, from, rows->in_stride, length);
        weft_i_normalize_softmax(which, compute, first ? second : to, row, length);
        if (first)
            weft_i_store_run(dtype, to, rows->out_stride, compute, second, length);
    }
    if (first)
        weft_i_berths_give(softmax->scratch, first);
}

weft_status weft_i_softmax_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    int dim = x->ndim ? weft_i_dim_wrap(call->op->name, call->args[1].integer, x->ndim) : 0;
    struct rows rows = rows_along(call->out, x, dim);
    int64_t size = (int64_t)weft_i_dtype_size(x->dtype);
    bool direct =
        x->dtype == call->result.compute && rows.in_stride == size && rows.out_stride == size;
    weft_i_berths scratch;
    struct softmax softmax = {call, &rows, direct ? NULL : &scratch};
    if (!direct)
        WEFT_TRY(open_rows(call, rows.length, &scratch));
    weft_i_loop_share(rows.loop, rows.length * WORK * size, softmax_rows, &softmax);
    if (!direct)
        weft_i_berths_close(&scratch);
    return WEFT_OK;
}

/* Argument `i` as adjacent elements of `dtype`: itself, or a copy that `*copy` owns; NULL if it is
 * absent. */
static const void *packed(const weft_i_op_call *call, int i, weft_dtype dtype, weft_tensor **copy,
                          bool *failed)
{
    *copy = NULL;
    if (call->args[i].kind != WEFT_I_ARG_TENSOR)
        return NULL;
    const weft_tensor *x = call->args[i].tensor;
    if (x->dtype == dtype && weft_i_tensor_is_contiguous(x))
        return weft_i_tensor_data(x);
    *copy = weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL);
    *failed |= !*copy;
    if (!*copy)
        return NULL;
    weft_i_copy_tensor(*copy, x);
    return weft_i_tensor_data(*copy);
}

struct layer {
    const weft_i_op_call *call;
    const char *x; /* rows of the operand's dtype */
    const void *weight, *bias;
    weft_i_berths *scratch; /* NULL: rows are worked on in place */
    int64_t length, rows, parts;
};

static void layer_rows(void *state, int64_t part)
{
    const struct layer *layer = state;
    const weft_i_op_call *call = layer->call;
    weft_dtype compute = call->result.compute, dtype = call->out->dtype;
    int64_t size = (int64_t)weft_i_dtype_size(dtype), n = layer->length;
    int64_t end = weft_i_team_bound(layer->rows, layer->parts, part + 1);
    char *to = weft_i_tensor_data(call->out),
         *first = layer->scratch ? weft_i_berths_take(layer->scratch) : NULL;
    char *second = first ? first + (size_t)n * weft_i_dtype_size(compute) : NULL;
    for (int64_t i = weft_i_team_bound(layer->rows, layer->parts, part); i < end; i++) {
        const void *row = layer->x + i * n * size;
        if (first)
            row = weft_i_load_run(compute, first, dtype, row, size, (size_t)n);
        weft_i_normalize_layer(compute, first ? second : to + i * n * size, row, (size_t)n,
                               layer->weight, layer->bias, call->args[4].number);
        if (first)
            weft_i_store_run(dtype, to + i * n * size, size, compute, second, (size_t)n);
    }
    if (first)
        weft_i_berths_give(layer->scratch, first);
}

weft_status weft_i_layer_norm_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *copies[3];
    weft_dtype compute = call->result.compute;
    bool failed = false;
    weft_i_berths scratch = {.memory = NULL};
    struct layer layer = {.call = call, .length = 1};
    for (int i = x->ndim - (int)call->args[1].integer; i < x->ndim; i++)
        layer.length *= x->dim[i];
    if (weft_i_tensor_numel(x) == 0)
        return WEFT_OK;
    layer.x = packed(call, 0, x->dtype, &copies[0], &failed);
    layer.weight = packed(call, 2, compute, &copies[1], &failed);
    layer.bias = packed(call, 3, compute, &copies[2], &failed);
    layer.rows = weft_i_tensor_numel(x) / layer.length;
    layer.parts = weft_i_team_parts(work_of(call));
    if (!failed && x->dtype != compute) {
        failed = open_rows(call, layer.length, &scratch) < 0;
        layer.scratch = &scratch;
    }
    if (!failed)
        weft_i_team_run(layer.parts, layer_rows, &layer);
    weft_i_berths_close(&scratch);
    for (int i = 0; i < 3; i++)
        weft_release(copies[i]);
    return failed ? weft_last_status() : WEFT_OK;
}

weft_tensor *weft_softmax(weft_tensor *x, int dim)
{
    return WEFT_I_APPLY(softmax, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_log_softmax(weft_tensor *x, int dim)
{
    return WEFT_I_APPLY(log_softmax, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_layer_norm(weft_tensor *x, int dims, weft_tensor *weight, weft_tensor *bias,
                             double epsilon)
{
    return WEFT_I_APPLY(layer_norm, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dims),
                        WEFT_I_OPTIONAL_ARG(weight), WEFT_I_OPTIONAL_ARG(bias),
                        WEFT_I_NUMBER_ARG(epsilon));
}
