/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of joining tensors, and of elements by index. */
#include "grad/rules.h"
#include "tensor/op/ops.h"

/* ---- cat ---- */

/* Each gets its part of the gradient, as a view: nothing is waited for. */
weft_status weft_i_cat_back(weft_i_back *c)
{
    int64_t at = 0;
    for (size_t i = 0; i < ARG(0)->count; i++) {
        weft_shape shape = weft_i_back_item_shape(c, i);
        int64_t dim = ARG(1)->integer + (ARG(1)->integer < 0 ? shape.ndim : 0);
        int64_t size = shape.dim[dim];
        if (weft_i_back_needs_item(c, i) &&
            !(c->list[i] = weft_narrow(c->g[0], (int)dim, at, size)))
            return weft_last_status();
        at += size;
    }
    return WEFT_OK;
}

/* ---- take_along, scatter_add ---- */

/* Zeros of the shape of argument i and of g's dtype, which cost no memory. */
static weft_tensor *zeros_of(const weft_i_back *c, int i)
{
    weft_tensor *g = c->g[0];
    return weft_expand(weft_zeros(g->dtype, weft_i_tensor_device(g), WEFT_SCALAR), SHAPE(i));
}

weft_status weft_i_take_along_back(weft_i_back *c)
{
    return GIVE(0, weft_scatter_add(zeros_of(c, 0), (int)ARG(1)->integer, ARG(2)->tensor, c->g[0]));
}

/* The source may be larger than the index: what was not taken has no gradient. */
static weft_tensor *source_grad(const weft_i_back *c)
{
    weft_shape shape = SHAPE(3);
    int64_t strides[WEFT_MAX_DIMS];
    weft_tensor *taken = weft_take_along(c->g[0], (int)ARG(1)->integer, ARG(2)->tensor);
    if (!taken || weft_i_shape_equal(weft_i_tensor_shape(taken), shape))
        return taken;
    weft_i_shape_strides(shape, strides);
    return weft_view_scatter(zeros_of(c, 3), taken, weft_i_tensor_shape(taken), strides, 0);
}

weft_status weft_i_scatter_add_back(weft_i_back *c)
{
    if (NEEDS(0))
        c->grad[0] = c->g[0];
    return NEEDS(3) ? GIVE(3, source_grad(c)) : WEFT_OK;
}

/* ---- sort, topk: each value has its place; cumsum: the sum of what comes after ---- */

weft_status weft_i_sort_back(weft_i_back *c)
{
    return GIVE(0, weft_scatter_add(zeros_of(c, 0), (int)ARG(1)->integer, c->y[1], c->g[0]));
}

weft_status weft_i_topk_back(weft_i_back *c)
{
    return weft_i_sort_back(c);
}

weft_status weft_i_cumsum_back(weft_i_back *c)
{
    return GIVE(0, WEFT_I_APPLY(cumsum, WEFT_I_TENSOR_ARG(c->g[0]), *ARG(1),
                                WEFT_I_INTEGER_ARG(!ARG(2)->integer)));
}

/* ---- index_copy ---- */

/* A vector along dimension `dim`, broadcast to `shape`. */
static weft_tensor *along(weft_tensor *x, int dim, weft_shape shape)
{
    weft_shape one = {shape.ndim, {1, 1, 1, 1, 1, 1, 1, 1}};
    one.dim[dim] = weft_tensor_size(x, 0);
    return weft_expand(weft_view(x, one), shape);
}

/* What was replaced has no gradient; what came gets that of its place. */
weft_status weft_i_index_copy__back(weft_i_back *c)
{
    weft_tensor *g = c->g[0], *index = ARG(2)->tensor;
    weft_device device = weft_tensor_device(g);
    weft_shape shape = weft_tensor_shape(g), source = shape;
    int dim = (int)ARG(1)->integer + (ARG(1)->integer < 0 ? shape.ndim : 0);
    source.dim[dim] = weft_tensor_size(index, 0);
    if (NEEDS(0)) {
        weft_tensor *zeros = weft_zeros(WEFT_I64, device, WEFT_SHAPE(shape.dim[dim]));
        weft_tensor *ones = weft_ones(WEFT_I64, device, WEFT_SHAPE(source.dim[dim]));
        weft_tensor *hit = weft_gt_scalar(weft_scatter_add(zeros, 0, index, ones), 0);
        WEFT_TRY(GIVE(0, UNLESS(hit ? along(hit, dim, shape) : NULL, g)));
    }
    return NEEDS(3) ? GIVE(3, weft_take_along(g, dim, along(index, dim, source))) : WEFT_OK;
}
