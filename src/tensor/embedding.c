/* SPDX-License-Identifier: Apache-2.0 */
/* embedding: rows of a table chosen by integers.  All indices are checked before the first row is
 * copied. */
#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "kernels/vector.h"
#include "tensor/loops.h"
#include "tensor/ops.h"
#include "weft/op.h"

#include <string.h>

weft_status weft_i_embedding_shape(weft_i_op_call *call)
{
    const weft_tensor *weight = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_i_result *result = &call->result;
    if (weight->ndim != 2)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "embedding: the weight has %d dimensions, not 2",
                           weight->ndim);
    if (weft_i_dtype_class(indices->dtype) != 1)
        return weft_i_fail(WEFT_ERR_TYPE, "embedding: the indices are %s, not integers",
                           weft_dtype_name(indices->dtype));
    if (indices->ndim == WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "embedding: the result would have %d dimensions",
                           WEFT_MAX_DIMS + 1);
    result->dtype = weight->dtype;
    result->shape = weft_i_tensor_shape(indices);
    result->shape.dim[result->shape.ndim++] = weight->dim[1];
    WEFT_TRY(weft_i_shape_check("embedding", result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

static weft_status check_indices(const int64_t *index, int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= rows)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "embedding: index %lld at %lld; the weight has %lld rows",
                               (long long)index[i], (long long)i, (long long)rows);
    return WEFT_OK;
}

static void take_rows(const weft_tensor *out, const weft_tensor *weight, const int64_t *index,
                      int64_t count)
{
    int64_t size = (int64_t)weft_dtype_size(weight->dtype), width = weight->dim[1];
    for (int64_t i = 0; i < count && width; i++)
        weft_i_copy_elements((size_t)size, (size_t)width,
                             weft_i_tensor_data(out) + i * width * size, size,
                             weft_i_tensor_data(weight) + index[i] * weft_i_tensor_step(weight, 0),
                             weft_i_tensor_step(weight, 1));
}

weft_status weft_i_embedding_run(weft_i_op_call *call)
{
    const weft_tensor *weight = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_tensor *index = weft_i_tensor_new(WEFT_I64, WEFT_CPU, weft_i_tensor_shape(indices), NULL);
    if (!index)
        return weft_last_status();
    weft_i_copy_tensor(index, indices);
    const int64_t *values = (const int64_t *)(const void *)weft_i_tensor_data(index);
    int64_t count = weft_i_tensor_numel(index);
    weft_status status = check_indices(values, count, weight->dim[0]);
    if (status >= 0)
        take_rows(call->out, weight, values, count);
    weft_release(index);
    return status;
}

weft_status weft_i_embedding_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *grad = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_i_result *result = &call->result;
    bool fits = grad->ndim == indices->ndim + 1;
    for (int i = 0; fits && i < indices->ndim; i++)
        fits = grad->dim[i] == indices->dim[i];
    if (!fits || weft_i_dtype_class(indices->dtype) != 1 || !weft_i_dtype_is_float(grad->dtype))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "embedding_grad: a %s gradient of %d dimensions for %s indices of %d",
                           weft_dtype_name(grad->dtype), grad->ndim,
                           weft_dtype_name(indices->dtype), indices->ndim);
    result->dtype = grad->dtype;
    result->shape.ndim = 2;
    result->shape.dim[0] = call->args[2].integer;
    result->shape.dim[1] = grad->dim[grad->ndim - 1];
    WEFT_TRY(weft_i_shape_check("embedding_grad", result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* Adds row i of `from` to row index[i] of `to`, in that order; both packed, f32 or f64. */
static void add_rows(const weft_tensor *to, const weft_tensor *from, const int64_t *index,
                     int64_t count)
{
    size_t width = (size_t)to->dim[1], size = weft_i_dtype_size(to->dtype);
    const weft_i_reduce_loops *loops = &weft_i_vector()->reduce[WEFT_I_REDUCE_SUM][to->dtype];
    for (int64_t i = 0; i < count; i++)
        loops->fold(width, weft_i_tensor_data(to) + (size_t)index[i] * width * size,
                    weft_i_tensor_data(from) + (size_t)i * width * size);
}

/* The sums are in f32 or f64 and rounded once. */
weft_status weft_i_embedding_grad_run(weft_i_op_call *call)
{
    weft_tensor *grad = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_dtype compute = grad->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_shape shape = weft_i_tensor_shape(call->out);
    weft_tensor *index = weft_i_tensor_new(WEFT_I64, WEFT_CPU, weft_i_tensor_shape(indices), NULL);
    weft_tensor *from = weft_i_tensor_new(compute, WEFT_CPU, weft_i_tensor_shape(grad), NULL);
    weft_tensor *sums = weft_i_tensor_new(compute, WEFT_CPU, shape, NULL);
    weft_status status = index && from && sums ? WEFT_OK : weft_last_status();
    if (status >= 0) {
        const int64_t *values = (const int64_t *)(const void *)weft_i_tensor_data(index);
        weft_i_copy_tensor(index, indices);
        weft_i_copy_tensor(from, grad);
        status = check_indices(values, index->numel, shape.dim[0]);
        if (status >= 0 && sums->numel) {
            memset(weft_i_tensor_data(sums), 0, sums->end);
            add_rows(sums, from, values, index->numel);
            weft_i_copy_tensor(call->out, sums);
        }
    }
    weft_release(index);
    weft_release(from);
    weft_release(sums);
    return status;
}

weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices)
{
    return WEFT_I_APPLY(embedding, WEFT_I_TENSOR_ARG(weight), WEFT_I_TENSOR_ARG(indices));
}

weft_tensor *weft_embedding_grad(weft_tensor *grad, weft_tensor *indices, int64_t rows)
{
    return WEFT_I_APPLY(embedding_grad, WEFT_I_TENSOR_ARG(grad), WEFT_I_TENSOR_ARG(indices),
                        WEFT_I_INTEGER_ARG(rows));
}
