/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend nvshmem: memory that NVSHMEM makes on all ranks at once.  It is never chosen by itself:
 * weft_symm_set_backend starts it, with all ranks of the world.  Collectives are carried by others.
 */
#include "backends/cuda/device/driver.h"
#include "block.h"
#include "library.h"
#include "start.h"
#include "symm.h"
#include "symm/backend.h"

#include <stdio.h>

/* Loads the libraries, which starts nothing. */
static int probe(char *reason, size_t bytes)
{
    const weft_i_nvshmem *nv;
    const weft_i_cuda *cu;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_i_cuda_load(&cu);
    if (status == WEFT_OK)
        status = weft_i_nvshmem_load(&nv);
    if (status != WEFT_OK)
        snprintf(reason, bytes, "%s", weft_last_error());
    else
        snprintf(reason, bytes,
                 "NVSHMEM %d.%d.%d; used after weft_symm_set_backend(device, \"nvshmem\")",
                 nv->major, nv->minor, nv->patch);
    weft_i_errors_restore(&before); /* a machine without it is no error */
    return status == WEFT_OK ? 20 : 0;
}

/* Members find it by address or PE. */
static weft_status publish(weft_i_fdpass *fdpass, weft_i_segment *block)
{
    (void)fdpass;
    (void)block;
    return WEFT_OK;
}

static const weft_i_memory memory = {.allocate = weft_i_nvshmem_allocate, .publish = publish};

extern const weft_i_backend weft_i_backend_nvshmem;
const weft_i_backend weft_i_backend_nvshmem = {
    .name = "nvshmem",
    .device_kind = 2,
    .sharing = WEFT_I_SERVES_PROCESSES,
    .start = weft_i_nvshmem_start,
    .probe = probe,
    .memory = &memory,
    .device_memory = &weft_i_nvshmem_device_memory,
};
