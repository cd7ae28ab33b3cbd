/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of reductions. */
#include "grad/rules.h"
#include "tensor/op/ops.h"

/* ---- dimensions ---- */

/* Which dimensions go: none named means all. */
static int reduced(const weft_i_back *c, int ndim, bool goes[WEFT_MAX_DIMS])
{
    const weft_i_arg *dims = ARG(1);
    int count = 0;
    for (int i = 0; i < ndim; i++)
        goes[i] = !dims->count;
    for (size_t i = 0; i < dims->count && ndim; i++)
        goes[dims->integers[i] < 0 ? dims->integers[i] + ndim : dims->integers[i]] = true;
    for (int i = 0; i < ndim; i++)
        count += goes[i];
    return count;
}

/* A tensor of the reduced shape, with the dimensions that went put back as size 1. */
static weft_tensor *with_dims(const weft_i_back *c, weft_tensor *g)
{
    weft_shape shape = SHAPE(0);
    bool goes[WEFT_MAX_DIMS];
    reduced(c, shape.ndim, goes);
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = goes[i] ? 1 : shape.dim[i];
    return weft_reshape(g, shape);
}

/* How many elements one of the result is made of. */
static int64_t elements_of_one(const weft_i_back *c)
{
    weft_shape shape = SHAPE(0);
    bool goes[WEFT_MAX_DIMS];
    int64_t count = 1;
    reduced(c, shape.ndim, goes);
    for (int i = 0; i < shape.ndim; i++)
        count *= goes[i] ? shape.dim[i] : 1;
    return count;
}

/* ---- sum, mean: the engine repeats the gradient ---- */

weft_status weft_i_sum_back(weft_i_back *c)
{
    return GIVE(0, with_dims(c, c->g[0]));
}

weft_status weft_i_mean_back(weft_i_back *c)
{
    return GIVE(0, weft_div_scalar(with_dims(c, c->g[0]), (double)elements_of_one(c)));
}

/* ---- max, min: what is equal to the result shares the gradient ---- */

static weft_status extreme_back(weft_i_back *c)
{
    weft_tensor *x = ARG(0)->tensor, *g = with_dims(c, c->g[0]);
    weft_tensor *chosen = weft_eq(x, with_dims(c, c->y[0]));
    weft_tensor *number =
        with_dims(c, WEFT_I_APPLY(sum, WEFT_I_TENSOR_ARG(chosen), *ARG(1), *ARG(2)));
    return GIVE(0, WHERE(chosen, weft_div(g, number)));
}

weft_status weft_i_max_back(weft_i_back *c)
{
    return extreme_back(c);
}

weft_status weft_i_min_back(weft_i_back *c)
{
    return extreme_back(c);
}

/* ---- prod ---- */

/* The dimensions that stay, then those that go. */
static void order_dims(const weft_i_back *c, int ndim, int order[WEFT_MAX_DIMS])
{
    bool goes[WEFT_MAX_DIMS];
    int at = 0;
    reduced(c, ndim, goes);
    for (int i = 0; i < ndim; i++)
        if (!goes[i])
            order[at++] = i;
    for (int i = 0; i < ndim; i++)
        if (goes[i])
            order[at++] = i;
}

/* Back to the order of x: `wide` has the dimensions of x in this order. */
static weft_tensor *restore_order(weft_tensor *wide, int ndim, const int order[WEFT_MAX_DIMS])
{
    int back[WEFT_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        back[order[i]] = i;
    return weft_permute(wide, back);
}

/* x [rows, n] widened by ones to a power of two. */
static weft_tensor *widen(weft_tensor *x, int64_t rows, int64_t n, int64_t *width)
{
    for (*width = 1; *width < n;)
        *width *= 2;
    if (*width == n || !x)
        return x;
    weft_tensor *both[] = {
        x, weft_ones(x->dtype, weft_i_tensor_device(x), WEFT_SHAPE(rows, *width - n))};
    return weft_cat(both, 2, 1);
}

/*
 * For each element of x [rows, n] the product of the others in its row times g [rows, 1].  As a
 * tree of products of two, which is walked back: exact with any number of zeros, in all orders.
 */
static weft_tensor *others(weft_tensor *x, weft_tensor *g, int64_t rows, int64_t n)
{
    weft_tensor *level[64];
    int64_t width;
    int top = 0;
    level[0] = widen(x, rows, n, &width);
    for (int64_t half = width / 2; half > 1; half /= 2, top++)
        level[top + 1] =
            weft_mul(weft_narrow(level[top], 1, 0, half), weft_narrow(level[top], 1, half, half));
    for (int64_t half = 1; half < width; half *= 2, top--) {
        weft_tensor *both[] = {weft_mul(g, weft_narrow(level[top], 1, half, half)),
                               weft_mul(g, weft_narrow(level[top], 1, 0, half))};
        g = weft_cat(both, 2, 1);
    }
    return weft_narrow(g, 1, 0, n);
}

weft_status weft_i_prod_back(weft_i_back *c)
{
    weft_tensor *x = ARG(0)->tensor;
    int order[WEFT_MAX_DIMS];
    int64_t n = elements_of_one(c), rows = n ? weft_tensor_numel(x) / n : 0;
    if (!n || !rows)
        return GIVE(0, weft_zeros_like(x));
    order_dims(c, x->ndim, order);
    weft_tensor *moved = weft_permute(x, order);
    if (!moved)
        return weft_last_status();
    weft_tensor *flat = weft_reshape(moved, WEFT_SHAPE(rows, n));
    weft_tensor *grad = others(flat, weft_reshape(c->g[0], WEFT_SHAPE(rows, 1)), rows, n);
    weft_tensor *wide = weft_reshape(grad, weft_i_tensor_shape(moved));
    return GIVE(0, restore_order(wide, x->ndim, order));
}
