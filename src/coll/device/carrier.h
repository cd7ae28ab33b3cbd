/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carriers: backends that run the collectives of a group themselves, instead of its lane.  Which
 * one does follows from the group and the operands' device: that of a world which names one (a fake
 * one) for all devices, else the best backend for the kind of device that reaches all members.  On
 * the CPU of one host the lanes carry.  Operands of a device that no backend carries go through host
 * memory.
 */
#ifndef WEFT_COLL_CARRIER_H
#define WEFT_COLL_CARRIER_H

#include "coll/lane/call.h"
#include "coll/lane/lines.h"
#include "fabric/group/given.h"
#include "symm/backend.h"
#include "tensor/object/stream.h"

/* One for each (group, kind of device); the group holds it. */
typedef struct weft_i_carrier {
    weft_i_object object;
    const weft_i_backend *backend; /* NULL: the lane carries, through host memory */
    void *state;                   /* what the backend made for the group */
    weft_stream *stream;           /* the one that was given a call last; held */
    weft_i_fast_path fast;         /* the backend's: a copy, which is nearer (fast.h) */
    /* Collectives that it has carried, the same on all members.  Written by whoever runs one, one at
     * a time in a group. */
    uint64_t calls;
    bool any_size; /* the library carries small calls, too */
    weft_i_call_lines lines;
} weft_i_carrier;

/* Those of a group: its part for this floor. */
typedef struct weft_i_carriers {
    weft_i_object object;
    weft_i_carrier *of[WEFT_I_DEVICE_KINDS];
} weft_i_carriers;

/* The carrier of that kind of device, if the group has opened one; it may have no backend. */
static inline weft_i_carrier *weft_i_carrier_opened(const weft_group *group, int kind)
{
    const weft_i_carriers *all = group->floor[WEFT_I_FLOOR_CARRIERS];
    return all ? all->of[kind] : NULL;
}

/* What one call is, in a word; with its count, what the others see (fabric/group/given.h). */
static inline uint64_t weft_i_carrier_what(weft_i_coll_kind kind, weft_dtype dtype,
                                           weft_reduction reduction, int root)
{
    return (uint64_t)kind | (uint64_t)dtype << 8 | (uint64_t)reduction << 16 |
           (uint64_t)(uint32_t)root << 32;
}

/* Shows them a call that the device was given; `noted`: by a stream that is captured. */
static inline void weft_i_carrier_show(weft_group *group, uint64_t what, size_t count, bool noted)
{
    if (__builtin_expect(noted, 0))
        atomic_store_explicit(&group->calls.replays, true, memory_order_relaxed); /* see given.h */
    else
        weft_i_given_note(group, what, count);
}

weft_status weft_i_carrier_find(weft_group *group, weft_device device, weft_i_carrier **out);

/*
 * Who carries a call: `*out` is NULL if the lane does.  The first call of a group on a kind of
 * device may have to open it, which all members do.
 */
static inline weft_status weft_i_carrier_of(const weft_i_coll *coll, weft_i_carrier **out)
{
    *out = NULL;
    const weft_group *group = coll->group;
    bool by_lane = coll->ask.device == WEFT_CPU && group->local && !group->world->carrier;
    return __builtin_expect(by_lane, 1) ? WEFT_OK
                                        : weft_i_carrier_find(coll->group, coll->ask.device, out);
}

/* Does it carry this call, as far as it can tell beforehand?  Else the lane does. */
static inline bool weft_i_carrier_takes(const weft_i_carrier *carrier, const weft_i_coll *coll)
{
    return !carrier->backend->carry->takes || carrier->backend->carry->takes(&coll->ask);
}

/* Opens the call's line in the flight record with the carrier's turn; one that is open gets that
 * turn, and the way unless it is -1. */
void weft_i_carrier_note(weft_i_coll *coll, const weft_i_carrier *carrier, int way);

/* Hands a checked call to the carrier, which has run it when it returns, or enqueued it on the
 * current stream.  WEFT_ERR_UNSUPPORTED without a message: it does not carry that, and the operands
 * are on a device. */
weft_status weft_i_carrier_run(weft_i_coll *coll, weft_i_carrier *carrier);

/* Orders the thread's current stream behind whatever used the operands of the call, which have been
 * checked only. */
weft_status weft_i_carrier_touch(const weft_i_coll *coll);

/*
 * For what runs collectives of the group on a stream without calling them, as a replay does: what a
 * call checks, in the name of `op`; and how earlier calls have fared.  Orders the stream behind them
 * and later ones behind the stream.
 */
weft_status weft_i_carrier_follow(const char *op, weft_group *group, weft_stream *stream);

/* How what the call's carrier enqueued has fared. */
weft_status weft_i_carrier_check(const weft_i_coll *coll);

/* The object collectives there: no backend carries them itself, so the floor that has them says what
 * becomes of one.  By its constructor, as in coll/calls/run.h. */
typedef weft_status weft_i_carried_object(const weft_i_coll *coll, const weft_i_carrier *carrier);
void weft_i_carrier_run_objects(weft_i_carried_object *run);

/*
 * Runs a call whose operands are on a device with copies in host memory: `run` gets the same call
 * on these.  Waits for the device.
 */
weft_status weft_i_through_host(weft_i_coll *coll, weft_status (*run)(weft_i_coll *coll));

#endif
