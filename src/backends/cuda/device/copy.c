/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of bytes, pinned host memory, and launching a kernel. */
#include "base/os/os.h"
#include "stream.h"

#include <string.h>

static weft_i_cu_ptr ptr_of(const void *memory)
{
    return (weft_i_cu_ptr)(uintptr_t)memory;
}

weft_status weft_i_cuda_pinned(weft_i_cuda_device *device, size_t bytes, void **out)
{
    *out = NULL;
    WEFT_TRY(weft_i_cuda_use(device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemHostAlloc(out, bytes,
                                                       WEFT_I_CU_MEMHOSTALLOC_PORTABLE |
                                                           WEFT_I_CU_MEMHOSTALLOC_DEVICEMAP),
                  "no pinned memory for %zu bytes", bytes);
    memset(*out, 0, bytes);
    return WEFT_OK;
}

void weft_i_cuda_unpin(void *memory)
{
    if (memory && weft_i_cuda_check_process() == WEFT_OK)
        weft_i_cuda_driver()->cuMemFreeHost(memory);
}

weft_status weft_i_cuda_copy(weft_i_cuda_stream *stream, void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemcpyAsync(ptr_of(to), ptr_of(from), bytes, stream->raw),
                  "copying %zu bytes on cuda:%d", bytes, stream->device->ordinal);
    return WEFT_OK;
}

/* The stream is waited for first: a copy to plain memory that waits inside the driver could keep
 * other ranks of the process from launching what it waits for. */
weft_status weft_i_cuda_read(weft_i_cuda_stream *stream, void *to, const void *from, size_t bytes)
{
    WEFT_TRY(weft_i_cuda_stream_sync(stream, WEFT_FOREVER));
    WEFT_TRY(weft_i_cuda_copy(stream, to, from, bytes));
    weft_status status = weft_i_cuda_stream_sync(stream, WEFT_FOREVER);
    if (status < 0) /* the caller has its memory back: nothing may still go there */
        weft_i_cuda_driver()->cuStreamSynchronize(stream->raw);
    return status;
}

weft_status weft_i_cuda_launch(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel, int blocks,
                               int threads, const void *parameter, bool early)
{
    WEFT_TRY(weft_i_cuda_use(stream->device));
    weft_i_cu_attribute attribute = {
        .id = WEFT_I_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
    /* Relaxed: set by whoever shares the stream with this thread, which knows who is first. */
    bool behind = early && atomic_load_explicit(&stream->behind, memory_order_relaxed);
    if (behind)
        atomic_store_explicit(&stream->behind, false, memory_order_relaxed);
    weft_i_cu_launch config = {
        .gridDimX = (unsigned)blocks,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream->raw,
        .attrs = &attribute,
        .numAttrs = early && !behind && stream->device->major >= 9,
    };
    /* The driver only reads what the parameters point to; its declaration has no const. */
    void *parameters[] = {(void *)(uintptr_t)parameter};
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuLaunchKernelEx(&config, stream->device->kernels[kernel],
                                                         parameters, NULL),
                  "launching %s, %d blocks of %d threads, on cuda:%d",
                  weft_i_cuda_kernel_name(kernel), blocks, threads, stream->device->ordinal);
    return WEFT_OK;
}
