/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How functional collectives of one tensor run on any device: each prepares its operands, fills a call
 * (coll/lane/request.h) and posts it with claims on what it writes and reads.  The shape rule has
 * checked the arguments.
 */
#include "functional/functional.h"

#include "base/report/status.h"
#include "coll/calls/coll.h"
#include "coll/lane/list.h"
#include "tensor/op/loops.h"

enum {
    ROW_BYTES =
        64, /* shorter rows are gathered in one piece and put in their locations afterwards */
    ROWS = 4096
};

/* ---- operands ---- */

weft_group *weft_i_functional_group(const weft_i_op_call *call)
{
    const weft_i_arg *arg = &call->args[weft_i_op_param_count(call->op) - 1];
    weft_group *group = arg->group.handle;
    if (!group)
        return weft_i_null(WEFT_ERR_STATE,
                           "%s: group \"%s\" of %zu ranks is not bound to a live group",
                           call->op->name, arg->group.name, arg->count);
    return weft_i_group_is_usable(group) || weft_i_group_usable(group) >= 0 ? group : NULL;
}

weft_tensor *weft_i_functional_contiguous(weft_tensor *x, bool apart)
{
    if (!apart && weft_i_tensor_is_contiguous(x))
        return weft_i_object_hold(x);
    weft_tensor *copy = weft_keep(
        weft_i_tensor_new(x->dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x), NULL));
    if (copy && weft_i_tensor_copy(copy, x) < 0) {
        weft_i_object_drop(copy);
        return NULL;
    }
    return copy;
}

weft_status weft_i_functional_copy(weft_tensor *to, weft_tensor *from)
{
    if (!weft_i_device_is_host(weft_i_tensor_device(from)) || !weft_i_tensor_is_contiguous(from))
        return weft_i_tensor_copy(to, from);
    weft_i_coll_put(weft_i_tensor_data(to), weft_i_tensor_data(from),
                    weft_i_functional_bytes(from));
    return WEFT_OK;
}

/* Part `index` of `parts` along `dim`, with a reference of the caller. */
static weft_tensor *part_of(const weft_tensor *x, int dim, int parts, int index)
{
    weft_shape shape = weft_i_tensor_shape(x);
    shape.dim[dim] /= parts;
    return weft_keep(weft_i_tensor_new_view(x->storage, x->version, x->dtype, shape, x->stride,
                                            x->offset + index * shape.dim[dim] * x->stride[dim]));
}

/* A contiguous tensor of this shape inside a contiguous one, from element `first` on. */
static weft_tensor *piece_of(const weft_tensor *x, weft_shape shape, int64_t first)
{
    return weft_keep(
        weft_i_tensor_new_view(x->storage, x->version, x->dtype, shape, NULL, x->offset + first));
}

weft_tensor *weft_i_functional_by_parts(weft_tensor *x, int dim, int parts)
{
    int64_t numel = weft_i_tensor_numel(x);
    if (numel == 0 || weft_i_functional_outer(x, dim) == 1)
        return weft_i_functional_contiguous(x, false);
    weft_tensor *copy =
        weft_keep(weft_i_tensor_new(x->dtype, weft_i_tensor_device(x), WEFT_SHAPE(numel), NULL));
    for (int i = 0; copy && i < parts; i++) {
        weft_tensor *from = part_of(x, dim, parts, i);
        weft_tensor *to =
            from ? piece_of(copy, weft_i_tensor_shape(from), numel / parts * i) : NULL;
        bool copied = to && weft_i_tensor_copy(to, from) >= 0;
        weft_i_object_drop(from);
        weft_i_object_drop(to);
        if (!copied) {
            weft_i_object_drop(copy);
            copy = NULL;
        }
    }
    return copy;
}

/* ---- all_reduce ---- */

weft_status weft_i_functional_all_reduce_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *out = call->out;
    weft_group *group = weft_i_functional_group(call);
    bool copied =
        weft_i_functional_copies(weft_i_functional_bytes(x)) || !weft_i_tensor_is_contiguous(x);
    weft_i_coll coll;
    if (!group)
        return weft_last_status();
    if (copied)
        WEFT_TRY(weft_i_functional_copy(out, x));
    WEFT_TRY(weft_i_request_plain(&coll, WEFT_I_ALL_REDUCE, out, copied ? out : x,
                                  (weft_reduction)call->args[1].integer, 0, group));
    coll.ask.factor = call->args[2].number;
    weft_i_pending *pending = weft_i_pending_new(call->op->name, 2, 0);
    if (!pending)
        return weft_last_status();
    weft_i_pending_claim_on(pending, out, true);
    if (!copied)
        weft_i_pending_claim_on(pending, x, false);
    return weft_i_pending_enqueue(pending, &coll);
}

