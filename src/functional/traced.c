/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain collectives as functional ones, for captures; see coll/calls/traced.h.  What the plain form
 * refuses is refused here too, by what is known of the stand-ins: a capture must not accept a call
 * that fails when it is made without one.
 */
#include "coll/calls/traced.h"

#include "coll/calls/coalesce.h"
#include "coll/lane/request.h"
#include "functional/traced.h"
#include "weft/functional.h"
#include "weft/op.h"
#include "weft/view.h"

/* ---- operands ---- */

weft_status weft_i_traced_see(const char *what, weft_tensor **out, weft_tensor **in,
                              const weft_group *group)
{
    *out = weft_i_see(*out);
    *in = weft_i_see(*in);
    if (!*out || !*in || !group)
        return weft_i_missing("%s: the %s is NULL", what,
                              !*out  ? "output"
                              : !*in ? "input"
                                     : "group");
    if ((*out)->dtype != (*in)->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is of %s, the output of %s", what,
                           weft_dtype_name((*in)->dtype), weft_dtype_name((*out)->dtype));
    return WEFT_OK;
}

static weft_status check_layout(const char *what, const char *which, const weft_tensor *x)
{
    WEFT_TRY(weft_i_request_check_contiguous(what, which, x));
    return weft_i_tensor_fits(what, x);
}

static size_t begin_of(const weft_tensor *x)
{
    return (size_t)x->offset * weft_i_dtype_size(x->dtype);
}

static size_t bytes_of(const weft_tensor *x)
{
    return (size_t)x->numel * weft_i_dtype_size(x->dtype);
}

bool weft_i_traced_overlap(const weft_tensor *a, const weft_tensor *b)
{
    return a->storage == b->storage && a->numel && b->numel &&
           begin_of(a) < begin_of(b) + bytes_of(b) && begin_of(b) < begin_of(a) + bytes_of(a);
}

/* Byte `in_at` of the input may be byte `out_at` of the output: then it works in place. */
weft_status weft_i_traced_check(const char *what, const weft_tensor *out, const weft_tensor *in,
                                size_t in_at, size_t out_at)
{
    char a[16], b[16];
    weft_device device = weft_i_tensor_device(in), other = weft_i_tensor_device(out);
    WEFT_TRY(check_layout(what, "input", in));
    WEFT_TRY(check_layout(what, "output", out));
    if (device != other)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is on %s, the output on %s", what,
                           weft_device_name(device, a), weft_device_name(other, b));
    if (out->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the output is read-only memory", what);
    if (weft_i_traced_overlap(out, in) && begin_of(in) + in_at != begin_of(out) + out_at)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: input and output overlap without being the same", what);
    return WEFT_OK;
}

/* Of a kind whose larger operand, if there is one, has a part for each rank. */
weft_status weft_i_traced_check_kind(weft_i_coll_kind kind, const weft_tensor *out,
                                     const weft_tensor *in, const weft_group *group)
{
    const char *what = weft_i_kinds[kind].name;
    size_t me = (size_t)(group->rank < 0 ? 0 : group->rank);
    size_t ins = bytes_of(in), outs = bytes_of(out);
    bool places = weft_i_kind_is(kind, WEFT_I_PLACES_PARTS);
    if (!places && !weft_i_kind_is(kind, WEFT_I_HAS_PARTS)) {
        WEFT_TRY(weft_i_traced_check(what, out, in, 0, 0));
        return ins == outs ? WEFT_OK : weft_i_request_fail_unequal(what, in, out);
    }
    size_t larger = places ? outs : ins, part = places ? ins : outs;
    WEFT_TRY(weft_i_traced_check(what, out, in, places ? 0 : me * part, places ? me * part : 0));
    return weft_i_request_check_total(what, places ? "output" : "input", larger, part, group->size,
                                      in->dtype);
}

/* ---- results ---- */

/* Copies the result, which is released, to a tensor that may have another shape of as many
 * elements. */
weft_status weft_i_traced_put(weft_tensor *out, weft_tensor *result)
{
    if (!result)
        return weft_last_status();
    weft_tensor *shaped = weft_view(result, weft_i_tensor_shape(out));
    weft_status status = shaped ? weft_copy(out, shaped) : weft_last_status();
    weft_release(shaped);
    weft_release(result);
    return status;
}

