/* SPDX-License-Identifier: Apache-2.0 */
/* How the work of a tensor operation is spread over a device, and the room it needs. */
#include "launch.h"

#include "tensor/object/stream.h"
#include "tensor/op/loops.h"

weft_status weft_i_cuda_current(weft_device device, weft_i_cuda_stream **out)
{
    weft_stream *stream = weft_i_stream_current(device);
    *out = stream ? stream->own : NULL;
    return stream ? WEFT_OK : weft_last_status();
}

weft_status weft_i_cuda_stream_of(const weft_i_op_call *call, weft_i_cuda_stream **out)
{
    return weft_i_cuda_current(weft_i_tensor_device(call->out), out);
}

weft_status weft_i_cuda_launch_blocks(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                      uint64_t tasks, const void *parameter)
{
    uint64_t most = (uint64_t)stream->device->resident[kernel];
    return tasks ? weft_i_cuda_launch(stream, kernel, (int)(tasks < most ? tasks : most),
                                      stream->device->kernel_threads[kernel], parameter, false)
                 : WEFT_OK;
}

weft_status weft_i_cuda_launch_threads(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                       uint64_t tasks, const void *parameter)
{
    uint64_t threads = (uint64_t)stream->device->kernel_threads[kernel];
    uint64_t blocks = tasks / threads + (tasks % threads != 0);
    return weft_i_cuda_launch_blocks(stream, kernel, blocks, parameter);
}

uint64_t weft_i_cuda_held_rows(const weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                               uint32_t span)
{
    uint32_t threads = (uint32_t)stream->device->kernel_threads[kernel], unit = WEFT_K_LANES / 2;
    uint32_t units = threads % unit ? 0 : threads / unit;
    return units <= WEFT_K_UNITS && units % span == 0 ? units / span : 0;
}

weft_tensor *weft_i_cuda_room(weft_device device, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %llu bytes of intermediate results",
                           (unsigned long long)bytes);
    weft_i_source *source = weft_i_source_now;
    weft_i_source_now = NULL; /* it is no result */
    weft_tensor *room =
        weft_keep(weft_i_tensor_new(WEFT_U8, device, WEFT_SHAPE((int64_t)bytes), NULL));
    weft_i_source_now = source;
    return room;
}

weft_tensor *weft_i_cuda_packed(weft_tensor *x, weft_dtype dtype)
{
    if (x->packed && x->dtype == dtype)
        return weft_i_object_hold(x);
    weft_tensor *copy =
        weft_keep(weft_i_tensor_new(dtype, weft_i_tensor_device(x), weft_i_tensor_shape(x), NULL));
    if (copy && weft_i_tensor_copy(copy, x) < 0) {
        weft_i_object_drop(copy);
        copy = NULL;
    }
    return copy;
}