/* An operation on `x` in place: on its memory, or on a copy that is put back afterwards. */
static weft_status post_in_place(weft_i_op_call *call, weft_i_coll *coll, weft_tensor *x,
                                 weft_tensor *on)
{
    weft_i_pending *pending = weft_i_pending_new(call->op->name, 1, 1);
    if (!pending)
        return weft_last_status();
    weft_i_pending_claim_on(pending, x, true);
    if (on != x)
        weft_i_pending_move(pending, x, on);
    return weft_i_pending_enqueue(pending, coll);
}

weft_status weft_i_functional_all_reduce_in_place_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    weft_group *group = weft_i_functional_group(call);
    weft_tensor *on = group ? weft_i_functional_contiguous(x, false) : NULL;
    if (!on)
        return weft_last_status();
    weft_i_coll coll;
    weft_status status = weft_i_request_plain(&coll, WEFT_I_ALL_REDUCE, on, on,
                                              (weft_reduction)call->args[1].integer, 0, group);
    coll.ask.factor = call->args[2].number;
    if (status >= 0)
        status = post_in_place(call, &coll, x, on);
    weft_i_object_drop(on);
    return status;
}

/* ---- broadcast ---- */

weft_status weft_i_functional_broadcast_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *out = call->out;
    weft_group *group = weft_i_functional_group(call);
    int root = (int)call->args[1].integer;
    if (!group)
        return weft_last_status();
    bool giving = group->rank == root || group->world->fake; /* else nobody would give */
    bool copied =
        weft_i_functional_copies(weft_i_functional_bytes(x)) || !weft_i_tensor_is_contiguous(x);
    if (giving && copied)
        WEFT_TRY(weft_i_functional_copy(out, x));
    bool direct = giving && !copied;
    weft_i_coll coll;
    WEFT_TRY(weft_i_request_broadcast(&coll, out, direct ? x : out, root, group));
    weft_i_pending *pending = weft_i_pending_new(call->op->name, 2, 1);
    if (!pending)
        return weft_last_status();
    weft_i_pending_claim_on(pending, out, true);
    if (direct) {
        weft_i_pending_claim_on(pending, x, false);
        weft_i_pending_move(pending, out, x);
    }
    return weft_i_pending_enqueue(pending, &coll);
}

weft_status weft_i_functional_broadcast_in_place_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    weft_group *group = weft_i_functional_group(call);
    weft_tensor *on = group ? weft_i_functional_contiguous(x, false) : NULL;
    if (!on)
        return weft_last_status();
    weft_i_coll coll;
    weft_status status = weft_i_request_broadcast(&coll, on, on, (int)call->args[1].integer, group);
    if (status >= 0)
        status = post_in_place(call, &coll, x, on);
    weft_i_object_drop(on);
    return status;
}

/* ---- rows: a gather or scatter along an inner dimension, straight from and to its locations ----
 */

/* A device would take a kernel for each row. */
static bool suits_rows(const weft_tensor *part, int64_t outer)
{
    return outer <= ROWS && weft_i_device_is_host(weft_i_tensor_device(part)) &&
           weft_i_functional_bytes(part) / (size_t)outer >= ROW_BYTES;
}

/* Each of the `outer` rows of `in` is one item of a list; coll->list is the caller's to drop. */
static weft_status fill_rows(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *out,
                             weft_tensor *in, int64_t outer, weft_reduction op, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    WEFT_TRY(weft_i_request_input(coll, in));
    WEFT_TRY(weft_i_request_output(coll, out));
    if (kind == WEFT_I_REDUCE_SCATTER_LIST)
        WEFT_TRY(weft_i_request_reduction(coll, op));
    size_t in_row = coll->ask.in_bytes / (size_t)outer,
           out_row = coll->ask.out_bytes / (size_t)outer;
    if (!(coll->list = weft_i_list_new((size_t)outer)))
        return weft_last_status();
    weft_i_coll row = *coll;
    row.in_tensor = row.out_tensor = NULL; /* the work holds them */
    row.ask.out_bytes = out_row;
    WEFT_TRY(weft_i_request_accept(&row, weft_i_coll_min(in_row, out_row)));
    for (int64_t i = 0; i < outer; i++, row.ask.in += in_row, row.ask.out += out_row)
        WEFT_TRY(weft_i_list_add(coll, &row));
    coll->ask.dtype = WEFT_U8; /* as other lists: the rows have one of their own */
    coll->ask.in_bytes = coll->list->bytes;
    WEFT_TRY(weft_i_request_accept(coll, coll->list->bytes));
    coll->digest = weft_i_digest(weft_i_digest(coll->digest, (uint64_t)outer), row.digest);
    return WEFT_OK;
}

/* ---- all_gather ---- */

