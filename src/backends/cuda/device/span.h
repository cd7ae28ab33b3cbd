/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of several ranks at one stride: rank r's block lies at base + r * stride, so that kernels
 * need no table of pointers and no memory is reached by two addresses.
 */
#ifndef WEFT_CUDA_SPAN_H
#define WEFT_CUDA_SPAN_H

#include "device.h"

typedef struct weft_i_cuda_span {
    weft_i_cuda_device *device;
    weft_i_cu_ptr base;
    size_t stride;
    int ranks;
    uint64_t mapped; /* a bit per rank whose block is there */
} weft_i_cuda_span;

enum { WEFT_I_CUDA_SPAN_RANKS = 64 };

/* A block of at least `bytes` bytes that can be mapped and exported; `bytes` becomes its size. */
weft_status weft_i_cuda_block_new(weft_i_cuda_device *device, size_t *bytes, weft_i_cu_handle *out);
void weft_i_cuda_block_release(weft_i_cu_handle handle);

/* As a descriptor that other processes can import; the caller closes it. */
weft_status weft_i_cuda_block_export(weft_i_cu_handle handle, int *fd);
weft_status weft_i_cuda_block_import(weft_i_cuda_device *device, int fd, weft_i_cu_handle *out);

/* Reserves addresses for blocks of `bytes` bytes each. */
weft_status weft_i_cuda_span_new(weft_i_cuda_device *device, int ranks, size_t bytes,
                                 weft_i_cuda_span *out);
weft_status weft_i_cuda_span_map(weft_i_cuda_span *span, int rank, weft_i_cu_handle handle);
void weft_i_cuda_span_release(weft_i_cuda_span *span);

static inline char *weft_i_cuda_span_of(const weft_i_cuda_span *span, int rank)
{
    return (char *)(uintptr_t)(span->base + (uint64_t)rank * span->stride);
}

#endif
