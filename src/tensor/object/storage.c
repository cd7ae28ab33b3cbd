/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages.  Invariant: `data` has exactly `bytes` bytes, except on meta where only the number
 * exists.  The object itself never moves, so that all tensors that share it see a new size or
 * pointer at once.
 */
#include "tensor/object/storage.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "tensor/object/cache.h"
#include "tensor/object/eye.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CPU_ALIGNMENT = 64 }; /* a cache line, and the widest vector register */
/* Bytes of data in the storage's own block: as many as the shelf has room for. */
enum { INLINE_MOST = WEFT_I_HAS_SHELF ? 256 : 0 };

/* Where data in the storage's own block lie. */
static void *inline_data(weft_storage *storage, size_t extra)
{
    uintptr_t end = (uintptr_t)(storage + 1) + extra;
    return (char *)storage +
           ((end + CPU_ALIGNMENT - 1) / CPU_ALIGNMENT * CPU_ALIGNMENT - (uintptr_t)storage);
}

/* The device's part of the stream that the memory follows. */
static void *own_stream(const weft_storage *storage)
{
    return storage->stream ? storage->stream->own : NULL;
}

static void free_data(weft_storage *storage)
{
    WEFT_ASSERT(storage->table);
    /* Addresses would not tell: a block of its own may begin where this one ends. */
    if (storage->data && !storage->within)
        storage->table->free(storage->device, own_stream(storage), storage->data, storage->bytes);
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
    WEFT_ASSERT(!atomic_load_explicit(&storage->claims, memory_order_relaxed));
    if (storage->ordered)
        weft_i_storage_leave(storage);
    if (storage->table)
        free_data(storage);
    else if (storage->release)
        storage->release(storage->release_argument);
    if (storage->ordered)
        weft_i_object_drop(storage->stream);
    weft_i_object_drop(&storage->version);
}

/* The object alone, with zeroed and other room behind it; NULL and an error if memory runs out. */
static weft_storage *new_storage(weft_device device, size_t extra, size_t room)
{
    weft_storage *storage =
        weft_i_object_new_with(WEFT_I_STORAGE, sizeof *storage + extra, room, destroy);
    if (!storage)
        return NULL;
    storage->device = device;
    storage->version.head.kind = WEFT_I_TENSOR; /* it has no kind of its own */
    storage->version.head.destroy = destroy_version;
    atomic_init(&storage->version.head.references, 1);
    storage->claims_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    return storage;
}

/* Memory of the storage's device for `bytes` bytes, NULL for none. */
static weft_status alloc_data(weft_storage *storage, size_t bytes, void **out)
{
    char name[16];
    *out = NULL;
    if (!bytes || !storage->table->alloc)
        return WEFT_OK;
    weft_status status = storage->table->alloc(storage->device, own_stream(storage), bytes, out);
    return status != WEFT_ERR_NO_MEMORY
               ? status
               : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a storage of %zu bytes on %s",
                             bytes, weft_device_name(storage->device, name));
}

weft_storage *weft_i_storage_new(weft_device device, size_t bytes)
{
    return weft_i_storage_new_with(device, bytes, 0);
}

weft_storage *weft_i_storage_new_with(weft_device device, size_t bytes, size_t extra)
{
    const weft_i_device *table =
        device == WEFT_CPU ? &weft_i_device_cpu : weft_i_device_of("storage", device);
    if (!table)
        return NULL;
    bool within = device == WEFT_CPU && bytes && bytes <= INLINE_MOST;
    weft_storage *storage = new_storage(device, extra, within ? bytes + CPU_ALIGNMENT - 1 : 0);
    if (!storage)
        return NULL;
    storage->table = table;
    storage->within = within;
    if (within) {
        storage->data = inline_data(storage, extra);
    } else if ((table->stream_new && weft_i_storage_adopt(storage) < 0) ||
               alloc_data(storage, bytes, &storage->data) < 0) {
        weft_i_object_drop(storage);
        return NULL;
    }
    WEFT_ASSERT(!bytes || storage->data || !table->alloc);
    storage->bytes = bytes;
    return storage;
}

