/* SPDX-License-Identifier: Apache-2.0 */
/* Signal pads in memory of the host: where what lies. */
#ifndef WEFT_SYMM_PADS_H
#define WEFT_SYMM_PADS_H

#include "base/os/assert.h"
#include "base/share/segment.h"

/*
 * The pads of all members lie in one segment, made by the first member; in a group that spans hosts in
 * one for each host, made by the first member there.  Each member's part: a line
 * with its bell and when it last gave a barrier up, one arrival word per channel (written by it
 * alone), one pass word per channel (see base/share/signal.h), then the pad users see: word W * channel +
 * source is a semaphore.
 */
typedef struct weft_i_pads {
    weft_i_segment *segment;
    size_t stride;   /* bytes of one member's part */
    size_t words_at; /* of the arrival words in it */
    size_t passes_at;
    size_t pad_at; /* of the users' pad */
    size_t pad_bytes;
    int channels;
} weft_i_pads;

static inline char *weft_i_pads_part(const weft_i_pads *pads, int rank)
{
    WEFT_ASSERT(rank >= 0 && pads->segment);
    return pads->segment->base + (size_t)rank * pads->stride;
}

/* The users' pad of a member. */
static inline char *weft_i_pads_of(const weft_i_pads *pads, int rank)
{
    return weft_i_pads_part(pads, rank) + pads->pad_at;
}

#endif
