/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's block of symmetric memory on a CUDA device: memory that can be exported and mapped, with
 * an address of its own, as a segment.  One of a peer in another process is the handle alone; it
 * gets an address where it is mapped beside the others (range.h).
 */
#ifndef WEFT_CUDA_MEMORY_H
#define WEFT_CUDA_MEMORY_H

#include "span.h"
#include "symm/backend.h"

typedef struct weft_i_cuda_memory {
    weft_i_cuda_device *device;
    weft_i_cu_handle handle;
    weft_i_cuda_span span; /* of one block; no base if it is a peer's */
} weft_i_cuda_memory;

/* The entries of the backend's table. */
weft_status weft_i_cuda_memory_allocate(weft_device device, size_t bytes, weft_i_segment **out);
weft_status weft_i_cuda_memory_publish(weft_i_fdpass *fdpass, weft_i_segment *block);

/* A peer's, for use on `device`.  WEFT_ERR_TIMEOUT without a message at the order's deadline. */
weft_status weft_i_cuda_memory_import(weft_i_cuda_device *device, const weft_i_fdpass_order *order,
                                      weft_i_segment **out);

/* What it publishes under another key. */
weft_status weft_i_cuda_memory_publish_as(weft_i_fdpass *fdpass, weft_i_key key,
                                          weft_i_segment *block);

/* Are the ranks that meet at this server threads of one process? */
static inline bool weft_i_cuda_is_among_threads(const weft_i_fdpass *fdpass)
{
    return !weft_i_fdpass_name(fdpass)[0];
}

static inline weft_i_cuda_memory *weft_i_cuda_memory_of(const weft_i_segment *segment)
{
    return segment->owner;
}

#endif
