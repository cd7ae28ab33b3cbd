/* SPDX-License-Identifier: Apache-2.0 */
/* Posted work from the inside. */
#ifndef WEFT_COLL_WORK_H
#define WEFT_COLL_WORK_H

#include "coll/pair.h"
#include "weft/work.h"

/* What follows an operation in the thread that ran it, before its end is told. */
typedef struct weft_i_sequel {
    weft_i_object object;
    /* Called once, with how the operation ended; returns how all of it ended, and holds none of its
     * tensors any more. */
    weft_status (*follow)(struct weft_i_sequel *sequel, weft_status status);
} weft_i_sequel;

struct weft_work {
    weft_i_object object;
    weft_i_coll coll;      /* holds its group, and its tensors; with a sequel until it was run */
    weft_i_sequel *sequel; /* held until it was run; may be NULL */
    weft_i_bundle bundle;  /* sends and receives; without letters: a collective */
    int64_t *splits;       /* own copy; may be NULL */
    pthread_mutex_t *lock; /* held while its end is told; NULL: not posted, or letters */
    _Atomic int32_t
        status; /* WEFT_IN_PROGRESS until done: release by whoever ran it, acquire by the waiter */
    _Atomic uint32_t bell;
    uint64_t sequence; /* in the group; stored before `status` */
    uint64_t number;   /* in the flight record; likewise */
    char *message;     /* why it failed, told again to the waiter; NULL: it did not, or no memory */
    struct weft_work *next;
    weft_i_letter letters[]; /* of the bundle; they hold their tensors */
};

/* Posts a checked call. */
weft_work *weft_i_work_post(const weft_i_coll *coll);

/* The same with a sequel, of which it takes its own reference. */
weft_work *weft_i_work_post_then(const weft_i_coll *coll, weft_i_sequel *sequel);

/* New work of `count` letters, each to be set; then all are posted. */
weft_work *weft_i_work_new_mail(weft_group *group, int count);
void weft_i_work_set_letter(weft_work *work, int index, const weft_i_letter *letter);
weft_work *weft_i_work_post_mail(weft_work *work);

/* Runs a checked call now, after whatever was posted to the group before it. */
weft_status weft_i_work_now(weft_i_coll *coll);

#endif
