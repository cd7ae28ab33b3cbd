/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pads of all members of a group, a block each in its owner's memory, mapped at one stride; and
 * this rank's part in the team that meets there.
 */
#ifndef WEFT_CUDA_PADS_H
#define WEFT_CUDA_PADS_H

#include "backends/cuda/device/range.h"
#include "symm/sentry.h"
#include "team.h"

typedef struct weft_i_cuda_pads {
    weft_i_cuda_team team;
    weft_i_cuda_range range;
    weft_i_segment **blocks; /* by rank; each held */
    int size;
    weft_i_fdpass *fdpass; /* where this rank's is published under `key`; NULL: no longer */
    weft_i_key key;
    weft_i_cuda_stream *spare; /* borrowed from the device: for words to the pads of the dead */
} weft_i_cuda_pads;

/*
 * Makes this rank's pads, and maps everybody's.  `keys` are those of their pads, agreed before.
 * Must not move until it is closed; afterwards all agree and settle.
 */
weft_status weft_i_cuda_pads_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                  const weft_i_key *keys, const weft_i_card *cards,
                                  const weft_i_cuda_sizes *sizes, weft_i_cuda_pads *out);
/* Where pads lie that somebody else has mapped: the first member's, and the stride to the next; or a
 * table of how far each is from the first, on the host and on the device. */
typedef struct weft_i_cuda_mapped {
    char *first;
    size_t stride;
    const int64_t *shifts, *shifts_there;
} weft_i_cuda_mapped;

/* The same over such memory, which is zeroed; it stays the caller's. */
weft_status weft_i_cuda_pads_over(const weft_i_circle *circle, weft_i_cuda_device *device,
                                  const weft_i_card *cards, const weft_i_cuda_sizes *sizes,
                                  const weft_i_cuda_mapped *mapped, weft_i_cuda_pads *out);

void weft_i_cuda_pads_settle(weft_i_cuda_pads *pads);
/* Also, like settling, after an opening that failed. */
void weft_i_cuda_pads_close(weft_i_cuda_pads *pads);

/* This rank's part of a reset: nothing of any rank runs on them. */
weft_status weft_i_cuda_pads_reset(weft_i_cuda_pads *pads);

/* What a device shows, and whether members with these may meet. */
void weft_i_cuda_card(const weft_i_cuda_device *device, weft_i_card *out);
weft_status weft_i_cuda_compare(const weft_i_circle *circle, const weft_i_card *cards);

#endif
