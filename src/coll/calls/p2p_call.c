/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions of point to point: each checks its arguments and fills a request, or
 * several; the plain form runs them, the `_start` form posts them.  All checks come before the
 * first side effect.
 */
#include "coll/calls/p2p_call.h"
#include "base/report/status.h"
#include "coll/calls/coalesce.h"
#include "coll/calls/work.h"
#include "coll/device/carrier.h"
#include "coll/lane/request.h"

/* ---- filling ---- */

static weft_status check_peer(const char *op, weft_i_coll_kind kind, const weft_group *group,
                              int peer, int tag)
{
    if (peer != WEFT_NOBODY && (peer != WEFT_ANY || kind != WEFT_I_RECV))
        WEFT_TRY(weft_i_request_check_root(op, group, peer));
    if (tag < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: tag %d is negative", op, tag);
    return WEFT_OK;
}

void weft_i_p2p_request_fill(weft_i_p2p_request *request, weft_group *group, weft_i_coll_kind kind,
                             weft_dtype dtype, int peer, char *data, size_t bytes)
{
    *request = (weft_i_p2p_request){.group = group,
                                    .kind = kind,
                                    .dtype = dtype,
                                    .peer = peer,
                                    .source = -1,
                                    .data = data,
                                    .bytes = bytes,
                                    .limit_ms = weft_i_group_limit(group, WEFT_DEFAULT)};
    request->digest = weft_i_digest(weft_i_digest(1, (uint64_t)dtype), bytes);
}

static weft_status fill(weft_i_p2p_request *request, weft_i_coll_kind kind, weft_tensor *x,
                        int peer, int tag, weft_group *group)
{
    const char *op = weft_i_coll_name(kind);
    WEFT_TRY(weft_i_request_check_group(op, group));
    WEFT_TRY(check_peer(op, kind, group, peer, tag));
    bool written = kind == WEFT_I_RECV;
    if (!x || !weft_i_request_is_fine(x) || (written && x->storage->read_only))
        WEFT_TRY(written ? weft_i_request_check_output(op, x)
                         : weft_i_request_check_anywhere(op, "input", x));
    weft_i_p2p_request_fill(request, group, kind, x->dtype, peer, weft_i_tensor_data(x),
                            (size_t)x->numel * weft_i_dtype_size(x->dtype));
    request->device = weft_i_tensor_device(x);
    request->tag = tag;
    request->tensor = x;
    return WEFT_OK;
}

/* ---- plain ---- */

static weft_status run_carried(weft_i_bundle *bundle)
{
    for (int i = 0; i < bundle->count; i++)
        weft_i_p2p_request_carry(&bundle->requests[i]);
    return weft_i_bundle_close(bundle);
}

/* Leaves out what has nobody on its other end; how many are left. */
static int real_ones(weft_i_p2p_request *requests, int count)
{
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (requests[i].peer == WEFT_NOBODY)
            continue;
        if (left < i)
            requests[left] = requests[i];
        left++;
    }
    return left;
}

static weft_status run(weft_i_p2p_request *requests, int count, weft_i_coll_kind kind)
{
    weft_i_label label = {requests->group, weft_i_coll_name(kind), -1};
    if (!(count = real_ones(requests, count)))
        return weft_i_group_check_revoked(&label);
    WEFT_TRY(weft_i_p2p_check_devices(weft_i_coll_name(kind), requests, count));
    if (weft_i_coalesce_is_open(requests->group)) {
        weft_i_coll coll = weft_i_p2p_as_coll(requests);
        return weft_i_coalesce_add(&coll, WEFT_OK);
    }
    weft_i_record *record = weft_i_group_record(requests->group);
    uint64_t number =
        weft_i_record_begin_named(record, weft_i_coll_record_name(kind), requests->group->id,
                                  requests->bytes, requests->peer, -1);
    if (weft_i_record_wants_details(record))
        weft_i_record_note(
            record, number,
            &(weft_i_record_detail){.count = requests->bytes / weft_dtype_size(requests->dtype),
                                    .dtype = (int)requests->dtype});
    weft_i_bundle bundle = {.requests = requests, .count = count};
    weft_status status = requests->group->world->carrier ? run_carried(&bundle)
                         : weft_i_p2p_is_on_host(requests)
                             ? weft_i_bundle_carry(&bundle)
                             : weft_i_p2p_run_on_device(&bundle, number);
    weft_i_record_end(record, number, status);
    return status;
}

/* A rank that waits for itself would wait for ever. */
static weft_status run_one(weft_i_p2p_request *request)
{
    return request->peer != request->group->rank
               ? run(request, 1, request->kind)
               : weft_i_fail(WEFT_ERR_INVALID_ARG,
                             "%s: rank %d would wait for itself; use weft_send_start and "
                             "weft_recv_start",
                             weft_i_coll_name(request->kind), request->peer);
}

weft_status weft_i_p2p_exchange(weft_i_p2p_request *request)
{
    WEFT_TRY(check_peer(weft_i_coll_name(request->kind), request->kind, request->group,
                        request->peer, request->tag));
    return run_one(request);
}

weft_status weft_send_tag(weft_tensor *x, int to, int tag, weft_group *group)
{
    weft_i_p2p_request request;
    WEFT_TRY(fill(&request, WEFT_I_SEND, x, to, tag, group));
    return run_one(&request);
}

