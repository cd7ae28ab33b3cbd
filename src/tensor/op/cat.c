/* SPDX-License-Identifier: Apache-2.0 */
/* Joining tensors along an old dimension (cat) or a new one (stack). */
#include "base/os/os.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

/* All but the dimension joined must agree; the dtypes meet by promotion. */
static weft_status join(weft_i_op_call *call, const weft_tensor *x, int dim)
{
    weft_i_result *result = &call->result;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    bool fits = x->ndim == result->shape.ndim;
    for (int i = 0; fits && i < x->ndim; i++)
        fits = i == dim || x->dim[i] == result->shape.dim[i];
    if (!fits)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG, "cat: shapes %s and %s differ outside dimension %d",
            weft_i_shape_text(result->shape, a), weft_i_shape_text(weft_i_tensor_shape(x), b), dim);
    if (__builtin_add_overflow(result->shape.dim[dim], x->dim[dim], &result->shape.dim[dim]))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "cat: the result is too large");
    return weft_dtype_promote(result->dtype, x->dtype, &result->dtype);
}

weft_status weft_i_cat_shape(weft_i_op_call *call)
{
    const weft_i_arg *list = &call->args[0];
    if (list->count == 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "cat: no tensors");
    const weft_tensor *first = list->tensors[0];
    int dim = weft_i_dim_wrap("cat", call->args[1].integer, first->ndim);
    if (dim < 0)
        return weft_last_status();
    call->result.dtype = first->dtype;
    call->result.shape = weft_i_tensor_shape(first);
    for (size_t i = 1; i < list->count; i++)
        WEFT_TRY(join(call, list->tensors[i], dim));
    WEFT_TRY(weft_i_shape_check("cat", call->result.dtype, call->result.shape, NULL));
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

weft_status weft_i_cat_run(weft_i_op_call *call)
{
    const weft_i_arg *list = &call->args[0];
    weft_tensor part = *call->out; /* a window on the result that moves along */
    int dim = weft_i_dim_wrap("cat", call->args[1].integer, part.ndim);
    for (size_t i = 0; i < list->count; i++) {
        part.dim[dim] = list->tensors[i]->dim[dim];
        weft_i_copy_tensor(&part, list->tensors[i]);
        part.offset += part.dim[dim] * part.stride[dim];
    }
    return WEFT_OK;
}

weft_tensor *weft_cat(weft_tensor *const *tensors, size_t count, int dim)
{
    return WEFT_I_APPLY(cat, WEFT_I_TENSORS_ARG(tensors, tensors ? count : 0),
                        WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_stack(weft_tensor *const *tensors, size_t count, int dim)
{
    if (!tensors || count == 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "stack: no tensors");
    weft_tensor **raised =
        count > SIZE_MAX / sizeof *raised ? NULL : WEFT_OS->alloc(count * sizeof *raised);
    if (!raised)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "stack: no memory for %zu handles", count);
    for (size_t i = 0; i < count; i++)
        raised[i] = weft_unsqueeze(tensors[i], dim);
    weft_tensor *out = weft_cat(raised, count, dim);
    for (size_t i = 0; i < count; i++)
        weft_release(raised[i]);
    WEFT_OS->free(raised);
    return out;
}
