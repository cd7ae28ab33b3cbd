/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend cuda: memory of devices that ranks share, as threads or processes, and what this machine
 * offers.
 *
 * The probe must not start CUDA: its caller may fork afterwards.  It loads the driver's library,
 * which is harmless, and learns the devices from files of the kernel.
 */
#include "backends/cuda/device/driver.h"

#include "backends/cuda/device/device.h"
#include "backends/cuda/device/memory.h"
#include "backends/cuda/ranks/carrier.h"
#include "backends/cuda/ranks/symm.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "symm/backend.h"

#include <stdio.h>

/* Device nodes that the kernel has made: what a process may see is less if it is told so. */
static int count_nodes(void)
{
    int count = 0;
    for (int i = 0; i < WEFT_I_CUDA_DEVICES; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        int fd = WEFT_OS->open(path, 0, 0);
        if (fd < 0)
            continue;
        WEFT_OS->close(fd);
        count++;
    }
    return count;
}

/* Whether there may be hardware multicast, as far as it can be told without starting CUDA. */
static const char *multicast_of(const weft_i_cuda *cu, int nodes)
{
    if (!weft_i_env_number_or_default(WEFT_I_ENV_CUDA_MULTICAST))
        return "off by WEFT_CUDA_MULTICAST";
    if (!cu->cuMulticastCreate)
        return "no: not in this driver";
    return nodes == 1 ? "no: it joins several GPUs" : "if the GPUs have it";
}

static int probe(char *reason, size_t bytes)
{
    const weft_i_cuda *cu;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_i_cuda_load(&cu);
    if (status != WEFT_OK) {
        snprintf(reason, bytes, "%s", weft_last_error());
        weft_i_errors_restore(&before); /* a machine without CUDA is no error */
        return 0;
    }
    int nodes = count_nodes();
    snprintf(reason, bytes, "driver of CUDA %d.%d, %d device node%s, kernels %s, multicast %s",
             cu->version / 1000, cu->version % 1000 / 10, nodes, nodes == 1 ? "" : "s",
             weft_i_cuda_embedded(WEFT_I_CUDA_IMAGE_KERNELS) ? "compiled" : "as text, for NVRTC",
             multicast_of(cu, nodes));
    return 30;
}

static const weft_i_memory memory = {
    .allocate = weft_i_cuda_memory_allocate,
    .publish = weft_i_cuda_memory_publish,
};

static const weft_i_carry carry = {
    .open = weft_i_cuda_carrier_open,
    .close = weft_i_cuda_carrier_close,
    .takes = weft_i_cuda_carrier_takes,
    .collective = weft_i_cuda_carrier_run,
    .check = weft_i_cuda_carrier_check,
};

extern const weft_i_backend weft_i_backend_cuda;
const weft_i_backend weft_i_backend_cuda = {
    .name = "cuda",
    .device_kind = 2,
    .sharing = WEFT_I_SERVES_PROCESSES | WEFT_I_SERVES_THREADS,
    .probe = probe,
    .memory = &memory,
    .device_memory = &weft_i_cuda_device_memory,
    .carry = &carry,
};
