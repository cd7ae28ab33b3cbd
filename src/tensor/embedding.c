/* SPDX-License-Identifier: Apache-2.0 */
/* embedding: rows of a table chosen by integers.  All indices are checked before the first row is
 * copied. */
#include "kernels/convert.h"
#include "kernels/copy.h"
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
                             weft_i_tensor_data(weight) + index[i] * weight->stride[0] * size,
                             weight->stride[1] * size);
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

weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices)
{
    return WEFT_I_CALL(embedding, WEFT_I_TENSOR_ARG(weight), WEFT_I_TENSOR_ARG(indices));
}
