/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims: what is under way on a storage.  An operation that goes on after its call has returned
 * claims the storages it will write, and those it still reads.  Code that touches the memory asks
 * weft_i_storage_ready first, which waits for the claims in its way: readers for the writing ones,
 * writers for all.  Claims are the storage's, so views share them and need not know.
 */
#ifndef WEFT_TENSOR_CLAIM_H
#define WEFT_TENSOR_CLAIM_H

#include "tensor/object/scope.h"
#include "weft/storage.h"

typedef struct weft_i_claim weft_i_claim;
struct weft_stream;

/* What the floor that runs the operation knows about it. */
typedef struct weft_i_claimant {
    bool (*done)(const weft_i_claim *claim);
    /* Until it is done.  Returns how it ended; to a reading claim, which that does not concern,
     * only whether it did. */
    weft_status (*wait)(const weft_i_claim *claim);
    /* How many references of its own the operation still has to the tensor it writes.  0 is seen
     * before they are given up.  May be NULL: it never has any. */
    int (*holds)(const weft_i_claim *claim);
    /* The claim is off its storage; `waited`: somebody has waited for it before. */
    void (*ended)(const weft_i_claim *claim, bool waited);
    /*
     * Makes what `stream` is given from now on wait for it; does not wait.  NULL: the host waits
     * for it on behalf of the stream.
     */
    weft_status (*order)(const weft_i_claim *claim, struct weft_stream *stream);
} weft_i_claimant;

/* Part of an object of that floor. */
struct weft_i_claim {
    const weft_i_claimant *claimant;
    weft_i_object *owner; /* held as long as the claim is on its storage */
    bool writes;
    weft_i_claim *next;
};

/* Puts the claim on the storage and holds its owner. */
void weft_i_claim_put(weft_i_claim *claim, weft_storage *storage);

/*
 * Waits for the claims in the way of a reader or writer and takes them off.  A failed operation's
 * claim stays and every use of the memory, whose content nobody knows, returns its error again,
 * until somebody accepts that (`accept`), also with that error.
 */
weft_status weft_i_claim_settle(weft_storage *storage, bool write, bool accept);

/*
 * How many references to tensors on the storage operations under way still have.  Ask after the
 * references were counted: an operation that is seen to hold its tensor now was counted then.
 */
int weft_i_claim_holders(weft_storage *storage);

/*
 * Orders the stream behind the claims in the way, and takes them off.  From then on the stream
 * stands for them, so after a writing claim it counts as one that has written: `*write` says so.
 */
weft_status weft_i_claim_order(weft_storage *storage, bool *write, struct weft_stream *stream);

/* The storage goes: takes all claims off without waiting. */
void weft_i_claim_end_all(weft_storage *storage);

#endif
