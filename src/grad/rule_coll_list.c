/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the functional collectives of several tensors: one collective again.  All tensors of
 * the list take part, also those that need no gradient and those whose gradient is zero, because
 * other ranks may need theirs.
 */
#include "base/os.h"
#include "coll/ops.h"
#include "grad/rule_coll.h"
#include "weft/coll.h"

#define COUNT (ARG(0)->count)
#define CALL_LIST(op_, ...) \
    weft_i_op_apply_list(&weft_i_op_##op_, c->list, (weft_i_arg[]){__VA_ARGS__})

/* The gradients of all results, zeros where there is none; to be freed. */
static weft_tensor **all_gradients(const weft_i_back *c)
{
    weft_tensor **g = WEFT_OS->alloc(COUNT * sizeof *g);
    if (!g)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %zu gradients", COUNT);
    for (size_t i = 0; i < COUNT; i++)
        if (!(g[i] = weft_i_back_g(c, (int)i))) {
            WEFT_OS->free(g);
            return NULL;
        }
    return g;
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
    weft_tensor **g = all_gradients(c);
    if (!g)
        return weft_last_status();
    weft_status status = CALL_LIST(all_reduce_coalesced, WEFT_I_TENSORS_ARG(g, COUNT),
                                   WEFT_I_INTEGER_ARG(op), WEFT_I_NUMBER_ARG(1), *ARG(3));
    WEFT_OS->free(g);
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

static weft_status scatter_all(weft_i_back *c, weft_tensor *const *g)
{
    int64_t *dims = WEFT_OS->alloc(COUNT * sizeof *dims); /* zeros */
    if (!dims)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors", COUNT);
    weft_status status = CALL_LIST(reduce_scatter_tensor_coalesced, WEFT_I_TENSORS_ARG(g, COUNT),
                                   WEFT_I_INTEGER_ARG(WEFT_SUM), WEFT_I_NUMBER_ARG(1),
                                   WEFT_I_INTEGERS_ARG(dims, COUNT), *ARG(1));
    WEFT_OS->free(dims);
    return status;
}

weft_status weft_i_all_gather_into_tensor_coalesced_back(weft_i_back *c)
{
    weft_tensor **g = all_gradients(c);
    if (!g)
        return weft_last_status();
    weft_status status = scatter_all(c, g);
    WEFT_OS->free(g);
    for (size_t i = 0; status >= 0 && i < COUNT; i++)
        if (weft_i_back_item_shape(c, i).ndim == 0 &&
            !(c->list[i] = weft_view(c->list[i], WEFT_SCALAR)))
            status = weft_last_status();
    return status;
}

/* ---- reduce_scatter ---- */

/* Whether all are divided along dimension 0, which the gather of lists can do. */
static bool all_by_rows(const weft_i_back *c)
{
    for (size_t i = 0; i < COUNT; i++)
        if (ARG(3)->integers[i] != 0 &&
            ARG(3)->integers[i] + weft_i_back_item_shape(c, i).ndim != 0)
            return false;
    return true;
}

static weft_status gather_all(weft_i_back *c, weft_tensor *const *g)
{
    if (all_by_rows(c))
        return CALL_LIST(all_gather_into_tensor_coalesced, WEFT_I_TENSORS_ARG(g, COUNT), *ARG(4));
    for (size_t i = 0; i < COUNT; i++)
        if (!(c->list[i] = WEFT_I_APPLY(all_gather_into_tensor, WEFT_I_TENSOR_ARG(g[i]),
                                       WEFT_I_INTEGER_ARG(ARG(3)->integers[i]), *ARG(4))))
            return weft_last_status();
    return WEFT_OK;
}

static weft_status divide_all(weft_tensor **g, size_t count, double by)
{
    for (size_t i = 0; i < count; i++)
        if (!(g[i] = weft_div_scalar(g[i], by)))
            return weft_last_status();
    return WEFT_OK;
}

weft_status weft_i_reduce_scatter_tensor_coalesced_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_reduce_scatter_tensor_coalesced_back(weft_i_back *c)
{
    weft_tensor **g = all_gradients(c);
    if (!g)
        return weft_last_status();
    weft_status status = WEFT_OK;
    if (ARG(1)->integer == WEFT_AVG)
        status = divide_all(g, COUNT, (double)ARG(4)->count);
    if (status >= 0)
        status = gather_all(c, g);
    WEFT_OS->free(g);
    return status < 0 ? status : scale_all(c);
}

/* ---- all_to_all ---- */

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

weft_status weft_i_all_to_all_back(weft_i_back *c)
{
    int64_t *shapes = WEFT_OS->alloc(COUNT * (WEFT_MAX_DIMS + 1) * sizeof *shapes);
    weft_tensor **g = all_gradients(c);
    weft_status status = g && !shapes
                             ? weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu shapes", COUNT)
                             : weft_last_status();
    if (g && shapes)
        status = CALL_LIST(all_to_all, WEFT_I_TENSORS_ARG(g, COUNT),
                           WEFT_I_INTEGERS_ARG(shapes, write_shapes(c, shapes)), *ARG(2));
    WEFT_OS->free(g);
    WEFT_OS->free(shapes);
    return status;
}
