/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain collectives of several tensors in a capture: one functional collective of the list, and a
 * copy into each tensor of the caller.  All is checked before the first node is written down.
 * Views belong to the scope of the caller.
 */

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/coalesce.h"
#include "coll/lane/request.h"
#include "functional/traced.h"
#include "weft/functional.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdio.h>

/* The operands as the capture sees them, and what the functional form makes. */
typedef struct operands {
    const char *what;
    weft_i_coll_kind kind;
    int count;
    weft_group *group;
    weft_tensor **out, **in, **made;
} operands;

static weft_status fail_collecting(weft_i_coll_kind kind, weft_group *group)
{
    weft_i_coll coll;
    weft_i_coll_empty(&coll);
    coll.ask.kind = kind;
    coll.ask.op = weft_i_kinds[kind].name;
    coll.group = group;
    return weft_i_coalesce_add(&coll, WEFT_OK); /* refuses it */
}

/* An empty list is an operation too, at which the ranks meet; a graph has none of that kind. */
static weft_status refuse_empty(const char *what)
{
    char text[80];
    snprintf(text, sizeof text, "%s of no tensors", what);
    return weft_i_not_captured(text);
}

static weft_status begin(operands *on, weft_i_coll_kind kind, int count, const void *out,
                         const void *in, weft_group *group)
{
    const char *what = weft_i_kinds[kind].name;
    *on = (operands){.what = what, .kind = kind, .count = count, .group = group};
    if (!group)
        return weft_i_missing("%s: the group is NULL", what);
    if (weft_i_coalesce_is_open(group))
        return fail_collecting(kind, group);
    if (count < 0 || (count && (!in || !out)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of %d tensors at %p and %p", what,
                           count, in, out);
    if (!count)
        return refuse_empty(what);
    if (!(on->out = WEFT_OS->alloc(3 * (size_t)count * sizeof *on->out)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d tensors", what, count);
    on->in = on->out + count;
    on->made = on->in + count;
    return WEFT_OK;
}

/* What there was no memory for is missing in the graph, whatever the function makes of that. */
static weft_status end(operands *on, weft_status status)
{
    WEFT_OS->free(on->out);
    if (status == WEFT_ERR_NO_MEMORY)
        weft_i_eye_open->broken(weft_i_eye_open);
    return status;
}

/* What belongs to item `i` of the list, where the call fails. */
static weft_status of_item(const operands *on, int i, weft_status status)
{
    if (status < 0)
        weft_i_explain(status, "%s: tensor %d of %d", on->what, i, on->count);
    return status;
}

static weft_status see_all(operands *on, weft_tensor *const *out, weft_tensor *const *in)
{
    for (int i = 0; i < on->count; i++) {
        on->out[i] = out[i];
        on->in[i] = in[i];
        WEFT_TRY(of_item(on, i,
                         weft_i_traced_see(weft_i_kinds[weft_i_kinds[on->kind].as].name,
                                           &on->out[i], &on->in[i], on->group)));
    }
    return WEFT_OK;
}

/* All inputs are read before the first output is written, which the plain form does not promise. */
static weft_status check_apart(const operands *on)
{
    for (int i = 0; i < on->count; i++)
        for (int k = 0; k < on->count; k++)
            if (k != i &&
                ((on->in[k] != on->in[i] && weft_i_traced_overlap(on->out[i], on->in[k])) ||
                 weft_i_traced_overlap(on->out[i], on->out[k])))
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "%s: an output overlaps an operand of another tensor of the "
                                   "list (%d and %d)",
                                   on->what, i, k);
    return WEFT_OK;
}

static weft_status check_devices(const operands *on)
{
    char a[16], b[16];
    weft_device first = weft_i_tensor_device(on->in[0]);
    for (int i = 1; i < on->count; i++) {
        weft_device device = weft_i_tensor_device(on->in[i]);
        if (device != first)
            return weft_i_fail(WEFT_ERR_TYPE, "%s: tensor %d is on %s, those before it on %s",
                               on->what, i, weft_device_name(device, a),
                               weft_device_name(first, b));
    }
    return WEFT_OK;
}

static weft_status put_all(const operands *on)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < on->count && status >= 0; i++)
        status = weft_i_traced_put(on->out[i], on->made[i]);
    return status;
}

