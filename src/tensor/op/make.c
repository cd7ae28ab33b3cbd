/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors out of nothing: empty, filled, counted, random, or around memory of the caller. */
#include "kernels/number/convert.h"
#include "kernels/walk/copy.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>
#include <string.h>

/* The arguments of every maker start with dtype and device. */
static weft_status take_dtype_and_device(weft_i_op_call *call)
{
    int64_t dtype = call->args[0].integer;
    if (dtype < 0 || dtype >= WEFT_DTYPE_COUNT)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: %lld is not a dtype", call->op->name,
                           (long long)dtype);
    call->result.dtype = (weft_dtype)dtype;
    call->result.device = (weft_device)call->args[1].integer;
    return WEFT_OK;
}

weft_status weft_i_empty_shape(weft_i_op_call *call)
{
    WEFT_TRY(take_dtype_and_device(call));
    WEFT_TRY(weft_i_shape_argument(call, 2, &call->result.shape));
    WEFT_TRY(weft_i_shape_check(call->op->name, call->result.dtype, call->result.shape, NULL));
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

weft_status weft_i_empty_strided_shape(weft_i_op_call *call)
{
    WEFT_TRY(take_dtype_and_device(call));
    WEFT_TRY(weft_i_shape_argument(call, 2, &call->result.shape));
    if (call->args[3].count != call->args[2].count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "empty_strided: %zu strides for %zu dimensions",
                           call->args[3].count, call->args[2].count);
    if (call->args[3].count)
        memcpy(call->result.stride, call->args[3].integers, call->args[3].count * sizeof(int64_t));
    return weft_i_shape_check("empty_strided", call->result.dtype, call->result.shape,
                              call->result.stride);
}

weft_status weft_i_empty_run(weft_i_op_call *call)
{
    (void)call; /* the content is undefined */
    return WEFT_OK;
}

weft_status weft_i_full_run(weft_i_op_call *call)
{
    weft_i_loop loop = weft_i_loop_over(call->out);
    uint64_t element;
    weft_i_convert(call->out->dtype, &element, WEFT_F64, &call->args[3].number, 1);
    weft_i_fill(&loop, call->out->dtype, &element);
    return WEFT_OK;
}

weft_status weft_i_arange_shape(weft_i_op_call *call)
{
    double start = call->args[2].number, end = call->args[3].number, step = call->args[4].number;
    WEFT_TRY(take_dtype_and_device(call));
    double count = ceil((end - start) / step);
    if (step == 0 || !isfinite(count) || count > 0x1p53)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "arange: from %g to %g by %g has no end", start,
                           end, step);
    call->result.shape = WEFT_SHAPE(count > 0 ? count : 0);
    call->result.stride[0] = 1;
    return WEFT_OK;
}

weft_status weft_i_arange_run(weft_i_op_call *call)
{
    weft_tensor *out = call->out;
    char *at = weft_i_tensor_data(out);
    double start = call->args[2].number, step = call->args[4].number;
    size_t size = weft_dtype_size(out->dtype);
    for (int64_t i = 0; i < out->dim[0]; i++, at += size) {
        double value = start + (double)i * step;
        weft_i_convert(out->dtype, at, WEFT_F64, &value, 1);
    }
    return WEFT_OK;
}

#define TYPE_ARGS(dtype_, device_) WEFT_I_INTEGER_ARG(dtype_), WEFT_I_INTEGER_ARG(device_)

weft_tensor *weft_empty(weft_dtype dtype, weft_device device, weft_shape shape)
{
    return WEFT_I_APPLY(empty, TYPE_ARGS(dtype, device),
                        WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim));
}

weft_tensor *weft_empty_strided(weft_dtype dtype, weft_device device, weft_shape shape,
                                const int64_t *strides)
{
    return WEFT_I_APPLY(empty_strided, TYPE_ARGS(dtype, device),
                        WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim),
                        WEFT_I_INTEGERS_ARG(strides, strides ? shape.ndim : 0));
}

