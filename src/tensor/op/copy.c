/* SPDX-License-Identifier: Apache-2.0 */
/* Moving elements: fill, copy, clone, contiguous, conversion, cat and stack; and taking over a
 * storage (set). */
#include "kernels/walk/copy.h"

#include "base/os/os.h"
#include "kernels/number/convert.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

weft_status weft_i_fill_shape(weft_i_op_call *call)
{
    (void)call; /* any number goes into any tensor */
    return WEFT_OK;
}

weft_status weft_i_fill_run(weft_i_op_call *call)
{
    weft_i_loop loop = weft_i_loop_over(call->out);
    uint64_t element;
    weft_i_convert(call->out->dtype, &element, WEFT_F64, &call->args[1].number, 1);
    weft_i_fill(&loop, call->out->dtype, &element);
    return WEFT_OK;
}

weft_status weft_i_copy_shape(weft_i_op_call *call)
{
    weft_shape to = weft_i_tensor_shape(call->args[0].tensor),
               from = weft_i_tensor_shape(call->args[1].tensor), both;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(weft_i_shape_broadcast("copy", to, from, &both));
    if (!weft_i_shape_equal(to, both))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "copy: a source of shape %s does not broadcast to a target of shape %s",
                           weft_i_shape_text(from, a), weft_i_shape_text(to, b));
    return WEFT_OK;
}

weft_status weft_i_copy_run(weft_i_op_call *call)
{
    weft_tensor *to = call->out, *from = call->args[1].tensor;
    if (!weft_i_tensor_ranges_meet(to, from)) {
        weft_i_copy_tensor(to, from);
        return WEFT_OK;
    }
    if (weft_i_tensor_same_view(to, from))
        return WEFT_OK;
    weft_tensor *apart =
        weft_i_tensor_new(from->dtype, weft_i_tensor_device(from), weft_i_tensor_shape(from), NULL);
    if (!apart)
        return weft_last_status();
    weft_i_copy_tensor(apart, from);
    weft_i_copy_tensor(to, apart);
    weft_release(apart);
    return WEFT_OK;
}

weft_status weft_i_tensor_copy(weft_tensor *to, weft_tensor *from)
{
    WEFT_TRY(weft_i_tensor_fits("copy", from));
    WEFT_TRY(weft_i_tensor_fits("copy", to));
    if (weft_i_device_is_host(weft_i_tensor_device(to)) &&
        weft_i_device_is_host(weft_i_tensor_device(from))) {
        weft_i_copy_tensor(to, from);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_storage_touch(from->storage, false));
    WEFT_TRY(weft_i_storage_touch(to->storage, true));
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(to), WEFT_I_TENSOR_ARG(from)};
    weft_i_op_call call = {.op = &weft_i_op_copy, .args = args, .out = to};
    return weft_i_op_run(&call);
}

weft_tensor *weft_i_tensor_here(const char *what, const weft_tensor *x)
{
    weft_device device = weft_i_tensor_device(x);
    char name[16];
    /* A reference is counted in what is otherwise left alone. */
    weft_tensor *from = weft_i_object_hold((weft_tensor *)(uintptr_t)x);
    if (weft_i_device_is_host(device))
        return from;
    weft_tensor *here = NULL;
    if (device == WEFT_META)
        weft_i_fail(WEFT_ERR_TYPE, "%s: a tensor on %s has no elements", what,
                    weft_device_name(device, name));
    else
        here = weft_keep(weft_i_tensor_new(x->dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL));
    if (here && weft_i_tensor_copy(here, from) < 0) {
        weft_i_object_drop(here);
        here = NULL;
    }
    weft_i_object_drop(from);
    return here;
}

void weft_i_result_like(weft_i_result *result, const weft_tensor *x)
{
    result->dtype = x->dtype;
    result->shape = weft_i_tensor_shape(x);
    if (weft_i_tensor_is_dense(x))
        memcpy(result->stride, x->stride, sizeof x->stride);
    else
        weft_i_shape_strides(result->shape, result->stride);
}

weft_status weft_i_clone_shape(weft_i_op_call *call)
{
    weft_i_result_like(&call->result, call->args[0].tensor);
    return WEFT_OK;
}

