/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape rules of the functional collectives.  They need the name and the size of the group and
 * nothing of its ranks, so they are also what runs on meta tensors; whatever a call can be refused
 * for without asking other ranks is checked here, so that meta refuses the same calls.
 */
#include "functional/ops.h"
#include "kernels/fold/fold.h"
#include "weft/coll.h"

#include <string.h>

/* ---- what the rules share ---- */

static const weft_i_arg *group_of(const weft_i_op_call *call)
{
    return &call->args[weft_i_op_param_count(call->op) - 1];
}

static int64_t ranks(const weft_i_op_call *call)
{
    return (int64_t)group_of(call)->count;
}

static weft_status check_group(const weft_i_op_call *call)
{
    if (group_of(call)->count == 0 || !group_of(call)->group.name)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a group has a name and at least one rank",
                           call->op->name);
    return WEFT_OK;
}

/* The input that the rule is asked about: of a list, one of them. */
static const weft_tensor *input(const weft_i_op_call *call, int arg)
{
    return call->op->flags & WEFT_I_OP_LIST ? call->args[arg].tensors[call->which]
                                            : call->args[arg].tensor;
}

static weft_status check_reduction(const weft_i_op_call *call, int arg, weft_dtype dtype)
{
    int64_t op = call->args[arg].integer;
    if (op < 0 || op >= WEFT_REDUCTIONS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %lld is not a reduction", call->op->name,
                           (long long)op);
    if (!weft_i_fold_find(dtype, (weft_i_fold_op)op))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: reduction %s has no meaning for %s", call->op->name,
                           weft_reduction_name((weft_reduction)op), weft_dtype_name(dtype));
    return WEFT_OK;
}

/* A contiguous result of this shape. */
static weft_status give(weft_i_op_call *call, weft_dtype dtype, weft_shape shape)
{
    WEFT_TRY(weft_i_shape_check(call->op->name, dtype, shape, NULL));
    call->result.dtype = dtype;
    call->result.shape = shape;
    weft_i_shape_strides(shape, call->result.stride);
    return WEFT_OK;
}

static weft_status fail_uncountable(const weft_i_op_call *call, const weft_tensor *x)
{
    char text[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: %lld tensors of shape %s are more than can be "
                       "counted",
                       call->op->name, (long long)ranks(call),
                       weft_i_shape_text(weft_i_tensor_shape(x), text));
}

/* The shape of `x` of all ranks one after the other along `dim`. */
static weft_status gathered(const weft_i_op_call *call, const weft_tensor *x, int64_t dim,
                            weft_shape *out)
{
    *out = x->ndim ? weft_i_tensor_shape(x) : WEFT_SHAPE(1); /* single elements: one row each */
    int at = weft_i_dim_wrap(call->op->name, dim, out->ndim);
    if (at < 0)
        return weft_last_status();
    return __builtin_mul_overflow(out->dim[at], ranks(call), &out->dim[at])
               ? fail_uncountable(call, x)
               : WEFT_OK;
}

/* The shape of one of the parts into which `dim` of `x` is divided. */
static weft_status scattered(const weft_i_op_call *call, const weft_tensor *x, int64_t dim,
                             weft_shape *out)
{
    char text[WEFT_I_SHAPE_TEXT];
    *out = weft_i_tensor_shape(x);
    if (x->ndim == 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a tensor without dimensions cannot be divided among %lld ranks",
                           call->op->name, (long long)ranks(call));
    int at = weft_i_dim_wrap(call->op->name, dim, x->ndim);
    if (at < 0)
        return weft_last_status();
    if (x->dim[at] % ranks(call))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: dimension %d of shape %s has %lld entries, which do not divide "
                           "among %lld ranks",
                           call->op->name, at, weft_i_shape_text(*out, text), (long long)x->dim[at],
                           (long long)ranks(call));
    out->dim[at] /= ranks(call);
    return WEFT_OK;
}

/* ---- the rules ---- */

weft_status weft_i_functional_all_reduce_shape(weft_i_op_call *call)
{
    const weft_tensor *x = input(call, 0);
    WEFT_TRY(check_group(call));
    WEFT_TRY(check_reduction(call, 1, x->dtype));
    return give(call, x->dtype, weft_i_tensor_shape(x));
}

static weft_status gather_rule(weft_i_op_call *call, const weft_tensor *x, int64_t dim)
{
    weft_shape shape;
    WEFT_TRY(check_group(call));
    WEFT_TRY(gathered(call, x, dim, &shape));
    return give(call, x->dtype, shape);
}

weft_status weft_i_functional_all_gather_shape(weft_i_op_call *call)
{
    return gather_rule(call, input(call, 0), call->args[1].integer);
}

weft_status weft_i_functional_all_gather_list_shape(weft_i_op_call *call)
{
    return gather_rule(call, input(call, 0), 0);
}

static weft_status scatter_rule(weft_i_op_call *call, int arg, int64_t dim)
{
    const weft_tensor *x = input(call, arg);
    weft_shape shape;
    WEFT_TRY(check_group(call));
    WEFT_TRY(check_reduction(call, arg + 1, x->dtype));
    WEFT_TRY(scattered(call, x, dim, &shape));
    return give(call, x->dtype, shape);
}

weft_status weft_i_functional_reduce_scatter_shape(weft_i_op_call *call)
{
    return scatter_rule(call, 0, call->args[3].integer);
}

