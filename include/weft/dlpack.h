/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges tensors with other libraries in the same process, without a copy, through the DLPack
 * ABI (its first form and the versioned form 1.x).  The structs below have the documented layout of
 * DLManagedTensor and DLManagedTensorVersioned.  Cast them to and from the types of your DLPack
 * header.
 */
#ifndef WEFT_DLPACK_H
#define WEFT_DLPACK_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_DLPACK_CPU = 1, WEFT_DLPACK_CUDA = 2 };
enum { WEFT_DLPACK_READ_ONLY = 1, WEFT_DLPACK_COPIED = 2 }; /* bits of `flags` */

typedef struct weft_dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits; /* of the element type */
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL: row-major */
    uint64_t byte_offset;
} weft_dlpack_tensor;

typedef struct weft_dlpack {
    weft_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct weft_dlpack *self); /* the consumer calls it once; may be NULL */
} weft_dlpack;

typedef struct weft_dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct weft_dlpack_versioned *self);
    uint64_t flags;
    weft_dlpack_tensor tensor;
} weft_dlpack_versioned;

/*
 * Returns a description of `x` that keeps its storage alive until its deleter is called, from any
 * thread.  Until then the storage cannot be resized (WEFT_ERR_STATE).  Memory of a GPU is ready in the order of the thread's current stream (weft/stream.h);
 * the consumer works on that stream or waits for it.  NULL on failure: for meta tensors, for
 * storages too small for the view, and, in the first form, for read-only tensors, which it cannot
 * express.
 */
WEFT_API weft_dlpack *weft_dlpack_export(weft_tensor *x);
WEFT_API weft_dlpack_versioned *weft_dlpack_export_versioned(weft_tensor *x);

/*
 * Returns a tensor over the memory described.  It takes over the description and calls its deleter
 * when the last tensor on that memory is gone.  Memory of a GPU is assumed to be ready in the order
 * of the thread's current stream.  On failure the function returns NULL, and the description still
 * belongs to the caller.  Fails for devices other than the CPU and CUDA, for element types that
 * weft does not have, for negative strides, for misaligned data and for another major version.
 */
WEFT_API weft_tensor *weft_dlpack_import(weft_dlpack *description);
WEFT_API weft_tensor *weft_dlpack_import_versioned(weft_dlpack_versioned *description);

#ifdef __cplusplus
}
#endif

#endif
