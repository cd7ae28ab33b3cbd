/* SPDX-License-Identifier: Apache-2.0 */
/* Letters: sends and receives under way; see pair.c. */
#ifndef WEFT_COLL_PAIR_H
#define WEFT_COLL_PAIR_H

#include "coll/call.h"

struct weft_i_letter {
    weft_i_coll *coll;
    weft_i_object *owner;   /* posted work, held while the letter is under way; NULL: on a stack */
    size_t done;            /* bytes */
    bool begun;             /* a piece has moved */
    int64_t deadline;       /* of work that nobody waits for any more; 0: somebody may */
    _Atomic int32_t status; /* WEFT_IN_PROGRESS until it is over: release by whoever ends it,
                               acquire by whoever waits for it */
    char message[400];      /* why it failed */
    weft_i_letter *next;
};

/* How it stands.  After WEFT_OK the bytes received are seen. */
static inline weft_status weft_i_letter_status(const weft_i_letter *letter)
{
    /* Pairs with the release in `end`. */
    return (weft_status)atomic_load_explicit(&letter->status, memory_order_acquire);
}

/* Puts a letter into its lane's list, holding its owner, and moves what can be moved. */
void weft_i_pair_post(weft_i_letter *letter);

/* Moves all letters of the lane as far as they go; true if some are still under way.  Any thread of
 * the rank may. */
bool weft_i_pair_push(weft_i_lane *lane);

/* Are letters under way that no thread waits for? */
bool weft_i_pair_is_left_alone(weft_i_lane *lane);

/* Ends posted letters whose peer is lost, and those that nobody waits for and nobody takes. */
void weft_i_pair_sort_out(weft_i_lane *lane);

/* Drops the owners of letters that ended when nobody else held them: perhaps the last references to
 * the group, and so to the lane. */
void weft_i_pair_sweep(weft_i_lane *lane);

/*
 * Pushes until the letter is over: WEFT_OK then, also if it failed (see its status).
 * WEFT_ERR_TIMEOUT: it is still under way.
 */
weft_status weft_i_pair_wait(weft_i_letter *letter, int64_t timeout_ms);

/* The thread's last error ends the letter, unless it is over. */
void weft_i_pair_fail(weft_i_letter *letter);

/* How a letter that is over ended, with its message. */
weft_status weft_i_pair_outcome(const weft_i_letter *letter);

#endif
