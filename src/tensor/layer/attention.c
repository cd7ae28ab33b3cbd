/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: its row, which also gives the logarithms of its rows' sums, and the row of its
 * gradients.  Kernels are in kernels/product/attention.h; here tensors become their rows of heads.
 */
#include "tensor/layer/attention.h"

#include "base/report/opts.h"
#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "kernels/product/attention.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, OFFSET, SEED, CAUSAL, SCALE, DROPOUT };

static const weft_tensor *tensor_at(const weft_i_arg *args, int i)
{
    return args[i].kind == WEFT_I_ARG_TENSOR ? args[i].tensor : NULL;
}

/* ---- what fits ---- */

static weft_status check_dtypes(const weft_tensor *q, const weft_tensor *k, const weft_tensor *v)
{
    bool known = q->dtype == WEFT_F64 || q->dtype == WEFT_F32 || q->dtype == WEFT_BF16 ||
                 q->dtype == WEFT_F16;
    if (known && k->dtype == q->dtype && v->dtype == q->dtype)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_TYPE,
                       "attention: the queries are %s, the keys %s, the values %s; all must be one "
                       "of f64, f32, bf16 and f16",
                       weft_dtype_name(q->dtype), weft_dtype_name(k->dtype),
                       weft_dtype_name(v->dtype));
}

static weft_status check_shapes(const weft_tensor *q, const weft_tensor *k, const weft_tensor *v)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT], c[WEFT_I_SHAPE_TEXT];
    int n = q->ndim;
    bool fits = n >= 3 && k->ndim == n && v->ndim == n && k->dim[n - 1] == q->dim[n - 1] &&
                v->dim[n - 2] == k->dim[n - 2] && v->dim[n - 3] == k->dim[n - 3];
    for (int i = 0; fits && i < n - 3; i++)
        fits = q->dim[i] == k->dim[i] && q->dim[i] == v->dim[i];
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "attention: queries %s, keys %s, values %s; they are [..., heads, "
                           "queries, width], [..., key heads, keys, width] and [..., key heads, "
                           "keys, any width]",
                           weft_i_shape_text(weft_i_tensor_shape(q), a),
                           weft_i_shape_text(weft_i_tensor_shape(k), b),
                           weft_i_shape_text(weft_i_tensor_shape(v), c));
    int64_t heads = q->dim[n - 3], key_heads = k->dim[n - 3];
    if (key_heads < 1 ? heads : heads % key_heads)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "attention: %lld query heads cannot share %lld key heads evenly",
                           (long long)heads, (long long)key_heads);
    return WEFT_OK;
}

/* [..., heads, queries, keys] */
static weft_shape scores_shape(const weft_tensor *q, const weft_tensor *k)
{
    weft_shape shape = weft_i_tensor_shape(q);
    shape.dim[q->ndim - 1] = k->dim[k->ndim - 2];
    return shape;
}

static weft_status check_mask(const weft_tensor *q, const weft_tensor *k, const weft_tensor *mask)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    weft_shape scores = scores_shape(q, k);
    int missing = scores.ndim - mask->ndim;
    if (mask->dtype != WEFT_BOOL && mask->dtype != q->dtype)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "attention: the mask is %s; it must be bool, or %s as the queries are, "
                           "to be added",
                           weft_dtype_name(mask->dtype), weft_dtype_name(q->dtype));
    bool fits = missing >= 0;
    for (int i = 0; fits && i < mask->ndim; i++)
        fits = mask->dim[i] == 1 || mask->dim[i] == scores.dim[missing + i];
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "attention: a mask of shape %s; it must broadcast to %s, [..., heads, "
                           "queries, keys]",
                           weft_i_shape_text(weft_i_tensor_shape(mask), a),
                           weft_i_shape_text(scores, b));
    return WEFT_OK;
}

static weft_status check_one(const weft_tensor *x, const char *what)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (!x || (weft_i_dtype_class(x->dtype) == 1 && x->numel == 1))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "attention: the %s is %s %s; it is one element of integers", what,
                       weft_dtype_name(x->dtype), weft_i_shape_text(weft_i_tensor_shape(x), text));
}

