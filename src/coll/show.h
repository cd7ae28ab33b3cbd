/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Showing: what others read of a rank's input is copied where they see it with the arrival, beside
 * the arrival word if it is tiny, else in the show slot of the entry's turn.  A rank's own part is
 * never copied, and never read back from its slot: lines that others are reading are slow.
 *
 * What goes one way, and is not short, is copied after the arrival, chunk by chunk, while others
 * follow (flow.h): they would have nothing to do meanwhile.
 */
#ifndef WEFT_COLL_SHOW_H
#define WEFT_COLL_SHOW_H

#include "coll/flow.h"

/* Enters showing the input, where this rank gives one, and waits for `whom` (lane.h). */
weft_status weft_i_show_and_enter(weft_i_coll *coll, bool gives, int whom);

/* Copies the input into the slot of the next entry, or sees to it that it flows there. */
void weft_i_show_input(weft_i_coll *coll);

/* Copies it, if it flows; called while the arrival is on its way. */
void weft_i_show_flow(weft_i_coll *coll);

/* Does what is shown in this call come chunk by chunk?  The same on all ranks. */
bool weft_i_show_flows(const weft_i_coll *coll);

/* Where the shown input of `rank` lies; ours is where it always was. */
static inline const char *weft_i_shown_by(const weft_i_coll *coll, int rank)
{
    const weft_i_lane *lane = coll->lane;
    if (rank == lane->me)
        return coll->in;
    return coll->algorithm == WEFT_I_ALGO_TINY ? (const char *)weft_i_lane_payload(lane, rank)
                                               : weft_i_lane_show(lane, rank, lane->epoch);
}

/* All that `rank` shows, to `to`. */
weft_status weft_i_show_take(weft_i_coll *coll, int rank, char *to);

#endif
