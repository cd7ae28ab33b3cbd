/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of NVSHMEM in which all ranks meet (its start, nvshmem_malloc, nvshmem_free) wait without a
 * limit.  An attempt makes one in a thread of its own, and the caller waits no longer than it may.
 * A call that does not come back leaves that thread behind and the library unusable.
 */
#ifndef WEFT_NVSHMEM_ATTEMPT_H
#define WEFT_NVSHMEM_ATTEMPT_H

#include "backends/cuda/device/device.h"
#include "symm/backend.h"

/* What is called, with room for what it needs and gives. */
typedef struct weft_i_nvshmem_attempt {
    void (*run)(struct weft_i_nvshmem_attempt *attempt);
    const char *what;  /* for messages */
    void *memory[512]; /* to free, then */
    int count;
    size_t bytes; /* to allocate; 0: none */
    void *made;
    int rank, ranks, result;
    char id[128];

    /* the thread */
    weft_i_cuda_device *device;
    weft_status ready;     /* whether it could use the device */
    _Atomic uint32_t done; /* release by the thread, acquire by the caller */
    atomic_int holders;    /* acq_rel: caller and thread; the last one frees it */
} weft_i_nvshmem_attempt;

/* Made before the ranks agree to call: whoever has no memory for it can still say so. */
weft_i_nvshmem_attempt *weft_i_nvshmem_attempt_new(const char *what);
void weft_i_nvshmem_attempt_drop(weft_i_nvshmem_attempt *attempt);

/*
 * Runs it on the device's context, once.  WEFT_ERR_TIMEOUT at the circle's deadline,
 * WEFT_ERR_PEER_DEAD or WEFT_ERR_PEER_LEFT if a member is lost meanwhile: then the call is still
 * under way, and what it gives is not to be looked at.
 */
weft_status weft_i_nvshmem_try(const weft_i_circle *circle, weft_i_cuda_device *device,
                               weft_i_nvshmem_attempt *attempt);

#endif
