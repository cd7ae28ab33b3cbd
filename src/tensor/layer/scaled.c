/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of floats of 8 bits, which have little range and so come with scales: one for a whole
 * operand, or one for each row of the left and each column of the right one.  Sums, scales and bias
 * are f32, and the result is rounded once.
 */
#include "kernels/number/convert.h"
#include "kernels/product/matmul.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

/* ---- the rule ---- */

static bool is_f8(weft_dtype dtype)
{
    return weft_i_dtype_is_float(dtype) && weft_dtype_size(dtype) == 1;
}

static weft_status check_operands(const weft_tensor *a, const weft_tensor *b)
{
    char text_a[WEFT_I_SHAPE_TEXT], text_b[WEFT_I_SHAPE_TEXT];
    if (a->ndim != 2 || b->ndim != 2 || a->dim[1] != b->dim[0])
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "scaled_mm: shapes %s and %s do not multiply",
                           weft_i_shape_text(weft_i_tensor_shape(a), text_a),
                           weft_i_shape_text(weft_i_tensor_shape(b), text_b));
    if (!is_f8(a->dtype) || !is_f8(b->dtype))
        return weft_i_fail(WEFT_ERR_TYPE,
                           "scaled_mm: of %s and %s; both must be floats of 8 bits (weft_mm "
                           "multiplies others)",
                           weft_dtype_name(a->dtype), weft_dtype_name(b->dtype));
    return WEFT_OK;
}

/* One scale, or `many` along dimension `along` of two. */
static weft_status check_scale(const char *which, const weft_tensor *scale, int along, int64_t many)
{
    char text[WEFT_I_SHAPE_TEXT];
    bool each = scale->ndim == 2 && scale->dim[along] == many && scale->dim[1 - along] == 1;
    if (scale->dtype != WEFT_F32)
        return weft_i_fail(WEFT_ERR_TYPE, "scaled_mm: the scale of %s is %s, it must be f32", which,
                           weft_dtype_name(scale->dtype));
    if (weft_i_tensor_numel(scale) == 1 || each)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "scaled_mm: the scale of %s has shape %s; it must be one element, or %s",
                       which, weft_i_shape_text(weft_i_tensor_shape(scale), text),
                       along ? "[1, columns of b]" : "[rows of a, 1]");
}

static weft_status check_extras(const weft_i_op_call *call, int64_t columns)
{
    const weft_i_arg *bias = &call->args[4], *scale = &call->args[5];
    if (bias->kind == WEFT_I_ARG_TENSOR &&
        (bias->tensor->ndim != 1 || bias->tensor->dim[0] != columns ||
         !weft_i_dtype_is_float(bias->tensor->dtype)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "scaled_mm: a bias has %lld floats, one for each column of b",
                           (long long)columns);
    if (scale->kind == WEFT_I_ARG_TENSOR &&
        (weft_i_tensor_numel(scale->tensor) != 1 || scale->tensor->dtype != WEFT_F32))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "scaled_mm: the scale of the result is one f32");
    return WEFT_OK;
}

weft_status weft_i_scaled_mm_shape(weft_i_op_call *call)
{
    const weft_tensor *a = call->args[0].tensor, *b = call->args[1].tensor;
    int64_t dtype = call->args[6].integer;
    weft_i_result *result = &call->result;
    WEFT_TRY(check_operands(a, b));
    WEFT_TRY(check_scale("a", call->args[2].tensor, 0, a->dim[0]));
    WEFT_TRY(check_scale("b", call->args[3].tensor, 1, b->dim[1]));
    WEFT_TRY(check_extras(call, b->dim[1]));
    bool fits = dtype >= 0 && dtype <= INT32_MAX && weft_dtype_size((weft_dtype)dtype) &&
                weft_dtype_size((weft_dtype)dtype) <= 4 && weft_i_dtype_is_float((weft_dtype)dtype);
    if (!fits)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "scaled_mm: the result is a float of 32, 16 or 8 bits, not dtype %lld",
                           (long long)dtype);
    result->dtype = (weft_dtype)dtype;
    result->shape = WEFT_SHAPE(a->dim[0], b->dim[1]);
    WEFT_TRY(weft_i_shape_check("scaled_mm", result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* ---- the run on the CPU ---- */

static weft_i_matrix matrix(const weft_tensor *x)
{
    return (weft_i_matrix){x->dtype,     weft_i_tensor_numel(x) ? weft_i_tensor_data(x) : NULL,
                           x->dim[0],    x->dim[1],
                           x->stride[0], x->stride[1]};
}

/* Scale i of a row or column; a single one serves all. */
static float scale_at(const weft_tensor *scale, int along, int64_t i)
{
    const float *data = (const float *)(const void *)weft_i_tensor_data(scale);
    return weft_i_tensor_numel(scale) == 1 ? data[0] : data[i * scale->stride[along]];
}

static float bias_at(const weft_tensor *bias, int64_t i)
{
    float value;
    const char *data = weft_i_tensor_data(bias);
    weft_i_convert(WEFT_F32, &value, bias->dtype,
                   data + i * bias->stride[0] * (int64_t)weft_dtype_size(bias->dtype), 1);
    return value;
}

/* Scales, bias and the result's own scale, on the sums of the plain product. */
static void finish_sums(const weft_i_op_call *call, const weft_tensor *sums)
{
    const weft_tensor *bias = call->args[4].kind == WEFT_I_ARG_TENSOR ? call->args[4].tensor : NULL;
    const weft_i_arg *last = &call->args[5];
    float *at = (float *)(void *)weft_i_tensor_data(sums);
    float result = last->kind == WEFT_I_ARG_TENSOR ? scale_at(last->tensor, 0, 0) : 1;
    for (int64_t i = 0; i < sums->dim[0]; i++) {
        float row = scale_at(call->args[2].tensor, 0, i);
        for (int64_t k = 0; k < sums->dim[1]; k++, at++) {
            float scaled = *at * row * scale_at(call->args[3].tensor, 1, k);
            *at = (bias ? scaled + bias_at(bias, k) : scaled) * result;
        }
    }
}

weft_status weft_i_scaled_mm_run(weft_i_op_call *call)
{
    if (weft_i_tensor_numel(call->out) == 0)
        return WEFT_OK;
    weft_tensor *sums =
        weft_keep(weft_i_tensor_new(WEFT_F32, WEFT_CPU, weft_i_tensor_shape(call->out), NULL));
    if (!sums)
        return weft_last_status();
    weft_i_matrix out = matrix(sums), a = matrix(call->args[0].tensor),
                  b = matrix(call->args[1].tensor);
    weft_status status = weft_i_matmul(&out, &a, &b);
    if (status >= 0) {
        finish_sums(call, sums);
        weft_i_copy_tensor(call->out, sums);
    }
    weft_release(sums);
    return status;
}

weft_tensor *weft_scaled_mm(weft_tensor *a, weft_tensor *b, weft_tensor *scale_a,
                            weft_tensor *scale_b, weft_tensor *bias, weft_tensor *result_scale,
                            weft_dtype dtype)
{
    return WEFT_I_APPLY(scaled_mm, WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b),
                        WEFT_I_TENSOR_ARG(scale_a), WEFT_I_TENSOR_ARG(scale_b),
                        WEFT_I_OPTIONAL_ARG(bias), WEFT_I_OPTIONAL_ARG(result_scale),
                        WEFT_I_INTEGER_ARG(dtype));
}