_Thread_local weft_i_source *weft_i_source_now;
_Atomic int weft_i_sources;

void weft_i_source_set(weft_i_source *source)
{
    int change = (source != NULL) - (weft_i_source_now != NULL);
    weft_i_source_now = source;
    atomic_fetch_add_explicit(&weft_i_sources, change, memory_order_relaxed);
}

static weft_storage *new_from(weft_i_source *source, weft_device device, size_t bytes, size_t extra)
{
    weft_storage *storage = new_storage(device, extra, 0);
    if (!storage)
        return NULL;
    weft_status status = weft_i_storage_adopt(storage);
    if (status >= 0)
        status = source->take(source, storage, bytes);
    storage->bytes = bytes;
    if (status >= 0)
        return storage;
    weft_i_object_drop(storage);
    return status == WEFT_ERR_NOT_FOUND ? weft_i_storage_new_with(device, bytes, extra) : NULL;
}

weft_storage *weft_i_storage_new_sourced(weft_device device, size_t bytes, size_t extra)
{
    weft_i_source *source = weft_i_source_now;
    return source && source->device == device && bytes
               ? new_from(source, device, bytes, extra)
               : weft_i_storage_new_with(device, bytes, extra);
}

weft_storage *weft_i_storage_new_empty(weft_device device, size_t bytes)
{
    weft_storage *storage = new_storage(device, 0, 0);
    if (!storage)
        return NULL;
    storage->table = &weft_i_device_meta;
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
    weft_storage *storage = new_storage(device, 0, 0);
    if (!storage)
        return NULL;
    if (weft_i_storage_adopt(storage) < 0) {
        weft_i_object_drop(storage);
        return NULL;
    }
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
        return weft_i_missing("weft_storage_resize: the storage is NULL");
    if (!storage->table)
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_storage_resize: the storage of %zu bytes is external memory "
                           "(symmetric, imported or "
                           "wrapped) and cannot change its size",
                           storage->bytes);
    return WEFT_OK;
}

weft_status weft_i_storage_check_pinned(const char *what, const weft_storage *storage,
                                        const atomic_int *pinned)
{
    /* Pairs with the release in weft_i_tensor_unpin. */
    if (!atomic_load_explicit(pinned, memory_order_acquire))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "%s: the memory of %zu bytes is an operand of posted work; wait for that "
                       "first (weft_work_wait)",
                       what, storage->bytes);
}

/* Another library has the address. */
static weft_status check_exports(const weft_storage *storage)
{
    /* Pairs with the release of whoever gave one back (dlpack.c). */
    int exports = atomic_load_explicit(&storage->exports, memory_order_acquire);
    return !exports ? WEFT_OK
                    : weft_i_fail(WEFT_ERR_STATE,
                                  "weft_storage_resize: the memory of %zu bytes was exported by "
                                  "DLPack, and %d export%s of it %s still in use; resize it when "
                                  "the consumer has called the deleter",
                                  storage->bytes, exports, exports == 1 ? "" : "s",
                                  exports == 1 ? "is" : "are");
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
    if (bytes == storage->bytes)
        return WEFT_OK;
    if (!storage->fake)
        WEFT_TRY(weft_i_storage_ready(storage, true));
    WEFT_TRY(weft_i_storage_check_pinned("weft_storage_resize", storage, &storage->pinned));
    WEFT_TRY(check_exports(storage));
    void *data;
    WEFT_TRY(alloc_data(storage, bytes, &data));
    size_t kept = bytes < storage->bytes ? bytes : storage->bytes;
    weft_status status =
        data && kept
            ? storage->table->copy(storage->device, own_stream(storage), data, storage->table->host,
                                   storage->data, storage->table->host, kept)
            : WEFT_OK;
    if (status < 0) {
        storage->table->free(storage->device, own_stream(storage), data, bytes);
        return status;
    }
    WEFT_ASSERT(!bytes || data || !storage->table->alloc);
    free_data(storage);
    storage->data = data;
    storage->within = false;
    storage->bytes = bytes;
    return WEFT_OK;
}
