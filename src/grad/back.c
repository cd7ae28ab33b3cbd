/* SPDX-License-Identifier: Apache-2.0 */
/* What rules ask about their call (rule.h). */
#include "grad/node.h"
#include "tensor/op/ops.h"

#include <string.h>

static const weft_i_edge *edge_of(const weft_i_back *c, int at)
{
    return at < c->node->edges ? &c->node->edge[at] : NULL;
}

bool weft_i_back_needs(const weft_i_back *c, int argument)
{
    const weft_i_edge *edge = edge_of(c, argument);
    return edge && edge->to;
}

bool weft_i_back_needs_item(const weft_i_back *c, size_t item)
{
    return weft_i_back_needs(c, c->op->arity + (int)item);
}

void weft_i_meta_layout(const weft_i_meta *meta, weft_i_layout *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = meta->dtype;
    out->device = meta->device;
    out->shape.ndim = meta->ndim;
    out->offset = meta->offset;
    for (int i = 0; i < meta->ndim; i++) {
        out->shape.dim[i] = meta->sizes[i];
        out->stride[i] = meta->strides[i];
    }
}

void weft_i_edge_layout(const weft_i_edge *edge, weft_i_layout *out)
{
    if (weft_i_is_node(edge->to)) {
        weft_i_meta_layout(&((const weft_i_node *)edge->to)->output[edge->output], out);
        return;
    }
    const weft_tensor *leaf = (const weft_tensor *)edge->to;
    out->dtype = leaf->dtype;
    out->device = weft_i_tensor_device(leaf);
    out->shape = weft_i_tensor_shape(leaf);
    out->offset = leaf->offset;
    memcpy(out->stride, leaf->stride, sizeof out->stride);
}

void weft_i_back_layout(const weft_i_back *c, int argument, weft_i_layout *out)
{
    if (weft_i_back_needs(c, argument))
        weft_i_edge_layout(edge_of(c, argument), out);
    else
        memset(out, 0, sizeof *out);
}

void weft_i_back_item_layout(const weft_i_back *c, size_t item, weft_i_layout *out)
{
    weft_i_meta_layout(&c->node->listed[item], out);
}

weft_shape weft_i_back_shape(const weft_i_back *c, int argument)
{
    weft_i_layout layout;
    weft_i_back_layout(c, argument, &layout);
    return layout.shape;
}

weft_shape weft_i_back_item_shape(const weft_i_back *c, size_t item)
{
    weft_i_layout layout;
    weft_i_back_item_layout(c, item, &layout);
    return layout.shape;
}

void weft_i_back_result_layout(const weft_i_back *c, int k, weft_i_layout *out)
{
    weft_i_meta_layout(&c->node->output[k], out);
}

weft_shape weft_i_back_result_shape(const weft_i_back *c, int k)
{
    weft_i_layout layout;
    weft_i_back_result_layout(c, k, &layout);
    return layout.shape;
}

weft_tensor *weft_i_back_g(const weft_i_back *c, int k)
{
    weft_i_layout layout;
    if (c->g[k])
        return c->g[k];
    weft_i_back_result_layout(c, k, &layout);
    return weft_zeros(layout.dtype, layout.device, layout.shape);
}

weft_tensor *weft_i_back_times(const weft_i_back *c, weft_tensor *g, int i)
{
    return ARG(i)->kind == WEFT_I_ARG_NUMBER ? weft_mul_scalar(g, ARG(i)->number)
                                             : weft_mul(g, ARG(i)->tensor);
}

weft_tensor *weft_i_back_where(weft_tensor *condition, weft_tensor *g)
{
    return WEFT_I_APPLY(where, WEFT_I_TENSOR_ARG(condition), WEFT_I_TENSOR_ARG(g),
                        WEFT_I_NUMBER_ARG(0));
}

weft_tensor *weft_i_back_unless(weft_tensor *condition, weft_tensor *g)
{
    return WEFT_I_APPLY(where, WEFT_I_TENSOR_ARG(condition), WEFT_I_NUMBER_ARG(0),
                        WEFT_I_TENSOR_ARG(g));
}

/* ---- fitting a gradient to what it is the gradient of ---- */

/* Which dimensions of `from` were repeated to come from `to`; -1 if that is not how they differ. */
static int repeated(const weft_shape *from, const weft_shape *to, int *dims)
{
    int lead = from->ndim - to->ndim, count = 0;
    for (int i = 0; i < from->ndim; i++) {
        int64_t size = i < lead ? 1 : to->dim[i - lead];
        if (i < lead || (size == 1 && from->dim[i] != 1))
            dims[count++] = i;
        else if (size != from->dim[i])
            return -1;
    }
    return lead < 0 ? -1 : count;
}

static weft_tensor *refuse_fit(const weft_tensor *g, const weft_i_layout *to)
{
    char is[WEFT_I_SHAPE_TEXT], must[WEFT_I_SHAPE_TEXT];
    return weft_i_null(
        WEFT_ERR_INVALID_ARG, "a gradient of shape %s does not fit a tensor of shape %s",
        weft_i_shape_text(weft_i_tensor_shape(g), is), weft_i_shape_text(to->shape, must));
}

/* Sums over what was broadcast, and converts; g itself if it fits. */
weft_tensor *weft_i_fit(weft_tensor *g, const weft_i_layout *to)
{
    int dims[WEFT_MAX_DIMS], count;
    weft_shape shape = weft_i_tensor_shape(g);
    if (!weft_i_shape_equal(shape, to->shape)) {
        count = repeated(&shape, &to->shape, dims);
        if (count < 0) /* a rule may leave the repetition to us */
            g = repeated(&to->shape, &shape, dims) < 0 ? refuse_fit(g, to)
                                                       : weft_expand(g, to->shape);
        else if (count)
            g = weft_reshape(weft_sum(g, dims, count, false), to->shape);
    }
    return g && g->dtype != to->dtype ? weft_to_dtype(g, to->dtype) : g;
}
