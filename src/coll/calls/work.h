/* SPDX-License-Identifier: Apache-2.0 */
/* Posted work from the inside. */
#ifndef WEFT_COLL_WORK_H
#define WEFT_COLL_WORK_H

#include "coll/p2p/p2p.h"
#include "tensor/object/stream.h"
#include "weft/work.h"

/* What follows an operation in the thread that ran it, before its end is told. */
typedef struct weft_i_completion {
    weft_i_object object;
    /* Called once, with how the operation ended; returns how all of it ended, and holds none of its
     * tensors any more. */
    weft_status (*follow)(struct weft_i_completion *completion, weft_status status);
} weft_i_completion;

struct weft_work {
    weft_i_object object;
    weft_i_coll coll; /* holds its group, and its tensors; with a completion until it was run */
    weft_i_completion *completion; /* held until it was run; may be NULL */
    weft_i_bundle bundle;          /* sends and receives; without requests: a collective */
    int64_t *splits;               /* own copy; may be NULL */
    bool carried;          /* its requests were given to a stream: it is over at its event */
    bool claimed;          /* its operands are claimed (tensor/object/claim.h) instead of pinned */
    pthread_mutex_t *lock; /* held while its end is told; NULL: not posted, or requests */
    pthread_t runner;      /* who ran it; stored before `status` */
    _Atomic int32_t
        status; /* WEFT_IN_PROGRESS until done: release by whoever ran it, acquire by the waiter */
    _Atomic uint32_t bell;
    atomic_int holds;    /* references to its result's tensor; release before they are given up,
                          acquire in functional/pending.c */
    uint64_t sequence;   /* in the group; stored before `status` */
    uint64_t number;     /* in the flight record; likewise */
    weft_stream *stream; /* held: the one that a carrier enqueued it on; NULL: it was run */
    void *event;         /* of the stream, behind it; NULL: captured, or not enqueued */
    atomic_bool
        untold; /* it failed and nobody knows; acq_rel by whoever takes it off (base/report/loss.h) */
    char *message; /* why it failed, told again to the waiter; NULL: it did not, or no memory */
    struct weft_work *next;
    weft_i_p2p_request requests[]; /* of the bundle; they hold their tensors */
};

/*
 * These two are for one thread of the rank at a time: WEFT_ERR_STATE if another one is in a call on
 * the group.
 *
 * Posts a checked call.  `completion` may be NULL; the work takes its own reference. */
weft_work *weft_i_work_enqueue(const weft_i_coll *coll, weft_i_completion *completion);

/* Runs a checked call now, after whatever was posted to the group before it. */
weft_status weft_i_work_now(weft_i_coll *coll);

/* New work of `count` requests, each to be set; then all are posted. */
weft_work *weft_i_work_new_p2p(weft_group *group, int count);
void weft_i_work_set_request(weft_work *work, int index, const weft_i_p2p_request *request);
weft_work *weft_i_work_enqueue_p2p(weft_work *work);

#endif
