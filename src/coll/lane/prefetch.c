/* SPDX-License-Identifier: Apache-2.0 */
/* Copies before all have come; see prefetch.h. */
#include "coll/lane/prefetch.h"
#include "base/os/assert.h"

#include "base/os/os.h"

void weft_i_prefetch_prepare(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    WEFT_ASSERT(weft_i_kind_is(coll->ask.kind, WEFT_I_PULLS));
    bool pulls = !coll->ask.in_splits;
    size_t part = coll->ask.count * coll->ask.item;
    if (weft_i_kind_is(coll->ask.kind, WEFT_I_TO_ROOT)) /* the others give, the root takes */
        pulls = pulls && lane->me == coll->ask.root;
    if (weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT)) /* the root gives, the others take */
        pulls = pulls && lane->me != coll->ask.root;
    /* Into an output that all can reach others may push instead. */
    else if (locations->out)
        pulls = pulls && weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) && part < lane->push_from;
    /* Between threads memory that was given back is not there to be read. */
    bool reaches = locations->cma || locations->in || locations->out;
    coll->prefetch = pulls && reaches && lane->cma != WEFT_I_CMA_THREADS ? locations : NULL;
    for (int rank = 0; rank < lane->size; rank++)
        lane->prefetched[rank].attempt = 0;
}

static bool is_in(const weft_i_registration *registration, const weft_i_location *location)
{
    return registration && registration->serial == location->in_serial;
}

/* Copies from byte `at` of the rank's input; false if it cannot be reached. */
static bool copy(const weft_i_coll *coll, int rank, const weft_i_location *location, size_t at,
                 char *to, size_t bytes)
{
    const weft_i_locations *locations = coll->prefetch;
    WEFT_ASSERT(locations && rank != coll->lane->me);
    const weft_i_registration *registration =
        is_in(locations->in, location) ? locations->in : locations->out;
    if (is_in(registration, location)) {
        const weft_i_segment *block = registration->blocks[rank];
        if (location->in_offset > block->bytes || block->bytes - location->in_offset < at + bytes)
            return false; /* of two tries; it will not count */
        memcpy(to, block->base + location->in_offset + at, bytes);
        return true;
    }
    if (!locations->cma)
        return false;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = WEFT_OS->read_process(coll->lane->samples[rank].process, to + done,
                                          location->in_address + at + done, bytes - done);
        if (n <= 0)
            return false; /* the entry will tell why */
        done += (size_t)n;
    }
    return true;
}

static void take_from(weft_i_coll *coll, int rank)
{
    const weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item;
    size_t at = weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? (size_t)lane->me * part : 0;
    bool locations = weft_i_kind_is(coll->ask.kind, WEFT_I_PLACES_PARTS);
    char *to = coll->ask.out + (locations ? (size_t)rank * part : 0);
    if (!part || !weft_i_lane_has_come(lane, rank))
        return;
    weft_i_location location =
        *(const weft_i_location *)(const void *)weft_i_lane_next_payload(lane, rank);
    /* Once more: what was read between two arrivals would be of both. */
    if (weft_i_lane_has_come(lane, rank) && !location.shown &&
        copy(coll, rank, &location, at, to, part))
        lane->prefetched[rank] = location;
}

void weft_i_prefetch_take(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 1; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        if (!weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT) || rank == coll->ask.root)
            take_from(coll, rank);
    }
}
