/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views.  Eight rows (view, view_dtype, permute, expand, slice, select, as_strided, detach/data)
 * carry all of them; the other public names are put together from these.  A shape rule only
 * computes a layout: dispatch makes the tensor.
 */
#include "weft/view.h"

#include "tensor/op/ops.h"

#include <string.h>

/* Every rule starts from x itself. */
static weft_tensor *same_layout(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    call->result.offset = x->offset;
    memcpy(call->result.stride, x->stride, sizeof x->stride);
    return x;
}

weft_status weft_i_detach_shape(weft_i_op_call *call)
{
    same_layout(call);
    return WEFT_OK;
}

weft_status weft_i_data_shape(weft_i_op_call *call)
{
    same_layout(call);
    call->result.fresh_version = true;
    return WEFT_OK;
}

/* Replaces the one -1 in `shape` by what is left of `numel`. */
static weft_status infer(const weft_i_op_call *call, weft_shape *shape, int64_t numel)
{
    char text[WEFT_I_SHAPE_TEXT];
    int64_t known = 1;
    int unknown = -1;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape->dim[i] < 0 || __builtin_mul_overflow(known, shape->dim[i], &known))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: shape %s is not possible", call->op->name,
                               weft_i_shape_text(*shape, text));
    }
    bool fits = unknown < 0 ? known == numel : known > 0 && numel % known == 0;
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: shape %s does not hold %lld elements",
                           call->op->name, weft_i_shape_text(*shape, text), (long long)numel);
    if (unknown >= 0)
        shape->dim[unknown] = numel / known;
    return WEFT_OK;
}

struct layout {
    int ndim;
    int64_t dim[WEFT_MAX_DIMS], stride[WEFT_MAX_DIMS];
};

/*
 * Strides under which the elements of x, which has no sizes of 1, appear in `shape`.  Dimensions of
 * x that step evenly into each other form a chunk; each chunk must be the product of some
 * neighbouring new dimensions.  False if one is not.
 */
static bool chunk_strides(const struct layout *x, weft_shape shape, int64_t *strides)
{
    int to = shape.ndim - 1;
    for (int from = x->ndim - 1; from >= 0;) {
        int64_t step = x->stride[from], chunk = x->dim[from--];
        for (; from >= 0 && x->stride[from] == step * chunk; from--)
            chunk *= x->dim[from];
        int64_t filled = 1;
        for (; to >= 0 && (filled < chunk || shape.dim[to] == 1); to--) {
            strides[to] = step * filled;
            filled *= shape.dim[to];
        }
        if (filled != chunk)
            return false;
    }
    for (; to >= 0; to--)
        strides[to] = 1;
    return true;
}

/* A chunk that starts with sizes of 1 would take their stride for its step, so these are left out
 * first. */
static bool view_strides(const weft_tensor *x, weft_shape shape, int64_t *strides)
{
    struct layout bare;
    bare.ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        bare.dim[bare.ndim] = x->dim[i];
        bare.stride[bare.ndim] = x->stride[i];
        bare.ndim += x->dim[i] != 1;
    }
    return chunk_strides(&bare, shape, strides);
}

bool weft_i_view_is_possible(const weft_tensor *x, weft_shape shape)
{
    int64_t strides[WEFT_MAX_DIMS];
    weft_i_op_call call = {.op = &weft_i_op_view};
    return x->packed || infer(&call, &shape, x->numel) < 0 || view_strides(x, shape, strides);
}

static bool has_shape(const weft_tensor *x, const weft_shape *shape)
{
    bool same = x->ndim == shape->ndim;
    for (int i = 0; same && i < x->ndim; i++)
        same = x->dim[i] == shape->dim[i];
    return same;
}

weft_status weft_i_view_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    weft_i_result *result = &call->result;
    char from[WEFT_I_SHAPE_TEXT], to[WEFT_I_SHAPE_TEXT];
    result->dtype = x->dtype;
    result->offset = x->offset;
    WEFT_TRY(weft_i_shape_argument(call, 1, &result->shape));
    WEFT_TRY(infer(call, &result->shape, x->numel));
    WEFT_TRY(weft_i_shape_check(call->op->name, x->dtype, result->shape, NULL));
    if (has_shape(x, &result->shape))
        memcpy(result->stride, x->stride, sizeof x->stride);
    else if (x->packed)
        weft_i_shape_strides(result->shape, result->stride);
    else if (!view_strides(x, result->shape, result->stride))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view: a tensor of shape %s with these strides cannot be seen as %s "
                           "without a copy; use "
                           "weft_reshape",
                           weft_i_shape_text(weft_i_tensor_shape(x), from),
                           weft_i_shape_text(result->shape, to));
    return WEFT_OK;
}

