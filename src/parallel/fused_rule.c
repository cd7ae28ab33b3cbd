/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the arguments of fused operations, and their shape rules.  Whatever a call can be refused
 * for without asking other ranks is found here, so that meta refuses the same calls and nothing is
 * begun that cannot be done.
 */
#include "base/report/status.h"
#include "parallel/fused.h"

#include <string.h>

/* ---- what both kinds share ---- */

static weft_status read_group(const weft_i_op_call *call, int *ranks)
{
    const weft_i_arg *group = &call->args[call->op->arity - 1];
    if (group->count == 0 || group->count > INT32_MAX || !group->group.name)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a group has a name and at least one rank",
                           call->op->name);
    *ranks = (int)group->count;
    return WEFT_OK;
}

static bool is_f8(weft_dtype dtype)
{
    return weft_i_dtype_is_float(dtype) && weft_dtype_size(dtype) == 1;
}

static weft_status fail_shape(const char *op, const char *what, const weft_tensor *x)
{
    char text[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %s, not of shape %s", op, what,
                       weft_i_shape_text(weft_i_tensor_shape(x), text));
}

static weft_status check_left(const char *op, const weft_tensor *a, bool scaled)
{
    if (a->ndim < 2)
        return fail_shape(op, "the left-hand side has at least 2 dimensions", a);
    if (scaled ? !is_f8(a->dtype) : a->dtype == WEFT_BOOL)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the left-hand side is %s; it must %s", op,
                           weft_dtype_name(a->dtype),
                           scaled ? "be floats of 8 bits" : "not be bool");
    return WEFT_OK;
}

static weft_status check_right(const char *op, const weft_tensor *a, const weft_tensor *b,
                               int64_t inner, bool scaled)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (b->ndim != 2 || b->dim[0] != inner)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a right-hand side has shape [%lld, n] here, not %s", op,
                           (long long)inner, weft_i_shape_text(weft_i_tensor_shape(b), text));
    if (scaled ? !is_f8(b->dtype) : a->dtype != b->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: of %s and %s; %s", op, weft_dtype_name(a->dtype),
                           weft_dtype_name(b->dtype),
                           scaled ? "both must be floats of 8 bits" : "both must be the same");
    return WEFT_OK;
}

static weft_status check_scales(const char *op, const weft_tensor *b, const weft_i_scales *scales)
{
    const weft_tensor *scale = scales->b, *bias = scales->bias, *result = scales->result;
    bool columns = scale->ndim == 2 && scale->dim[0] == 1 && scale->dim[1] == b->dim[1];
    if (scale->dtype != WEFT_F32 || (weft_i_tensor_numel(scale) != 1 && !columns))
        return fail_shape(op, "the scale of a right-hand side is f32, of one element or [1, n]",
                          scale);
    if (bias &&
        (bias->ndim != 1 || bias->dim[0] != b->dim[1] || !weft_i_dtype_is_float(bias->dtype)))
        return fail_shape(op, "a bias is floats of shape [n]", bias);
    if (result && (result->dtype != WEFT_F32 || weft_i_tensor_numel(result) != 1))
        return fail_shape(op, "the scale of a result is one f32", result);
    return WEFT_OK;
}

static weft_status check_dtype(const char *op, int64_t dtype)
{
    bool fits = dtype >= 0 && dtype <= INT32_MAX && weft_dtype_size((weft_dtype)dtype) &&
                weft_dtype_size((weft_dtype)dtype) <= 4 && weft_i_dtype_is_float((weft_dtype)dtype);
    return fits ? WEFT_OK
                : weft_i_fail(WEFT_ERR_TYPE,
                              "%s: a result is a float of 32, 16 or 8 bits, not dtype %lld", op,
                              (long long)dtype);
}

/* Does the scale have the shape of `x` (its size along `dim` times `times`) with 1 as last size? */
static bool has_rows_of(const weft_tensor *scale, const weft_tensor *x, int dim, int64_t times)
{
    bool same = scale->ndim == x->ndim && scale->dim[x->ndim - 1] == 1;
    for (int i = 0; same && i < x->ndim - 1; i++)
        same = scale->dim[i] == x->dim[i] * (i == dim ? times : 1);
    return same;
}

/* Strides that are contiguous once `dim` is in front. */
static void moved_strides(weft_shape shape, int dim, int64_t *strides)
{
    int64_t step = 1;
    for (int i = shape.ndim - 1; i >= 0; i--) {
        if (i == dim)
            continue;
        strides[i] = step;
        step *= shape.dim[i] > 1 ? shape.dim[i] : 1;
    }
    strides[dim] = step;
}

