/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages.  Invariant: `data` has exactly `bytes` bytes, except on meta where only the number
 * exists.  The object itself never moves, so that all tensors that share it see a new size or
 * pointer at once.
 */
#include "tensor/storage.h"

#include "base/os.h"
#include "base/status.h"
#include "tensor/cache.h"
#include "tensor/eye.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CPU_ALIGNMENT = 64 };    /* a cache line, and the widest vector register */
enum { PAGES_FROM = 16 << 10 }; /* at a page from here on: copies between such are quickest */
enum { INLINE_MOST = WEFT_I_HAS_SHELF ? 512 : 0 }; /* bytes of data in the storage's own block */

static void *cpu_alloc(weft_device device, size_t bytes)
{
    (void)device;
    if (weft_i_cache_has(bytes))
        return weft_i_cache_take(bytes);
    size_t alignment = bytes < PAGES_FROM ? CPU_ALIGNMENT : WEFT_I_PAGE;
    return bytes > PTRDIFF_MAX ? NULL : WEFT_OS->alloc_aligned(alignment, bytes);
}

static void cpu_free(weft_device device, void *memory, size_t bytes)
{
    (void)device;
    if (weft_i_cache_has(bytes))
        weft_i_cache_give(memory, bytes);
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

static const weft_i_allocator *allocators[] = {&cpu_allocator, &meta_allocator, NULL};
enum { KINDS = sizeof allocators / sizeof *allocators };

void weft_i_storage_add_allocator(int kind, const weft_i_allocator *table)
{
    allocators[kind] = table;
}

/* CPU and meta are one device each. */
static const weft_i_allocator *allocator_of(weft_device device)
{
    int kind = weft_i_device_kind(device);
    if (kind < 0 || kind >= KINDS || (kind < 2 && device & 0xffff))
        return NULL;
    return allocators[kind];
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

/* Where data in the storage's own block lie. */
static void *inline_data(weft_storage *storage)
{
    uintptr_t end = (uintptr_t)(storage + 1);
    return (char *)storage +
           ((end + CPU_ALIGNMENT - 1) / CPU_ALIGNMENT * CPU_ALIGNMENT - (uintptr_t)storage);
}

static void free_data(weft_storage *storage)
{
    /* Addresses would not tell: a block of its own may begin where this one ends. */
    if (storage->data && !storage->within)
        storage->allocator->free(storage->device, storage->data, storage->bytes);
}

/* The last part of a storage to go. */
static void destroy_version(weft_i_object *object)
{
    weft_i_object_free((weft_i_object *)((char *)object - offsetof(weft_storage, version)));
}

static void destroy(weft_i_object *object)
{
    weft_storage *storage = (weft_storage *)object;
    weft_i_claim_end_all(storage);
    pthread_mutex_destroy(&storage->claims_lock);
    if (storage->allocator)
        free_data(storage);
    else if (storage->release)
        storage->release(storage->release_argument);
    weft_i_object_drop(&storage->version);
}

/* The object alone, with room behind it; NULL and an error if memory runs out. */
static weft_storage *new_storage(weft_device device, size_t room)
{
    weft_storage *storage =
        weft_i_object_new_unscoped(WEFT_I_STORAGE, sizeof *storage + room, destroy);
    if (!storage)
        return NULL;
    storage->device = device;
    storage->version.head.kind = WEFT_I_TENSOR; /* it has no kind of its own */
    storage->version.head.destroy = destroy_version;
    atomic_init(&storage->version.head.references, 1);
    storage->claims_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
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
    bool within = device == WEFT_CPU && bytes && bytes <= INLINE_MOST;
    weft_storage *storage = new_storage(device, within ? bytes + CPU_ALIGNMENT - 1 : 0);
    if (!storage)
        return NULL;
    storage->allocator = allocator;
    storage->within = within;
    if (within) {
        storage->data = inline_data(storage);
    } else if (bytes && allocator->alloc && !(storage->data = allocator->alloc(device, bytes))) {
        no_memory(device, bytes);
        weft_i_object_drop(storage);
        return NULL;
    }
    storage->bytes = bytes;
    return storage;
}

weft_storage *weft_i_storage_new_empty(weft_device device, size_t bytes)
{
    weft_storage *storage = new_storage(device, 0);
    if (!storage)
        return NULL;
    storage->allocator = &meta_allocator;
    storage->bytes = bytes;
    return storage;
}

weft_storage *weft_i_storage_wrap(void *data, size_t bytes, weft_device device,
                                  void (*release)(void *argument), void *argument)
{
    if (!data && bytes)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "cannot wrap %zu bytes at NULL", bytes);
    if (weft_i_not_captured("memory of others as a tensor") < 0)
        return NULL;
    weft_storage *storage = new_storage(device, 0);
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
    weft_i_eye *eye = weft_i_eye_open;
    if (eye && storage)
        return eye->read_bytes(eye, storage);
    return storage ? storage->bytes : 0;
}

void *weft_storage_data(const weft_storage *storage)
{
    weft_storage *seen = weft_i_see_storage(storage);
    return seen && weft_i_storage_ready(seen, true) == WEFT_OK ? seen->data : NULL;
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

static _Atomic(weft_i_storage_is_posted *) is_posted; /* NULL: nothing was ever posted */

void weft_i_storage_watch_posted(weft_i_storage_is_posted *asked)
{
    /* Relaxed: a function; what it reads has locks of its own. */
    atomic_store_explicit(&is_posted, asked, memory_order_relaxed);
}

weft_status weft_i_storage_check_posted(const char *what, const weft_storage *storage,
                                        const weft_tensor *tensor)
{
    weft_i_storage_is_posted *asked = atomic_load_explicit(&is_posted, memory_order_relaxed);
    if (!asked || !asked(storage, tensor))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "%s: the memory of %zu bytes is an operand of posted work; wait for that "
                       "first (weft_work_wait)",
                       what, storage->bytes);
}

weft_status weft_storage_resize(weft_storage *storage, size_t bytes)
{
    weft_i_eye *eye = weft_i_eye_open;
    if (eye && storage)
        return eye->resize(eye, storage, bytes);
    if (storage && storage->fake)
        return weft_i_storage_ready(storage, true); /* its capture has ended */
    return weft_i_storage_resize(storage, bytes);
}

weft_status weft_i_storage_resize(weft_storage *storage, size_t bytes)
{
    WEFT_TRY(check_resize(storage));
    const weft_i_allocator *allocator = storage->allocator;
    if (bytes == storage->bytes)
        return WEFT_OK;
    if (!storage->fake)
        WEFT_TRY(weft_i_storage_ready(storage, true));
    WEFT_TRY(weft_i_storage_check_posted("weft_storage_resize", storage, NULL));
    void *data = NULL;
    if (bytes && allocator->alloc && !(data = allocator->alloc(storage->device, bytes)))
        return no_memory(storage->device, bytes);
    size_t kept = bytes < storage->bytes ? bytes : storage->bytes;
    if (data && kept)
        allocator->copy(storage->device, data, storage->data, kept);
    free_data(storage);
    storage->data = data;
    storage->within = false;
    storage->bytes = bytes;
    return WEFT_OK;
}
