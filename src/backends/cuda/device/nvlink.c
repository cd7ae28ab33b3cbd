/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVLink between devices; see nvlink.h.  A link leads to another GPU, which counts if this process
 * sees it, or to a switch.  All switches are taken to be connected, so two devices have as many
 * links through them as the one that has fewer.
 */
#include "nvlink.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "device.h"
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef int nvml_result; /* 0: well */

typedef struct nvml {
    nvml_result (*init)(void);
    nvml_result (*shutdown)(void);
    nvml_result (*by_uuid)(const char *uuid, weft_i_nvml_device *out);
    nvml_result (*pci)(weft_i_nvml_device device, weft_i_nvml_pci *out);
    nvml_result (*link_state)(weft_i_nvml_device device, unsigned link, int *active);
    nvml_result (*link_type)(weft_i_nvml_device device, unsigned link, int *type);
    nvml_result (*link_pci)(weft_i_nvml_device device, unsigned link, weft_i_nvml_pci *out);
} nvml;

static const struct {
    const char *name;
    size_t at;
} functions[] = {
    {"nvmlInit_v2", offsetof(nvml, init)},
    {"nvmlShutdown", offsetof(nvml, shutdown)},
    {"nvmlDeviceGetHandleByUUID", offsetof(nvml, by_uuid)},
    {"nvmlDeviceGetPciInfo_v3", offsetof(nvml, pci)},
    {"nvmlDeviceGetNvLinkState", offsetof(nvml, link_state)},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(nvml, link_type)},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(nvml, link_pci)},
};

/* NULL, or what is missing. */
static const char *load(nvml *out)
{
    void *library = WEFT_OS->dlopen("libnvidia-ml.so.1");
    if (!library)
        return "there is no libnvidia-ml.so.1";
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = WEFT_OS->dlsym(library, functions[i].name);
        if (!found)
            return functions[i].name;
        memcpy((char *)out + functions[i].at, &found, sizeof found);
    }
    return out->init() ? "nvmlInit_v2 fails" : NULL;
}

/* "GPU-" and the 16 bytes in groups of 4, 2, 2, 2 and 6. */
static void write_uuid(const weft_i_cu_uuid *uuid, char out[64])
{
    size_t at = (size_t)snprintf(out, 64, "GPU-");
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(out + at, 64 - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned)(unsigned char)uuid->bytes[i]);
}

typedef struct seen {
    weft_i_nvml_device device;
    weft_i_nvml_pci pci;
    int to_switches;
} seen;

static weft_status find_device(const weft_i_cuda *cu, const nvml *ml, int ordinal, seen *out)
{
    weft_i_cu_device handle;
    weft_i_cu_uuid uuid;
    char text[64];
    WEFT_CUDA_TRY(cu->cuDeviceGet(&handle, ordinal), "cuda:%d", ordinal);
    WEFT_CUDA_TRY(cu->cuDeviceGetUuid(&uuid, handle), "identity of cuda:%d", ordinal);
    write_uuid(&uuid, text);
    if (ml->by_uuid(text, &out->device) || ml->pci(out->device, &out->pci)) {
        weft_i_log(WEFT_LOG_WARN, "NVML does not know cuda:%d (%s): its NVLinks are not counted",
                   ordinal, text);
        out->device = NULL;
    }
    return WEFT_OK;
}

static int find_bus(const seen *all, int count, const char *bus_id)
{
    for (int i = 0; i < count; i++)
        if (all[i].device && !strcasecmp(all[i].pci.bus_id, bus_id))
            return i;
    return -1;
}

/* The first link that cannot be asked for is the end of them. */
static void count_links(const nvml *ml, seen *all, int count, int from, int *links)
{
    for (unsigned link = 0; link < WEFT_I_NVML_LINKS; link++) {
        int active = 0, type = -1, to;
        weft_i_nvml_pci other = {.bus_id = ""};
        if (ml->link_state(all[from].device, link, &active))
            return;
        if (!active || ml->link_type(all[from].device, link, &type))
            continue;
        all[from].to_switches += type == WEFT_I_NVML_TO_SWITCH;
        if (type != WEFT_I_NVML_TO_GPU || ml->link_pci(all[from].device, link, &other))
            continue;
        to = find_bus(all, count, other.bus_id);
        if (to >= 0 && to != from)
            links[from * count + to]++;
    }
}

static void add_switches(const seen *all, int count, int *links)
{
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++)
            if (from != to)
                links[from * count + to] += all[from].to_switches < all[to].to_switches
                                                ? all[from].to_switches
                                                : all[to].to_switches;
}

static weft_status look(const nvml *ml, int count, seen *all, int *links)
{
    const weft_i_cuda *cu;
    WEFT_TRY(weft_i_cuda_start(&cu));
    for (int i = 0; i < count; i++)
        WEFT_TRY(find_device(cu, ml, i, &all[i]));
    for (int i = 0; i < count; i++)
        if (all[i].device)
            count_links(ml, all, count, i, links);
    add_switches(all, count, links);
    return WEFT_OK;
}

weft_status weft_i_cuda_nvlink(int *size, int **links)
{
    nvml ml;
    int count;
    WEFT_TRY(weft_i_cuda_count(&count));
    size_t cells = (size_t)count * (size_t)count;
    int *found = WEFT_OS->alloc(cells * sizeof *found + 1);
    seen *all = WEFT_OS->alloc((size_t)count * sizeof *all + 1);
    if (!found || !all) {
        WEFT_OS->free(found);
        WEFT_OS->free(all);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a matrix of %d devices", count);
    }
    memset(found, 0, cells * sizeof *found);
    memset(all, 0, (size_t)count * sizeof *all);
    const char *missing = load(&ml);
    weft_status status = WEFT_OK;
    if (missing)
        weft_i_log(WEFT_LOG_WARN, "NVLinks are not counted: NVML: %s", missing);
    else
        status = look(&ml, count, all, found);
    if (!missing)
        ml.shutdown();
    WEFT_OS->free(all);
    if (status < 0) {
        WEFT_OS->free(found);
        return status;
    }
    *size = count;
    *links = found;
    return WEFT_OK;
}
