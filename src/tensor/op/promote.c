/* SPDX-License-Identifier: Apache-2.0 */
/* The promotion of dtypes, shapes and layouts. */
#include "tensor/op/promote.h"

#include "tensor/op/loops.h"

#include <math.h>
#include <string.h>

enum { DIMENSIONED, ZERO_D, NUMBER, LEVELS };

static int level_of(const weft_i_arg *arg)
{
    return arg->kind == WEFT_I_ARG_NUMBER ? NUMBER : arg->tensor->ndim ? DIMENSIONED : ZERO_D;
}

static weft_dtype dtype_of(const weft_i_arg *arg)
{
    if (arg->kind == WEFT_I_ARG_TENSOR)
        return arg->tensor->dtype;
    return arg->number == floor(arg->number) && fabs(arg->number) < 0x1p63 ? WEFT_I64 : WEFT_F32;
}

/* The common case: one dtype for all tensors, which have dimensions, and no number that could
 * change it. */
static bool all_alike(const weft_i_op_call *call, int first, int last, weft_dtype *out)
{
    bool found = false;
    for (int i = first; i <= last; i++) {
        const weft_i_arg *arg = &call->args[i];
        if (arg->kind != WEFT_I_ARG_TENSOR)
            continue;
        if (!arg->tensor->ndim || (found && arg->tensor->dtype != *out))
            return false;
        *out = arg->tensor->dtype;
        found = true;
    }
    bool numbers = false;
    for (int i = first; i <= last; i++)
        numbers |= call->args[i].kind == WEFT_I_ARG_NUMBER;
    return found && (!numbers || weft_i_dtype_is_float(*out));
}

weft_status weft_i_promote_dtypes(const weft_i_op_call *call, int first, int last, weft_dtype *out)
{
    bool found[LEVELS] = {false}, any = false;
    weft_dtype dtype[LEVELS];
    if (all_alike(call, first, last, out))
        return WEFT_OK;
    for (int i = first; i <= last; i++) {
        int level = level_of(&call->args[i]);
        weft_dtype own = dtype_of(&call->args[i]);
        if (found[level] && weft_dtype_promote(dtype[level], own, &own) < 0)
            return weft_i_explain(WEFT_ERR_TYPE, "%s", call->op->name);
        dtype[level] = own;
        found[level] = true;
    }
    for (int level = 0; level < LEVELS; level++) {
        if (!found[level])
            continue;
        if (!any)
            *out = dtype[level];
        else if (weft_i_dtype_class(dtype[level]) > weft_i_dtype_class(*out))
            WEFT_TRY(weft_dtype_promote(*out, dtype[level], out));
        any = true;
    }
    return WEFT_OK;
}

/* Whether `x` has the strides the result was given already, wherever they matter. */
static bool agrees(const weft_i_result *result, const weft_tensor *x)
{
    for (int i = 0; i < x->ndim; i++)
        if (x->dim[i] > 1 && x->stride[i] != result->stride[i])
            return false;
    return true;
}

static void take_strides(weft_i_op_call *call, int first, int last)
{
    weft_i_result *result = &call->result;
    bool taken = false;
    for (int i = first; i <= last; i++) {
        const weft_tensor *x = call->args[i].tensor;
        if (call->args[i].kind != WEFT_I_ARG_TENSOR ||
            !weft_i_shape_equal(weft_i_tensor_shape(x), result->shape))
            continue;
        if (!weft_i_tensor_is_dense(x) || (taken && !agrees(result, x))) {
            weft_i_shape_strides(result->shape, result->stride);
            return;
        }
        if (!taken)
            memcpy(result->stride, x->stride, sizeof x->stride);
        taken = true;
    }
}

/* The common case: packed tensors of one shape, whose number of elements is far from overflow. */
static bool take_same(weft_i_op_call *call, int first, int last)
{
    const weft_tensor *one = NULL;
    for (int i = first; i <= last; i++) {
        const weft_tensor *x = call->args[i].tensor;
        if (call->args[i].kind != WEFT_I_ARG_TENSOR || x == one)
            continue;
        if (!x->packed || (one && (x->ndim != one->ndim ||
                                   memcmp(x->dim, one->dim, (size_t)x->ndim * sizeof *x->dim))))
            return false;
        one = x;
    }
    if (!one || one->numel > (int64_t)1 << 50 || one->numel == 0)
        return false;
    call->result.shape.ndim = one->ndim;
    for (int i = 0; i < one->ndim; i++)
        call->result.shape.dim[i] = one->dim[i];
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return true;
}

weft_status weft_i_promote_shapes(weft_i_op_call *call, int first, int last)
{
    weft_i_result *result = &call->result;
    if (take_same(call, first, last))
        return WEFT_OK;
    result->shape = (weft_shape){0, {0}};
    for (int i = first; i <= last; i++)
        if (call->args[i].kind == WEFT_I_ARG_TENSOR)
            WEFT_TRY(weft_i_shape_broadcast(call->op->name, result->shape,
                                            weft_i_tensor_shape(call->args[i].tensor),
                                            &result->shape));
    WEFT_TRY(weft_i_shape_check(call->op->name, WEFT_F64, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    take_strides(call, first, last);
    return WEFT_OK;
}
