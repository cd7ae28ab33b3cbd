/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: memory of all members of a communicator that NCCL has registered.  NCCL gives it places
 * at one stride, which members compute by themselves from what is registered: so all register and
 * deregister in one order.  A window that is no longer used waits for the next rendezvous of its
 * group, where the members compare which ones nobody uses; or for the end of the communicator.
 * Windows of several ranks are untested on hardware: scripts/gpu-check peers.
 */
#ifndef WEFT_NCCL_WINDOW_H
#define WEFT_NCCL_WINDOW_H

#include "backends/cuda/ranks/team.h"
#include "comm.h"

typedef struct weft_i_nccl_window_of {
    weft_i_nccl_comm *comm; /* held until it is idle */
    weft_i_segment *memory; /* held until it is deregistered */
    weft_i_nccl_window raw; /* NULL: none, or gone with its communicator */
    uint32_t number;        /* from 1, the same on all members */
    bool idle;              /* nothing uses it any more; under the lock of window.c */
    struct weft_i_nccl_window_of *next;
} weft_i_nccl_window_of;

/* The entry of the backend's table: a zeroed block of this rank, by ncclMemAlloc. */
weft_status weft_i_nccl_memory_allocate(weft_device device, size_t bytes, weft_i_segment **out);
weft_i_cuda_device *weft_i_nccl_memory_device(const weft_i_segment *memory);

/* Numbers of windows that a member can do without. */
enum { WEFT_I_NCCL_IDLE_MOST = 32 };
typedef struct weft_i_nccl_idle {
    int32_t status; /* of the member */
    uint32_t count, number[WEFT_I_NCCL_IDLE_MOST];
} weft_i_nccl_idle;

void weft_i_nccl_idle_show(weft_i_nccl_comm *comm, weft_i_nccl_idle *out);
/* Deregisters those that all members show.  All call it with the same. */
void weft_i_nccl_idle_end(weft_i_nccl_comm *comm, const weft_i_nccl_idle *all);

/* Registers this rank's memory with everybody's; all members call it in one order. */
weft_status weft_i_nccl_window_new(const weft_i_circle *circle, weft_i_nccl_comm *comm,
                                   weft_i_segment *memory, weft_i_nccl_window_of **out);

/* Where everybody's lies.  WEFT_ERR_UNSUPPORTED if some members' is not reached by load and store.
 */
weft_status weft_i_nccl_window_reach(const weft_i_nccl_window_of *window, weft_i_cuda_reach *out);

/* Nobody here will use it: it goes when what was enqueued has run and all members say so. */
void weft_i_nccl_window_drop(weft_i_nccl_window_of *window);

/* Deregisters all that are left, before the communicator ends or after it was aborted. */
void weft_i_nccl_window_end_all(weft_i_nccl_comm *comm);

#endif
