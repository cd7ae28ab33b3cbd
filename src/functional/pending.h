/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A functional collective that may still be under way: its work, its claims on the storages it
 * writes and reads (tensor/object/claim.h), and what is left to do in the thread that ran it.  One such
 * object serves all results of a call.
 *
 * The claims hold it, it holds the work, and the work holds the tensors, but only until it was run:
 * so a result that was dropped lives until then, and no longer.
 */
#ifndef WEFT_FUNCTIONAL_PENDING_H
#define WEFT_FUNCTIONAL_PENDING_H

#include "coll/calls/work.h"
#include "tensor/object/claim.h"

typedef struct weft_i_pending_claim {
    weft_i_claim claim;
    weft_storage *storage; /* not held: it has the claim */
    weft_dtype dtype;      /* the rest is for messages */
    weft_shape shape;
} weft_i_pending_claim;

typedef struct weft_i_pending {
    weft_i_completion completion;
    const char *op;
    weft_work *work; /* held; NULL until posted */
    size_t claims, moves, room, moves_room;
    struct {
        weft_tensor *to, *from;
    } * move; /* to be copied when the operation is over; held */
    weft_i_pending_claim claim[];
} weft_i_pending;

/* An object with room for `room` claims and `moves` moves; owned by the caller. */
weft_i_pending *weft_i_pending_new(const char *op, size_t room, size_t moves);

/* Notes that the operation writes, or reads, the tensor's memory. */
void weft_i_pending_claim_on(weft_i_pending *pending, const weft_tensor *x, bool writes);

/* Notes that elements are to be copied when the operation has succeeded.  Same shapes. */
void weft_i_pending_move(weft_i_pending *pending, weft_tensor *to, weft_tensor *from);

/*
 * Posts the checked call and puts the claims on their storages.  In a group of one it is run at
 * once instead.  On failure nothing has happened.  Drops the caller's reference in either case.
 */
weft_status weft_i_pending_enqueue(weft_i_pending *pending, weft_i_coll *coll);

#endif
