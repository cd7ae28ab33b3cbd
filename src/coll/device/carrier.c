/* SPDX-License-Identifier: Apache-2.0 */
/* Opening carriers and handing calls to them; see carrier.h. */
#include "coll/device/carrier.h"

#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "coll/lane/choose.h"
#include "coll/lane/enter.h"
#include "coll/lane/list.h"
#include "coll/lane/request.h"
#include "fabric/group/given.h"
#include "symm/pool.h"
#include "tensor/object/stream.h"

#include <stdio.h>

/* A list has the bytes of one part.  Which side has one for each rank follows from the kind.  Rows
 * of one tensor have its dtype. */
static weft_i_operands operands_of(const weft_i_coll *coll, const weft_i_list_item *item)
{
    const weft_tensor *tensor = item->in_tensor    ? item->in_tensor
                                : item->out_tensor ? item->out_tensor
                                                   : coll->in_tensor;
    bool parts = weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS);
    return (weft_i_operands){.in = item->in,
                             .out = item->out,
                             .in_bytes = item->bytes * (parts ? (size_t)coll->group->size : 1),
                             .out_bytes = item->out_bytes,
                             .dtype = tensor ? tensor->dtype : coll->ask.dtype};
}

/* Calls of a group run in one order on all ranks: on another stream than the last one they are
 * behind it. */
WEFT_I_HOT static weft_status follow_last(weft_i_carrier *carrier, weft_stream *stream)
{
    if (carrier->stream == stream)
        return WEFT_OK;
    if (carrier->stream)
        WEFT_TRY(weft_i_stream_after(stream, carrier->stream, false));
    weft_i_object_drop(carrier->stream);
    carrier->stream = weft_i_object_hold(stream);
    return WEFT_OK;
}

weft_status weft_i_carrier_follow(const char *op, weft_group *group, weft_stream *stream)
{
    WEFT_TRY(weft_i_request_check_group(op, group));
    WEFT_TRY(weft_i_group_check_revoked(&(weft_i_label){group, op, -1}));
    weft_i_carrier *carrier = weft_i_carrier_opened(group, weft_i_device_kind(stream->device));
    if (!carrier || !carrier->backend)
        return WEFT_OK;
    if (carrier->backend->carry->check)
        WEFT_TRY(carrier->backend->carry->check(carrier->state));
    return follow_last(carrier, stream);
}

static inline weft_status touch(const weft_tensor *x, bool write, weft_stream *stream)
{
    return x ? weft_i_storage_touch_on(x->storage, write, stream) : WEFT_OK;
}

/* Orders the stream, which is of the operands' device, behind whatever used them.  A tensor without
 * an address is only told of: a rank that is not the root has such. */
WEFT_I_HOT static weft_status touch_operands(const weft_i_coll *coll, weft_stream *stream)
{
    const weft_i_list *list = coll->list;
    WEFT_TRY(touch(coll->ask.in ? coll->in_tensor : NULL, false, stream));
    WEFT_TRY(touch(coll->ask.out ? coll->out_tensor : NULL, true, stream));
    for (size_t i = 0; list && i < list->count; i++) {
        WEFT_TRY(touch(list->items[i].in_tensor, false, stream));
        WEFT_TRY(touch(list->items[i].out_tensor, true, stream));
    }
    return WEFT_OK;
}

weft_status weft_i_carrier_touch(const weft_i_coll *coll)
{
    weft_stream *stream = weft_i_stream_current(coll->ask.device);
    return stream ? touch_operands(coll, stream) : weft_last_status();
}

/* Where the operand's counterparts lie, if it has met in the group.  The registration is there as long
 * as the tensor. */
static void find_counterparts(const weft_i_coll *coll, const weft_tensor *x,
                              weft_i_counterparts *out)
{
    const weft_i_lease *lease = x ? weft_i_block_lease_of(x) : NULL;
    const weft_i_registration *found =
        lease ? weft_i_registration_find(lease->block, coll->group) : NULL;
    if (found && found->joined && found->memory->strided)
        *out = (weft_i_counterparts){found->memory, found->joined, found->serial,
                                     (size_t)(weft_i_tensor_data(x) - lease->block->segment->base)};
    else if (lease && !found)
        weft_i_pool_pass_over(lease, coll->group);
}