static weft_status check(const weft_i_arg *args)
{
    const weft_tensor *q = args[Q].tensor, *k = args[K].tensor, *v = args[V].tensor;
    const weft_tensor *mask = tensor_at(args, MASK), *offset = tensor_at(args, OFFSET);
    double p = args[DROPOUT].number, number = offset ? 0 : args[OFFSET].number;
    WEFT_TRY(check_dtypes(q, k, v));
    WEFT_TRY(check_shapes(q, k, v));
    if (mask)
        WEFT_TRY(check_mask(q, k, mask));
    WEFT_TRY(check_one(offset, "position"));
    WEFT_TRY(check_one(tensor_at(args, SEED), "seed"));
    if (!(p >= 0 && p <= 1) || (p > 0 && !tensor_at(args, SEED)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "attention: dropout with probability %g%s", p,
                           p > 0 && p <= 1 ? " needs a seed" : "");
    if (!(fabs(number) <= 0x1p53) || number != floor(number))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "attention: an offset of %g", number);
    return WEFT_OK;
}

/* ---- shapes ---- */

/* Without gaps, the dimensions in the order in which they lie in `x`: heads that were split off a
 * wide row come back as such, and joining them copies nothing. */
static void lie_as(weft_i_result *result, const weft_tensor *x)
{
    int order[WEFT_MAX_DIMS], n = result->shape.ndim;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t step = 1;
    for (int i = n - 1; i >= 0; i--) {
        result->stride[order[i]] = step;
        step *= result->shape.dim[order[i]] > 1 ? result->shape.dim[order[i]] : 1;
    }
}

static weft_dtype compute_of(const weft_tensor *q)
{
    return q->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

weft_status weft_i_attention_shape(weft_i_op_call *call)
{
    const weft_tensor *q = call->args[Q].tensor, *v = call->args[V].tensor;
    weft_i_result *result = &call->result;
    WEFT_TRY(check(call->args));
    result->compute = compute_of(q);
    result->shape = weft_i_tensor_shape(q);
    if (call->which == 0) {
        result->dtype = q->dtype;
        result->shape.dim[q->ndim - 1] = v->dim[v->ndim - 1];
        WEFT_TRY(weft_i_shape_check("attention", result->dtype, result->shape, NULL));
        lie_as(result, q);
        return WEFT_OK;
    }
    result->dtype = result->compute;
    result->shape.ndim--;
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

/* The gradient's row: that of the result and of lse, what was saved, then the arguments. */
enum { GRAD, LSE_GRAD, OUT, LSE, ARGS, MASK_WANTED = ARGS + WEFT_I_ATTENTION_ARGS };

static weft_status check_like(const weft_tensor *x, const char *what, weft_shape shape,
                              weft_dtype dtype)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (!x || (x->dtype == dtype && weft_i_shape_equal(weft_i_tensor_shape(x), shape)))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "attention_grad: %s is %s %s; it must be %s %s", what,
                       weft_dtype_name(x->dtype), weft_i_shape_text(weft_i_tensor_shape(x), a),
                       weft_dtype_name(dtype), weft_i_shape_text(shape, b));
}

weft_status weft_i_attention_grad_shape(weft_i_op_call *call)
{
    const weft_i_arg *args = call->args + ARGS;
    weft_i_result *result = &call->result;
    WEFT_TRY(check(args));
    const weft_tensor *q = args[Q].tensor, *mask = tensor_at(args, MASK);
    const weft_tensor *of[] = {q, args[K].tensor, args[V].tensor, mask};
    weft_shape out = weft_i_tensor_shape(q), rows = out;
    out.dim[out.ndim - 1] = of[V]->dim[of[V]->ndim - 1];
    rows.ndim--;
    WEFT_TRY(check_like(call->args[GRAD].tensor, "the gradient", out, q->dtype));
    WEFT_TRY(check_like(call->args[OUT].tensor, "the result", out, q->dtype));
    WEFT_TRY(check_like(call->args[LSE].tensor, "lse", rows, compute_of(q)));
    WEFT_TRY(
        check_like(tensor_at(call->args, LSE_GRAD), "the gradient of lse", rows, compute_of(q)));
    result->compute = compute_of(q);
    result->absent = call->which == MASK && !call->args[MASK_WANTED].integer;
    if (call->which == MASK && !result->absent && (!mask || mask->dtype == WEFT_BOOL))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "attention_grad: there is no mask that has a gradient");
    if (result->absent)
        return WEFT_OK;
    result->dtype = of[call->which]->dtype;
    result->shape = weft_i_tensor_shape(of[call->which]);
    lie_as(result, of[call->which]);
    return WEFT_OK;
}

