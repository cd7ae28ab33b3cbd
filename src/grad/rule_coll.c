/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the functional collectives.  They are those of the sum of all ranks' losses.  A rule
 * is a collective itself, so all ranks must walk it: if the operand of one rank needs a gradient,
 * those of all must.  Rules call rows, not the public functions: a group that is only a name will
 * do, and the factor of premul_sum is the call's.
 */
#include "grad/rule_coll.h"

#include "functional/ops.h"
#include "weft/coll.h"
#include "weft/op.h"

#define TENSOR(x_)  WEFT_I_TENSOR_ARG(x_)
#define INTEGER(x_) WEFT_I_INTEGER_ARG(x_)
#define ONE         WEFT_I_NUMBER_ARG(1)

/* ---- what has no rule ---- */

weft_status weft_i_refuse_reduction(const weft_i_op_call *call, int arg)
{
    weft_reduction op = (weft_reduction)call->args[arg].integer;
    const char *name = weft_reduction_name(op);
    if (op == WEFT_SUM || op == WEFT_AVG || op == WEFT_PREMUL_SUM)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "%s: reduction %s has no gradient, only sum, avg and premul_sum have; an "
                       "operand requires gradients: detach it (weft_detach), or use WEFT_NO_GRAD",
                       call->op->name, name ? name : "?");
}

/* ---- all_reduce ---- */

weft_tensor *weft_i_times_factor(weft_tensor *x, const weft_i_arg *op, const weft_i_arg *factor)
{
    bool plain = op->integer != WEFT_PREMUL_SUM || factor->number == 1;
    return plain ? x : weft_mul_scalar(x, factor->number);
}

static weft_status reduce_back(weft_i_back *c)
{
    weft_reduction op = ARG(1)->integer == WEFT_AVG ? WEFT_AVG : WEFT_SUM;
    weft_tensor *sum = WEFT_I_APPLY(all_reduce, TENSOR(c->g[0]), INTEGER(op), ONE, *ARG(3));
    return GIVE(0, weft_i_times_factor(sum, ARG(1), ARG(2)));
}

weft_status weft_i_all_reduce_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_all_reduce_back(weft_i_back *c)
{
    return reduce_back(c);
}

weft_status weft_i_all_reduce__refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_all_reduce__back(weft_i_back *c)
{
    return reduce_back(c);
}

/* ---- all_gather ---- */

/* Of argument `x`; the dimension and the group follow it. */
static weft_status gather_back(weft_i_back *c, int x)
{
    weft_tensor *part = WEFT_I_APPLY(reduce_scatter_tensor, TENSOR(c->g[0]), INTEGER(WEFT_SUM), ONE,
                                     *ARG(x + 1), *ARG(x + 2));
    bool single = NEEDS(x) && SHAPE(x).ndim == 0; /* became a row; a view, which does not wait */
    return GIVE(x, single ? weft_view(part, WEFT_SCALAR) : part);
}

weft_status weft_i_all_gather_into_tensor_back(weft_i_back *c)
{
    return gather_back(c, 0);
}

weft_status weft_i_all_gather_into_tensor_out_back(weft_i_back *c)
{
    return gather_back(c, 1);
}

/* ---- reduce_scatter ---- */

/* Of argument `x`; reduction, factor, dimension and group follow it.  An average is divided before
 * the gather: what it gathers need not be waited for here. */
static weft_status scatter_back(weft_i_back *c, int x)
{
    weft_tensor *g = c->g[0];
    if (ARG(x + 1)->integer == WEFT_AVG)
        g = weft_div_scalar(g, (double)ARG(x + 4)->count);
    weft_tensor *whole = WEFT_I_APPLY(all_gather_into_tensor, TENSOR(g), *ARG(x + 3), *ARG(x + 4));
    return GIVE(x, weft_i_times_factor(whole, ARG(x + 1), ARG(x + 2)));
}

weft_status weft_i_reduce_scatter_tensor_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 1);
}

weft_status weft_i_reduce_scatter_tensor_back(weft_i_back *c)
{
    return scatter_back(c, 0);
}

weft_status weft_i_reduce_scatter_tensor_out_refuse(const weft_i_op_call *call)
{
    return weft_i_refuse_reduction(call, 2);
}

weft_status weft_i_reduce_scatter_tensor_out_back(weft_i_back *c)
{
    return scatter_back(c, 1);
}

/* ---- all_to_all_single: back where it came from ---- */

weft_status weft_i_all_to_all_single_back(weft_i_back *c)
{
    return GIVE(0, WEFT_I_APPLY(all_to_all_single, TENSOR(c->g[0]), *ARG(2), *ARG(1), *ARG(3)));
}

/* ---- broadcast: the sum of all gradients, for the source ---- */

static weft_status broadcast_back(weft_i_back *c)
{
    weft_group *group = ARG(2)->group.handle;
    int rank = group ? weft_rank(group) : -1;
    weft_tensor *g = c->g[0];
    weft_tensor *sum = WEFT_I_APPLY(all_reduce, TENSOR(g), INTEGER(WEFT_SUM), ONE, *ARG(2));
    if (rank < 0 || rank == ARG(1)->integer)
        return GIVE(0, sum);
    /* Zero, but made of the sum: so all ranks record the same collectives. */
    weft_tensor *never = weft_zeros(WEFT_BOOL, weft_i_tensor_device(g), WEFT_SCALAR);
    return GIVE(0, WHERE(never, sum));
}

weft_status weft_i_broadcast_back(weft_i_back *c)
{
    return broadcast_back(c);
}

weft_status weft_i_broadcast__back(weft_i_back *c)
{
    return broadcast_back(c);
}