static inline bool has_counterparts(const weft_i_coll *coll)
{
    return !coll->list &&
           (weft_i_block_lease_of(coll->in_tensor) ||
            (coll->out_tensor != coll->in_tensor && weft_i_block_lease_of(coll->out_tensor)));
}

/* So small an all_reduce goes by packets, wherever its operands lie. */
static inline bool goes_by_packets(const weft_i_coll *coll, const weft_i_request *request)
{
    size_t packets, one_shot;
    if (request->kind != WEFT_I_ALL_REDUCE || request->in_bytes > request->packets_up_to)
        return false;
    weft_i_choose_on_device(coll->group->size, true, &packets, &one_shot);
    return request->in_bytes <= packets;
}

/* The operands of a plain call may be symmetric too; then a backend can do without its stage.  If the
 * input alone is, that helps where one shot does: two need everybody's result. */
WEFT_I_APART static weft_status run_with_counterparts(const weft_i_coll *coll,
                                                      const weft_i_carrier *carrier,
                                                      weft_i_request *request)
{
    find_counterparts(coll, coll->in_tensor, &request->in_counterparts);
    find_counterparts(coll, coll->out_tensor, &request->out_counterparts);
    if (request->in_counterparts.joined && request->out_counterparts.joined)
        weft_i_choose_on_device(coll->group->size, true, &request->packets_up_to,
                                &request->one_shot_up_to);
    return carrier->backend->carry->collective(carrier->state, request);
}

WEFT_I_HOT static weft_status run(const weft_i_coll *coll, const weft_i_carrier *carrier,
                                  weft_i_request *request)
{
    request->in_counterparts = request->out_counterparts = (weft_i_counterparts){0};
    if (coll->reach) {
        const weft_i_registration *registration = coll->reach->registration;
        request->in_counterparts = (weft_i_counterparts){registration->memory, registration->joined,
                                                         registration->serial, coll->reach->offset};
        request->local = request->vdev || request->tiles ? NULL : coll->plan;
        request->digest = coll->digest;
    } else if (has_counterparts(coll) && !weft_i_device_is_host(request->device) &&
               !goes_by_packets(coll, request)) {
        return run_with_counterparts(coll, carrier, request);
    }
    return carrier->backend->carry->collective(carrier->state, request);
}

/* ---- what the others see of it ---- */

/* Messages are of two ranks alone. */
static bool is_collective(const weft_i_request *request)
{
    return request->kind != WEFT_I_SEND && request->kind != WEFT_I_RECV && !request->messages;
}

/* For members that wait on the lane: fabric/group/given.h. */
WEFT_I_HOT static void note_given(const weft_i_coll *coll, const weft_i_request *request,
                                  const weft_stream *stream)
{
    weft_group *group = coll->group;
    if (weft_i_device_is_host(request->device) || !group->board || group->world->fake ||
        !is_collective(request))
        return;
    weft_i_carrier_show(
        group,
        weft_i_carrier_what(request->kind, request->dtype, request->reduction, request->root),
        request->count, stream->table->stream_noted && stream->table->stream_noted(stream->own));
}

