/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of NVSHMEM in which all ranks meet (its start, nvshmem_malloc, nvshmem_free) wait without a
 * limit.  An attempt makes one in a thread of its own, and the caller waits no longer than it may.
 * A call that does not come back leaves that thread behind and the library unusable.
 */
#ifndef WEFT_NVSHMEM_ATTEMPT_H
#define WEFT_NVSHMEM_ATTEMPT_H

#include "backends/cuda/device.h"
#include "symm/backend.h"

/* What is called, with room for what it needs and gives; copied, so that it outlives the caller. */
typedef struct weft_i_nvshmem_attempt {
    void (*run)(struct weft_i_nvshmem_attempt *attempt);
    const char *what;  /* for messages */
    void *memory[512]; /* to free, then */
    int count;
    size_t bytes; /* to allocate; 0: none */
    void *made;
    int rank, ranks, result;
    char id[128];
} weft_i_nvshmem_attempt;

/*
 * Runs it on the device's context.  WEFT_ERR_TIMEOUT at the circle's deadline, WEFT_ERR_PEER_DEAD
 * or WEFT_ERR_PEER_LEFT if a member is lost meanwhile: then the call is still under way.
 */
weft_status weft_i_nvshmem_try(const weft_i_circle *circle, weft_i_cuda_device *device,
                               weft_i_nvshmem_attempt *attempt);

#endif
