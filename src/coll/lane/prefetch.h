/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefetch: a rank that waits for all to enter copies its part from those that are there.  Where
 * ranks share cores that is most of the work.  But an arrival may be taken back, and the call made
 * again with other data.  So a prefetched part counts only if, once all have entered, its owner's
 * location is still the one that was used.  Each try has a number of its own.  Copies from memory
 * that was given back meanwhile fail, or do not count.
 */
#ifndef WEFT_COLL_PREFETCH_H
#define WEFT_COLL_PREFETCH_H

#include "coll/lane/locations.h"

/* Before the arrival of a kind that pulls: forgets what was prefetched for the last entry, and
 * notes whether this call can prefetch. */
void weft_i_prefetch_prepare(weft_i_coll *coll, const weft_i_locations *locations);

/* After the arrival: copies from those that have come. */
void weft_i_prefetch_take(weft_i_coll *coll);

#endif