WEFT_I_HOT static weft_status hand_over(weft_i_coll *coll, weft_i_carrier *carrier,
                                        const weft_i_operands *items, size_t count)
{
    weft_i_request *request = &coll->ask; /* not a copy: that would be ten lines more to touch */
    weft_stream *stream = weft_i_stream_current(request->device);
    if (!stream)
        return weft_last_status();
    if (!weft_i_device_is_host(request->device) && !coll->group->world->carrier)
        WEFT_TRY(follow_last(carrier, stream));
    WEFT_TRY(touch_operands(coll, stream));
    request->stream = stream->own;
    weft_i_choose_on_device(coll->group->size, false, &request->packets_up_to,
                            &request->one_shot_up_to);
    request->library_from = weft_i_tune_of(WEFT_I_TUNE_NCCL, weft_i_kinds[request->kind].as,
                                           coll->group->size, WEFT_I_GROUND_ROOMY);
    request->items = items;
    request->items_count = count;
    weft_status status = run(coll, carrier, request);
    if (status >= 0)
        note_given(coll, request, stream);
    request->items = NULL; /* the host may have to run it yet */
    request->items_count = 0;
    /* On the CPU nobody else does where there is a carrier. */
    bool alone = coll->group->world->carrier || weft_i_device_is_host(request->device);
    return status == WEFT_ERR_UNSUPPORTED && alone
               ? weft_i_fail(status, "%s: backend %s does not carry it", request->op,
                             carrier->backend->name)
               : status;
}

WEFT_I_APART static weft_status hand_over_list(weft_i_coll *coll, weft_i_carrier *carrier)
{
    const weft_i_list *list = coll->list;
    weft_i_operands *items = WEFT_OS->alloc((list->count + 1) * sizeof *items);
    if (!items)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu tensors", coll->ask.op,
                           list->count);
    for (size_t i = 0; i < list->count; i++)
        items[i] = operands_of(coll, &list->items[i]);
    weft_status status = hand_over(coll, carrier, items, list->count);
    WEFT_OS->free(items);
    return status;
}

static weft_i_carried_object *run_object; /* of the floor that has them */

void weft_i_carrier_run_objects(weft_i_carried_object *runner)
{
    run_object = runner;
}

WEFT_I_HOT static weft_status carry(weft_i_coll *coll, weft_i_carrier *carrier)
{
    weft_i_coll_kind kind = coll->ask.kind;
    WEFT_TRY(weft_i_group_check_revoked(&coll->label));
    if (__builtin_expect(coll->group->world->mute, 0) && is_collective(&coll->ask))
        WEFT_TRY(weft_i_group_check_mute(&coll->label));
    if (weft_i_kind_is(kind, WEFT_I_IS_OBJECT))
        return run_object(coll, carrier);
    if (weft_i_kind_is(kind, WEFT_I_SYMMETRIC) &&
        (weft_i_device_is_host(coll->ask.device) || !weft_i_carrier_takes(carrier, coll)))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: backend %s has no operations on symmetric memory", coll->ask.op,
                           carrier->backend->name);
    if (coll->list)
        return hand_over_list(coll, carrier);
    weft_i_operands item = {coll->ask.in, coll->ask.out, coll->ask.in_bytes, coll->ask.out_bytes,
                            coll->ask.dtype};
    return hand_over(coll, carrier, &item,
                     coll->in_tensor || coll->out_tensor || coll->ask.in || coll->ask.out);
}

/* In the flight record: what a carrier carries is counted apart from what meets on the lane. */
WEFT_I_HOT static int turn_of(const weft_i_coll *coll, const weft_i_carrier *carrier)
{
    if (!is_collective(&coll->ask))
        return weft_i_enter_turn(coll);
    uint32_t turn = (uint32_t)carrier->calls + 1;
    return weft_i_device_is_host(coll->ask.device) ? weft_i_record_turn(turn)
                                                   : weft_i_record_device_turn(turn);
}

WEFT_I_HOT void weft_i_carrier_note(weft_i_coll *coll, const weft_i_carrier *carrier, int way)
{
    weft_i_record *record = weft_i_group_record(coll->group);
    if (!coll->number) {
        weft_i_enter_open(coll, way, turn_of(coll, carrier));
        return;
    }
    if (way >= 0)
        weft_i_record_way(record, coll->number, way);
    if (is_collective(&coll->ask))
        weft_i_record_set_turn(record, coll->number, turn_of(coll, carrier));
}

/* ---- the fast path ---- */

