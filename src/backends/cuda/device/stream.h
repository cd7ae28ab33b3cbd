/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a stream. */
#ifndef WEFT_CUDA_STREAM_H
#define WEFT_CUDA_STREAM_H

#include "device.h"

enum { WEFT_I_CUDA_LEAST = 512, WEFT_I_CUDA_CLASSES = 8 + 8 * 64 };

/* Free memory of one size class. */
typedef struct weft_i_cuda_block {
    weft_i_cu_ptr memory;
    struct weft_i_cuda_block *next;
} weft_i_cuda_block;

struct weft_i_cuda_stream {
    weft_i_cuda_device *device;
    weft_i_cu_stream raw;
    bool ours;                          /* made by us, so destroyed by us */
    bool urgent;                        /* of the highest priority */
    unsigned number;                    /* the lowest that no other stream of the device has */
    struct weft_i_cuda_replay *capture; /* not NULL: what it is given goes there */
    weft_i_cuda_mark before;            /* its last capture: behind what it was given until then */
    pthread_mutex_t lock;               /* guards the lists */
    weft_i_cuda_block *free[WEFT_I_CUDA_CLASSES];
    size_t cached;
    struct weft_i_cuda_front *fronts; /* whose last operation went here; queue.c guards it */
    atomic_bool behind;               /* it waits for a mark since the last kernel */
    weft_i_cuda_stream *next;
};

/* Relaxed: the thread that captures decides, others only look. */
static inline bool weft_i_cuda_is_captured(const weft_i_cuda_stream *stream)
{
    return __atomic_load_n(&stream->capture, __ATOMIC_RELAXED) != NULL;
}

#endif
