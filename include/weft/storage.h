/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, and storages: the memory behind tensors.  A storage is reference counted.  Several
 * tensors may share one, and all of them see it when it is resized.
 */
#ifndef WEFT_STORAGE_H
#define WEFT_STORAGE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where memory is: the kind of device in the upper 16 bits, its index in the lower ones. */
typedef int32_t weft_device;
#define WEFT_CPU         WEFT_CAST(weft_device, 0)
#define WEFT_META        WEFT_CAST(weft_device, 1 << 16) /* shapes only, no data */
#define WEFT_CUDA(index) WEFT_CAST(weft_device, 2 << 16 | (index))

/* Writes "cpu", "meta" or "cuda:1" to `out` and returns it.  If `out` is NULL, returns the kind
 * alone. */
WEFT_API const char *weft_device_name(weft_device device, char out[16]);

typedef struct weft_storage weft_storage;

/* Returns the current size of the storage in bytes, or 0 for NULL. */
WEFT_API size_t weft_storage_bytes(const weft_storage *storage);

/* Returns the memory of the storage, or NULL if it is empty or on meta. */
WEFT_API void *weft_storage_data(const weft_storage *storage);

/*
 * Resizes the storage to `bytes` bytes.  It keeps the first min(old, new) bytes and frees the old
 * memory at once.  0 frees the memory; growing from 0 leaves the content undefined.  Tensors keep
 * their shapes and version counters; using one that no longer fits is an error.  WEFT_ERR_STATE for
 * memory that the storage does not own (symmetric, imported or wrapped), or that a DLPack export
 * still points to.
 */
WEFT_API weft_status weft_storage_resize(weft_storage *storage, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