weft_status weft_i_functional_reduce_scatter_list_shape(weft_i_op_call *call)
{
    const weft_i_arg *dims = &call->args[3];
    if (dims->count != call->args[0].count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu tensors but %zu dimensions",
                           call->op->name, call->args[0].count, dims->count);
    return scatter_rule(call, 0, dims->integers[call->which]);
}

/* The target of an out form is what the other form would make. */
static weft_status check_target(const weft_i_op_call *call)
{
    const weft_tensor *out = call->args[0].tensor;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (out->dtype == call->result.dtype &&
        weft_i_shape_equal(weft_i_tensor_shape(out), call->result.shape))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the result is %s%s, the output %s%s",
                       call->op->name, weft_dtype_name(call->result.dtype),
                       weft_i_shape_text(call->result.shape, a), weft_dtype_name(out->dtype),
                       weft_i_shape_text(weft_i_tensor_shape(out), b));
}

weft_status weft_i_functional_all_gather_out_shape(weft_i_op_call *call)
{
    WEFT_TRY(gather_rule(call, call->args[1].tensor, call->args[2].integer));
    return check_target(call);
}

weft_status weft_i_functional_reduce_scatter_out_shape(weft_i_op_call *call)
{
    WEFT_TRY(scatter_rule(call, 1, call->args[4].integer));
    return check_target(call);
}

/* The sum of the splits of one side. */
static weft_status add_splits(const weft_i_op_call *call, const weft_i_arg *splits,
                              const char *which, int64_t *sum)
{
    *sum = 0;
    if ((int64_t)splits->count != ranks(call))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu %s splits for %lld ranks", call->op->name,
                           splits->count, which, (long long)ranks(call));
    for (size_t i = 0; i < splits->count; i++)
        if (splits->integers[i] < 0 || __builtin_add_overflow(*sum, splits->integers[i], sum))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %s split %lld for rank %zu",
                               call->op->name, which, (long long)splits->integers[i], i);
    return WEFT_OK;
}

static weft_status split_rows(const weft_i_op_call *call, int64_t rows, int64_t *out)
{
    const weft_i_arg *out_splits = &call->args[1], *in_splits = &call->args[2];
    int64_t sent;
    *out = rows;
    if (!out_splits->count && !in_splits->count)
        return rows % ranks(call) == 0
                   ? WEFT_OK
                   : weft_i_fail(WEFT_ERR_INVALID_ARG,
                                 "%s: %lld rows do not divide among %lld ranks; give splits",
                                 call->op->name, (long long)rows, (long long)ranks(call));
    if (!out_splits->count || !in_splits->count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: give both splits or neither", call->op->name);
    WEFT_TRY(add_splits(call, in_splits, "input", &sent));
    WEFT_TRY(add_splits(call, out_splits, "output", out));
    if (sent != rows)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the input splits add up to %lld rows of %lld",
                           call->op->name, (long long)sent, (long long)rows);
    return WEFT_OK;
}

weft_status weft_i_functional_all_to_all_single_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    WEFT_TRY(check_group(call));
    if (x->ndim == 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a tensor without dimensions has no rows",
                           call->op->name);
    weft_shape shape = weft_i_tensor_shape(x);
    WEFT_TRY(split_rows(call, x->dim[0], &shape.dim[0]));
    return give(call, x->dtype, shape);
}

/* Result number call->which of "ndim, sizes ..." for each; no shapes: as the inputs. */
weft_status weft_i_functional_all_to_all_shape(weft_i_op_call *call)
{
    const weft_i_arg *shapes = &call->args[1];
    const weft_tensor *x = input(call, 0);
    WEFT_TRY(check_group(call));
    if ((int64_t)call->args[0].count != ranks(call))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu tensors for %lld ranks", call->op->name,
                           call->args[0].count, (long long)ranks(call));
    if (x->dtype != call->args[0].tensors[0]->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: %s for rank 0, %s for rank %zu", call->op->name,
                           weft_dtype_name(call->args[0].tensors[0]->dtype),
                           weft_dtype_name(x->dtype), call->which);
    weft_shape shape = weft_i_tensor_shape(x);
    size_t at = 0;
    for (size_t i = 0; shapes->count && i <= call->which; i++) {
        int64_t ndim = at < shapes->count ? shapes->integers[at] : -1;
        if (ndim < 0 || ndim > WEFT_MAX_DIMS || (size_t)ndim >= shapes->count - at)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no shape for the tensor from rank %zu",
                               call->op->name, i);
        shape = (weft_shape){(int)ndim, {0}};
        memcpy(shape.dim, shapes->integers + at + 1, (size_t)ndim * sizeof *shape.dim);
        at += (size_t)ndim + 1;
    }
    return give(call, x->dtype, shape);
}

weft_status weft_i_functional_broadcast_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    int64_t src = call->args[1].integer;
    WEFT_TRY(check_group(call));
    if (src < 0 || src >= ranks(call))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: rank %lld must be in [0, %lld)",
                           call->op->name, (long long)src, (long long)ranks(call));
    return give(call, x->dtype, weft_i_tensor_shape(x));
}

weft_status weft_i_functional_wait_tensor_shape(weft_i_op_call *call)
{
    (void)call; /* any tensor may be waited for */
    return WEFT_OK;
}
