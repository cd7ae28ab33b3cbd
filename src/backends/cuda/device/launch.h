/* SPDX-License-Identifier: Apache-2.0 */
/* What the run functions of tensor operations share: where they run, and how work is spread. */
#ifndef WEFT_CUDA_LAUNCH_H
#define WEFT_CUDA_LAUNCH_H

#include "kernels/walk/loop.h"
#include "stream.h"
#include "tensor/op/op.h"

/* The thread's current stream of a CUDA device. */
weft_status weft_i_cuda_current(weft_device device, weft_i_cuda_stream **out);

/* The same of the device that the call's result is on. */
weft_status weft_i_cuda_stream_of(const weft_i_op_call *call, weft_i_cuda_stream **out);

/* A kernel whose blocks of threads (threads, in the second) take one of `tasks` after the other: as
 * many as there are tasks, but no more than fit the device. */
weft_status weft_i_cuda_launch_blocks(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                      uint64_t tasks, const void *parameter);
weft_status weft_i_cuda_launch_threads(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                       uint64_t tasks, const void *parameter);

/* How many rows of `span` units a block of `kernel` holds in its registers (kernels/held.h); 0: the
 * block is too small. */
uint64_t weft_i_cuda_held_rows(const weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                               uint32_t span);

/* x as packed elements of `dtype` on its device: itself with another reference, or a copy. */
weft_tensor *weft_i_cuda_packed(weft_tensor *x, weft_dtype dtype);

/* Memory for what a call needs until its kernels are done; to be dropped by weft_i_object_drop. */
weft_tensor *weft_i_cuda_room(weft_device device, uint64_t bytes);

static inline char *weft_i_cuda_data(const weft_tensor *x)
{
    return x ? weft_i_tensor_data(x) : NULL;
}

static inline bool weft_i_cuda_is_unsigned_bits(weft_dtype dtype)
{
    return dtype >= WEFT_U8 && dtype <= WEFT_U64;
}

#endif
