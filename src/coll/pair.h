/* SPDX-License-Identifier: Apache-2.0 */
/* Letters: sends and receives under way; see pair.c. */
#ifndef WEFT_COLL_PAIR_H
#define WEFT_COLL_PAIR_H

#include "coll/call.h"

struct weft_i_letter {
    weft_i_coll *coll;
    size_t done;        /* bytes */
    bool begun;         /* a piece has moved */
    weft_status status; /* WEFT_IN_PROGRESS until it has arrived, or cannot */
    weft_i_letter *next;
};

/* Puts a letter into its lane's list and moves what can be moved. */
void weft_i_pair_post(weft_i_letter *letter);

/* Moves all letters of the lane as far as they go.  Any thread of the rank may. */
void weft_i_pair_push(weft_i_lane *lane);

/* Pushes until the letter has arrived; WEFT_OK then, also if it was refused (see its status). */
weft_status weft_i_pair_wait(weft_i_letter *letter, int64_t timeout_ms);

/* Takes it out of the list. */
void weft_i_pair_forget(weft_i_letter *letter);

#endif
