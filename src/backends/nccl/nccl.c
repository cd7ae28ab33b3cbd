/* SPDX-License-Identifier: Apache-2.0 */
/* Backend nccl: NCCL's collectives around those of backend cuda, and what this machine has of it. */
#include "backends/cuda/device/driver.h"
#include "base/report/status.h"
#include "carrier.h"
#include "symm.h"
#include "symm/backend.h"
#include "window.h"

#include <stdio.h>

/* As cuda's, it starts nothing: whoever asks may fork afterwards. */
static int probe(char *reason, size_t bytes)
{
    const weft_i_cuda *cuda;
    const weft_i_nccl *nccl;
    char version[32];
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_i_nccl_load(&nccl);
    if (status == WEFT_OK) {
        snprintf(reason, bytes, "NCCL %s",
                 weft_i_nccl_version_text(nccl->version, version, sizeof version));
        status = weft_i_cuda_load(&cuda);
        if (status < 0)
            snprintf(reason, bytes, "NCCL %s, but %s", version, weft_last_error());
    } else {
        snprintf(reason, bytes, "%s", weft_last_error());
    }
    weft_i_errors_restore(&before); /* a machine without it is no error */
    return status == WEFT_OK ? 20 : 0;
}

static const weft_i_memory memory = {
    .allocate = weft_i_nccl_memory_allocate,
    .publish = weft_i_nccl_publish,
};

static const weft_i_carry carry = {
    .wraps = "cuda",
    .reaches_hosts = true,
    .open = weft_i_nccl_carrier_open,
    .close = weft_i_nccl_carrier_close,
    .takes = weft_i_nccl_carrier_takes,
    .collective = weft_i_nccl_carrier_run,
    .check = weft_i_nccl_carrier_check,
    .captures = weft_i_nccl_carrier_captures,
};

extern const weft_i_backend weft_i_backend_nccl;
const weft_i_backend weft_i_backend_nccl = {
    .name = "nccl",
    .device_kind = 2,
    .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
    .probe = probe,
    .memory = &memory,
    .device_memory = &weft_i_nccl_device_memory,
    .carry = &carry,
    .fast = &weft_i_nccl_fast_path,
};
