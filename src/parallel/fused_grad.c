/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of fused operations, which are fused again: that of a gather in front of products is a
 * product in front of a scatter, and the other way round.  As with plain collectives they are those
 * of the sum of all ranks' losses, and all ranks must need the same ones.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "functional/ops.h"
#include "parallel/fused.h"

#define TENSOR(x_)  WEFT_I_TENSOR_ARG(x_)
#define INTEGER(x_) WEFT_I_INTEGER_ARG(x_)

/* x [..., k] as a matrix. */
static weft_tensor *as_matrix(weft_tensor *x)
{
    if (!x)
        return NULL;
    weft_shape shape = {.ndim = 2, .dim = {1, x->dim[x->ndim - 1]}};
    for (int i = 0; i < x->ndim - 1; i++)
        shape.dim[0] *= x->dim[i];
    return weft_reshape(x, shape);
}

static weft_tensor *turned(weft_tensor *x)
{
    return x ? weft_transpose(x, 0, 1) : NULL;
}

/* ---- all_gather and products ---- */

/* The gradients of the products side by side, and the right-hand sides transposed below each
 * other: one product gives the sum of theirs. */
static weft_status join(weft_i_back *c, weft_tensor **g, weft_tensor **b)
{
    size_t count = ARG(0)->count - 1;
    for (size_t i = 0; i < count; i++) {
        g[i] = weft_i_back_g(c, (int)i);
        b[i] = turned(ARG(0)->tensors[i]);
        if (!g[i] || !b[i])
            return weft_last_status();
    }
    if (count > 1) {
        g[0] = weft_cat(g, count, -1);
        b[0] = weft_cat(b, count, 0);
    }
    return g[0] && b[0] ? WEFT_OK : weft_last_status();
}

static weft_status shard_back(weft_i_back *c, weft_tensor **room)
{
    size_t count = ARG(0)->count - 1;
    WEFT_TRY(join(c, room, room + count));
    weft_tensor *part = WEFT_I_APPLY(matmul_reduce_scatter, TENSOR(room[0]), TENSOR(room[count]),
                                     INTEGER(WEFT_SUM), *ARG(1), *ARG(3));
    if (part && c->g[count]) {
        weft_tensor *own = WEFT_I_APPLY(reduce_scatter_tensor, TENSOR(c->g[count]),
                                        INTEGER(WEFT_SUM), WEFT_I_NUMBER_ARG(1), *ARG(1), *ARG(3));
        part = own ? weft_add(part, own) : NULL;
    }
    c->list[count] = part;
    return part ? WEFT_OK : weft_last_status();
}

/* The shard is gathered once more, rather than kept since the forward. */
static weft_status right_back(weft_i_back *c)
{
    size_t count = ARG(0)->count - 1;
    weft_tensor *a = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!weft_i_back_needs_item(c, i))
            continue;
        if (!a)
            a = turned(as_matrix(WEFT_I_APPLY(all_gather_into_tensor,
                                              TENSOR(ARG(0)->tensors[count]), *ARG(1), *ARG(3))));
        weft_tensor *g = a ? as_matrix(weft_i_back_g(c, (int)i)) : NULL;
        if (!g || !(c->list[i] = weft_mm(a, g)))
            return weft_last_status();
    }
    return WEFT_OK;
}

weft_status weft_i_all_gather_matmul_back(weft_i_back *c)
{
    weft_status status = WEFT_OK;
    if (weft_i_back_needs_item(c, ARG(0)->count - 1)) {
        weft_tensor **room = WEFT_OS->alloc(2 * ARG(0)->count * sizeof *room);
        status =
            room ? shard_back(c, room)
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu gradients", ARG(0)->count);
        WEFT_OS->free(room);
    }
    return status < 0 ? status : right_back(c);
}

/* ---- a product and reduce_scatter ---- */

/* What is gathered for the one is what the other needs. */
weft_status weft_i_matmul_reduce_scatter_back(weft_i_back *c)
{
    weft_tensor *g = c->g[0], *whole = NULL;
    if (ARG(2)->integer == WEFT_AVG)
        g = weft_div_scalar(g, (double)ARG(4)->count);
    if (!g)
        return weft_last_status();
    if (NEEDS(0)) {
        weft_tensor *outs[2] = {NULL}, *list[] = {turned(weft_i_back_x(c, 1)), g};
        WEFT_TRY(weft_i_op_apply_list(
            &weft_i_op_all_gather_matmul, outs,
            (weft_i_arg[]){WEFT_I_TENSORS_ARG(list, 2), *ARG(3), INTEGER(NEEDS(1)), *ARG(4)}));
        c->grad[0] = outs[0];
        whole = outs[1];
    } else {
        whole = WEFT_I_APPLY(all_gather_into_tensor, TENSOR(g), *ARG(3), *ARG(4));
    }
    if (!NEEDS(1))
        return WEFT_OK;
    weft_tensor *a = as_matrix(weft_i_back_x(c, 0));
    return GIVE(1, whole && a ? weft_mm(turned(a), as_matrix(whole)) : NULL);
}
