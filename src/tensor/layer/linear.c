/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x [..., in] times weight [out, in] transposed, plus bias.  A row of its own, not a transpose and
 * a product: its gradient needs the weight itself, which may have got other memory by then.
 */
#include "kernels/product/matmul.h"

#include "tensor/op/autocast.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

static weft_status check_shapes(const weft_tensor *x, const weft_tensor *weight,
                                const weft_tensor *bias)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (weight->ndim != 2 || x->ndim < 1 || x->dim[x->ndim - 1] != weight->dim[1])
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "linear: x of shape %s and a weight of shape %s; the weight is [out, "
                           "in], x ends with in",
                           weft_i_shape_text(weft_i_tensor_shape(x), a),
                           weft_i_shape_text(weft_i_tensor_shape(weight), b));
    if (bias && (bias->ndim != 1 || bias->dim[0] != weight->dim[0]))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "linear: the bias has shape %s, the weight %s",
                           weft_i_shape_text(weft_i_tensor_shape(bias), a),
                           weft_i_shape_text(weft_i_tensor_shape(weight), b));
    return WEFT_OK;
}

weft_status weft_i_linear_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor, *weight = call->args[1].tensor;
    const weft_tensor *bias = call->args[2].kind == WEFT_I_ARG_TENSOR ? call->args[2].tensor : NULL;
    weft_i_result *result = &call->result;
    WEFT_TRY(check_shapes(x, weight, bias));
    if (x->dtype != weight->dtype || x->dtype == WEFT_BOOL || (bias && bias->dtype != x->dtype))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "linear: x is %s, the weight %s%s%s; all must be one dtype, not bool",
                           weft_dtype_name(x->dtype), weft_dtype_name(weight->dtype),
                           bias ? ", the bias " : "", bias ? weft_dtype_name(bias->dtype) : "");
    result->dtype = x->dtype;
    result->shape = weft_i_tensor_shape(x);
    result->shape.dim[x->ndim - 1] = weight->dim[0];
    WEFT_TRY(weft_i_shape_check(call->op->name, result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* A packed tensor, or one of two dimensions, as a matrix of its last dimension. */
static weft_i_matrix rows_of(const weft_tensor *x)
{
    int64_t columns = x->dim[x->ndim - 1], numel = weft_i_tensor_numel(x);
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        rows *= x->dim[i];
    bool two = x->ndim == 2;
    return (weft_i_matrix){x->dtype, numel ? weft_i_tensor_data(x) : NULL, rows,
                           columns,  two ? x->stride[0] : columns,         two ? x->stride[1] : 1};
}

/* Where the row has shape and memory already: the sum is written over the product. */
static weft_status add_bias(weft_tensor *out, weft_tensor *bias)
{
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(out), WEFT_I_TENSOR_ARG(bias)};
    weft_i_op_call add = {.op = &weft_i_op_add, .args = args};
    add.result.device = weft_i_tensor_device(out);
    WEFT_TRY(weft_i_op_add.shape(&add));
    add.out = out;
    return weft_i_op_add.run[0](&add);
}

weft_status weft_i_linear_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *weight = call->args[1].tensor, *copy = NULL;
    if (x->ndim != 2 && !weft_i_tensor_is_contiguous(x)) {
        if (!(copy = weft_i_tensor_new(x->dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL)))
            return weft_last_status();
        weft_i_copy_tensor(copy, x);
    }
    weft_i_matrix out = rows_of(call->out), a = rows_of(copy ? copy : x);
    weft_i_matrix b = {
        weight->dtype,     weft_i_tensor_numel(weight) ? weft_i_tensor_data(weight) : NULL,
        weight->dim[1],    weight->dim[0],
        weight->stride[1], weight->stride[0]};
    weft_status status = weft_i_matmul(&out, &a, &b);
    if (status >= 0 && call->args[2].kind == WEFT_I_ARG_TENSOR)
        status = add_bias(call->out, call->args[2].tensor);
    weft_release(copy);
    return status;
}

/* For devices on which the row does not run. */
static weft_tensor *put_together(weft_tensor *x, weft_tensor *weight, weft_tensor *bias)
{
    weft_tensor *turned = weft_transpose(weight, 0, 1);
    weft_tensor *product = turned ? weft_matmul(x, turned) : NULL;
    weft_release(turned);
    if (!product || !bias)
        return product;
    weft_tensor *out = weft_add(product, bias);
    weft_release(product);
    return out;
}

/* Autocast converts what the parts get: of the weight the parameter itself, not a view of it. */
static weft_tensor *composed(weft_tensor *x, weft_tensor *weight, weft_tensor *bias)
{
    weft_tensor *all[] = {x, weight, bias}, *out = NULL;
    bool made[3];
    for (int i = 0; i < 3; i++)
        all[i] = weft_i_autocast_lower(all[i], &made[i]);
    if (all[0] && all[1] && (all[2] || !bias))
        out = put_together(all[0], all[1], all[2]);
    for (int i = 0; i < 3; i++)
        if (made[i])
            weft_i_object_drop(all[i]);
    return out;
}

weft_tensor *weft_linear(weft_tensor *x, weft_tensor *weight, weft_tensor *bias)
{
    weft_device device = x ? weft_tensor_device(x) : WEFT_CPU;
    int kind = weft_i_device_kind(device);
    if (device != WEFT_META && kind > 0 && kind < WEFT_I_DEVICE_KINDS &&
        !weft_i_op_linear.run[kind])
        return composed(x, weight, bias);
    return WEFT_I_APPLY(linear, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(weight),
                        WEFT_I_OPTIONAL_ARG(bias));
}
