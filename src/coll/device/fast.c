/* SPDX-License-Identifier: Apache-2.0 */
/* A plain collective by a device's library, in one go; see fast.h. */
#include "coll/device/fast.h"

#include "base/os/place.h"
#include "coll/lane/enter.h"
#include "coll/lane/request.h"
#include "fabric/group/given.h"
#include "symm/block.h"

/* ---- is it one? ---- */

/* Nobody captures or collects, and the group is in use. */
static inline bool is_in_order(const weft_group *group)
{
    return !weft_i_eye_open && weft_i_group_is_usable(group) &&
           weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_LANE &&
           !group->floor[WEFT_I_FLOOR_COALESCE] && !weft_i_group_has_ended(group);
}

/* A contiguous tensor that only this stream has used, and no symmetric memory. */
WEFT_I_FAST static bool is_plain(const weft_tensor *x, bool written, const weft_stream *stream)
{
    const weft_storage *storage = x->storage;
    bool behind = stream == storage->stream && !(written && storage->reader);
    return weft_i_request_is_fine(x) && storage->device == stream->device &&
           (behind || !storage->ordered) && !(written && storage->read_only) &&
           !weft_i_block_lease_of(x);
}

/*
 * Has one operand as many elements as the other, or a part for each rank?  Do they share bytes only
 * in place?  Numbers of elements that lie in memory do not overflow here.
 */
static inline bool fits(weft_i_plain *call, int64_t in, int64_t out, const weft_group *group)
{
    bool gathers = call->kind == WEFT_I_ALL_GATHER, scatters = call->kind == WEFT_I_REDUCE_SCATTER;
    int64_t part = scatters ? out : in, whole = gathers || scatters ? part * group->size : part;
    size_t item = weft_i_dtype_size(call->dtype);
    size_t own = (size_t)group->rank * (size_t)part * item; /* where this rank's part is */
    const char *first = call->in + (scatters ? own : 0), *second = call->out + (gathers ? own : 0);
    call->count = (size_t)part;
    call->bytes = (size_t)whole * item;
    return part && (scatters ? in : out) == whole &&
           (first == second || call->in + (size_t)in * item <= call->out ||
            call->out + (size_t)out * item <= call->in);
}

/* Is it large enough for the library?  Only what all members know alike decides. */
static inline bool is_large(const weft_i_plain *call, const weft_i_carrier *carrier,
                            const weft_group *group)
{
    return carrier->any_size || call->bytes >= weft_i_tune_of(WEFT_I_TUNE_NCCL, call->kind,
                                                              group->size, WEFT_I_GROUND_ROOMY);
}

static inline bool fill(weft_i_plain *call, const weft_i_carrier *carrier, weft_tensor *out,
                        weft_tensor *in, const weft_group *group)
{
    const weft_stream *stream = carrier->stream;
    if (!is_plain(out, true, stream) || !(in == out || is_plain(in, false, stream)) ||
        in->dtype != out->dtype || (unsigned)call->root >= (unsigned)group->size)
        return false;
    call->in = weft_i_tensor_data(in);
    call->out = weft_i_tensor_data(out);
    call->stream = stream->own;
    call->dtype = in->dtype;
    return fits(call, in->numel, out->numel, group) && is_large(call, carrier, group);
}

/* ---- the call ---- */

/* Notes it for others and for a trace; its number in the flight record. */
static inline uint64_t open_record(weft_i_record *record, const weft_i_carrier *carrier,
                                   const weft_group *group, const weft_i_plain *call)
{
    size_t bytes = call->bytes / (call->kind == WEFT_I_ALL_GATHER ? (size_t)group->size : 1);
    bool reduces = call->kind == WEFT_I_ALL_REDUCE || call->kind == WEFT_I_REDUCE_SCATTER;
    uint64_t number = weft_i_record_begin_named(
        record, weft_i_coll_record_name(call->kind), group->id, bytes,
        weft_i_record_device_turn((uint32_t)carrier->calls + 1), WEFT_I_WAY_DEVICE);
    if (weft_i_record_wants_details(record))
        weft_i_enter_details(record, number, 0, call->count, (int)call->dtype,
                             reduces ? (int)call->reduction : -1);
    return number;
}

/* While the library is at it: what others see of the call.  Then its end. */
WEFT_I_BACK WEFT_I_APART static weft_status accompany(weft_i_carrier *carrier, weft_group *group,
                                                      const weft_i_plain *call, weft_status status)
{
    weft_i_record *record = weft_i_group_record(group);
    const weft_stream *stream = carrier->stream;
    WEFT_I_FETCH(weft_back);
    weft_i_lines_own(carrier->lines.back);
    group->sequence++;
    uint64_t number = open_record(record, carrier, group, call);
    bool noted = stream->table->stream_noted && stream->table->stream_noted(stream->own);
    if (status >= 0)
        status = carrier->fast.finish(carrier->state, weft_i_group_limit(group, WEFT_DEFAULT));
    if (status >= 0) {
        carrier->calls++;
        weft_i_carrier_show(
            group, weft_i_carrier_what(call->kind, call->dtype, call->reduction, call->root),
            call->count, noted);
    }
    atomic_store_explicit(&carrier->lines.cold, true, memory_order_relaxed);
    weft_i_record_end(record, number, status);
    return status;
}

/* What a call reads of a tensor and of its storage, which lie on two lines each. */
static inline void fetch_operand(const weft_tensor *x)
{
    __builtin_prefetch((const char *)x + 64);
    __builtin_prefetch(x->storage);
    __builtin_prefetch((const char *)x->storage + 64);
}

/* First it asks for the data, which lead to each other, then for the code. */
static inline weft_status run(weft_i_carrier *carrier, weft_i_plain *call, weft_tensor *out,
                              weft_tensor *in, weft_group *group)
{
    fetch_operand(in);
    fetch_operand(out);
    if (weft_i_lines_are_cold(&carrier->lines)) {
        weft_i_lines_own(carrier->lines.written);
        weft_i_lines_fetch(carrier->lines.read);
        WEFT_I_FETCH(weft_fast);
    }
    if (!is_in_order(group) || !weft_i_stream_is_current(carrier->stream) ||
        !fill(call, carrier, out, in, group))
        return WEFT_ERR_UNSUPPORTED;
    weft_status status = carrier->fast.start(carrier->state, call);
    return status == WEFT_ERR_UNSUPPORTED ? status : accompany(carrier, group, call, status);
}

WEFT_I_FAST weft_status weft_i_fast_run(weft_i_carrier *carrier, weft_i_plain *call,
                                        weft_tensor *out, weft_tensor *in, weft_group *group)
{
    weft_status status = WEFT_ERR_UNSUPPORTED;
    WEFT_TRY(weft_i_group_enter(group, &group->on_lane, call->op));
    /* Nobody else posts from here on, or uses the carrier; as in weft_i_work_now.  Pairs with the
     * release of whoever ends what was posted. */
    if (!atomic_load_explicit(&group->calls.posted, memory_order_acquire))
        status = run(carrier, call, out, in, group);
    weft_i_group_leave(&group->on_lane);
    return status;
}