/* What every rank gave lies one after the other in `from`; `out` takes it part by part. */
static weft_status move_parts(weft_i_pending *pending, weft_tensor *out, int dim,
                              const weft_tensor *from, int parts)
{
    int64_t each = weft_i_tensor_numel(from) / parts;
    for (int i = 0; i < parts; i++) {
        weft_tensor *to = part_of(out, dim, parts, i);
        weft_tensor *piece = to ? piece_of(from, weft_i_tensor_shape(to), each * i) : NULL;
        if (piece)
            weft_i_pending_move(pending, to, piece);
        weft_i_object_drop(to);
        weft_i_object_drop(piece);
        if (!piece)
            return weft_last_status();
    }
    return WEFT_OK;
}

/* Posts a filled gather: `whole` is what is gathered into if that is not `out`. */
static weft_status post_gather(weft_i_op_call *call, weft_i_coll *coll, weft_tensor *out, int dim,
                               weft_tensor *x, const weft_tensor *whole)
{
    int parts = coll->group->size;
    weft_i_pending *pending = weft_i_pending_new(call->op->name, 2, whole ? (size_t)parts : 0);
    weft_status status = pending ? WEFT_OK : weft_last_status();
    if (status >= 0 && whole)
        status = move_parts(pending, out, dim, whole, parts);
    if (status < 0) {
        weft_i_object_drop(pending);
        return status;
    }
    weft_i_pending_claim_on(pending, out, true);
    if (coll->in_tensor == x)
        weft_i_pending_claim_on(pending, x, false);
    return weft_i_pending_enqueue(pending, coll);
}

/* A small input is put in its place at once, if the host can. */
static void place_own_part(weft_i_coll *coll)
{
    char *place = coll->ask.out + (size_t)coll->group->rank * coll->ask.in_bytes;
    if (coll->ask.in_bytes == 0 || !weft_i_functional_copies(coll->ask.in_bytes) ||
        !weft_i_device_is_host(coll->ask.device))
        return;
    weft_i_coll_put(place, coll->ask.in, coll->ask.in_bytes);
    coll->ask.in = place;
    coll->in_tensor = coll->out_tensor;
}

static weft_status gather_rows(weft_i_op_call *call, weft_tensor *out, int dim, weft_tensor *x,
                               weft_tensor *in, weft_group *group)
{
    weft_i_coll coll = {0};
    weft_status status = fill_rows(&coll, WEFT_I_ALL_GATHER_LIST, out, in,
                                   weft_i_functional_outer(x, dim), WEFT_SUM, group);
    if (status >= 0)
        status = post_gather(call, &coll, out, dim, x, NULL);
    weft_i_object_drop(coll.list);
    return status;
}

static weft_status gather_whole(weft_i_op_call *call, weft_tensor *out, int dim, weft_tensor *x,
                                weft_tensor *in, weft_group *group)
{
    weft_tensor *whole = weft_keep(weft_i_tensor_new(x->dtype, weft_i_tensor_device(x),
                                                     WEFT_SHAPE(weft_i_tensor_numel(out)), NULL));
    weft_i_coll coll;
    weft_status status =
        whole ? weft_i_request_plain(&coll, WEFT_I_ALL_GATHER, whole, in, WEFT_SUM, 0, group)
              : weft_last_status();
    if (status >= 0) {
        place_own_part(&coll);
        status = post_gather(call, &coll, out, dim, x, whole);
    }
    weft_i_object_drop(whole);
    return status;
}

static weft_status gather_plain(weft_i_op_call *call, weft_tensor *out, weft_tensor *x,
                                weft_tensor *in, weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(weft_i_request_plain(&coll, WEFT_I_ALL_GATHER, out, in, WEFT_SUM, 0, group));
    place_own_part(&coll);
    return post_gather(call, &coll, out, 0, x, NULL);
}

/* Is `x` the part of `out` that this rank's input goes to? */
static bool is_own_part(const weft_tensor *x, const weft_tensor *out, int rank)
{
    return weft_i_tensor_is_contiguous(x) &&
           weft_i_tensor_data(x) ==
               weft_i_tensor_data(out) + (size_t)rank * weft_i_functional_bytes(x);
}

static weft_status gather(weft_i_op_call *call, weft_tensor *out, weft_tensor *x, int64_t dim)
{
    weft_group *group = weft_i_functional_group(call);
    if (!group)
        return weft_last_status();
    int at = (int)(dim < 0 ? dim + out->ndim : dim);
    int64_t outer = weft_i_functional_outer(x, at);
    bool plain = weft_i_tensor_is_contiguous(out) && (outer == 1 || weft_i_tensor_numel(x) == 0);
    bool apart = weft_i_tensor_ranges_meet(x, out) && !(plain && is_own_part(x, out, group->rank));
    weft_tensor *in = weft_i_functional_contiguous(x, apart);
    if (!in)
        return weft_last_status();
    weft_status status = plain ? gather_plain(call, out, x, in, group)
                         : weft_i_tensor_is_contiguous(out) && suits_rows(x, outer)
                             ? gather_rows(call, out, at, x, in, group)
                             : gather_whole(call, out, at, x, in, group);
    weft_i_object_drop(in);
    return status;
}

