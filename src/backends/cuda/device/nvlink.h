/* SPDX-License-Identifier: Apache-2.0 */
/* NVLink between the devices that this process sees, as NVML tells it. */
#ifndef WEFT_CUDA_NVLINK_H
#define WEFT_CUDA_NVLINK_H

#include "weft/status.h"

/* Declared by us: NVML is loaded when it is asked for. */
typedef struct weft_i_nvml_device *weft_i_nvml_device;
typedef struct weft_i_nvml_pci {
    char old_bus_id[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} weft_i_nvml_pci;

enum { WEFT_I_NVML_LINKS = 64, WEFT_I_NVML_TO_GPU = 0, WEFT_I_NVML_TO_SWITCH = 2 };

/*
 * A matrix of link counts between devices, *size * *size, of WEFT_OS->alloc; 0 on the diagonal.
 * Where NVML does not answer there is a warning, and what is known so far.
 */
weft_status weft_i_cuda_nvlink(int *size, int **links);

#endif
