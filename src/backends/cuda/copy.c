/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of every kind, pinned host memory, and launching a kernel. */
#include "base/os.h"
#include "launch.h"
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

/* Dimensions that lie behind each other in both operands become one. */
static weft_k_copy joined(const weft_k_copy *copy)
{
    weft_k_copy out = *copy;
    out.ndim = 0;
    for (int d = 0; d < copy->ndim; d++) {
        int last = out.ndim - 1;
        if (copy->dim[d] == 1)
            continue;
        if (last >= 0 && out.to_stride[last] == copy->to_stride[d] * (int64_t)copy->dim[d] &&
            out.from_stride[last] == copy->from_stride[d] * (int64_t)copy->dim[d]) {
            out.dim[last] *= copy->dim[d];
            out.to_stride[last] = copy->to_stride[d];
            out.from_stride[last] = copy->from_stride[d];
            continue;
        }
        out.dim[out.ndim] = copy->dim[d];
        out.to_stride[out.ndim] = copy->to_stride[d];
        out.from_stride[out.ndim++] = copy->from_stride[d];
    }
    return out;
}

static bool is_plain(const weft_k_copy *copy)
{
    return copy->to_dtype == copy->from_dtype &&
           (copy->ndim == 0 || (copy->ndim == 1 && copy->to_stride[0] == copy->size &&
                                copy->from_stride[0] == copy->size));
}

weft_status weft_i_cuda_convert(weft_i_cuda_stream *stream, const weft_k_copy *copy)
{
    weft_k_copy c = joined(copy);
    c.count = 1;
    for (int d = 0; d < c.ndim; d++)
        c.count *= c.dim[d];
    if (c.count == 0)
        return WEFT_OK;
    if (is_plain(&c))
        return weft_i_cuda_copy(stream, c.to, c.from, c.count * (size_t)c.size);
    weft_i_loop loop = {.ndim = c.ndim, .operands = 2, .data = {c.to, (char *)(uintptr_t)c.from}};
    for (int d = 0; d < c.ndim; d++) {
        loop.dim[d] = (int64_t)c.dim[d];
        loop.stride[0][d] = c.to_stride[d];
        loop.stride[1][d] = c.from_stride[d];
    }
    return weft_i_cuda_copy_loop(stream, loop, (weft_dtype)c.to_dtype, (weft_dtype)c.from_dtype);
}

weft_status weft_i_cuda_launch(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel, int blocks,
                               int threads, const void *parameter, bool early)
{
    WEFT_TRY(weft_i_cuda_use(stream->device));
    weft_i_cu_attribute attribute = {
        .id = WEFT_I_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1};
    weft_i_cu_launch config = {
        .gridDimX = (unsigned)blocks,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream->raw,
        .attrs = &attribute,
        .numAttrs = early && stream->device->major >= 9,
    };
    /* The driver only reads what the parameters point to; its declaration has no const. */
    void *parameters[] = {(void *)(uintptr_t)parameter};
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuLaunchKernelEx(&config, stream->device->kernels[kernel],
                                                         parameters, NULL),
                  "launching %s, %d blocks of %d threads, on cuda:%d",
                  weft_i_cuda_kernel_name(kernel), blocks, threads, stream->device->ordinal);
    return WEFT_OK;
}
