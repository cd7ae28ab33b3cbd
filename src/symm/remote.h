/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory of members on other hosts.  It has no address here.  What this rank puts there goes in
 * pieces, PUT messages, which the target's process applies; what it gets is asked for by GETs.  Signals are
 * words in the pads of this host: that of a member elsewhere is a copy, which says whether it has taken
 * our last one.  A SIGNAL fills the word there, a TAKEN empties the copy here.
 *
 * Messages of a pair are taken in their order, so a signal comes after what was put before it.  For other
 * members it is hosts_pads.h that sees to that.
 *
 * A rank that has let go of the memory drops what is put there, as it cannot be looked at, and refuses gets.
 */
#ifndef WEFT_SYMM_REMOTE_H
#define WEFT_SYMM_REMOTE_H

#include "fabric/group/hosts_pads.h"
#include "symm/pads.h"

enum {
    WEFT_I_FAR_PIECE = 56 << 10, /* bytes; every transport's segment has that much */
    WEFT_I_FAR_GETS = 8          /* pieces of a get that are asked for at a time */
};

typedef struct weft_i_far_get weft_i_far_get;

/* What this rank has of a registration whose members are on several hosts. */
typedef struct weft_i_far_memory {
    weft_i_hosts_pads pads; /* first: found by its serial */
    weft_i_pads users;      /* borrowed: the registration goes later */
    int ranks;
    char *base; /* of this rank's block, likewise */
    size_t bytes;
    weft_i_far_get *gets; /* under way, under the remote's lock */
    uint32_t last_get;
} weft_i_far_memory;

/* Registration `serial` has its pads and this rank's block.  Before any member can know that all have it. */
weft_status weft_i_far_open(weft_group *group, uint32_t serial, const weft_i_pads *pads,
                            const weft_i_segment *own, weft_i_far_memory **out);
/* Ends it; NULL: nothing. */
void weft_i_far_close(weft_i_far_memory *far);

/* A block of a member elsewhere: a segment without an address. */
weft_status weft_i_far_block(size_t bytes, weft_i_segment **out);

#endif
