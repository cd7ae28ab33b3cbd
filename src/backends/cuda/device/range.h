/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range: the addresses at which the blocks of all members of a group are mapped, at one stride.
 * A process rank has its own.  Thread ranks share one, in which each maps its own block: so no
 * memory is reached by two of its addresses, which devices do not keep coherent while kernels run.
 */
#ifndef WEFT_CUDA_RANGE_H
#define WEFT_CUDA_RANGE_H

#include "memory.h"

typedef struct weft_i_cuda_range {
    weft_i_cuda_span *span; /* of all members; thread ranks share it */
    weft_i_segment *shared; /* what holds it */
    weft_i_fdpass *fdpass;  /* where it is published under `key`; NULL: no longer, or never */
    weft_i_key key;
} weft_i_cuda_range;

/*
 * Maps this rank's block, and between processes those of the others too; a peer's segment gets its
 * address.  Collective: `key` is the same for all.  The range can be used when all have mapped; it
 * is to be settled and closed also if this fails.
 */
weft_status weft_i_cuda_range_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                   weft_i_key key, weft_i_segment *const *blocks,
                                   weft_i_cuda_range *out);

/* Instead, by whoever fails before: the others are not to wait for its range. */
void weft_i_cuda_range_refuse(const weft_i_circle *circle, weft_i_key key, weft_status why,
                              weft_i_cuda_range *out);

/* All have it: nobody else will ask. */
void weft_i_cuda_range_settle(weft_i_cuda_range *range);

/* Its addresses go when what was enqueued before has run. */
void weft_i_cuda_range_close(weft_i_cuda_range *range);

#endif
