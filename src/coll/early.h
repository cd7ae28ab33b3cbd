/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early copies: while a rank waits for all to enter, it takes its part from those who are there
 * already.  Where ranks share cores that is most of the work.
 *
 * An arrival may be taken back, and the call made again with other data.  So an early copy counts
 * only if, once all have entered, the rank's spot is still the one that was used: each try has a
 * number of its own.  Copies from memory that was given back meanwhile fail, or are not counted.
 */
#ifndef WEFT_COLL_EARLY_H
#define WEFT_COLL_EARLY_H

#include "coll/call.h"

/* Before the entry: forgets what was taken for the last one, and notes whether this one can do
 * early copies. */
void weft_i_early_prepare(weft_i_coll *coll, const weft_i_places *places);

/* While the arrival is on its way: takes what is there. */
void weft_i_early_take(weft_i_coll *coll);

/* After the entry: has this rank taken its part from `rank`? */
static inline bool weft_i_early_has(const weft_i_coll *coll, int rank)
{
    const weft_i_spot *taken = &coll->lane->early[rank];
    return taken->attempt && !memcmp(taken, weft_i_coll_spot(coll, rank), sizeof *taken);
}

#endif
