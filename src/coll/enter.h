/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entering an operation: a rank arrives, does what can be done while its arrival travels, and waits
 * for the others.  What it shows beside its arrival depends on the protocol: nothing, its input
 * (eager), or where its operands lie (rendezvous).
 */
#ifndef WEFT_COLL_ENTER_H
#define WEFT_COLL_ENTER_H

#include "coll/eager.h"

/* What a rank gives to the others, should inputs be eager. */
typedef enum weft_i_gift { WEFT_I_GIVES_NOTHING, WEFT_I_GIVES, WEFT_I_NEVER_SHOWN } weft_i_gift;

/* Opens the call's line in the flight record, once; `way` (base/record.h) may follow later: -1. */
void weft_i_enter_note(weft_i_coll *coll, int way);

/* The way that follows from the protocol; -1 if it depends on where the operands lie. */
int weft_i_enter_way(const weft_i_coll *coll);

/* The bytes a rank shows, as all of them know it.  They decide the protocol. */
static inline size_t weft_i_enter_bytes(const weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    return weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? part * (size_t)coll->group->size
                                                            : part;
}

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
