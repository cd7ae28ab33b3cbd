/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CMA (cross-memory attach): copying straight from another rank's ordinary memory, once instead of
 * twice through a bounce buffer.  Never to it: a late rank would write into memory whose owner has
 * given up and uses it for something else by now.  What a late rank reads there harms nobody.
 * Thread ranks just copy.  Between processes the kernel copies, where it lets us (same user, no
 * stricter rule of the system).  The ranks of a lane try it on each other when the lane is made,
 * and use it only if all of them can.
 */
#ifndef WEFT_COLL_CMA_H
#define WEFT_COLL_CMA_H

#include "coll/lane/lane.h"

/* Finds out what the ranks of a new lane may do; sets lane->cma.  Collective over the group. */
weft_status weft_i_cma_agree(weft_i_lane *lane, weft_group *group);

/* Copies from the memory of `rank` at `from`.  The owner waits meanwhile, unless it gives up. */
weft_status weft_i_cma(const weft_i_lane *lane, const weft_i_label *label, int rank, void *to,
                       uint64_t from, size_t bytes);

#endif