/* ---- from tensors to rows of heads ---- */

/* Number `batch` of the leading dimensions, `head` of the heads; x may be broadcast to `shape`, of
 * which the last two dimensions are rows and columns. */
static weft_i_attention_rows rows_of(const weft_tensor *x, weft_shape shape, int64_t batch,
                                     int64_t head)
{
    weft_i_attention_rows rows = {0};
    if (!x)
        return rows;
    int64_t size = (int64_t)weft_i_dtype_size(x->dtype), step[WEFT_MAX_DIMS] = {0};
    int missing = shape.ndim - x->ndim, heads = shape.ndim - 3;
    for (int i = 0; i < x->ndim; i++)
        step[missing + i] = x->dim[i] <= 1 ? 0 : x->stride[i] * size;
    rows.dtype = x->dtype;
    rows.data = weft_i_tensor_data(x);
    rows.head = step[heads];
    rows.row = step[heads + 1];
    rows.column = shape.dim[heads + 2] == 1 ? size : step[heads + 2];
    for (int i = heads - 1; i >= 0; i--) {
        rows.data += batch % shape.dim[i] * step[i];
        batch /= shape.dim[i];
    }
    rows.data += head * rows.head;
    return rows;
}

static weft_i_attention_rows plain_rows(const weft_tensor *x, int64_t batch, int64_t head)
{
    return rows_of(x, x ? weft_i_tensor_shape(x) : WEFT_SCALAR, batch, head);
}

/* A number for each row is a row of one column. */
static weft_i_attention_rows numbers_of(const weft_tensor *x, int64_t batch, int64_t head)
{
    if (!x)
        return (weft_i_attention_rows){0};
    weft_shape shape = weft_i_tensor_shape(x);
    shape.dim[shape.ndim++] = 1;
    weft_tensor view = *x;
    view.dim[view.ndim] = view.stride[view.ndim] = 1;
    view.ndim++;
    return rows_of(&view, shape, batch, head);
}

static int64_t integer_at(const weft_i_arg *arg)
{
    int64_t value = 0;
    if (arg->kind == WEFT_I_ARG_TENSOR)
        weft_i_convert(WEFT_I64, &value, arg->tensor->dtype, weft_i_tensor_data(arg->tensor), 1);
    else if (arg->kind == WEFT_I_ARG_NUMBER)
        value = (int64_t)arg->number;
    return value;
}

/* The arguments, for number `batch` of the leading dimensions and key head `head`. */
static weft_i_attention describe(const weft_i_arg *args, int64_t batch, int64_t head)
{
    const weft_tensor *q = args[Q].tensor, *k = args[K].tensor, *v = args[V].tensor;
    int n = q->ndim;
    int64_t heads = q->dim[n - 3], shared = heads / k->dim[n - 3];
    weft_i_attention a = {.compute = compute_of(q),
                          .heads = shared,
                          .queries = q->dim[n - 2],
                          .keys = k->dim[n - 2],
                          .width = q->dim[n - 1],
                          .value_width = v->dim[n - 1],
                          .causal = args[CAUSAL].integer != 0,
                          .offset = integer_at(&args[OFFSET]),
                          .scale = args[SCALE].number,
                          .dropout = args[DROPOUT].number,
                          .seed = (uint64_t)integer_at(&args[SEED]),
                          .q = plain_rows(q, batch, head * shared),
                          .k = plain_rows(k, batch, head),
                          .v = plain_rows(v, batch, head)};
    a.mask = rows_of(tensor_at(args, MASK), scores_shape(q, k), batch, head * shared);
    a.first = (batch * heads + head * shared) * a.queries;
    return a;
}

static int64_t batches_of(const weft_tensor *q)
{
    int64_t count = 1;
    for (int i = 0; i < q->ndim - 3; i++)
        count *= q->dim[i];
    return count;
}

/* Units of work that share nothing but what they read, cut into parts for the team by the shape. */
struct units {
    const weft_i_op_call *call;
    weft_status (*run)(const struct units *units, int64_t unit);
    const weft_tensor *mask_sum; /* of the gradient */
    int64_t count, parts, key_heads, blocks;
    weft_status status[WEFT_I_TEAM_MOST]; /* of the parts */
};

