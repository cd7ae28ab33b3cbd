/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions on symmetric memory, with their algorithm in their name.  One shot: every rank reads
 * everything.  Two shots: every rank reduces a slice and brings it to the others.  The multicast
 * operations are the same two: a load-reduce is a fold of all ranks' memory, a multicast store one
 * to each rank in turn.
 */
#include "weft/symm_coll.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/run.h"
#include "coll/hosts/hosts.h"
#include "coll/lane/enter.h"
#include "coll/lane/request.h"
#include "symm_coll/ops.h"
#include "symm_coll/reach.h"
#include "symm_coll/traced.h"
#include "tensor/object/eye.h"

/* While the thread captures, the operation becomes a row of the graph. */
#define IF_TRACED(call_)     \
    do {                     \
        if (weft_i_eye_open) \
            return call_;    \
    } while (0)

/* ---- algorithms ---- */

/* The plan of the copying form is the local input.  All ranks take part in both meetings, also
 * where only the root wants the result. */
static weft_status run_one_shot(weft_i_coll *coll)
{
    bool wanted =
        coll->ask.kind != WEFT_I_MULTIMEM_ONE_SHOT_REDUCE || coll->lane->me == coll->ask.root;
    if (coll->plan)
        weft_i_coll_put(coll->ask.in, coll->plan, coll->ask.in_bytes);
    WEFT_TRY(weft_i_enter(coll));
    weft_i_reach_aim(coll, coll->reach, 0);
    if (wanted)
        weft_i_coll_fold_to(coll, coll->ask.out, coll->ask.count);
    return weft_i_coll_sync(coll);
}

static weft_status run_two_shot(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_enter(coll));
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(coll->ask.count, lane->size, lane->me, coll->ask.item);
    weft_i_reach_aim(coll, coll->reach, mine.first * coll->ask.item);
    for (int i = 0; i < lane->size; i++) /* our own first; not all at the same peer */
        lane->targets[i] =
            weft_i_reach_of(coll->reach, (lane->me + i) % lane->size, mine.first * coll->ask.item);
    weft_i_coll_fold(coll, lane->size, mine.count);
    return weft_i_coll_sync(coll);
}

static weft_status run_two_shot_out(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_enter(coll));
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(coll->ask.count, lane->size, lane->me, coll->ask.item);
    weft_i_reach_aim(coll, coll->reach, mine.first * coll->ask.item);
    weft_i_coll_fold_to(coll, coll->ask.in + mine.first * coll->ask.item, mine.count);
    WEFT_TRY(weft_i_coll_sync(coll));
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_span part = weft_i_coll_slice(coll->ask.count, lane->size, rank, coll->ask.item);
        size_t at = part.first * coll->ask.item;
        weft_i_coll_put(coll->ask.out + at, weft_i_reach_of(coll->reach, rank, at),
                        part.count * coll->ask.item);
    }
    return weft_i_coll_sync(coll);
}

/* Row by row: my columns of everybody's input.  Without split_last_dim there is one row. */
static weft_status run_reduce_scatter(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_enter(coll));
    size_t part = coll->ask.row / (size_t)coll->lane->size;
    for (size_t row = 0; part && row < coll->ask.in_bytes / coll->ask.row; row++) {
        weft_i_reach_aim(coll, coll->reach, row * coll->ask.row + (size_t)coll->lane->me * part);
        weft_i_coll_fold_to(coll, coll->ask.out + row * part, part / coll->ask.item);
    }
    return weft_i_coll_sync(coll);
}

/* ---- between hosts: memory of others has no address, so all do what their operands would without it ---- */

static weft_status hosts_one_shot(weft_i_coll *coll)
{
    if (coll->plan)
        weft_i_coll_put(coll->ask.in, coll->plan, coll->ask.in_bytes);
    return weft_i_hosts_all_reduce(coll);
}

/* The columns of each rank, one rank behind the other. */
static void pack_columns(const weft_i_coll *coll, char *out)
{
    size_t part = coll->ask.row / (size_t)coll->ask.size, rows = coll->ask.in_bytes / coll->ask.row;
    for (int rank = 0; rank < coll->ask.size; rank++)
        for (size_t row = 0; row < rows; row++, out += part)
            weft_i_coll_put(out, coll->ask.in + row * coll->ask.row + (size_t)rank * part, part);
}

static weft_status hosts_reduce_scatter(weft_i_coll *coll)
{
    if (!coll->ask.in_bytes || coll->ask.row == coll->ask.in_bytes)
        return weft_i_hosts_reduce_scatter(coll);
    char *in = coll->ask.in, *packed = WEFT_OS->alloc(coll->ask.in_bytes);
    if (!packed)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s in group \"%s\": no memory for %zu bytes",
                           coll->ask.op, coll->group->name, coll->ask.in_bytes);
    pack_columns(coll, packed);
    coll->ask.in = packed;
    weft_status status = weft_i_hosts_reduce_scatter(coll);
    coll->ask.in = in;
    WEFT_OS->free(packed);
    return status;
}

