/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of NVSHMEM's memory, the same on all ranks: bytes of the user, then a few slots with room
 * for the pads of one group each.  Allocation is collective over the world.  A block that this rank
 * has let go of stays until all ranks have, and is freed by all at once the next time they meet: at
 * an allocation, or when weft_symm_set_backend is called again.
 */
#ifndef WEFT_NVSHMEM_BLOCK_H
#define WEFT_NVSHMEM_BLOCK_H

#include "backends/cuda/ranks/team.h"
#include "symm/backend.h"

enum { WEFT_I_NVSHMEM_SLOTS = 4, WEFT_I_NVSHMEM_LINE = 256 };

typedef struct weft_i_nvshmem_block {
    char *base;
    size_t bytes; /* as asked for */
    size_t places_at, place_bytes;
    uint32_t serial;      /* the same on all ranks */
    atomic_uint next;     /* slot that is free; relaxed: a rank's rendezvous come one by one */
    atomic_bool released; /* release by whoever lets go, acquire by whoever frees */
    weft_i_cuda_device *device;
    struct weft_i_nvshmem_block *after; /* of all that live, oldest first */
} weft_i_nvshmem_block;

weft_status weft_i_nvshmem_allocate(weft_device device, size_t bytes, weft_i_segment **out);

/* Frees what all ranks have let go of.  Collective over the world. */
weft_status weft_i_nvshmem_collect(const weft_i_circle *world, weft_i_cuda_device *device);

/* Blocks that live, or those of them that this rank has let go of; for tests. */
int weft_i_nvshmem_live(bool released);

static inline weft_i_nvshmem_block *weft_i_nvshmem_block_of(const weft_i_segment *segment)
{
    return segment->owner;
}

/* The sizes of a group's pads in a slot. */
weft_i_cuda_sizes weft_i_nvshmem_sizes(int ranks, size_t pad_bytes, int channels);

#endif