static void run_part(void *argument, int64_t part)
{
    struct units *units = argument;
    weft_status status = WEFT_OK;
    for (int64_t i = weft_i_team_bound(units->count, units->parts, part),
                 end = weft_i_team_bound(units->count, units->parts, part + 1);
         i < end && status >= 0; i++)
        status = units->run(units, i);
    units->status[part] = status;
}

/* Scores are what it takes time for. */
static int64_t bytes_of(const weft_i_arg *args)
{
    const weft_tensor *q = args[Q].tensor, *k = args[K].tensor;
    return q->numel / (q->dim[q->ndim - 1] ? q->dim[q->ndim - 1] : 1) *
           (k->dim[k->ndim - 2] + q->dim[q->ndim - 1]) * 4;
}

/* A part may run on another thread, whose error is not this one's. */
static weft_status run_units(struct units *units, int64_t bytes)
{
    weft_status status = WEFT_OK;
    units->parts = weft_i_team_parts(bytes);
    units->parts = units->parts < units->count ? units->parts : units->count;
    if (units->parts <= 1 || units->mask_sum) { /* sums over heads have one order */
        units->parts = 1;
        run_part(units, 0);
        return units->status[0];
    }
    weft_i_team_run(units->parts, run_part, units);
    for (int64_t i = 0; i < units->parts && status >= 0; i++)
        status = units->status[i];
    return status >= 0 ? WEFT_OK
                       : weft_i_fail(status, "%s: no memory for its blocks", units->call->op->name);
}

static weft_status run_block(const struct units *units, int64_t unit)
{
    int64_t number = unit / units->blocks, batch = number / units->key_heads,
            head = number % units->key_heads;
    weft_i_attention a = describe(units->call->args, batch, head);
    a.out = plain_rows(units->call->outs[0], batch, head * a.heads);
    a.lse = numbers_of(units->call->outs[1], batch, head * a.heads);
    return weft_i_attention_forward(&a, unit % units->blocks);
}

weft_status weft_i_attention_run(weft_i_op_call *call)
{
    const weft_tensor *k = call->args[K].tensor;
    struct units units = {.call = call, .run = run_block, .key_heads = k->dim[k->ndim - 3]};
    if (!call->outs[1]->numel)
        return WEFT_OK;
    weft_i_attention first = describe(call->args, 0, 0);
    units.blocks = weft_i_attention_parts(&first);
    units.count = batches_of(k) * units.key_heads * units.blocks;
    return run_units(&units, bytes_of(call->args));
}

/* ---- the gradients ---- */

/* The gradient of the mask is summed in the compute type; NULL and no error: nobody wants it. */
static weft_status new_sum(const weft_i_op_call *call, weft_tensor **sum)
{
    const weft_tensor *mask = call->outs[MASK];
    *sum = NULL;
    if (!mask)
        return WEFT_OK;
    *sum = weft_keep(weft_i_tensor_new(compute_of(call->args[ARGS + Q].tensor), WEFT_CPU,
                                       weft_i_tensor_shape(mask), NULL));
    if (!*sum)
        return weft_last_status();
    if ((*sum)->end)
        memset(weft_i_tensor_data(*sum), 0, (*sum)->end);
    return WEFT_OK;
}

static weft_status run_head(const struct units *units, int64_t unit)
{
    const weft_i_op_call *call = units->call;
    const weft_i_arg *args = call->args + ARGS;
    int64_t batch = unit / units->key_heads, head = unit % units->key_heads;
    weft_i_attention a = describe(args, batch, head);
    int64_t first = head * a.heads;
    a.grad = plain_rows(call->args[GRAD].tensor, batch, first);
    a.out = plain_rows(call->args[OUT].tensor, batch, first);
    a.lse = numbers_of(call->args[LSE].tensor, batch, first);
    a.lse_grad = numbers_of(tensor_at(call->args, LSE_GRAD), batch, first);
    a.q_grad = plain_rows(call->outs[Q], batch, first);
    a.k_grad = plain_rows(call->outs[K], batch, head);
    a.v_grad = plain_rows(call->outs[V], batch, head);
    a.mask_grad =
        rows_of(units->mask_sum, scores_shape(args[Q].tensor, args[K].tensor), batch, first);
    return weft_i_attention_backward(&a);
}