/* The plain form takes elements in their order, whatever the shape. */
weft_tensor *weft_i_traced_rows(weft_tensor *in, const weft_group *group)
{
    bool divides = in->ndim && in->dim[0] % group->size == 0;
    return divides ? in : weft_view(in, WEFT_SHAPE(in->numel));
}

/* ---- one tensor ---- */

static weft_tensor *scattered(weft_tensor *in, weft_reduction op, weft_group *group)
{
    weft_tensor *rows = weft_i_traced_rows(in, group);
    weft_tensor *part = rows ? weft_reduce_scatter_tensor(rows, op, 0, group) : NULL;
    if (rows != in)
        weft_release(rows);
    return part;
}

/* Keeps the call for the close of the group's scope, or says why it cannot be there. */
static weft_status collect(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *in,
                           weft_reduction op, weft_group *group, weft_status seen)
{
    weft_i_coll coll;
    weft_i_coll_empty(&coll);
    coll.ask.kind = kind;
    coll.ask.op = weft_i_kinds[kind].name;
    coll.ask.reduction = op;
    coll.ask.factor = op == WEFT_PREMUL_SUM ? weft_i_request_premul() : 1;
    coll.group = group;
    coll.in_tensor = in;
    coll.out_tensor = out;
    return weft_i_coalesce_add(&coll, seen);
}

static weft_status put(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *in, weft_reduction op,
                       weft_group *group)
{
    weft_status seen = weft_i_traced_see(weft_i_kinds[kind].name, &out, &in, group);
    if (seen >= 0)
        seen = weft_i_traced_check_kind(kind, out, in, group);
    if (weft_i_coalesce_is_open(group))
        return collect(kind, out, in, op, group, seen);
    WEFT_TRY(seen);
    return weft_i_traced_put(out, kind == WEFT_I_ALL_REDUCE   ? weft_all_reduce(in, op, group)
                                  : kind == WEFT_I_ALL_GATHER ? weft_all_gather_tensor(in, 0, group)
                                                              : scattered(in, op, group));
}

static weft_status all_reduce(weft_tensor *out, weft_tensor *in, weft_reduction op,
                              weft_group *group)
{
    return put(WEFT_I_ALL_REDUCE, out, in, op, group);
}

static weft_status all_gather(weft_tensor *out, weft_tensor *in, weft_group *group)
{
    return put(WEFT_I_ALL_GATHER, out, in, WEFT_SUM, group);
}

static weft_status reduce_scatter(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                  weft_group *group)
{
    return put(WEFT_I_REDUCE_SCATTER, out, in, op, group);
}

/* ---- those that no scope collects ---- */

static weft_status broadcast(weft_tensor *x, int root, weft_group *group)
{
    weft_tensor *in = x;
    weft_status seen = weft_i_traced_see("broadcast", &x, &in, group);
    if (seen >= 0)
        seen = weft_i_traced_check("broadcast", x, in, 0, 0);
    if (weft_i_coalesce_is_open(group))
        return collect(WEFT_I_BROADCAST, x, in, WEFT_SUM, group, seen);
    WEFT_TRY(seen);
    return weft_i_traced_put(x, weft_broadcast(x, root, group));
}

static weft_status all_to_all(weft_tensor *out, weft_tensor *in, const int64_t *out_splits,
                              const int64_t *in_splits, weft_group *group)
{
    weft_status seen = weft_i_traced_see("all_to_all", &out, &in, group);
    if (seen >= 0)
        seen = weft_i_traced_check("all_to_all", out, in, 0, 0);
    if (seen >= 0 && weft_i_traced_overlap(out, in))
        seen = weft_i_fail(WEFT_ERR_INVALID_ARG, "all_to_all: works only out of place");
    if (weft_i_coalesce_is_open(group))
        return collect(WEFT_I_ALL_TO_ALL, out, in, WEFT_SUM, group, seen);
    WEFT_TRY(seen);
    return weft_i_traced_put(out, weft_all_to_all_single(in, out_splits, in_splits, group));
}

/* ---- given to the plain forms ---- */

static const weft_i_traced_forms forms = {
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .list = weft_i_traced_list,
    .all_to_all_list = weft_i_traced_all_to_all_list,
    .all_gather_parts = weft_i_traced_all_gather_parts,
    .reduce_scatter_parts = weft_i_traced_reduce_scatter_parts,
};

void weft_i_traced_give(void)
{
    weft_i_traced = &forms;
}