/* ---- several calls of one kind ---- */

static weft_status check_list(operands *on, weft_tensor *const *out, weft_tensor *const *in)
{
    WEFT_TRY(see_all(on, out, in));
    for (int i = 0; i < on->count; i++)
        WEFT_TRY(of_item(
            on, i,
            weft_i_traced_check_kind(weft_i_kinds[on->kind].as, on->out[i], on->in[i], on->group)));
    WEFT_TRY(check_devices(on));
    return check_apart(on);
}

static weft_status scatter_list(operands *on, weft_reduction op)
{
    for (int i = 0; i < on->count; i++)
        if (!(on->in[i] = weft_i_traced_rows(on->in[i], on->group)))
            return weft_last_status();
    return weft_reduce_scatter_tensor_coalesced(on->made, on->in, on->count, op, NULL, on->group);
}

static weft_status make_list(operands *on, weft_reduction op)
{
    switch (on->kind) {
    case WEFT_I_ALL_REDUCE_LIST:
        return weft_all_reduce_coalesced(on->made, on->in, on->count, op, on->group);
    case WEFT_I_ALL_GATHER_LIST:
        return weft_all_gather_into_tensor_coalesced(on->made, on->in, on->count, on->group);
    default:
        return scatter_list(on, op);
    }
}

weft_status weft_i_traced_list(weft_i_coll_kind kind, weft_tensor *const *out,
                               weft_tensor *const *in, int count, weft_reduction op,
                               weft_group *group)
{
    operands on;
    weft_status status = begin(&on, kind, count, out, in, group);
    if (status >= 0)
        status = check_list(&on, out, in);
    if (status >= 0)
        status = make_list(&on, op);
    return end(&on, status < 0 ? status : put_all(&on));
}

/* ---- a tensor for each rank ---- */

