/* SPDX-License-Identifier: Apache-2.0 */
/* The view functions that are put together from the rows of view.c. */
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

/* For the composed functions: what a capture shows of x; NULL in is NULL out, and dispatch sets the
 * error if nobody did. */
#define PASS_NULL(x_)                 \
    do {                              \
        if (!((x_) = weft_i_see(x_))) \
            return weft_detach(NULL); \
    } while (0)

weft_tensor *weft_reshape(weft_tensor *x, weft_shape shape)
{
    PASS_NULL(x);
    bool countable = shape.ndim >= 0 && shape.ndim <= WEFT_MAX_DIMS;
    if (!countable || weft_i_view_is_possible(x, shape))
        return weft_view(x, shape); /* impossible shapes too: the view says what is wrong */
    weft_tensor *packed = weft_contiguous(x), *out = weft_view(packed, shape);
    weft_release(packed);
    return out;
}

weft_tensor *weft_flatten(weft_tensor *x, int start, int end)
{
    PASS_NULL(x);
    if (x->ndim == 0)
        return weft_view(x, WEFT_SHAPE(1));
    int first = weft_i_dim_wrap("flatten", start, x->ndim),
        last = weft_i_dim_wrap("flatten", end, x->ndim);
    if (first < 0 || last < 0)
        return NULL;
    if (first > last)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "flatten: dimension %d lies after %d", first,
                           last);
    weft_shape shape = {x->ndim - (last - first), {0}};
    for (int i = 0, to = 0; i < x->ndim; i++, to += i <= first || i > last)
        shape.dim[to] = i > first && i <= last ? shape.dim[to] * x->dim[i] : x->dim[i];
    return weft_reshape(x, shape);
}

weft_tensor *weft_squeeze(weft_tensor *x, int dim)
{
    PASS_NULL(x);
    int at = weft_i_dim_wrap("squeeze", dim, x->ndim);
    if (at < 0)
        return NULL;
    return x->dim[at] == 1 ? weft_select(x, at, 0) : weft_view(x, weft_i_tensor_shape(x));
}

weft_tensor *weft_unsqueeze(weft_tensor *x, int dim)
{
    PASS_NULL(x);
    int at = weft_i_dim_wrap("unsqueeze", dim, x->ndim + 1);
    if (at < 0)
        return NULL;
    if (x->ndim == WEFT_MAX_DIMS)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "unsqueeze: a tensor has at most %d dimensions",
                           WEFT_MAX_DIMS);
    weft_shape shape = {x->ndim + 1, {0}};
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = i == at ? 1 : x->dim[i - (i > at)];
    return weft_view(x, shape);
}

static weft_tensor *permute(weft_tensor *x, const int64_t *dims)
{
    return WEFT_I_APPLY(permute, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(dims, x->ndim));
}

weft_tensor *weft_permute(weft_tensor *x, const int *dims)
{
    PASS_NULL(x);
    int64_t wide[WEFT_MAX_DIMS];
    if (!dims && x->ndim)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "permute: the dimensions are NULL");
    for (int i = 0; i < x->ndim; i++)
        wide[i] = dims[i];
    return permute(x, wide);
}

weft_tensor *weft_transpose(weft_tensor *x, int a, int b)
{
    PASS_NULL(x);
    int64_t dims[WEFT_MAX_DIMS];
    int from = weft_i_dim_wrap("transpose", a, x->ndim),
        to = weft_i_dim_wrap("transpose", b, x->ndim);
    if (from < 0 || to < 0)
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        dims[i] = i == from ? to : i == to ? from : i;
    return permute(x, dims);
}

weft_tensor *weft_movedim(weft_tensor *x, int from, int to)
{
    PASS_NULL(x);
    int64_t dims[WEFT_MAX_DIMS];
    int source = weft_i_dim_wrap("movedim", from, x->ndim),
        place = weft_i_dim_wrap("movedim", to, x->ndim);
    if (source < 0 || place < 0)
        return NULL;
    for (int i = 0, next = 0; i < x->ndim; i++) {
        next += next == source;
        dims[i] = i == place ? source : next++;
    }
    return permute(x, dims);
}

weft_tensor *weft_narrow(weft_tensor *x, int dim, int64_t start, int64_t length)
{
    PASS_NULL(x);
    int at = weft_i_dim_wrap("narrow", dim, x->ndim);
    if (at < 0)
        return NULL;
    int64_t size = x->dim[at], from = start < 0 ? start + size : start;
    if (from < 0 || from > size || length < 0 || length > size - from)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "narrow: %lld elements from %lld of dimension %d, which has %lld",
                           (long long)length, (long long)start, at, (long long)size);
    return weft_slice(x, at, from, from + length, 1);
}

/* Cuts into `pieces` pieces of `size`; all or none. */
static weft_status cut(weft_tensor *x, int dim, int64_t size, int64_t pieces, weft_tensor **out,
                       size_t *count)
{
    if (!out || !count || *count < (size_t)pieces)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "split: %lld pieces, but room for %zu",
                           (long long)pieces, count ? *count : 0);
    for (int64_t i = 0; i < pieces; i++) {
        int64_t left = x->dim[dim] - i * size;
        if (!(out[i] = weft_narrow(x, dim, i * size, left < size ? left : size))) {
            while (i-- > 0)
                weft_release(out[i]);
            return weft_last_status();
        }
    }
    *count = (size_t)pieces;
    return WEFT_OK;
}

static weft_status check_cut(const char *what, const weft_tensor *x, int dim, int64_t number,
                             int *at)
{
    if (!x)
        return weft_i_missing("%s: the tensor is NULL", what);
    *at = weft_i_dim_wrap(what, dim, x->ndim);
    if (*at < 0)
        return weft_last_status();
    if (number < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %lld; it must be at least 1", what,
                           (long long)number);
    return WEFT_OK;
}

weft_status weft_split(weft_tensor *x, int64_t size, int dim, weft_tensor **out, size_t *count)
{
    int at;
    x = weft_i_see(x);
    WEFT_TRY(check_cut("split", x, dim, size, &at));
    int64_t pieces = x->dim[at] ? (x->dim[at] - 1) / size + 1 : 1; /* nothing is one empty piece */
    return cut(x, at, size, pieces, out, count);
}

weft_status weft_chunk(weft_tensor *x, int64_t chunks, int dim, weft_tensor **out, size_t *count)
{
    int at;
    x = weft_i_see(x);
    WEFT_TRY(check_cut("chunk", x, dim, chunks, &at));
    if (x->dim[at] == 0)
        return cut(x, at, 0, chunks, out, count);
    int64_t size = (x->dim[at] - 1) / chunks + 1;
    return weft_split(x, size, at, out, count);
}
