/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the functional collectives of several tensors: one collective again, of those
 * tensors that need one; a result that was not used has zeros.  As with single tensors all ranks
 * need gradients of the same ones.
 */
#include "base/os/os.h"
#include "functional/ops.h"
#include "grad/rule_coll.h"
#include "weft/coll.h"
#include "weft/functional.h"

#define COUNT (ARG(0)->count)
#define CALL_LIST(op_, out_, ...) \
    weft_i_op_apply_list(&weft_i_op_##op_, out_, (weft_i_arg[]){__VA_ARGS__})

/* The tensors that need a gradient: g of their results, their own, and numbers of the row. */
struct needed {
    weft_tensor **g, **out;
    int64_t *dims;
    size_t count;
};

static weft_status collect(const weft_i_back *c, struct needed *n)
{
    for (size_t i = 0; i < COUNT; i++)
        if (weft_i_back_needs_item(c, i) && !(n->g[n->count++] = weft_i_back_g(c, (int)i)))
            return weft_last_status();
    return WEFT_OK;
}

static weft_status open_needed(const weft_i_back *c, struct needed *n)
{
    n->count = 0;
    n->g = WEFT_OS->alloc(2 * COUNT * sizeof *n->g);
    n->dims = WEFT_OS->alloc(COUNT * sizeof *n->dims);
    n->out = n->g ? n->g + COUNT : NULL;
    return n->g && n->dims ? collect(c, n)
                           : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu gradients", COUNT);
}

/* Hands out what was made, if all went well. */
static weft_status close_needed(weft_i_back *c, struct needed *n, weft_status status)
{
    for (size_t i = 0, k = 0; status >= 0 && i < COUNT; i++)
        if (weft_i_back_needs_item(c, i))
            c->list[i] = n->out[k++];
    WEFT_OS->free(n->g);
    WEFT_OS->free(n->dims);
    return status;
}

static weft_status scale_all(weft_i_back *c)
{
    for (size_t i = 0; i < COUNT; i++)
        if (weft_i_back_needs_item(c, i) &&
            !(c->list[i] = weft_i_times_factor(c->list[i], ARG(1), ARG(2))))
            return weft_last_status();
    return WEFT_OK;
}

/* ---- all_reduce ---- */

static weft_status reduce_back(weft_i_back *c)
{
    weft_reduction op = ARG(1)->integer == WEFT_AVG ? WEFT_AVG : WEFT_SUM;
    struct needed n;
    weft_status status = open_needed(c, &n);
    if (status >= 0)
        status = CALL_LIST(all_reduce_coalesced, n.out, WEFT_I_TENSORS_ARG(n.g, n.count),
                           WEFT_I_INTEGER_ARG(op), WEFT_I_NUMBER_ARG(1), *ARG(3));
    status = close_needed(c, &n, status);
    return status < 0 ? status : scale_all(c);
}

weft_status weft_i_all_reduce_coalesced_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_all_reduce_coalesced_back(weft_i_back *c)
{
    return reduce_back(c);
}

weft_status weft_i_all_reduce_coalesced__refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_all_reduce_coalesced__back(weft_i_back *c)
{
    return reduce_back(c);
}

/* ---- all_gather ---- */

/* Single elements became rows. */
static weft_status view_singles(weft_i_back *c)
{
    for (size_t i = 0; i < COUNT; i++)
        if (weft_i_back_needs_item(c, i) && weft_i_back_item_shape(c, i).ndim == 0 &&
            !(c->list[i] = weft_view(c->list[i], WEFT_SCALAR)))
            return weft_last_status();
    return WEFT_OK;
}

weft_status weft_i_all_gather_into_tensor_coalesced_back(weft_i_back *c)
{
    struct needed n;
    weft_status status = open_needed(c, &n);
    if (status >= 0) /* all along dimension 0 */
        status = CALL_LIST(reduce_scatter_tensor_coalesced, n.out, WEFT_I_TENSORS_ARG(n.g, n.count),
                           WEFT_I_INTEGER_ARG(WEFT_SUM), WEFT_I_NUMBER_ARG(1),
                           WEFT_I_INTEGERS_ARG(n.dims, n.count), *ARG(1));
    status = close_needed(c, &n, status);
    return status < 0 ? status : view_singles(c);
}

/* ---- reduce_scatter ---- */

/* The dimensions; returns whether all are 0, which is what the gather of lists can do. */
static bool collect_dims(const weft_i_back *c, struct needed *n)
{
    bool rows = true;
    for (size_t i = 0, k = 0; i < COUNT; i++) {
        int64_t dim = ARG(3)->integers[i];
        dim += dim < 0 ? weft_i_back_item_shape(c, i).ndim : 0;
        if (weft_i_back_needs_item(c, i)) {
            n->dims[k++] = dim;
            rows &= dim == 0;
        }
    }
    return rows;
}

static weft_status gather_all(const weft_i_back *c, struct needed *n)
{
    if (collect_dims(c, n))
        return CALL_LIST(all_gather_into_tensor_coalesced, n->out,
                         WEFT_I_TENSORS_ARG(n->g, n->count), *ARG(4));
    for (size_t k = 0; k < n->count; k++)
        if (!(n->out[k] = WEFT_I_APPLY(all_gather_into_tensor, WEFT_I_TENSOR_ARG(n->g[k]),
                                       WEFT_I_INTEGER_ARG(n->dims[k]), *ARG(4))))
            return weft_last_status();
    return WEFT_OK;
}

/* Before they are gathered: what is gathered need not be waited for here. */
static weft_status divide_all(struct needed *n, double by)
{
    for (size_t k = 0; k < n->count; k++)
        if (!(n->g[k] = weft_div_scalar(n->g[k], by)))
            return weft_last_status();
    return WEFT_OK;
}

weft_status weft_i_reduce_scatter_tensor_coalesced_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_reduce_scatter_tensor_coalesced_back(weft_i_back *c)
{
    struct needed n;
    weft_status status = open_needed(c, &n);
    if (status >= 0 && ARG(1)->integer == WEFT_AVG)
        status = divide_all(&n, (double)ARG(4)->count);
    if (status >= 0)
        status = gather_all(c, &n);
    status = close_needed(c, &n, status);
    return status < 0 ? status : scale_all(c);
}

/* ---- all_to_all: each goes back to where it came from ---- */

/* Shapes of the inputs as the row has them: how many dimensions, then their sizes. */
static size_t write_shapes(const weft_i_back *c, int64_t *out)
{
    size_t used = 0;
    for (size_t i = 0; i < COUNT; i++) {
        weft_shape shape = weft_i_back_item_shape(c, i);
        out[used++] = shape.ndim;
        for (int k = 0; k < shape.ndim; k++)
            out[used++] = shape.dim[k];
    }
    return used;
}

/* Every rank's part is in it, whoever needs it; those that nobody here needs are waited for, so
 * that they do not count as forgotten. */
static weft_status exchange_back(weft_i_back *c, weft_tensor **g, int64_t *shapes)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!(g[i] = weft_i_back_g(c, (int)i)))
            return weft_last_status();
    WEFT_TRY(CALL_LIST(all_to_all, c->list, WEFT_I_TENSORS_ARG(g, COUNT),
                       WEFT_I_INTEGERS_ARG(shapes, write_shapes(c, shapes)), *ARG(2)));
    for (size_t i = 0; i < COUNT; i++)
        if (!weft_i_back_needs_item(c, i) && !weft_wait_tensor(c->list[i]))
            return weft_last_status();
    return WEFT_OK;
}

weft_status weft_i_all_to_all_back(weft_i_back *c)
{
    int64_t *shapes = WEFT_OS->alloc(COUNT * (WEFT_MAX_DIMS + 1) * sizeof *shapes);
    weft_tensor **g = WEFT_OS->alloc(COUNT * sizeof *g);
    weft_status status = g && shapes
                             ? exchange_back(c, g, shapes)
                             : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors", COUNT);
    WEFT_OS->free(g);
    WEFT_OS->free(shapes);
    return status;
}
