/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entering an operation: a rank arrives, does what can be done while its arrival travels, and waits
 * for the others.  What it shows beside its arrival depends on the protocol: nothing, its input
 * (eager), or where its operands lie (rendezvous).
 *
 * Eager data is what others read of a rank's input, copied where they see it with the arrival.  It
 * lies beside the arrival word if it is small (inline), else in the eager buffer of the entry's
 * turn.  A rank's own part is never copied there, and never read back from there: cache lines that
 * others are reading are slow.  Data that goes one way, and is not short, is copied after the
 * arrival, chunk by chunk, while others follow (fifo.h).  Otherwise they would have nothing to do
 * meanwhile.
 */
#ifndef WEFT_COLL_ENTER_H
#define WEFT_COLL_ENTER_H

#include "coll/lane/fifo.h"
#include "coll/lane/locations.h"

/* What a rank gives to the others, should inputs be eager. */
typedef enum weft_i_gift { WEFT_I_GIVES_NOTHING, WEFT_I_GIVES, WEFT_I_NEVER_SHOWN } weft_i_gift;

/* Opens the call's line in the flight record.  `way` (base/report/record.h) may follow later: -1.  `turn` is
 * one of weft_i_record_turn or its kin. */
void weft_i_enter_open(weft_i_coll *coll, int way, int turn);

/* More of a line in the record, for a trace; dtype and reduction may be -1: none. */
void weft_i_enter_details(weft_i_record *record, uint64_t number, uint64_t posted, size_t count,
                          int dtype, int reduction);

/* The turn of a call that meets on the lane. */
static inline int weft_i_enter_turn(const weft_i_coll *coll)
{
    /* Relaxed: only shown.  A call that a device carries runs beside the lane's. */
    uint32_t entries = atomic_load_explicit(&coll->group->calls.entries, memory_order_relaxed);
    return weft_i_record_turn(entries + 1);
}

/* The same on the lane, unless it is open. */
static inline void weft_i_enter_note(weft_i_coll *coll)
{
    if (!coll->number)
        weft_i_enter_open(coll, -1, weft_i_enter_turn(coll));
}

/* Notes the way that follows from the protocol, in a line that may be open; -1: it depends on where
 * the operands lie. */
static inline void weft_i_enter_note_way(weft_i_coll *coll)
{
    bool located = coll->algorithm == WEFT_I_ALGO_RENDEZVOUS;
    int way = coll->reach                             ? WEFT_I_WAY_ZERO_COPY
              : located                               ? (coll->list ? WEFT_I_WAY_PIPELINED : -1)
              : coll->algorithm == WEFT_I_ALGO_INLINE ? WEFT_I_WAY_INLINE
                                                      : WEFT_I_WAY_EAGER;
    if (!coll->number)
        weft_i_enter_open(coll, way, weft_i_enter_turn(coll));
    else if (way >= 0)
        weft_i_record_way(weft_i_group_record(coll->group), coll->number, way);
}

/* The bytes a rank shows, as all of them know it.  They decide the protocol. */
static inline size_t weft_i_enter_bytes(const weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    return weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? part * (size_t)coll->group->size
                                                            : part;
}

/* Does eager data of this call come chunk by chunk?  The same on all ranks. */
static inline bool weft_i_eager_is_chunked(const weft_i_coll *coll)
{
    bool one_way = weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT) &&
                   !weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS);
    return one_way && weft_i_fifo_pays(coll->lane, coll->ask.count * coll->ask.item);
}

/* Where the eager data of `rank` lies; our own is where it always was. */
static inline const char *weft_i_eager_of(const weft_i_coll *coll, int rank)
{
    WEFT_ASSERT(coll->algorithm != WEFT_I_ALGO_INLINE || coll->ask.in_bytes <= WEFT_I_INLINE);
    const weft_i_lane *lane = coll->lane;
    if (rank == lane->me)
        return coll->ask.in;
    if (coll->algorithm == WEFT_I_ALGO_INLINE)
        return (const char *)weft_i_lane_payload(lane, rank);
    return coll->is_short ? weft_i_lane_short(lane, rank, lane->epoch)
                          : weft_i_lane_eager(lane, rank, lane->epoch);
}

/* Copies all of the eager data of `rank` to `to`. */
weft_status weft_i_eager_take(weft_i_coll *coll, int rank, char *to);

/* Shows `bytes` of `data` and waits for all, for one rank or for nobody (lane.h). */
weft_status weft_i_enter_with(weft_i_coll *coll, int whom, const void *data, size_t bytes);

/* Shows this rank's factor if it has one, and waits for all.  Reads everybody's into
 * lane->factors. */
weft_status weft_i_enter(weft_i_coll *coll);

/* Shows the input, where this rank gives one, and waits for `whom` (lane.h). */
weft_status weft_i_enter_eager(weft_i_coll *coll, bool gives, int whom);

/* Shows where the operands lie and waits for all.  `transfer`: bytes that go from one rank to
 * another at once, or 0 where CMA does not help. */
weft_status weft_i_enter_located(weft_i_coll *coll, weft_i_locations *locations, size_t transfer,
                                 weft_i_gift gift);

#endif
