/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1 of the software driver: every device has links to the next one and to switches,
 * as model.nvlinks and model.switch_links say; device i has i links to switches more. */
#include "model_parts.h"

#include "backends/cuda/device/nvlink.h"

#include <stdio.h>
#include <string.h>

enum { NOT_FOUND = 6, NO_SUCH_LINK = 2, FIRST = 100 };

static int devices(void)
{
    int count = 0;
    return model_cuDeviceGetCount(&count) ? 0 : count;
}

static int number(weft_i_nvml_device device)
{
    return (int)(uintptr_t)device - 1;
}

static int init(void)
{
    return model.nvml_fails;
}

static int shut_down(void)
{
    return 0;
}

/* The first byte of a device's identity is its handle; see model_cuDeviceGetUuid. */
static int by_uuid(const char *uuid, weft_i_nvml_device *out)
{
    unsigned first = 0;
    if (sscanf(uuid, "GPU-%2x", &first) != 1 || strlen(uuid) != 40 || first < FIRST ||
        first >= FIRST + (unsigned)devices())
        return NOT_FOUND;
    *out = (weft_i_nvml_device)(uintptr_t)(first - FIRST + 1);
    return 0;
}

static int pci(weft_i_nvml_device device, weft_i_nvml_pci *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", number(device) + 1);
    return 0;
}

static int switch_links(weft_i_nvml_device device)
{
    return model.switch_links ? model.switch_links + number(device) : 0;
}

/* First those to the next device, then a broken one, then those to switches. */
static int link_state(weft_i_nvml_device device, unsigned link, int *active)
{
    int total = model.nvlinks + 1 + switch_links(device);
    *active = (int)link != model.nvlinks;
    return (int)link < total ? 0 : NO_SUCH_LINK;
}

static int link_type(weft_i_nvml_device device, unsigned link, int *type)
{
    (void)device;
    *type = (int)link < model.nvlinks ? WEFT_I_NVML_TO_GPU : WEFT_I_NVML_TO_SWITCH;
    return 0;
}

static int link_pci(weft_i_nvml_device device, unsigned link, weft_i_nvml_pci *out)
{
    (void)link;
    int next = (number(device) + 1) % devices();
    return pci((weft_i_nvml_device)(uintptr_t)(next + 1), out);
}

static const struct {
    const char *name;
    void *function;
} table[] = {
    {"nvmlInit_v2", (void *)(uintptr_t)init},
    {"nvmlShutdown", (void *)(uintptr_t)shut_down},
    {"nvmlDeviceGetHandleByUUID", (void *)(uintptr_t)by_uuid},
    {"nvmlDeviceGetPciInfo_v3", (void *)(uintptr_t)pci},
    {"nvmlDeviceGetNvLinkState", (void *)(uintptr_t)link_state},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", (void *)(uintptr_t)link_type},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", (void *)(uintptr_t)link_pci},
};

void *model_nvml_symbol(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name) && !(model.lacks && !strcmp(model.lacks, name)))
            return table[i].function;
    return NULL;
}