static void give_hosts_runners(void)
{
    weft_i_hosts_kind_run(WEFT_I_ONE_SHOT_ALL_REDUCE, hosts_one_shot);
    weft_i_hosts_kind_run(WEFT_I_ONE_SHOT_ALL_REDUCE_COPY, hosts_one_shot);
    weft_i_hosts_kind_run(WEFT_I_TWO_SHOT_ALL_REDUCE, weft_i_hosts_all_reduce);
    weft_i_hosts_kind_run(WEFT_I_TWO_SHOT_ALL_REDUCE_OUT, weft_i_hosts_all_reduce);
    weft_i_hosts_kind_run(WEFT_I_REDUCE_SCATTER_OUT, hosts_reduce_scatter);
    weft_i_hosts_kind_run(WEFT_I_MULTIMEM_ALL_REDUCE, weft_i_hosts_all_reduce);
    weft_i_hosts_kind_run(WEFT_I_MULTIMEM_ONE_SHOT_ALL_REDUCE, hosts_one_shot);
    weft_i_hosts_kind_run(WEFT_I_MULTIMEM_ONE_SHOT_REDUCE, weft_i_hosts_reduce);
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    give_hosts_runners();
    weft_i_kind_run(WEFT_I_ONE_SHOT_ALL_REDUCE, run_one_shot);
    weft_i_kind_run(WEFT_I_ONE_SHOT_ALL_REDUCE_COPY, run_one_shot);
    weft_i_kind_run(WEFT_I_TWO_SHOT_ALL_REDUCE, run_two_shot);
    weft_i_kind_run(WEFT_I_TWO_SHOT_ALL_REDUCE_OUT, run_two_shot_out);
    weft_i_kind_run(WEFT_I_REDUCE_SCATTER_OUT, run_reduce_scatter);
    weft_i_kind_run(WEFT_I_MULTIMEM_ALL_REDUCE, run_two_shot);
    weft_i_kind_run(WEFT_I_MULTIMEM_ONE_SHOT_ALL_REDUCE, run_one_shot);
    weft_i_kind_run(WEFT_I_MULTIMEM_ONE_SHOT_REDUCE, run_one_shot);
}

/* ---- filling ---- */

static weft_status check_shape(const char *op, const weft_tensor *out, weft_shape shape)
{
    char expected[WEFT_I_SHAPE_TEXT], given[WEFT_I_SHAPE_TEXT];
    if (weft_i_shape_equal(weft_i_tensor_shape(out), shape))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: expected out shape %s, not %s", op,
                       weft_i_shape_text(shape, expected),
                       weft_i_shape_text(weft_i_tensor_shape(out), given));
}

/* Where others still read the input, the output must be elsewhere. */
static weft_status check_apart(const weft_i_coll *coll)
{
    if (weft_i_reach_overlap(coll->ask.in, coll->ask.in_bytes, coll->ask.out, coll->ask.out_bytes))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the output overlaps the symmetric input, which other ranks read",
                           coll->ask.op);
    return WEFT_OK;
}

static weft_status begin(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *x,
                         weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    WEFT_TRY(weft_i_request_input(coll, x));
    return weft_i_reach_check(coll->ask.op, "input", x);
}

/* One shot of either kind: `root` -1 if all want the result. */
static weft_status one_shot(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *x,
                            weft_reduction op, int root, weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, kind, x, group));
    if (kind == WEFT_I_MULTIMEM_ONE_SHOT_REDUCE) {
        WEFT_TRY(weft_i_request_check_root(coll.ask.op, group, root));
        coll.ask.root = root;
    }
    if (root < 0 || root == group->rank) {
        WEFT_TRY(weft_i_request_output(&coll, out));
        WEFT_TRY(check_shape(coll.ask.op, out, weft_i_tensor_shape(x)));
        WEFT_TRY(root < 0 ? check_apart(&coll) : weft_i_request_check_overlap(&coll, 0, 0));
    }
    WEFT_TRY(weft_i_request_reduction(&coll, op));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes));
    return weft_i_reach_run(&coll, x);
}

