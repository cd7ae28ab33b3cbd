/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eager data: what others read of a rank's input is copied where they see it with the arrival.  It
 * lies beside the arrival word if it is small (inline), else in the eager buffer of the entry's
 * turn.  A rank's own part is never copied there, and never read back from there: cache lines that
 * others are reading are slow.
 *
 * Data that goes one way, and is not short, is copied after the arrival, chunk by chunk, while
 * others follow (fifo.h).  Otherwise they would have nothing to do meanwhile.
 *
 * Prefetch is the same idea from the other side: a rank that waits for all to enter copies its part
 * from those that are there.  Where ranks share cores that is most of the work.  But an arrival may
 * be taken back, and the call made again with other data.  So a prefetched part counts only if,
 * once all have entered, its owner's location is still the one that was used.  Each try has a
 * number of its own.  Copies from memory that was given back meanwhile fail, or do not count.
 */
#ifndef WEFT_COLL_EAGER_H
#define WEFT_COLL_EAGER_H

#include "base/assert.h"
#include "coll/fifo.h"
#include "coll/locations.h"

/* Before the arrival: copies the input into the eager buffer of the next entry, unless it goes
 * chunk by chunk. */
void weft_i_eager_put(weft_i_coll *coll);

/* After the arrival: copies it chunk by chunk. */
void weft_i_eager_put_chunks(weft_i_coll *coll);

/* Does eager data of this call come chunk by chunk?  The same on all ranks. */
bool weft_i_eager_is_chunked(const weft_i_coll *coll);

/* Where the eager data of `rank` lies; our own is where it always was. */
static inline const char *weft_i_eager_of(const weft_i_coll *coll, int rank)
{
    WEFT_ASSERT(coll->algorithm != WEFT_I_ALGO_INLINE || coll->ask.in_bytes <= WEFT_I_INLINE);
    const weft_i_lane *lane = coll->lane;
    if (rank == lane->me)
        return coll->ask.in;
    return coll->algorithm == WEFT_I_ALGO_INLINE ? (const char *)weft_i_lane_payload(lane, rank)
                                                 : weft_i_lane_eager(lane, rank, lane->epoch);
}

/* Copies all of the eager data of `rank` to `to`. */
weft_status weft_i_eager_take(weft_i_coll *coll, int rank, char *to);

/* Before the arrival: forgets what was prefetched for the last entry, and notes whether this call
 * can prefetch. */
void weft_i_prefetch_prepare(weft_i_coll *coll, const weft_i_locations *locations);

/* After the arrival: copies from those that have come. */
void weft_i_prefetch_take(weft_i_coll *coll);

#endif