static void list_lines(const weft_group *group, weft_i_carrier *carrier)
{
    const weft_i_board_row *mine = &group->board->row[group->rank];
    weft_i_call_lines *lines = &carrier->lines;
    weft_i_lines_clear(lines->read);
    weft_i_lines_clear(lines->written);
    weft_i_lines_clear(lines->back);
    weft_i_lines_add(lines->read, &group->world->finished);
    weft_i_lines_add(lines->read, &group->board->revoked);
    weft_i_lines_add(lines->read, carrier->stream);
    weft_i_lines_add(lines->back, &mine->enqueued);
    weft_i_lines_add(lines->back, &mine->stuck.quit);
    weft_i_lines_add(lines->back, &mine->given);
    carrier->any_size = carrier->fast.list(carrier->state, carrier->stream->own, lines->read,
                                           lines->written, lines->back);
}

/* If the library has carried the call, the next one may take the fast path: fast.h.  Not if each call
 * is logged: it would be while the library's lock is held, which the sentry waits for. */
static void note_library(weft_group *group, weft_i_carrier *carrier)
{
    bool cold = carrier->backend->fast->is_cold(carrier->state);
    atomic_store_explicit(&carrier->lines.cold, cold, memory_order_relaxed);
    if (!cold || !group->board || !carrier->stream || group->world->fake ||
        weft_i_log_wants(WEFT_LOG_TRACE))
        return;
    carrier->fast = *carrier->backend->fast;
    list_lines(group, carrier);
    atomic_store_explicit(&group->fast, &carrier->lines, memory_order_release);
}

WEFT_I_HOT weft_status weft_i_carrier_run(weft_i_coll *coll, weft_i_carrier *carrier)
{
    weft_status status = carry(coll, carrier);
    carrier->calls += status >= 0 && is_collective(&coll->ask);
    if (status == WEFT_ERR_UNSUPPORTED && is_collective(&coll->ask)) /* it goes by the lane */
        weft_i_record_set_turn(weft_i_group_record(coll->group), coll->number,
                               weft_i_enter_turn(coll));
    if (carrier->backend->fast)
        note_library(coll->group, carrier);
    return status;
}

weft_status weft_i_carrier_check(const weft_i_coll *coll)
{
    const weft_i_carrier *carrier =
        weft_i_carrier_opened(coll->group, weft_i_device_kind(coll->ask.device));
    return carrier && carrier->backend && carrier->backend->carry->check
               ? carrier->backend->carry->check(carrier->state)
               : WEFT_OK;
}

/* ---- opening ---- */

static void destroy(weft_i_object *object)
{
    weft_i_carrier *carrier = (weft_i_carrier *)object;
    weft_i_object_drop(carrier->stream);
    if (carrier->state && carrier->backend->carry->close)
        carrier->backend->carry->close(carrier->state);
    weft_i_object_free(object);
}

/* What a member shows: how it went, with which backend, and by which sizes its kernels choose. */
typedef struct outcome {
    int32_t status;
    uint32_t tuned;
    char backend[12];
} outcome;

static const char *why_not(const outcome *theirs, const outcome *mine)
{
    return theirs->status >= 0 && theirs->tuned != mine->tuned
               ? "other sizes of decisions for CUDA: WEFT_TUNE, weft_tune_set"
               : weft_strerror((weft_status)theirs->status);
}

/* All have it, or nobody has. */
static weft_status agree(const weft_i_circle *circle, weft_i_carrier *carrier, weft_status opened)
{
    outcome mine = {.status = opened, .tuned = weft_i_tune_kernels_digest(circle->size)};
    outcome *all = WEFT_OS->alloc((size_t)circle->size * sizeof *all);
    if (!all)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to open a carrier for %d ranks",
                           circle->size);
    snprintf(mine.backend, sizeof mine.backend, "%s",
             carrier->backend->carry->wraps ? carrier->backend->carry->wraps
                                            : carrier->backend->name);
    weft_status status = circle->exchange(circle, &mine, sizeof mine, all);
    int without = -1;
    for (int rank = 0; status >= 0 && rank < circle->size; rank++)
        if (all[rank].status < 0 || all[rank].tuned != mine.tuned ||
            strncmp(all[rank].backend, mine.backend, sizeof mine.backend))
            without = without < 0 ? rank : without;
    if (without >= 0) {
        weft_i_log(WEFT_LOG_WARN,
                   "group \"%s\": rank %d has no backend %s (%s); collectives on devices go "
                   "through host memory",
                   circle->name, without, mine.backend, why_not(&all[without], &mine));
        if (carrier->state && carrier->backend->carry->close)
            carrier->backend->carry->close(carrier->state);
        carrier->state = NULL;
        carrier->backend = NULL;
    }
    WEFT_OS->free(all);
    return status;
}