/* in[q] to rank q; what comes has the shapes of the outputs. */
static weft_status exchange(operands *on)
{
    weft_shape *shapes = WEFT_OS->alloc((size_t)on->count * sizeof *shapes);
    if (!shapes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d shapes", on->what, on->count);
    for (int i = 0; i < on->count; i++)
        shapes[i] = weft_i_tensor_shape(on->out[i]);
    weft_status status = weft_all_to_all(on->made, on->in, shapes, on->group);
    WEFT_OS->free(shapes);
    return status;
}

/* All parts of one dtype, each contiguous; in place or apart. */
static weft_status check_parts(operands *on)
{
    for (int i = 0; i < on->count; i++) {
        WEFT_TRY(of_item(on, i, weft_i_traced_check(on->what, on->out[i], on->in[i], 0, 0)));
        if (on->in[i]->dtype != on->in[0]->dtype)
            return weft_i_fail(WEFT_ERR_TYPE, "%s: %s for rank 0, %s for rank %d", on->what,
                               weft_dtype_name(on->in[0]->dtype), weft_dtype_name(on->in[i]->dtype),
                               i);
    }
    return check_devices(on);
}

/* No rank's input may be its output, but for that of `but`. */
static weft_status check_out_of_place(const operands *on, int but)
{
    for (int i = 0; i < on->count; i++)
        if (i != but && weft_i_traced_overlap(on->out[i], on->in[i]))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: input and output overlap in the part of rank %d", on->what, i);
    return WEFT_OK;
}

static weft_status check_exchange(operands *on, weft_tensor *const *out, weft_tensor *const *in)
{
    WEFT_TRY(see_all(on, out, in));
    WEFT_TRY(check_parts(on));
    WEFT_TRY(check_out_of_place(on, -1));
    return check_apart(on);
}

weft_status weft_i_traced_all_to_all_list(weft_tensor *const *out, weft_tensor *const *in,
                                          weft_group *group)
{
    operands on;
    weft_status status =
        begin(&on, WEFT_I_ALL_TO_ALL_LIST, group ? group->size : 1, out, in, group);
    if (status >= 0)
        status = check_exchange(&on, out, in);
    if (status >= 0)
        status = exchange(&on);
    return end(&on, status < 0 ? status : put_all(&on));
}

/* ---- a list on one side, one tensor on the other ---- */

static int rank_in(const weft_group *group)
{
    return group->rank < 0 ? 0 : group->rank; /* a stand-in has one graph for all ranks */
}

/* One side's tensor stands in each place of its list; of those, only this rank's part is as large
 * as the other side's, and may be that. */
static weft_status check_sides(operands *on)
{
    int me = rank_in(on->group);
    const weft_tensor *out = on->out[me], *in = on->in[me];
    WEFT_TRY(check_parts(on));
    if (out->numel != in->numel)
        return weft_i_request_fail_unequal(on->what, in, out);
    return check_out_of_place(on, me);
}

static weft_status open_sides(operands *on, weft_i_coll_kind kind, weft_tensor *const *out,
                              weft_tensor *const *in, weft_group *group)
{
    bool gathers = kind == WEFT_I_ALL_GATHER_PARTS;
    WEFT_TRY(begin(on, kind, group ? group->size : 1, out, in, group));
    for (int i = 0; i < on->count; i++) {
        on->out[i] = out[gathers ? i : 0];
        on->in[i] = in[gathers ? 0 : i];
        WEFT_TRY(of_item(on, i, weft_i_traced_see(on->what, &on->out[i], &on->in[i], group)));
    }
    return check_sides(on);
}

static bool are_equal(weft_tensor *const *parts, int count)
{
    for (int i = 1; i < count; i++)
        if (parts[i]->numel != parts[0]->numel)
            return false;
    return true;
}

static weft_status gather_equal(operands *on, weft_tensor *in)
{
    weft_tensor *all = weft_all_gather_tensor(in, 0, on->group);
    weft_tensor *rows = all ? weft_view(all, WEFT_SHAPE(on->count, in->numel)) : NULL;
    if (!rows)
        return weft_last_status();
    for (int i = 0; i < on->count; i++)
        if (!(on->made[i] = weft_select(rows, 0, i)))
            return weft_last_status();
    return WEFT_OK;
}

/* Parts of different counts: each rank gives its tensor to all of them. */
weft_status weft_i_traced_all_gather_parts(weft_tensor *const *out, weft_tensor *in,
                                           weft_group *group)
{
    operands on;
    weft_status status = open_sides(&on, WEFT_I_ALL_GATHER_PARTS, out, &in, group);
    if (status >= 0)
        status = check_apart(&on);
    if (status >= 0)
        status = are_equal(on.out, on.count) ? gather_equal(&on, on.in[0]) : exchange(&on);
    return end(&on, status < 0 ? status : put_all(&on));
}

/* This rank's part of the reduction.  Of parts of different counts each is reduced for all ranks,
 * which gives the same bits. */
static weft_tensor *reduce_parts(operands *on, weft_reduction op)
{
    if (!are_equal(on->in, on->count))
        return weft_all_reduce_coalesced(on->made, on->in, on->count, op, on->group) < 0
                   ? NULL
                   : on->made[rank_in(on->group)];
    for (int i = 0; i < on->count; i++)
        if (!(on->made[i] = weft_view(on->in[i], WEFT_SHAPE(on->in[i]->numel))))
            return NULL;
    weft_tensor *all = weft_cat(on->made, on->count, 0);
    return all ? weft_reduce_scatter_tensor(all, op, 0, on->group) : NULL;
}

weft_status weft_i_traced_reduce_scatter_parts(weft_tensor *out, weft_tensor *const *in,
                                               weft_reduction op, weft_group *group)
{
    operands on;
    weft_status status = open_sides(&on, WEFT_I_REDUCE_SCATTER_PARTS, &out, in, group);
    return end(&on, status < 0 ? status : weft_i_traced_put(on.out[0], reduce_parts(&on, op)));
}
