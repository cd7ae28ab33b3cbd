/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: leaves that modules train. */
#include "nn/module.h"

#include "nn/ops.h"

#include <string.h>

weft_status weft_i_parameter_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    bool required = call->args[1].integer;
    if (required && weft_i_dtype_kind_of(x->dtype) != WEFT_I_KIND_FLOAT)
        return weft_i_fail(WEFT_ERR_TYPE, "parameter: tensors of %s have no gradients",
                           weft_dtype_name(x->dtype));
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    call->result.offset = x->offset;
    memcpy(call->result.stride, x->stride, sizeof x->stride);
    return WEFT_OK;
}

weft_status weft_i_parameter_run(weft_i_op_call *call)
{
    return weft_i_fail(WEFT_ERR_INTERNAL, "%s: views do not run", call->op->name);
}

weft_tensor *weft_parameter(weft_tensor *x, bool required)
{
    weft_tensor *param =
        WEFT_I_APPLY(parameter, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(required));
    if (!param)
        return NULL;
    weft_i_object_drop(param->base); /* a leaf stands for itself */
    param->base = NULL;
    if (required && weft_require_grad(param, true) < 0) {
        weft_release(param);
        return NULL;
    }
    param->parameter = true;
    return param;
}

bool weft_is_parameter(const weft_tensor *x)
{
    return x && x->head.kind == WEFT_I_TENSOR && x->parameter;
}
