/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of remote.c, which does what others ask for, and remote_moves.c, which asks. */
#ifndef WEFT_SYMM_REMOTE_MESSAGES_H
#define WEFT_SYMM_REMOTE_MESSAGES_H

#include "base/share/wire.h"
#include "symm/remote.h"

/* Words: */
enum {
    WORD_SERIAL, /* of the registration: in all of them */
    /* PUT and GET: */
    WORD_AT, /* byte of the target's block */
    WORD_AT_HIGH,
    WORD_FACTS, /* PUT: see below; GET: its number, and its data are 4 bytes, how many are wanted */
    /* GOT: */
    WORD_GET = 1, /* its number */
    WORD_STATUS,  /* why there are no data; 0: they are there */
    /* SIGNAL and TAKEN: */
    WORD_CHANNEL = 1,
    WORD_APPLIED /* TAKEN: pieces of puts of the other that this rank has applied */
};

/* Facts of a PUT; above them, the channel. */
enum {
    PUT_ASKS = 1,    /* that it was applied is to be told at once */
    PUT_SIGNALS = 2, /* it is followed by a signal */
    PUT_BITS = 2
};

/* The memory of this rank that member `from`, who is on another host, speaks of; NULL: it has let go of that.
 * Under the remote's lock. */
weft_i_far_memory *weft_i_far_find(const weft_group *group, int from, uint32_t serial);

/* A piece of a get, the one that is due, or a status. */
void weft_i_far_got(weft_i_far_memory *far, int from, uint32_t get, int32_t status,
                    const void *data, size_t bytes);

#endif