/* The buffer becomes the input of the call, and the local input its plan. */
static weft_status check_buffer(weft_i_coll *coll, weft_tensor *buffer)
{
    const char *op = coll->ask.op;
    WEFT_TRY(weft_i_storage_touch(coll->in_tensor->storage, false));
    WEFT_TRY(weft_i_request_check_anywhere(coll->ask.op, "symmetric buffer", buffer));
    WEFT_TRY(weft_i_reach_check(op, "buffer", buffer));
    if (weft_i_tensor_device(buffer) != coll->ask.device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: buffer and local input are on two devices", op);
    if (buffer->dtype != coll->ask.dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the buffer is %s, the local input %s", op,
                           weft_dtype_name(buffer->dtype), weft_dtype_name(coll->ask.dtype));
    size_t room = (size_t)weft_i_tensor_numel(buffer) * weft_dtype_size(buffer->dtype);
    if (room < coll->ask.in_bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the local input of %zu bytes exceeds the buffer of %zu", op,
                           coll->ask.in_bytes, room);
    char *data = weft_i_tensor_data(buffer);
    if (coll->ask.in != data && weft_i_reach_overlap(coll->ask.in, coll->ask.in_bytes, data, room))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the local input overlaps the buffer", op);
    coll->plan = coll->ask.in;
    coll->ask.in = data;
    coll->in_tensor = buffer;
    return WEFT_OK;
}

weft_status weft_symm_one_shot_all_reduce_copy_out(weft_tensor *out, weft_tensor *buffer,
                                                   weft_tensor *local, weft_reduction op,
                                                   weft_group *group)
{
    IF_TRACED(
        weft_i_traced_symm_out(&weft_i_op_one_shot_all_reduce_copy, out, buffer, local, op, group));
    weft_i_coll coll;
    WEFT_TRY(weft_i_request_begin(&coll, WEFT_I_ONE_SHOT_ALL_REDUCE_COPY, group));
    WEFT_TRY(weft_i_request_input(&coll, local));
    WEFT_TRY(weft_i_request_output(&coll, out));
    WEFT_TRY(check_shape(coll.ask.op, out, weft_i_tensor_shape(local)));
    WEFT_TRY(weft_i_request_check_overlap(&coll, 0, 0));
    WEFT_TRY(check_buffer(&coll, buffer));
    WEFT_TRY(check_apart(&coll));
    WEFT_TRY(weft_i_request_reduction(&coll, op));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes));
    return weft_i_reach_run(&coll, buffer);
}

/* In place, in two shots. */
static weft_status two_shot(weft_i_coll_kind kind, weft_tensor *x, weft_reduction op,
                            weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, kind, x, group));
    WEFT_TRY(weft_i_request_output(&coll, x));
    WEFT_TRY(weft_i_request_reduction(&coll, op));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes));
    return weft_i_reach_run(&coll, x);
}

weft_status weft_symm_two_shot_all_reduce_out(weft_tensor *out, weft_tensor *x, weft_reduction op,
                                              weft_group *group)
{
    IF_TRACED(weft_i_traced_symm_out(&weft_i_op_two_shot_all_reduce, out, x, NULL, op, group));
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, WEFT_I_TWO_SHOT_ALL_REDUCE_OUT, x, group));
    WEFT_TRY(weft_i_request_output(&coll, out));
    WEFT_TRY(check_shape(coll.ask.op, out, weft_i_tensor_shape(x)));
    WEFT_TRY(weft_i_request_check_overlap(&coll, 0, 0));
    WEFT_TRY(weft_i_request_reduction(&coll, op));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes));
    return weft_i_reach_run(&coll, x);
}

/* ---- reduce_scatter_out ---- */

/* Elements of the widest vector, of 16 bytes at most, of which an operand consists at its place. */
static size_t vector_of(const weft_tensor *x, size_t bytes)
{
    const weft_i_lease *lease = weft_i_block_lease_of(x);
    size_t place = (size_t)(weft_i_tensor_data(x) - lease->block->segment->base) | bytes;
    size_t wide = 16, item = weft_dtype_size(x->dtype);
    while (place % wide)
        wide /= 2;
    return wide > item ? wide / item : 1;
}

static weft_status check_parts(const weft_i_coll *coll, const weft_tensor *x, bool split_last_dim)
{
    size_t length = split_last_dim ? (size_t)x->dim[x->ndim - 1] : (size_t)weft_i_tensor_numel(x);
    size_t size = (size_t)coll->group->size, vector = vector_of(x, coll->ask.in_bytes);
    if (length % (size * vector) == 0)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: the %s, %zu elements, must be divisible by %zu ranks times vectors of "
                       "%zu elements",
                       coll->ask.op, split_last_dim ? "last dimension" : "input", length, size,
                       vector);
}