static weft_status give(weft_i_op_call *call, weft_dtype dtype, weft_shape shape, int front)
{
    WEFT_TRY(weft_i_shape_check(call->op->name, dtype, shape, NULL));
    call->result.dtype = dtype;
    call->result.shape = shape;
    moved_strides(shape, front, call->result.stride);
    return WEFT_OK;
}

/* ---- gathers ---- */

static weft_status read_dims(const weft_i_op_call *call, int dim, weft_i_gathering *g)
{
    int at = weft_i_dim_wrap(g->op, call->args[dim].integer, g->shard->ndim);
    int64_t rows;
    if (at < 0)
        return weft_last_status();
    if (__builtin_mul_overflow(g->shard->dim[at], (int64_t)g->ranks, &rows))
        return fail_shape(g->op, "all shards together must be countable", g->shard);
    g->dim = at;
    g->last = at == g->shard->ndim - 1;
    g->keep = call->args[dim + 1].integer;
    return WEFT_OK;
}

static weft_status read_list(const weft_i_op_call *call, int dim, bool scaled, weft_i_gathering *g)
{
    const weft_i_arg *list = &call->args[0];
    *g = (weft_i_gathering){.op = call->op->name,
                            .shard = list->tensors[list->count - 1],
                            .b = list->tensors,
                            .count = (int)list->count - 1};
    if (g->count < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: there is no right-hand side", g->op);
    WEFT_TRY(read_group(call, &g->ranks));
    WEFT_TRY(check_left(g->op, g->shard, scaled));
    WEFT_TRY(read_dims(call, dim, g));
    int64_t inner = g->shard->dim[g->shard->ndim - 1] * (g->last ? g->ranks : 1);
    for (int i = 0; i < g->count; i++)
        WEFT_TRY(check_right(g->op, g->shard, g->b[i], inner, scaled));
    return WEFT_OK;
}

static weft_status read_scaling(weft_i_gathering *g)
{
    if (g->scale->dtype != WEFT_F32)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the scale is %s, it must be f32", g->op,
                           weft_dtype_name(g->scale->dtype));
    if (has_rows_of(g->scale, g->shard, g->dim, 1))
        g->scaling = WEFT_I_ROWS_SHARDED;
    else if (weft_i_tensor_numel(g->scale) == 1)
        g->scaling = WEFT_I_TENSOR_WISE;
    else if (has_rows_of(g->scale, g->shard, g->dim, g->ranks))
        g->scaling = WEFT_I_ROWS_REPLICATED;
    else
        return fail_shape(g->op,
                          "the scale is one element, or one for each row of the shard or of all "
                          "shards",
                          g->scale);
    return WEFT_OK;
}

static weft_status read_scaled(const weft_i_op_call *call, weft_i_gathering *g)
{
    const weft_i_arg *scales = &call->args[1], *biases = &call->args[2], *results = &call->args[3];
    WEFT_TRY(read_list(call, 5, true, g));
    if (g->last)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: dimension %d is what the product sums over, and its parts cannot "
                           "be scaled; gather along another, or use weft_all_gather_tensor",
                           g->op, g->dim);
    size_t count = (size_t)g->count;
    if (scales->count != count + 1 || biases->count != count || results->count != count ||
        call->args[4].count != count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: %zu scales, %zu biases, %zu result scales and %zu dtypes for %zu "
                           "right-hand sides and the left-hand one",
                           g->op, scales->count, biases->count, results->count, call->args[4].count,
                           count);
    g->scale = scales->tensors[count];
    g->b_scale = scales->tensors;
    g->bias = biases->tensors;
    g->result_scale = results->tensors;
    g->dtypes = call->args[4].integers;
    for (int i = 0; i < g->count; i++) {
        weft_i_scales mine = {g->b_scale[i], g->bias[i], g->result_scale[i]};
        WEFT_TRY(check_scales(g->op, g->b[i], &mine));
        WEFT_TRY(check_dtype(g->op, g->dtypes[i] == -1 ? (int64_t)g->b[i]->dtype : g->dtypes[i]));
    }
    return read_scaling(g);
}

weft_status weft_i_gathering_read(const weft_i_op_call *call, weft_i_gathering *out)
{
    return call->op == &weft_i_op_all_gather_scaled_matmul ? read_scaled(call, out)
                                                           : read_list(call, 1, false, out);
}