/* A packed tensor in another shape, all of whose sizes are given. */
bool weft_i_view_quick(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    const weft_i_arg *sizes = &call->args[1];
    int64_t numel = 1;
    bool fits = x->packed && sizes->count <= WEFT_MAX_DIMS && !call->into;
    bool same = sizes->count == (size_t)x->ndim;
    for (size_t i = 0; fits && i < sizes->count; i++) {
        fits = sizes->integers[i] > 0 && !__builtin_mul_overflow(numel, sizes->integers[i], &numel);
        same = same && sizes->integers[i] == x->dim[i];
    }
    if (!fits || same || numel != x->numel) /* the strides of sizes of 1 stay in the same shape */
        return false;
    call->out = weft_i_tensor_new_folded(x, (int)sizes->count, sizes->integers);
    return true;
}

static weft_status to_smaller(weft_i_op_call *call, int64_t factor)
{
    weft_i_result *result = &call->result;
    int last = result->shape.ndim - 1;
    if (last < 0 || (result->stride[last] != 1 && result->shape.dim[last] != 1))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view_dtype: the last dimension must be contiguous");
    for (int i = 0; i < last; i++)
        if (result->shape.dim[i] > 1) /* else it is never used, and may be too large for that */
            result->stride[i] *= factor;
    result->stride[last] = 1;
    result->shape.dim[last] *= factor;
    result->offset *= factor;
    return WEFT_OK;
}

static weft_status to_larger(weft_i_op_call *call, int64_t factor)
{
    weft_i_result *result = &call->result;
    int last = result->shape.ndim - 1;
    bool fits = last >= 0 && (result->stride[last] == 1 || result->shape.dim[last] == 1) &&
                result->shape.dim[last] % factor == 0 && result->offset % factor == 0;
    for (int i = 0; fits && i < last; i++)
        fits = result->stride[i] % factor == 0;
    if (!fits)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "view_dtype: last dimension, strides and offset must be multiples of %lld elements",
            (long long)factor);
    for (int i = 0; i < last; i++)
        result->stride[i] /= factor;
    result->stride[last] = 1;
    result->shape.dim[last] /= factor;
    result->offset /= factor;
    return WEFT_OK;
}

weft_status weft_i_view_dtype_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    weft_dtype dtype = (weft_dtype)call->args[1].integer;
    if (!weft_i_dtype_valid(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "view_dtype: %d is not a dtype", dtype);
    int64_t from = (int64_t)weft_dtype_size(x->dtype), to = (int64_t)weft_dtype_size(dtype);
    if (from < to && (uintptr_t)x->storage->data % (size_t)to) /* wrapped memory may lie anywhere */
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view_dtype: the memory at %p is not aligned for elements of %s",
                           x->storage->data, weft_dtype_name(dtype));
    call->result.dtype = dtype;
    return from > to   ? to_smaller(call, from / to)
           : from < to ? to_larger(call, to / from)
                       : WEFT_OK;
}

weft_status weft_i_permute_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    const weft_i_arg *dims = &call->args[1];
    unsigned seen = 0;
    if (dims->count != (size_t)x->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "permute: %zu dimensions named, the tensor has %d",
                           dims->count, x->ndim);
    for (int i = 0; i < x->ndim; i++) {
        int from = weft_i_dim_wrap("permute", dims->integers[i], x->ndim);
        if (from < 0)
            return weft_last_status();
        if (seen & 1u << from)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "permute: dimension %d is named twice", from);
        seen |= 1u << from;
        call->result.shape.dim[i] = x->dim[from];
        call->result.stride[i] = x->stride[from];
    }
    return WEFT_OK;
}

weft_status weft_i_expand_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    weft_shape shape;
    char from[WEFT_I_SHAPE_TEXT], to[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(weft_i_shape_argument(call, 1, &shape));
    int extra = shape.ndim - x->ndim;
    bool fits = extra >= 0;
    for (int i = 0; fits && i < shape.ndim; i++) {
        int64_t old = i < extra ? 1 : x->dim[i - extra];
        if (shape.dim[i] == -1 && i >= extra)
            shape.dim[i] = old;
        fits = shape.dim[i] == old || (old == 1 && shape.dim[i] >= 0);
        call->result.stride[i] = i < extra || shape.dim[i] != old ? 0 : x->stride[i - extra];
    }
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "expand: shape %s does not expand to %s",
                           weft_i_shape_text(weft_i_tensor_shape(x), from),
                           weft_i_shape_text(shape, to));
    call->result.shape = shape;
    return WEFT_OK;
}

static int64_t clamp(int64_t at, int64_t size)
{
    at = at < 0 ? at + size : at;
    return at < 0 ? 0 : at > size ? size : at;
}