weft_status weft_i_contiguous_shape(weft_i_op_call *call)
{
    WEFT_TRY(weft_i_clone_shape(call));
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

weft_status weft_i_to_shape(weft_i_op_call *call)
{
    WEFT_TRY(weft_i_clone_shape(call));
    weft_dtype dtype = (weft_dtype)call->args[1].integer;
    weft_device device = (weft_device)call->args[2].integer;
    char from[16], to[16];
    if (!weft_i_dtype_valid(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "to: %d is not a dtype", dtype);
    if (device != call->result.device && device != WEFT_META && call->result.device == WEFT_META)
        return weft_i_fail(
            WEFT_ERR_TYPE, "to: cannot move a tensor from %s, which has no elements, to %s",
            weft_device_name(call->result.device, from), weft_device_name(device, to));
    if (!weft_i_device_of("to", device))
        return weft_last_status();
    call->result.dtype = dtype;
    call->result.device = device;
    return WEFT_OK;
}

weft_status weft_i_clone_run(weft_i_op_call *call)
{
    weft_i_copy_tensor(call->out, call->args[0].tensor);
    return WEFT_OK;
}

weft_status weft_fill(weft_tensor *x, double value)
{
    return WEFT_I_ACT(fill, WEFT_I_TENSOR_ARG(x), WEFT_I_NUMBER_ARG(value));
}

weft_status weft_copy(weft_tensor *to, weft_tensor *from)
{
    return WEFT_I_ACT(copy, WEFT_I_TENSOR_ARG(to), WEFT_I_TENSOR_ARG(from));
}

weft_tensor *weft_clone(weft_tensor *x)
{
    return WEFT_I_APPLY(clone, WEFT_I_TENSOR_ARG(x));
}

/* What needs no copy is an alias, so that the result is always a handle of its own. */
static weft_tensor *alias(weft_tensor *x)
{
    return weft_view(x, weft_i_tensor_shape(x));
}

weft_tensor *weft_contiguous(weft_tensor *x)
{
    x = weft_i_see(x);
    if (x && weft_i_tensor_is_contiguous(x))
        return alias(x);
    return WEFT_I_APPLY(contiguous, WEFT_I_TENSOR_ARG(x));
}

weft_tensor *weft_to(weft_tensor *x, weft_dtype dtype, weft_device device)
{
    x = weft_i_see(x);
    if (x && x->dtype == dtype && weft_i_tensor_device(x) == device)
        return alias(x);
    return WEFT_I_APPLY(to, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dtype),
                        WEFT_I_INTEGER_ARG(device));
}

weft_tensor *weft_to_dtype(weft_tensor *x, weft_dtype dtype)
{
    x = weft_i_see(x);
    return weft_to(x, dtype, x ? weft_i_tensor_device(x) : WEFT_CPU);
}

weft_status weft_i_set_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor, *source = call->args[1].tensor;
    if (x->dtype != source->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "set: a tensor of %s cannot take over one of %s",
                           weft_dtype_name(x->dtype), weft_dtype_name(source->dtype));
    return WEFT_OK;
}

weft_status weft_i_set_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *source = call->args[1].tensor;
    WEFT_TRY(weft_i_storage_check_pinned("weft_set", x->storage, &x->pinned));
    weft_i_tensor_take_over(x, source);
    return WEFT_OK;
}

weft_status weft_set(weft_tensor *x, weft_tensor *source)
{
    return WEFT_I_ACT(set, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(source));
}

weft_status weft_i_resize_storage_shape(weft_i_op_call *call)
{
    if (call->args[1].integer < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "resize_storage: %lld bytes",
                           (long long)call->args[1].integer);
    return WEFT_OK;
}

weft_status weft_i_resize_storage_run(weft_i_op_call *call)
{
    weft_storage *storage = call->args[0].tensor->storage;
    if (storage->fake && !call->fake)
        return weft_i_storage_ready(storage, true);
    return weft_i_storage_resize(storage, (size_t)call->args[1].integer);
}

weft_status weft_resize_storage(weft_tensor *x, int64_t bytes)
{
    return WEFT_I_ACT(resize_storage, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(bytes));
}
