/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locations: where every rank's operands lie.  Each rank shows its own beside its arrival.  From
 * them all ranks conclude alike how bytes can move: zero-copy through symmetric memory or between
 * threads, by CMA, or through bounce buffers.
 */
#ifndef WEFT_COLL_LOCATIONS_H
#define WEFT_COLL_LOCATIONS_H

#include "base/os/assert.h"
#include "coll/lane/call.h"

/* What follows from everybody's locations. */
typedef struct weft_i_locations {
    weft_i_registration *in, *out; /* this rank's; NULL: ordinary memory */
    bool all_in, all_out; /* every rank's input (output) can be touched by all: it lies in the
                             same registration as ours, or the ranks are threads */
    bool all_shown;       /* every rank's input is in its eager buffer */
    bool cma;             /* otherwise CMA may copy */
    int way;              /* how bytes move, for the flight record (base/report/record.h) */
} weft_i_locations;

/*
 * Is a part of so many bytes pushed into a symmetric output by its owner, rather than pulled from a
 * symmetric input by its taker?  Stores wait for nobody.  But where cores prefetch well, a part
 * that was pulled is in the taker's cache afterwards, as long as it fits there.
 */
static inline bool weft_i_locations_push(const weft_i_coll *coll, const weft_i_locations *locations,
                                         size_t part)
{
    return locations->all_out && (!locations->all_in || part >= coll->lane->push_from);
}

/* This rank's location, and its own part of `locations`. */
weft_i_location weft_i_locations_find(weft_i_coll *coll, weft_i_locations *locations,
                                      size_t transfer);

/* After the entry: the rest of `locations`, the same on all ranks. */
void weft_i_locations_compare(weft_i_coll *coll, const weft_i_location *mine,
                              weft_i_locations *locations);

static inline const weft_i_location *weft_i_coll_location(const weft_i_coll *coll, int rank)
{
    return (const weft_i_location *)(const void *)weft_i_lane_payload(coll->lane, rank);
}

/* Has this rank copied its part from `rank` before the entry?  See prefetch.h. */
static inline bool weft_i_prefetched(const weft_i_coll *coll, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < coll->lane->size);
    const weft_i_location *taken = &coll->lane->prefetched[rank];
    return taken->attempt && !memcmp(taken, weft_i_coll_location(coll, rank), sizeof *taken);
}

/* Where this rank can touch the input of `rank`, if it lies in `registration`; NULL: it cannot. */
static inline char *weft_i_touch_in(const weft_i_coll *coll,
                                    const weft_i_registration *registration, int rank)
{
    const weft_i_location *location = weft_i_coll_location(coll, rank);
    if (coll->lane->cma == WEFT_I_CMA_THREADS)
        return (char *)(uintptr_t)location->in_address;
    return registration && registration->serial == location->in_serial
               ? registration->blocks[rank]->base + location->in_offset
               : NULL;
}

/* The same for its output. */
static inline char *weft_i_touch_out(const weft_i_coll *coll,
                                     const weft_i_registration *registration, int rank)
{
    const weft_i_location *location = weft_i_coll_location(coll, rank);
    if (coll->lane->cma == WEFT_I_CMA_THREADS)
        return (char *)(uintptr_t)location->out_address;
    return registration && registration->serial == location->out_serial
               ? registration->blocks[rank]->base + location->out_offset
               : NULL;
}

/* Copies `bytes` at byte `at` of the input of `rank` to `to`.  Needs all_in or cma. */
weft_status weft_i_coll_fetch(const weft_i_coll *coll, const weft_i_locations *locations, int rank,
                              size_t at, char *to, size_t bytes);

/* The same from its output.  Needs cma. */
weft_status weft_i_coll_fetch_result(const weft_i_coll *coll, int rank, size_t at, char *to,
                                     size_t bytes);

/* Copies `bytes` from here to byte `at` of the output of `rank`.  Needs all_out. */
void weft_i_coll_deliver(const weft_i_coll *coll, const weft_i_locations *locations, int rank,
                         size_t at, const char *from, size_t bytes);

static inline void weft_i_coll_read_factors(weft_i_coll *coll)
{
    if (coll->ask.reduction == WEFT_PREMUL_SUM)
        for (int rank = 0; rank < coll->lane->size; rank++)
            coll->lane->factors[rank] = weft_i_coll_location(coll, rank)->factor;
}

#endif
