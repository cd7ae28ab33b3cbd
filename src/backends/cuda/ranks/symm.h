/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA under symmetric memory: the table of symm/backend.h. */
#ifndef WEFT_CUDA_SYMM_H
#define WEFT_CUDA_SYMM_H

#include "pads.h"
#include "symm/backend.h"

extern const weft_i_device_memory weft_i_cuda_device_memory;

/*
 * The first part of what a rendezvous joins, for every backend whose memory lies at one stride: all
 * that kernels and signals need.  The functions are entries of the table above.
 */
typedef struct weft_i_cuda_joined {
    weft_i_cuda_reach blocks;
    weft_i_cuda_pads pads;
    weft_i_key group;
} weft_i_cuda_joined;

char *weft_i_cuda_joined_pad(const void *joined, int rank);
weft_status weft_i_cuda_joined_signal(void *joined, void *stream, weft_i_signal_kind kind, int rank,
                                      int channel, int64_t limit_ms);
weft_status weft_i_cuda_joined_await(void *joined, int64_t limit_ms);
weft_status weft_i_cuda_joined_reset(void *joined);
weft_status weft_i_cuda_joined_reach(const void *joined, size_t offset, weft_i_device_reach *out);
weft_status weft_i_cuda_joined_put(void *joined, void *stream, int rank, size_t offset,
                                   const void *from, size_t bytes, int channel, int64_t limit_ms);
weft_status weft_i_cuda_joined_get(void *joined, void *stream, int rank, size_t offset, void *to,
                                   size_t bytes);
/* Entries that any backend of such memory has. */
weft_status weft_i_cuda_write_words(void *stream, uint32_t *words, uint32_t value, size_t count,
                                    bool ordered);
bool weft_i_cuda_has_multicast(weft_device device, char *reason, size_t bytes);

#endif
