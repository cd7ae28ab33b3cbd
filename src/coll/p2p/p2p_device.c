/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives of tensors on a device.  The group's carrier enqueues all that go together as
 * one request on the current stream; the host waits for nothing.  Between two ranks such messages
 * are taken in the order in which they are sent.  Where no backend carries them there, the forms that
 * block go through host memory.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/device/carrier.h"
#include "coll/p2p/p2p.h"
#include "tensor/op/loops.h"

weft_status weft_i_p2p_check_devices(const char *op, const weft_i_p2p_request *requests, int count)
{
    char a[16], b[16];
    for (int i = 0; i < count; i++) {
        const weft_i_p2p_request *request = &requests[i];
        if (request->device != requests->device)
            return weft_i_fail(WEFT_ERR_TYPE, "%s: tensors on %s and on %s at once", op,
                               weft_device_name(requests->device, a),
                               weft_device_name(request->device, b));
        if (request->peer == WEFT_ANY && !weft_i_p2p_is_on_host(request))
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "%s: a receive on %s must name its source: only the device sees "
                               "who sends first",
                               op, weft_device_name(request->device, a));
    }
    return WEFT_OK;
}

static void fill(const weft_i_bundle *bundle, weft_i_message *messages, weft_i_coll *coll)
{
    *coll = weft_i_p2p_as_coll(bundle->requests);
    coll->in_tensor = coll->out_tensor = NULL;
    coll->ask.in = coll->ask.out = NULL;
    coll->ask.messages = messages;
    coll->ask.messages_count = (size_t)bundle->count;
    if (bundle->count > 1) {
        coll->ask.kind = WEFT_I_SEND_RECV;
        coll->ask.op = coll->label.op = weft_i_coll_name(WEFT_I_SEND_RECV);
    }
    for (int i = 0; i < bundle->count; i++) {
        const weft_i_p2p_request *request = &bundle->requests[i];
        messages[i] = (weft_i_message){.sends = request->kind == WEFT_I_SEND,
                                       .peer = request->peer,
                                       .tag = request->tag,
                                       .dtype = request->dtype,
                                       .data = request->data,
                                       .bytes = request->bytes,
                                       .digest = request->digest};
    }
}

/* WEFT_ERR_UNSUPPORTED without a message: nobody carries them there. */
static weft_status hand_over(const weft_i_bundle *bundle, weft_i_coll *coll)
{
    weft_i_carrier *carrier = NULL;
    WEFT_TRY(weft_i_carrier_of(coll, &carrier));
    if (!carrier || !weft_i_carrier_takes(carrier, coll))
        return WEFT_ERR_UNSUPPORTED;
    for (int i = 0; i < bundle->count; i++) {
        const weft_i_p2p_request *request = &bundle->requests[i];
        if (request->tensor)
            WEFT_TRY(weft_i_storage_touch(request->tensor->storage, request->kind == WEFT_I_RECV));
    }
    WEFT_TRY(weft_i_carrier_run(coll, carrier));
    for (int i = 0; i < bundle->count; i++) {
        weft_i_p2p_request *request = &bundle->requests[i];
        request->source = request->kind == WEFT_I_RECV ? request->peer : -1;
        /* Relaxed: nobody else knows the request yet. */
        atomic_store_explicit(&request->status, WEFT_OK, memory_order_relaxed);
    }
    return WEFT_OK;
}

/* One thread of the rank at a time, as in collectives, which the same carrier runs. */
static weft_status carry(const weft_i_bundle *bundle, weft_i_coll *coll)
{
    enum { FEW = 8 };
    weft_i_message few[FEW], *messages = few;
    weft_group *group = bundle->requests->group;
    size_t bytes = (size_t)bundle->count * sizeof *messages;
    if (bundle->count > FEW && !(messages = WEFT_OS->alloc(bytes)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d messages", bundle->count);
    fill(bundle, messages, coll);
    weft_status status = weft_i_group_enter(group, &group->on_lane, coll->ask.op);
    if (status == WEFT_OK) {
        status = hand_over(bundle, coll);
        weft_i_group_leave(&group->on_lane);
    }
    coll->ask.messages = NULL;
    coll->ask.messages_count = 0;
    if (messages != few)
        WEFT_OS->free(messages);
    return status;
}

/* ---- through host memory ---- */

/* The request on a copy in host memory; the copy is the request's tensor then. */
static weft_status bring(weft_i_p2p_request *request)
{
    weft_tensor *there = request->tensor;
    weft_tensor *here =
        weft_keep(weft_i_tensor_new(there->dtype, WEFT_CPU, weft_i_tensor_shape(there), NULL));
    if (!here)
        return weft_last_status();
    request->tensor = here;
    request->data = weft_i_tensor_data(here);
    request->device = WEFT_CPU;
    return request->kind == WEFT_I_SEND ? weft_i_tensor_copy(here, there) : WEFT_OK;
}

/* Drops the copies of the first `count`, and takes back what came if all did. */
static weft_status take_back(const weft_i_bundle *bundle, weft_tensor *const *there, int count,
                             weft_status status)
{
    for (int i = 0; i < count; i++) {
        weft_i_p2p_request *request = &bundle->requests[i];
        if (status == WEFT_OK && request->kind == WEFT_I_RECV)
            status = weft_i_tensor_copy(there[i], request->tensor);
        if (request->tensor != there[i])
            weft_i_object_drop(request->tensor);
        request->tensor = there[i];
    }
    return status;
}

/* Plain calls have two requests at most. */
static weft_status run_through_host(weft_i_bundle *bundle)
{
    enum { MOST = 2 };
    WEFT_ASSERT(bundle->count <= MOST);
    weft_tensor *there[MOST] = {NULL, NULL};
    weft_status status = WEFT_OK;
    int brought = 0;
    for (; status == WEFT_OK && brought < bundle->count; brought++) {
        there[brought] = bundle->requests[brought].tensor;
        status = bring(&bundle->requests[brought]);
    }
    if (status == WEFT_OK)
        status = weft_i_bundle_carry(bundle);
    return take_back(bundle, there, brought, status);
}

weft_status weft_i_p2p_run_on_device(weft_i_bundle *bundle, uint64_t number)
{
    weft_i_coll coll;
    weft_i_record *record = weft_i_group_record(bundle->requests->group);
    weft_status status = carry(bundle, &coll);
    weft_i_record_way(record, number,
                      status == WEFT_ERR_UNSUPPORTED ? WEFT_I_WAY_HOST : WEFT_I_WAY_DEVICE);
    return status == WEFT_ERR_UNSUPPORTED ? run_through_host(bundle) : status;
}

weft_status weft_i_p2p_post_on_device(weft_i_bundle *bundle, weft_i_coll *coll)
{
    char name[16];
    weft_status status = carry(bundle, coll);
    return status != WEFT_ERR_UNSUPPORTED
               ? status
               : weft_i_fail(status,
                             "%s: nobody carries posted sends and receives on %s for group "
                             "\"%s\", as the log says; the forms that block go through host memory",
                             coll->ask.op, weft_device_name(coll->ask.device, name),
                             coll->group->name);
}
