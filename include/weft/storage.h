/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, and storages: the memory under tensors.  A storage is reference counted; many tensors
 * may share one, and all of them see it when it is resized.
 */
#ifndef WEFT_STORAGE_H
#define WEFT_STORAGE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where memory lies: kind in the upper 16 bits, index in the lower. */
typedef int32_t weft_device;
#define WEFT_CPU         ((weft_device)0)
#define WEFT_META        ((weft_device)(1 << 16)) /* shapes only, no data */
#define WEFT_CUDA(index) ((weft_device)(2 << 16 | (index)))

/* Writes "cpu", "meta" or "cuda:1" to `out` and returns it.  NULL: returns the kind alone. */
WEFT_API const char *weft_device_name(weft_device device, char out[16]);

typedef struct weft_storage weft_storage;

/* Bytes the storage has now; 0 for NULL. */
WEFT_API size_t weft_storage_bytes(const weft_storage *storage);

/* The memory; NULL for an empty or a meta storage. */
WEFT_API void *weft_storage_data(const weft_storage *storage);

/*
 * Gives the storage `bytes` bytes: keeps the first min(old, new) and lets go of the old memory at
 * once.  0 releases the memory; growing from 0 leaves the content undefined.  Tensors keep their
 * shapes and version counters; using one that no longer fits is an error.  WEFT_ERR_STATE for
 * memory that is not ours (symmetric, imported, wrapped).
 */
WEFT_API weft_status weft_storage_resize(weft_storage *storage, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