weft_tensor *weft_arange(weft_dtype dtype, weft_device device, double start, double end,
                         double step)
{
    return WEFT_I_APPLY(arange, TYPE_ARGS(dtype, device), WEFT_I_NUMBER_ARG(start),
                        WEFT_I_NUMBER_ARG(end), WEFT_I_NUMBER_ARG(step));
}

/* Gives up the fresh tensor if the action that should have filled it failed. */
static weft_tensor *filled(weft_tensor *x, weft_status status)
{
    if (status >= 0)
        return x;
    weft_release(x);
    return NULL;
}

weft_tensor *weft_full(weft_dtype dtype, weft_device device, weft_shape shape, double value)
{
    return WEFT_I_APPLY(full, TYPE_ARGS(dtype, device), WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim),
                        WEFT_I_NUMBER_ARG(value));
}

weft_tensor *weft_zeros(weft_dtype dtype, weft_device device, weft_shape shape)
{
    return weft_full(dtype, device, shape, 0);
}

weft_tensor *weft_ones(weft_dtype dtype, weft_device device, weft_shape shape)
{
    return weft_full(dtype, device, shape, 1);
}

weft_tensor *weft_empty_like(weft_tensor *x)
{
    x = weft_i_see(x);
    return x ? weft_empty(x->dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x))
             : weft_detach(NULL);
}

weft_tensor *weft_zeros_like(weft_tensor *x)
{
    x = weft_i_see(x);
    return x ? weft_zeros(x->dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x))
             : weft_detach(NULL);
}

weft_tensor *weft_rand(weft_dtype dtype, weft_device device, weft_shape shape)
{
    weft_tensor *x = weft_empty(dtype, device, shape);
    return x ? weft_i_untouched(filled(x, weft_uniform(x, 0, 1))) : NULL;
}

weft_tensor *weft_randn(weft_dtype dtype, weft_device device, weft_shape shape)
{
    weft_tensor *x = weft_empty(dtype, device, shape);
    return x ? weft_i_untouched(filled(x, weft_normal(x, 0, 1))) : NULL;
}

weft_tensor *weft_randint(weft_dtype dtype, weft_device device, weft_shape shape, int64_t low,
                          int64_t high)
{
    weft_tensor *x = weft_empty(dtype, device, shape);
    return x ? weft_i_untouched(filled(x, weft_integers(x, low, high))) : NULL;
}

weft_tensor *weft_tensor_from(weft_dtype dtype, weft_shape shape, const void *data)
{
    weft_i_eye *eye = weft_i_eye_open;
    weft_tensor *x =
        eye ? weft_i_tensor_new(dtype, WEFT_CPU, shape, NULL) : weft_empty(dtype, WEFT_CPU, shape);
    if (x && x->numel && !data) {
        weft_release(x);
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_tensor_from: the data is NULL");
    }
    if (x && x->numel)
        memcpy(weft_i_tensor_data(x), data, (size_t)x->numel * weft_dtype_size(dtype));
    return x && eye ? filled(x, eye->constant(eye, x)) : x;
}

weft_tensor *weft_tensor_wrap(weft_dtype dtype, weft_device device, weft_shape shape, void *data,
                              void (*release)(void *argument), void *argument)
{
    if (weft_i_shape_check("weft_tensor_wrap", dtype, shape, NULL) < 0)
        return NULL;
    size_t size = weft_dtype_size(dtype), bytes = (size_t)weft_i_shape_numel(shape) * size;
    const weft_i_device *table = weft_i_device_of("weft_tensor_wrap", device);
    if (!table)
        return NULL;
    if (!table->alloc)
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "weft_tensor_wrap: %s has no memory", table->name);
    if (table->check && bytes && table->check(device, data, bytes) < 0)
        return NULL;
    if ((uintptr_t)data % size)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_tensor_wrap: %p is not aligned for %s", data,
                           weft_dtype_name(dtype));
    weft_storage *storage = weft_i_storage_wrap(data, bytes, device, NULL, NULL);
    weft_tensor *x = storage ? weft_i_tensor_new_strided(storage, dtype, shape, NULL, 0) : NULL;
    if (x) {
        storage->release =
            release; /* from now on: a failure above must leave the memory to the caller */
        storage->release_argument = argument;
    }
    weft_i_object_drop(storage);
    return x;
}
