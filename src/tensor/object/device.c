/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of device kinds, and those of the CPU and of meta. */
#include "tensor/object/device.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/cache.h"
#include "tensor/object/stream.h"

#include <stdio.h>
#include <string.h>

enum { CPU_ALIGNMENT = 64 };    /* a cache line, and the widest vector register */
enum { PAGES_FROM = 16 << 10 }; /* at a page from here on: copies between such are quickest */

static weft_status cpu_alloc(weft_device device, void *stream, size_t bytes, void **out)
{
    (void)device;
    (void)stream;
    size_t alignment = bytes < PAGES_FROM ? CPU_ALIGNMENT : WEFT_I_PAGE;
    *out = weft_i_cache_has(bytes) ? weft_i_cache_take(bytes)
           : bytes > PTRDIFF_MAX   ? NULL
                                   : WEFT_OS->alloc_aligned(alignment, bytes);
    return *out ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static void cpu_free(weft_device device, void *stream, void *memory, size_t bytes)
{
    (void)device;
    (void)stream;
    if (weft_i_cache_has(bytes))
        weft_i_cache_give(memory, bytes);
    else
        WEFT_OS->free(memory);
}

static weft_status cpu_copy(weft_device device, void *stream, void *to, bool to_host,
                            const void *from, bool from_host, size_t bytes)
{
    (void)device;
    (void)stream;
    (void)to_host;
    (void)from_host;
    memcpy(to, from, bytes);
    return WEFT_OK;
}

static weft_status cpu_fill(weft_device device, void *stream, void *to, unsigned char value,
                            size_t bytes)
{
    (void)device;
    (void)stream;
    memset(to, value, bytes);
    return WEFT_OK;
}

#define DEVICE(name_) extern const weft_i_device weft_i_device_##name_;
#include "tensor/object/devices.def"
#undef DEVICE

const weft_i_device weft_i_device_cpu = {
    .name = "cpu",
    .count = 1,
    .host = true,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .fill = cpu_fill,
};
/* Its storages count bytes. */
const weft_i_device weft_i_device_meta = {.name = "meta", .count = 1};

/* Changed by tests alone, before there is a second thread. */
static const weft_i_device *tables[WEFT_I_DEVICE_KINDS] = {
#define DEVICE(name_) &weft_i_device_##name_,
#include "tensor/object/devices.def"
#undef DEVICE
};
static const char *const names[WEFT_I_DEVICE_KINDS] = {
#define DEVICE(name_) #name_,
#include "tensor/object/devices.def"
#undef DEVICE
};

void weft_i_device_add(int kind, const weft_i_device *table)
{
    tables[kind] = table;
}

const weft_i_device *weft_i_device_find(weft_device device)
{
    int kind = weft_i_device_kind(device);
    if (kind < 0 || kind >= WEFT_I_DEVICE_KINDS || !tables[kind])
        return NULL;
    return weft_i_device_index(device) < tables[kind]->count ? tables[kind] : NULL;
}

const weft_i_device *weft_i_device_of(const char *what, weft_device device)
{
    const weft_i_device *table = weft_i_device_find(device);
    char name[16];
    return table ? table
                 : weft_i_null(WEFT_ERR_UNSUPPORTED, "%s: there is no device %s in this build",
                               what, weft_device_name(device, name));
}

const char *weft_device_name(weft_device device, char out[16])
{
    int kind = weft_i_device_kind(device), index = weft_i_device_index(device);
    bool known = kind >= 0 && kind < WEFT_I_DEVICE_KINDS;
    if (!out)
        return known ? names[kind] : "unknown";
    if (!known)
        snprintf(out, 16, "unknown");
    else if (kind == WEFT_I_KIND_CUDA || index)
        snprintf(out, 16, "%s:%d", names[kind], index);
    else
        snprintf(out, 16, "%s", names[kind]);
    return out;
}

weft_status weft_i_device_copy(weft_device to_device, void *to, weft_device from_device,
                               const void *from, size_t bytes)
{
    bool to_host = weft_i_device_is_host(to_device), from_host = weft_i_device_is_host(from_device);
    weft_device device = to_host ? from_device : to_device;
    if (to_host && from_host)
        return cpu_copy(device, NULL, to, true, from, true, bytes);
    weft_stream *stream = weft_i_stream_current(device);
    if (!stream)
        return weft_last_status();
    return stream->table->copy(device, stream->own, to, to_host, from, from_host, bytes);
}

weft_status weft_i_device_fill(weft_device device, void *to, unsigned char value, size_t bytes)
{
    if (weft_i_device_is_host(device))
        return cpu_fill(device, NULL, to, value, bytes);
    weft_stream *stream = weft_i_stream_current(device);
    return stream ? stream->table->fill(device, stream->own, to, value, bytes) : weft_last_status();
}