weft_dtype weft_i_gathering_dtype(const weft_i_gathering *g, int i)
{
    return g->dtypes && g->dtypes[i] != -1 ? (weft_dtype)g->dtypes[i] : g->b[i]->dtype;
}

static weft_status gather_shape(weft_i_op_call *call)
{
    weft_i_gathering g;
    WEFT_TRY(weft_i_gathering_read(call, &g));
    weft_shape shape = weft_i_tensor_shape(g.shard);
    shape.dim[g.dim] *= g.ranks;
    int i = (int)call->which;
    call->result.absent = i == g.count && !g.keep;
    if (i == g.count)
        return give(call, g.shard->dtype, shape, g.last ? 0 : g.dim);
    shape.dim[shape.ndim - 1] = g.b[i]->dim[1];
    return give(call, weft_i_gathering_dtype(&g, i), shape, g.last ? 0 : g.dim);
}

weft_status weft_i_all_gather_matmul_shape(weft_i_op_call *call)
{
    return gather_shape(call);
}

weft_status weft_i_all_gather_scaled_matmul_shape(weft_i_op_call *call)
{
    return gather_shape(call);
}

/* ---- scatters ---- */

static weft_status read_reduction(const weft_i_op_call *call, int op, weft_i_scattering *s)
{
    int64_t reduction = call->args[op].integer;
    if (reduction != WEFT_SUM && reduction != WEFT_AVG)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the reduction is sum or avg", s->op);
    s->reduction = (weft_reduction)reduction;
    int at = weft_i_dim_wrap(s->op, call->args[op + 1].integer, s->a->ndim);
    if (at < 0)
        return weft_last_status();
    s->dim = at;
    s->last = at == s->a->ndim - 1;
    int64_t size = s->last ? s->b->dim[1] : s->a->dim[at];
    if (size % s->ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: dimension %d of the product has %lld entries, which do not divide "
                           "among %d ranks",
                           s->op, at, (long long)size, s->ranks);
    return WEFT_OK;
}

static weft_status read_scatter_scales(const weft_i_op_call *call, weft_i_scattering *s)
{
    const weft_i_arg *args = call->args;
    s->scale = args[2].tensor;
    s->scales =
        (weft_i_scales){args[3].tensor, args[4].kind == WEFT_I_ARG_TENSOR ? args[4].tensor : NULL,
                        args[5].kind == WEFT_I_ARG_TENSOR ? args[5].tensor : NULL};
    s->by_rows = weft_i_tensor_numel(s->scale) != 1;
    if (s->scale->dtype != WEFT_F32 || (s->by_rows && !has_rows_of(s->scale, s->a, 0, 1)))
        return fail_shape(s->op, "the scale is f32, of one element or one for each row", s->scale);
    WEFT_TRY(check_scales(s->op, s->b, &s->scales));
    WEFT_TRY(check_dtype(s->op, args[6].integer));
    s->dtype = (weft_dtype)args[6].integer;
    return WEFT_OK;
}

weft_status weft_i_scattering_read(const weft_i_op_call *call, weft_i_scattering *out)
{
    bool scaled = call->op == &weft_i_op_scaled_matmul_reduce_scatter;
    weft_tensor *a = call->args[0].tensor, *b = call->args[1].tensor;
    *out = (weft_i_scattering){.op = call->op->name, .a = a, .b = b, .dtype = a->dtype};
    WEFT_TRY(read_group(call, &out->ranks));
    WEFT_TRY(check_left(out->op, a, scaled));
    WEFT_TRY(check_right(out->op, a, b, a->dim[a->ndim - 1], scaled));
    if (scaled)
        WEFT_TRY(read_scatter_scales(call, out));
    return read_reduction(call, scaled ? 7 : 2, out);
}

static weft_status scatter_shape(weft_i_op_call *call)
{
    weft_i_scattering s;
    WEFT_TRY(weft_i_scattering_read(call, &s));
    weft_shape shape = weft_i_tensor_shape(s.a);
    shape.dim[shape.ndim - 1] = s.b->dim[1];
    shape.dim[s.dim] /= s.ranks;
    return give(call, s.dtype, shape, 0);
}

weft_status weft_i_matmul_reduce_scatter_shape(weft_i_op_call *call)
{
    return scatter_shape(call);
}

weft_status weft_i_scaled_matmul_reduce_scatter_shape(weft_i_op_call *call)
{
    return scatter_shape(call);
}
