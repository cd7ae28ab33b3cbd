/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages.  Invariant: `data` has exactly `bytes` bytes, except on meta where only the number
 * exists.  The object itself never moves, so that all tensors that share it see a new size or
 * pointer at once.
 */
#include "tensor/storage.h"

#include "base/os.h"
#include "base/status.h"
#include "tensor/shelf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CPU_ALIGNMENT = 64 };    /* a cache line, and the widest vector register */
enum { PAGES_FROM = 16 << 10 }; /* at a page from here on: copies between such are quickest */

static void *cpu_alloc(weft_device device, size_t bytes)
{
    (void)device;
    if (weft_i_shelf_has(bytes))
        return weft_i_shelf_take(bytes);
    size_t alignment = bytes < PAGES_FROM ? CPU_ALIGNMENT : WEFT_I_PAGE;
    return bytes > PTRDIFF_MAX ? NULL : WEFT_OS->alloc_aligned(alignment, bytes);
}

static void cpu_free(weft_device device, void *memory, size_t bytes)
{
    (void)device;
    if (weft_i_shelf_has(bytes))
        weft_i_shelf_give(memory, bytes);
    else
        WEFT_OS->free(memory);
}

static void cpu_copy(weft_device device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
}

static const weft_i_allocator cpu_allocator = {cpu_alloc, cpu_free, cpu_copy};
/* Meta storages count bytes; the empty table marks them as resizable. */
static const weft_i_allocator meta_allocator = {NULL, NULL, NULL};

static const weft_i_allocator *allocator_of(weft_device device)
{
    return device == WEFT_CPU ? &cpu_allocator : device == WEFT_META ? &meta_allocator : NULL;
}

const char *weft_device_name(weft_device device, char out[16])
{
    static const char *const kinds[] = {"cpu", "meta", "cuda"};
    int kind = weft_i_device_kind(device), index = device & 0xffff;
    if (!out)
        return kind < 0 || kind > 2 ? "unknown" : kinds[kind];
    if (kind < 0 || kind > 2)
        snprintf(out, 16, "unknown");
    else if (kind == 2 || index)
        snprintf(out, 16, "%s:%d", kinds[kind], index);
    else
        snprintf(out, 16, "%s", kinds[kind]);
    return out;
}

static void destroy(weft_i_object *object)
{
    weft_storage *storage = (weft_storage *)object;
    weft_i_claim_end_all(storage);
    pthread_mutex_destroy(&storage->claims_lock);
    if (storage->allocator && storage->data)
        storage->allocator->free(storage->device, storage->data, storage->bytes);
    if (!storage->allocator && storage->release)
        storage->release(storage->release_argument);
    weft_i_object_free(object);
}

/* The object alone; NULL and an error if memory runs out. */
static weft_storage *new_storage(weft_device device)
{
    weft_storage *storage = weft_i_object_new_unscoped(WEFT_I_STORAGE, sizeof *storage, destroy);
    if (!storage)
        return NULL;
    storage->device = device;
    pthread_mutex_init(&storage->claims_lock, NULL);
    return storage;
}

static weft_status no_memory(weft_device device, size_t bytes)
{
    char name[16];
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a storage of %zu bytes on %s", bytes,
                       weft_device_name(device, name));
}

weft_storage *weft_i_storage_new(weft_device device, size_t bytes)
{
    const weft_i_allocator *allocator = allocator_of(device);
    char name[16];
    if (!allocator)
        return weft_i_null(WEFT_ERR_UNSUPPORTED,
                           "device %s has no memory in this build (there are cpu and meta)",
                           weft_device_name(device, name));
    weft_storage *storage = new_storage(device);
    if (!storage)
        return NULL;
    storage->allocator = allocator;
    if (bytes && allocator->alloc && !(storage->data = allocator->alloc(device, bytes))) {
        no_memory(device, bytes);
        weft_i_object_drop(storage);
        return NULL;
    }
    storage->bytes = bytes;
    return storage;
}

weft_storage *weft_i_storage_wrap(void *data, size_t bytes, weft_device device,
                                  void (*release)(void *argument), void *argument)
{
    if (!data && bytes)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "cannot wrap %zu bytes at NULL", bytes);
    weft_storage *storage = new_storage(device);
    if (!storage)
        return NULL;
    storage->data = data;
    storage->bytes = bytes;
    storage->release = release;
    storage->release_argument = argument;
    return storage;
}

size_t weft_storage_bytes(const weft_storage *storage)
{
    return storage ? storage->bytes : 0;
}

void *weft_storage_data(const weft_storage *storage)
{
    return storage && weft_i_storage_ready((weft_storage *)storage, true) == WEFT_OK ? storage->data
                                                                                     : NULL;
}

static weft_status check_resize(const weft_storage *storage)
{
    if (!storage)
        return weft_last_status() < 0
                   ? weft_last_status()
                   : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_storage_resize: the storage is NULL");
    if (!storage->allocator)
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_storage_resize: the storage of %zu bytes is external memory "
                           "(symmetric, imported or "
                           "wrapped) and cannot change its size",
                           storage->bytes);
    return WEFT_OK;
}

weft_status weft_storage_resize(weft_storage *storage, size_t bytes)
{
    WEFT_TRY(check_resize(storage));
    const weft_i_allocator *allocator = storage->allocator;
    if (bytes == storage->bytes)
        return WEFT_OK;
    WEFT_TRY(weft_i_storage_ready(storage, true));
    void *data = NULL;
    if (bytes && allocator->alloc && !(data = allocator->alloc(storage->device, bytes)))
        return no_memory(storage->device, bytes);
    size_t kept = bytes < storage->bytes ? bytes : storage->bytes;
    if (data && kept)
        allocator->copy(storage->device, data, storage->data, kept);
    if (storage->data)
        allocator->free(storage->device, storage->data, storage->bytes);
    storage->data = data;
    storage->bytes = bytes;
    return WEFT_OK;
}