weft_status weft_i_slice_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    int dim = weft_i_dim_wrap("slice", call->args[1].integer, x->ndim);
    if (dim < 0)
        return weft_last_status();
    int64_t size = x->dim[dim], step = call->args[4].integer;
    int64_t start = clamp(call->args[2].integer, size), end = clamp(call->args[3].integer, size);
    if (step < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "slice: step %lld; it must be at least 1",
                           (long long)step);
    int64_t length = end > start ? (end - start - 1) / step + 1 : 0;
    call->result.shape.dim[dim] = length;
    call->result.offset += length ? start * x->stride[dim] : 0;
    /* One element or none: the stride is never used, and multiplying could overflow. */
    call->result.stride[dim] = length > 1 ? x->stride[dim] * step : x->stride[dim];
    return WEFT_OK;
}

weft_status weft_i_select_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    int dim = weft_i_dim_wrap("select", call->args[1].integer, x->ndim);
    if (dim < 0)
        return weft_last_status();
    int64_t index = call->args[2].integer, size = x->dim[dim];
    if (index < -size || index >= size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "select: no index %lld in dimension %d of size %lld", (long long)index,
                           dim, (long long)size);
    weft_i_result *result = &call->result;
    result->offset += (index < 0 ? index + size : index) * x->stride[dim];
    result->shape.ndim--;
    for (int i = dim; i < result->shape.ndim; i++) {
        result->shape.dim[i] = x->dim[i + 1];
        result->stride[i] = x->stride[i + 1];
    }
    return WEFT_OK;
}

weft_status weft_i_as_strided_shape(weft_i_op_call *call)
{
    weft_tensor *x = same_layout(call);
    weft_i_result *result = &call->result;
    WEFT_TRY(weft_i_shape_argument(call, 1, &result->shape));
    if (result->shape.ndim)
        memcpy(result->stride, call->args[2].integers,
               (size_t)result->shape.ndim * sizeof *result->stride);
    result->offset = call->args[3].integer;
    WEFT_TRY(weft_i_shape_check("as_strided", x->dtype, result->shape, result->stride));
    if (result->offset < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "as_strided: offset %lld is negative",
                           (long long)result->offset);
    weft_tensor would = {.dtype = x->dtype, .ndim = result->shape.ndim};
    memcpy(would.dim, result->shape.dim, sizeof would.dim);
    memcpy(would.stride, result->stride, sizeof would.stride);
    weft_i_tensor_measure(&would);
    /* Offset and extent apart, so that their sum cannot overflow.  A storage that is empty now may
     * grow before its use, as with other views. */
    size_t size = weft_i_dtype_size(x->dtype), bytes = x->storage->bytes;
    if (bytes && would.end &&
        (would.end > bytes || (size_t)result->offset > (bytes - would.end) / size))
        return weft_i_fail(
            WEFT_ERR_STATE,
            "as_strided: offset %lld and %zu bytes do not fit a storage of %zu bytes",
            (long long)result->offset, would.end, bytes);
    return WEFT_OK;
}

weft_tensor *weft_view(weft_tensor *x, weft_shape shape)
{
    return WEFT_I_APPLY(view, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim));
}

weft_tensor *weft_view_dtype(weft_tensor *x, weft_dtype dtype)
{
    return WEFT_I_APPLY(view_dtype, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dtype));
}

weft_tensor *weft_expand(weft_tensor *x, weft_shape shape)
{
    return WEFT_I_APPLY(expand, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim));
}

weft_tensor *weft_slice(weft_tensor *x, int dim, int64_t start, int64_t end, int64_t step)
{
    return WEFT_I_APPLY(slice, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                        WEFT_I_INTEGER_ARG(start), WEFT_I_INTEGER_ARG(end),
                        WEFT_I_INTEGER_ARG(step));
}

weft_tensor *weft_select(weft_tensor *x, int dim, int64_t index)
{
    return WEFT_I_APPLY(select, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                        WEFT_I_INTEGER_ARG(index));
}

weft_tensor *weft_as_strided(weft_tensor *x, weft_shape shape, const int64_t *strides,
                             int64_t offset)
{
    if (!strides && shape.ndim)
        return x ? weft_i_null(WEFT_ERR_INVALID_ARG, "as_strided: the strides are NULL") : NULL;
    return WEFT_I_APPLY(as_strided, WEFT_I_TENSOR_ARG(x),
                        WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim),
                        WEFT_I_INTEGERS_ARG(strides, shape.ndim), WEFT_I_INTEGER_ARG(offset));
}

weft_tensor *weft_detach(weft_tensor *x)
{
    return WEFT_I_APPLY(detach, WEFT_I_TENSOR_ARG(x));
}

weft_tensor *weft_data(weft_tensor *x)
{
    return WEFT_I_APPLY(data, WEFT_I_TENSOR_ARG(x));
}