weft_status weft_i_attention_grad_run(weft_i_op_call *call)
{
    const weft_tensor *k = call->args[ARGS + K].tensor;
    struct units units = {.call = call, .run = run_head, .key_heads = k->dim[k->ndim - 3]};
    weft_tensor *mask_sum;
    weft_status status = new_sum(call, &mask_sum);
    units.mask_sum = mask_sum;
    units.count = batches_of(k) * units.key_heads;
    if (status >= 0 && units.count)
        status = run_units(&units, 3 * bytes_of(call->args + ARGS));
    if (mask_sum && status >= 0)
        weft_i_copy_tensor(call->outs[MASK], mask_sum);
    weft_i_object_drop(mask_sum);
    return status;
}

/* ---- the call ---- */

/* Whether the device has kernels for the row. */
static bool runs_on(weft_device device)
{
    int kind = weft_i_device_kind(device);
    return device == WEFT_META || kind <= 0 || kind >= WEFT_I_DEVICE_KINDS ||
           weft_i_op_attention.run[kind];
}

/* The seed is a tensor, so that a compiled function draws another one in each call. */
static weft_status draw_seed(weft_device device, weft_tensor **seed)
{
    *seed = weft_empty(WEFT_I64, device, WEFT_SHAPE(1));
    return *seed ? weft_integers(*seed, 0, INT64_MAX) : weft_last_status();
}

static weft_tensor *attend(const weft_tensor *q, weft_i_arg *args)
{
    weft_tensor *outs[2] = {NULL}, *seed = NULL;
    weft_device device = weft_i_tensor_device(q);
    if (args[DROPOUT].number > 0) {
        if (draw_seed(device, &seed) < 0)
            return NULL;
        args[SEED] = WEFT_I_TENSOR_ARG(seed);
    }
    weft_status status = weft_i_op_apply_list(&weft_i_op_attention, outs, args);
    weft_release(outs[1]);
    weft_release(seed);
    return status < 0 ? NULL : outs[0];
}

/* The arguments as the thread sees them, which are checked here: no dispatch does it for the parts. */
static weft_tensor *put_together(weft_i_arg *args)
{
    for (int i = Q; i <= SEED; i++)
        if (args[i].kind == WEFT_I_ARG_TENSOR) {
            args[i].tensor = weft_i_see(args[i].tensor);
            if (!args[i].tensor || weft_i_tensor_check_live("attention", args[i].tensor) < 0)
                return NULL;
        }
    double p = args[DROPOUT].number;
    args[DROPOUT].number = p >= 0 && p <= 1 ? 0 : p; /* its draws need no seed */
    if (check(args) < 0)
        return NULL;
    args[DROPOUT].number = p;
    return weft_i_attention_composed(args);
}

weft_tensor *weft_attention(weft_tensor *q, weft_tensor *k, weft_tensor *v,
                            const weft_attention_opts *given)
{
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    weft_tensor *none[2];
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_attention") < 0)
        return NULL;
    const weft_tensor *seen = q && k && v ? weft_i_see(q) : NULL;
    bool live = seen && weft_i_tensor_check_live("attention", seen) >= 0;
    double width = live && seen->ndim ? (double)seen->dim[seen->ndim - 1] : 0;
    double scale = opts.scale != 0 ? opts.scale : width > 0 ? 1 / sqrt(width) : 1;
    weft_i_arg args[WEFT_I_ATTENTION_ARGS] = {
        WEFT_I_TENSOR_ARG(q),
        WEFT_I_TENSOR_ARG(k),
        WEFT_I_TENSOR_ARG(v),
        WEFT_I_OPTIONAL_ARG(opts.mask),
        opts.position ? WEFT_I_TENSOR_ARG(opts.position) : WEFT_I_NUMBER_ARG((double)opts.offset),
        {.kind = WEFT_I_ARG_NONE},
        WEFT_I_INTEGER_ARG(opts.causal),
        WEFT_I_NUMBER_ARG(scale),
        WEFT_I_NUMBER_ARG(opts.dropout)};
    if (!live) /* dispatch says why */
        return weft_i_op_apply_list(&weft_i_op_attention, none, args), NULL;
    return runs_on(weft_i_tensor_device(seen)) ? attend(seen, args) : put_together(args);
}