static weft_status fill_scatter(weft_i_coll *coll, weft_tensor *out, weft_tensor *x,
                                bool split_last_dim)
{
    if (split_last_dim && !x->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a tensor without dimensions has no last one to split",
                           coll->ask.op);
    WEFT_TRY(check_parts(coll, x, split_last_dim));
    WEFT_TRY(weft_i_request_output(coll, out));
    if (!split_last_dim) {
        coll->ask.row = coll->ask.in_bytes;
        WEFT_TRY(
            weft_i_request_check_counts(coll, coll->ask.in_bytes, coll->ask.out_bytes, "input"));
        return weft_i_request_check_overlap(coll, (size_t)coll->group->rank * coll->ask.out_bytes,
                                            0);
    }
    weft_shape shape = weft_i_tensor_shape(x);
    coll->ask.row = (size_t)shape.dim[x->ndim - 1] * weft_dtype_size(x->dtype);
    shape.dim[x->ndim - 1] /= coll->group->size;
    WEFT_TRY(check_shape(coll->ask.op, out, shape));
    coll->ask.root = 1; /* told apart from the other layout by the digest */
    return check_apart(coll);
}

weft_status weft_symm_reduce_scatter_out(weft_tensor *out, weft_tensor *x, bool split_last_dim,
                                         weft_reduction op, weft_group *group)
{
    IF_TRACED(weft_i_traced_symm_scatter(out, x, split_last_dim, op, group));
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, WEFT_I_REDUCE_SCATTER_OUT, x, group));
    WEFT_TRY(fill_scatter(&coll, out, x, split_last_dim));
    WEFT_TRY(weft_i_request_reduction(&coll, op));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.out_bytes));
    coll.digest = weft_i_digest(coll.digest, coll.ask.row);
    return weft_i_reach_run(&coll, x);
}

/* ---- the other public functions ---- */

/* A new tensor like `x`, if it can be the input of a reduction. */
static weft_tensor *like(weft_tensor *x)
{
    if (!x && weft_i_missing("all_reduce: the input is NULL") < 0)
        return NULL;
    return weft_empty(x->dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x));
}

/* The result if all went well. */
static weft_tensor *result(weft_tensor *out, weft_status status)
{
    if (status == WEFT_OK)
        return out;
    weft_release(out);
    return NULL;
}

weft_status weft_symm_one_shot_all_reduce_out(weft_tensor *out, weft_tensor *x, weft_reduction op,
                                              weft_group *group)
{
    IF_TRACED(weft_i_traced_symm_out(&weft_i_op_one_shot_all_reduce, out, x, NULL, op, group));
    return one_shot(WEFT_I_ONE_SHOT_ALL_REDUCE, out, x, op, -1, group);
}

weft_tensor *weft_symm_one_shot_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group)
{
    IF_TRACED(weft_i_traced_symm(&weft_i_op_one_shot_all_reduce, x, NULL, op, group));
    weft_tensor *out = like(x);
    return out ? result(out, weft_symm_one_shot_all_reduce_out(out, x, op, group)) : NULL;
}

weft_tensor *weft_symm_one_shot_all_reduce_copy(weft_tensor *buffer, weft_tensor *local,
                                                weft_reduction op, weft_group *group)
{
    IF_TRACED(weft_i_traced_symm(&weft_i_op_one_shot_all_reduce_copy, buffer, local, op, group));
    weft_tensor *out = like(local);
    return out ? result(out, weft_symm_one_shot_all_reduce_copy_out(out, buffer, local, op, group))
               : NULL;
}

weft_status weft_symm_two_shot_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group)
{
    IF_TRACED(weft_i_traced_symm_out(&weft_i_op_two_shot_all_reduce, x, x, NULL, op, group));
    return two_shot(WEFT_I_TWO_SHOT_ALL_REDUCE, x, op, group);
}

weft_status weft_symm_multimem_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group)
{
    return two_shot(WEFT_I_MULTIMEM_ALL_REDUCE, x, op, group);
}

weft_status weft_symm_multimem_one_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                       weft_reduction op, weft_group *group)
{
    IF_TRACED(
        weft_i_traced_symm_out(&weft_i_op_multimem_one_shot_all_reduce, out, x, NULL, op, group));
    return one_shot(WEFT_I_MULTIMEM_ONE_SHOT_ALL_REDUCE, out, x, op, -1, group);
}

weft_tensor *weft_symm_multimem_one_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                    weft_group *group)
{
    IF_TRACED(weft_i_traced_symm(&weft_i_op_multimem_one_shot_all_reduce, x, NULL, op, group));
    weft_tensor *out = like(x);
    return out ? result(out, weft_symm_multimem_one_shot_all_reduce_out(out, x, op, group)) : NULL;
}

weft_status weft_symm_multimem_one_shot_reduce_out(weft_tensor *out, weft_tensor *x,
                                                   weft_reduction op, int root, weft_group *group)
{
    return one_shot(WEFT_I_MULTIMEM_ONE_SHOT_REDUCE, out, x, op, root, group);
}
