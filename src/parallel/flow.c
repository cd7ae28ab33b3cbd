/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways into and out of layers that are cut; see flow.h.  The forward is an ordinary collective, of which
 * gradients know nothing; a view of its result is what the gradient of the operand is read from.  So a
 * compiled function has the collectives that it can place and merge.
 */
#include "parallel/flow.h"

#include "base/report/status.h"
#include "fabric/group/group.h"
#include "functional/ops.h"
#include "parallel/ops.h"
#include "tensor/object/eye.h"
#include "weft/functional.h"

#include <string.h>

typedef enum way { SAME, REDUCED, PART, JOINED } way;

/* ---- the row ---- */

weft_status weft_i_flow_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    call->result.offset = x->offset;
    memcpy(call->result.stride, x->stride, sizeof x->stride);
    return WEFT_OK;
}

weft_status weft_i_flow_run(weft_i_op_call *call)
{
    return weft_i_fail(WEFT_ERR_INTERNAL, "%s: views do not run", call->op->name);
}

weft_status weft_i_flow_back(weft_i_back *c)
{
    weft_tensor *g = c->g[0];
    int64_t dim = ARG(3)->integer, rank = ARG(4)->integer;
    switch ((way)ARG(2)->integer) {
    case REDUCED:
        return GIVE(1, WEFT_I_APPLY(all_reduce, WEFT_I_TENSOR_ARG(g), WEFT_I_INTEGER_ARG(WEFT_SUM),
                                    WEFT_I_NUMBER_ARG(1), *ARG(5)));
    case PART: {
        int64_t size = SHAPE(1).dim[dim];
        return GIVE(1, weft_narrow(g, (int)dim, rank * size, size));
    }
    case JOINED:
        return GIVE(1, WEFT_I_APPLY(all_gather_into_tensor, WEFT_I_TENSOR_ARG(g),
                                    WEFT_I_INTEGER_ARG(dim), *ARG(5)));
    default:
        return GIVE(1, g);
    }
}

static weft_tensor *flow(weft_tensor *value, weft_tensor *from, way how, int dim, weft_group *group)
{
    if (!value)
        return NULL;
    return WEFT_I_APPLY(flow, WEFT_I_TENSOR_ARG(value), WEFT_I_TENSOR_ARG(from),
                        WEFT_I_INTEGER_ARG(how), WEFT_I_INTEGER_ARG(dim),
                        WEFT_I_INTEGER_ARG(weft_rank(group)),
                        WEFT_I_GROUP_ARG(group, weft_group_name(group), group->size));
}

/* ---- the ways ---- */

weft_tensor *weft_i_flow_enter(weft_tensor *x, weft_group *group)
{
    if (!x || !weft_requires_grad(x))
        return x;
    return flow(weft_detach(x), x, REDUCED, 0, group);
}

weft_tensor *weft_i_flow_sum(weft_tensor *x, weft_group *group)
{
    weft_tensor *sum = NULL;
    WEFT_NO_GRAD
    {
        sum = weft_all_reduce(x, WEFT_SUM, group);
    }
    return x ? flow(sum, x, SAME, 0, group) : NULL;
}

/* The dimension counted from the front; negative: an error. */
static int dim_of(weft_tensor *x, int dim)
{
    int ndim = weft_tensor_ndim(x), at = dim < 0 ? dim + ndim : dim;
    if (x && at >= 0 && at < ndim)
        return at;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "a layer that is cut along dimension %d of a value with %d dimensions", dim,
                       ndim);
}

weft_tensor *weft_i_flow_join(weft_tensor *x, int dim, weft_group *group)
{
    int at = x ? dim_of(x, dim) : -1;
    if (at < 0)
        return NULL;
    weft_tensor *all = NULL;
    WEFT_NO_GRAD
    {
        all = weft_all_gather_tensor(x, at, group);
    }
    return flow(all, x, PART, at, group);
}

weft_tensor *weft_i_flow_split(const char *what, weft_tensor *x, int dim, weft_group *group)
{
    int at = x ? dim_of(x, dim) : -1;
    if (at < 0)
        return NULL;
    int64_t size = weft_tensor_size(x, at), ranks = weft_size(group);
    if (size % ranks)
        return weft_i_null(
            WEFT_ERR_INVALID_ARG,
            "%s: dimension %d of its input has %lld entries, which %lld ranks do not "
            "divide",
            what, at, (long long)size, (long long)ranks);
    weft_tensor *part = NULL;
    WEFT_NO_GRAD
    {
        part = weft_clone(
            weft_contiguous(weft_narrow(x, at, size / ranks * weft_rank(group), size / ranks)));
    }
    return flow(part, x, JOINED, at, group);
}

/* ---- indices ---- */

static weft_status check_indices(const char *what, weft_tensor *indices, int64_t all)
{
    if (weft_i_eye_open || weft_tensor_device(indices) != WEFT_CPU || !weft_tensor_numel(indices))
        return WEFT_OK;
    WEFT_TRY(weft_scope_open());
    int64_t least = weft_item_int(weft_min(indices, NULL, 0, false), 0);
    int64_t most = weft_item_int(weft_max(indices, NULL, 0, false), 0);
    weft_scope_close();
    if (least >= 0 && most < all)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: index %lld; there are %lld, numbered from 0",
                       what, (long long)(least < 0 ? least : most), (long long)all);
}

weft_tensor *weft_i_flow_own_indices(const char *what, weft_tensor *indices, int64_t own,
                                     weft_group *group, weft_tensor **inside)
{
    weft_tensor *at = NULL;
    *inside = NULL;
    if (!indices || check_indices(what, indices, own * weft_size(group)) < 0)
        return NULL;
    WEFT_NO_GRAD
    {
        weft_tensor *local =
            weft_sub_scalar(weft_to_dtype(indices, WEFT_I64), (double)(own * weft_rank(group)));
        *inside = weft_logical_and(weft_ge_scalar(local, 0), weft_lt_scalar(local, (double)own));
        at = weft_where(*inside, local,
                        weft_zeros(WEFT_I64, weft_tensor_device(indices), WEFT_SCALAR));
    }
    return at;
}

weft_tensor *weft_i_flow_only(weft_tensor *inside, weft_tensor *x)
{
    if (!x || !inside)
        return NULL;
    return weft_where(inside, x,
                      weft_zeros(weft_tensor_dtype(x), weft_tensor_device(x), WEFT_SCALAR));
}