weft_status weft_i_functional_all_gather_run(weft_i_op_call *call)
{
    return gather(call, call->out, call->args[0].tensor, call->args[1].integer);
}

weft_status weft_i_functional_all_gather_out_run(weft_i_op_call *call)
{
    return gather(call, call->args[0].tensor, call->args[1].tensor, call->args[2].integer);
}

/* ---- reduce_scatter ---- */

/* `target` is `out`, or what is moved there afterwards. */
static weft_status post_scatter(weft_i_op_call *call, weft_i_coll *coll, weft_tensor *out,
                                weft_tensor *target, weft_tensor *x)
{
    weft_i_pending *pending = weft_i_pending_new(call->op->name, 2, 1);
    if (!pending)
        return weft_last_status();
    weft_i_pending_claim_on(pending, out, true);
    if (target != out)
        weft_i_pending_move(pending, out, target);
    if (coll->in_tensor == x)
        weft_i_pending_claim_on(pending, x, false);
    return weft_i_pending_enqueue(pending, coll);
}

typedef struct scattering {
    weft_tensor *out, *x;
    weft_reduction op;
    double factor;
    int dim;
    weft_group *group;
} scattering;

static weft_status scatter_to(weft_i_op_call *call, const scattering *s, weft_tensor *target)
{
    weft_tensor *x = s->x;
    int64_t outer = weft_i_functional_outer(x, s->dim);
    bool rows = outer > 1 && weft_i_tensor_numel(x) && weft_i_tensor_is_contiguous(x) &&
                suits_rows(target, outer);
    weft_tensor *in =
        rows ? weft_i_object_hold(x) : weft_i_functional_by_parts(x, s->dim, s->group->size);
    if (!in)
        return weft_last_status();
    weft_i_coll coll = {0};
    weft_status status =
        rows ? fill_rows(&coll, WEFT_I_REDUCE_SCATTER_LIST, target, in, outer, s->op, s->group)
             : weft_i_request_plain(&coll, WEFT_I_REDUCE_SCATTER, target, in, s->op, 0, s->group);
    coll.ask.factor = s->factor;
    if (status >= 0)
        status = post_scatter(call, &coll, s->out, target, x);
    weft_i_object_drop(coll.list);
    weft_i_object_drop(in);
    return status;
}

static weft_status scatter(weft_i_op_call *call, weft_tensor *out, int first)
{
    weft_tensor *x = call->args[first].tensor;
    int64_t dim = call->args[first + 3].integer;
    scattering s = {.out = out,
                    .x = x,
                    .op = (weft_reduction)call->args[first + 1].integer,
                    .factor = call->args[first + 2].number,
                    .dim = (int)(dim < 0 ? dim + x->ndim : dim),
                    .group = weft_i_functional_group(call)};
    if (!s.group)
        return weft_last_status();
    weft_tensor *target = weft_i_functional_contiguous(out, weft_i_tensor_ranges_meet(out, x));
    if (!target)
        return weft_last_status();
    weft_status status = scatter_to(call, &s, target);
    weft_i_object_drop(target);
    return status;
}

weft_status weft_i_functional_reduce_scatter_run(weft_i_op_call *call)
{
    return scatter(call, call->out, 0);
}

weft_status weft_i_functional_reduce_scatter_out_run(weft_i_op_call *call)
{
    return scatter(call, call->args[0].tensor, 1);
}

/* ---- all_to_all_single, wait_tensor ---- */

weft_status weft_i_functional_all_to_all_single_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    const weft_i_arg *out_splits = &call->args[1], *in_splits = &call->args[2];
    weft_group *group = weft_i_functional_group(call);
    weft_tensor *in = group ? weft_i_functional_contiguous(x, false) : NULL;
    if (!in)
        return weft_last_status();
    weft_i_coll coll;
    weft_status status = weft_i_request_all_to_all(
        &coll, call->out, in, out_splits->count ? out_splits->integers : NULL,
        in_splits->count ? in_splits->integers : NULL, group);
    if (status >= 0)
        status = post_scatter(call, &coll, call->out, call->out, x);
    weft_i_object_drop(in);
    return status;
}

weft_status weft_i_functional_wait_tensor_run(weft_i_op_call *call)
{
    return weft_i_claim_settle(call->args[0].tensor->storage, false, true);
}