weft_status weft_recv_tag(weft_tensor *x, int from, int tag, weft_group *group)
{
    weft_i_p2p_request request;
    WEFT_TRY(fill(&request, WEFT_I_RECV, x, from, tag, group));
    return run_one(&request);
}

weft_status weft_send(weft_tensor *x, int to, weft_group *group)
{
    return weft_send_tag(x, to, 0, group);
}

weft_status weft_recv(weft_tensor *x, int from, weft_group *group)
{
    return weft_recv_tag(x, from, 0, group);
}

weft_status weft_recv_any(weft_tensor *x, int tag, weft_group *group, int *out_source)
{
    weft_i_p2p_request request;
    if (!out_source)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "recv_any: no place for the source");
    WEFT_TRY(fill(&request, WEFT_I_RECV, x, WEFT_ANY, tag, group));
    WEFT_TRY(run_one(&request));
    *out_source = request.source;
    return WEFT_OK;
}

weft_status weft_send_recv(weft_tensor *out, int from, weft_tensor *in, int to, weft_group *group)
{
    weft_i_p2p_request requests[2];
    weft_i_p2p_request *sending = &requests[0], *receiving = &requests[1];
    WEFT_TRY(fill(sending, WEFT_I_SEND, in, to, 0, group));
    WEFT_TRY(fill(receiving, WEFT_I_RECV, out, from, 0, group));
    if (to != WEFT_NOBODY && from != WEFT_NOBODY &&
        sending->data < receiving->data + receiving->bytes &&
        receiving->data < sending->data + sending->bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "send_recv: input and output overlap");
    return run(requests, 2, WEFT_I_SEND_RECV);
}

/* ---- posted ---- */

/* Nothing is posted inside a coalescing scope. */
static bool is_coalesced(const weft_i_p2p_request *request)
{
    if (!weft_i_coalesce_is_open(request->group))
        return false;
    weft_i_coll coll = weft_i_p2p_as_coll(request);
    return weft_i_coalesce_refuse(&coll, WEFT_OK) < 0;
}

static weft_work *start(weft_i_coll_kind kind, weft_tensor *x, int peer, int tag, weft_group *group)
{
    weft_i_p2p_request request;
    if (fill(&request, kind, x, peer, tag, group) < 0 || is_coalesced(&request) ||
        weft_i_p2p_check_devices(weft_i_coll_name(kind), &request, 1) < 0)
        return NULL;
    weft_work *work = weft_i_work_new_p2p(group, peer != WEFT_NOBODY);
    if (!work || peer == WEFT_NOBODY)
        return work;
    weft_i_work_set_request(work, 0, &request);
    return weft_i_work_enqueue_p2p(work);
}

weft_work *weft_send_tag_start(weft_tensor *x, int to, int tag, weft_group *group)
{
    return start(WEFT_I_SEND, x, to, tag, group);
}

weft_work *weft_recv_tag_start(weft_tensor *x, int from, int tag, weft_group *group)
{
    return start(WEFT_I_RECV, x, from, tag, group);
}

weft_work *weft_send_start(weft_tensor *x, int to, weft_group *group)
{
    return start(WEFT_I_SEND, x, to, 0, group);
}

weft_work *weft_recv_start(weft_tensor *x, int from, weft_group *group)
{
    return start(WEFT_I_RECV, x, from, 0, group);
}

/* ---- batches ---- */

static weft_status fill_op(weft_i_p2p_request *request, const weft_p2p_op *ops, int i)
{
    const weft_p2p_op *op = &ops[i];
    if (op->kind != WEFT_P2P_SEND && op->kind != WEFT_P2P_RECV)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "batch: op %d is neither send nor receive but %d",
                           i, (int)op->kind);
    if (op->group != ops->group)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "batch: op %d is of another group than op 0", i);
    return fill(request, op->kind == WEFT_P2P_SEND ? WEFT_I_SEND : WEFT_I_RECV, op->x, op->peer,
                op->tag, op->group);
}

/* Sets the requests of all ops that have somebody on their other end. */
static weft_status fill_batch(weft_work *work, const weft_p2p_op *ops, int count)
{
    weft_i_p2p_request request;
    work->bundle.count = 0;
    for (int i = 0; i < count; i++) {
        WEFT_TRY(fill_op(&request, ops, i));
        request.op = i;
        if (request.peer != WEFT_NOBODY)
            weft_i_work_set_request(work, work->bundle.count++, &request);
    }
    if (count && is_coalesced(&request))
        return weft_last_status();
    return weft_i_p2p_check_devices("batch", work->requests, work->bundle.count);
}

weft_work *weft_batch_start(const weft_p2p_op *ops, int count)
{
    if (count < 0 || (count && !ops))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "batch: %d ops at %p", count, (const void *)ops);
    weft_work *work = weft_i_work_new_p2p(count ? ops->group : NULL, count);
    if (work && fill_batch(work, ops, count) < 0) {
        weft_release(work);
        return NULL;
    }
    return work && work->bundle.count ? weft_i_work_enqueue_p2p(work) : work;
}

int weft_batch_source(const weft_work *work, int op)
{
    for (int i = 0; work && i < work->bundle.count; i++) {
        const weft_i_p2p_request *request = &work->requests[i];
        if (request->op == op)
            return weft_i_p2p_request_status(request) == WEFT_OK ? request->source : -1;
    }
    return -1;
}

int weft_work_source(const weft_work *work)
{
    return work && work->bundle.count == 1 ? weft_batch_source(work, 0) : -1;
}
