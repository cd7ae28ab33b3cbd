/* SPDX-License-Identifier: Apache-2.0 */
/* Starting NVSHMEM with all ranks of the world, and what must hold afterwards. */
#ifndef WEFT_NVSHMEM_START_H
#define WEFT_NVSHMEM_START_H

#include "backends/cuda/device/device.h"
#include "library.h"
#include "symm/backend.h"

/*
 * The entry of the backend's table: collective over the world.  Calling it again is collective too,
 * and frees what all ranks have released meanwhile.
 */
weft_status weft_i_nvshmem_start(const weft_i_circle *world);

/* The world with which it was started, and its device.  WEFT_ERR_STATE: it was not, or with another
 * world; or why nothing of NVSHMEM works any more. */
weft_status weft_i_nvshmem_world(weft_device device, const char *what, weft_i_circle *world,
                                 weft_i_cuda_device **out);

/* A call in which all ranks meet has not come back, or they differ: nothing works from now on. */
void weft_i_nvshmem_break(weft_status why);

/* This rank's number in NVSHMEM. */
int weft_i_nvshmem_pe(void);

/* Maps variables of NCCL that are set to those of NVSHMEM that are not. */
void weft_i_nvshmem_map_variables(void);

#endif
