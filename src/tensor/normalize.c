/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax and layer_norm: each row is brought into one buffer, normalised there and
 * written out. */
#include "kernels/normalize.h"

#include "base/os.h"
#include "kernels/copy.h"
#include "tensor/loops.h"
#include "tensor/ops.h"
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

/* A buffer of `n` elements of the compute type; at least one byte. */
static void *new_buffer(const weft_i_op_call *call, int64_t n)
{
    void *buffer = WEFT_OS->alloc_aligned(64, (size_t)n * sizeof(double) + 64);
    if (!buffer)
        weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a row of %lld elements", call->op->name,
                    (long long)n);
    return buffer;
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
        rows.in_stride = x->stride[dim] * size;
        rows.out_stride = out->stride[dim] * size;
        rows.loop.dim[dim] = rows.length ? 1 : 0;
    }
    return rows;
}

struct softmax {
    const weft_i_op_call *call;
    const struct rows *rows;
    void *buffer;
};

static void softmax_rows(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct softmax *softmax = state;
    const struct rows *rows = softmax->rows;
    weft_dtype compute = softmax->call->result.compute, dtype = softmax->call->out->dtype;
    size_t length = (size_t)rows->length, size = weft_dtype_size(compute);
    for (size_t i = 0; i < n; i++) {
        const char *from = data[1] + (int64_t)i * stride[1];
        const void *loaded =
            weft_i_load_run(compute, softmax->buffer, dtype, from, rows->in_stride, length);
        if (loaded != softmax->buffer)
            memcpy(softmax->buffer, loaded, length * size);
        weft_i_normalize_softmax(softmax->call->op->kernel, compute, softmax->buffer, length);
        weft_i_store_run(dtype, data[0] + (int64_t)i * stride[0], rows->out_stride, compute,
                         softmax->buffer, length);
    }
}

weft_status weft_i_softmax_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    int dim = x->ndim ? weft_i_dim_wrap(call->op->name, call->args[1].integer, x->ndim) : 0;
    struct rows rows = rows_along(call->out, x, dim);
    struct softmax softmax = {call, &rows, new_buffer(call, rows.length)};
    if (!softmax.buffer)
        return weft_last_status();
    weft_i_loop_each(rows.loop, softmax_rows, &softmax);
    WEFT_OS->free(softmax.buffer);
    return WEFT_OK;
}

/* An optional argument as adjacent elements of the compute type; NULL if absent. */
static weft_tensor *packed(const weft_i_op_call *call, int i, bool *failed)
{
    if (call->args[i].kind != WEFT_I_ARG_TENSOR)
        return NULL;
    const weft_tensor *x = call->args[i].tensor;
    weft_dtype dtype = i == 0 ? x->dtype : call->result.compute;
    weft_tensor *out = weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL);
    if (out)
        weft_i_copy_tensor(out, x);
    *failed |= !out;
    return out;
}

static void layer_rows(const weft_i_op_call *call, const weft_tensor *x, const weft_tensor *weight,
                       const weft_tensor *bias, void *buffer, int64_t length)
{
    weft_dtype compute = call->result.compute, dtype = x->dtype;
    int64_t size = (int64_t)weft_dtype_size(dtype), rows = weft_i_tensor_numel(x) / length;
    const char *from = weft_i_tensor_data(x);
    char *to = weft_i_tensor_data(call->out);
    for (int64_t i = 0; i < rows; i++) {
        weft_i_store_run(compute, buffer, (int64_t)weft_dtype_size(compute), dtype,
                         from + i * length * size, (size_t)length);
        weft_i_normalize_layer(compute, buffer, (size_t)length,
                               weight ? weft_i_tensor_data(weight) : NULL,
                               bias ? weft_i_tensor_data(bias) : NULL, call->args[4].number);
        weft_i_store_run(dtype, to + i * length * size, size, compute, buffer, (size_t)length);
    }
}

weft_status weft_i_layer_norm_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    int64_t length = 1;
    for (int i = x->ndim - (int)call->args[1].integer; i < x->ndim; i++)
        length *= x->dim[i];
    if (weft_i_tensor_numel(x) == 0)
        return WEFT_OK;
    bool failed = false;
    weft_tensor *copy = weft_i_tensor_is_contiguous(x) ? NULL : packed(call, 0, &failed);
    weft_tensor *weight = packed(call, 2, &failed), *bias = packed(call, 3, &failed);
    void *buffer = failed ? NULL : new_buffer(call, length);
    if (buffer)
        layer_rows(call, copy ? copy : x, weight, bias, buffer, length);
    WEFT_OS->free(buffer);
    weft_release(copy);
    weft_release(weight);
    weft_release(bias);
    return buffer ? WEFT_OK : weft_last_status();
}

weft_tensor *weft_softmax(weft_tensor *x, int dim)
{
    return WEFT_I_CALL(softmax, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_log_softmax(weft_tensor *x, int dim)
{
    return WEFT_I_CALL(log_softmax, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_layer_norm(weft_tensor *x, int dims, weft_tensor *weight, weft_tensor *bias,
                             double epsilon)
{
    return WEFT_I_CALL(layer_norm, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dims),
                       WEFT_I_OPTIONAL_ARG(weight), WEFT_I_OPTIONAL_ARG(bias),
                       WEFT_I_NUMBER_ARG(epsilon));
}