static weft_status open_carrier(weft_group *group, weft_device device, weft_i_carrier *carrier)
{
    const weft_i_world *world = group->world;
    weft_i_circle circle = {.name = group->name,
                            .rank = group->rank,
                            .size = group->size,
                            .device = device,
                            .tuned = weft_i_tune_library_digest(group->size),
                            .limit_ms = weft_i_group_limit(group, WEFT_DEFAULT),
                            .deadline = weft_i_os_deadline(weft_i_group_limit(group, WEFT_DEFAULT)),
                            .exchange = weft_i_circle_exchange,
                            .group = group};
    carrier->backend = world->carrier
                           ? world->carrier
                           : weft_i_backend_carrier(device, world->sharing, !group->local);
    if (!carrier->backend || !carrier->backend->carry->open)
        return WEFT_OK;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status opened = carrier->backend->carry->open(&circle, &carrier->state);
    weft_i_errors_restore(&before); /* one that cannot open is no error of the call */
    return agree(&circle, carrier, opened);
}

/* Members meet to open one, which no capture can note. */
static weft_status refuse_capture(const weft_group *group, weft_device device)
{
    const weft_i_device *table = weft_i_device_find(device);
    weft_stream *stream = table && table->stream_captured ? weft_i_stream_current(device) : NULL;
    char name[16];
    return !stream || !weft_i_stream_is_captured(stream)
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_STATE,
                             "the first collective of group \"%s\" on %s cannot be captured: "
                             "call one before the capture begins",
                             group->name, weft_device_name(device, name));
}

static void destroy_all(weft_i_object *object)
{
    weft_i_carriers *all = (weft_i_carriers *)object;
    for (int kind = 0; kind < WEFT_I_DEVICE_KINDS; kind++)
        weft_i_object_drop(all->of[kind]);
    weft_i_object_free(object);
}

/* Made at the first use. */
static weft_i_carriers *carriers_of(weft_group *group)
{
    void **part = &group->floor[WEFT_I_FLOOR_CARRIERS];
    if (!*part)
        *part = weft_i_object_new_unscoped(WEFT_I_GROUP_PART, sizeof(weft_i_carriers), destroy_all);
    return *part;
}

WEFT_I_COLD static weft_status open_first(weft_group *group, weft_device device)
{
    WEFT_TRY(refuse_capture(group, device));
    weft_i_tune_load();
    weft_i_carriers *all = carriers_of(group);
    if (!all)
        return weft_last_status();
    weft_i_carrier *carrier = weft_i_object_new_unscoped(WEFT_I_CARRIER, sizeof *carrier, destroy);
    weft_status status = carrier ? open_carrier(group, device, carrier) : weft_last_status();
    if (status < 0) {
        weft_i_object_drop(carrier);
        return status;
    }
    all->of[weft_i_device_kind(device)] = carrier;
    return WEFT_OK;
}

WEFT_I_HOT weft_status weft_i_carrier_find(weft_group *group, weft_device device,
                                           weft_i_carrier **out)
{
    int kind = weft_i_device_kind(device);
    weft_i_carrier *carrier = weft_i_carrier_opened(group, kind);
    if (__builtin_expect(!carrier, 0)) {
        WEFT_TRY(open_first(group, device));
        carrier = weft_i_carrier_opened(group, kind);
    }
    *out = carrier->backend ? carrier : NULL;
    return WEFT_OK;
}
