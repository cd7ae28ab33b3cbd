/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of symmetric memory on devices; see memory.h. */
#include "memory.h"

#include "base/os/os.h"
#include "retire.h"
#include "tensor/object/stream.h"

static void end(void *what)
{
    weft_i_cuda_memory *memory = what;
    weft_i_cuda_span_release(&memory->span);
    weft_i_cuda_block_release(memory->handle);
    WEFT_OS->free(memory);
}

static void release(weft_i_segment *segment)
{
    weft_i_cuda_retire(end, segment->owner);
}

/* Zero before anybody else can reach it.  On a stream that nothing else is on. */
static weft_status clear(weft_i_cuda_memory *memory)
{
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(weft_i_cuda_stream_new(memory->device, false, &stream));
    weft_status status = weft_i_cuda_fail(
        weft_i_cuda_driver()->cuMemsetD8Async(memory->span.base, 0, memory->span.stride,
                                              weft_i_cuda_stream_raw(stream)),
        "clearing a block on cuda:%d", memory->device->ordinal);
    weft_status released = weft_i_cuda_stream_release(stream);
    return status != WEFT_OK ? status : released;
}

static weft_status fill(weft_i_cuda_memory *memory, size_t bytes)
{
    size_t rounded = bytes ? bytes : 1; /* a block without bytes still has an address */
    WEFT_TRY(weft_i_cuda_block_new(memory->device, &rounded, &memory->handle));
    WEFT_TRY(weft_i_cuda_span_new(memory->device, 1, rounded, &memory->span));
    WEFT_TRY(weft_i_cuda_span_map(&memory->span, 0, memory->handle));
    return clear(memory);
}

static weft_status make(weft_i_cuda_device *device, weft_i_cuda_memory **out)
{
    weft_i_cuda_memory *memory = WEFT_OS->alloc(sizeof *memory);
    if (!memory)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a block on cuda:%d",
                           device->ordinal);
    *memory = (weft_i_cuda_memory){.device = device};
    *out = memory;
    return WEFT_OK;
}

weft_status weft_i_cuda_memory_allocate(weft_device device, size_t bytes, weft_i_segment **out)
{
    weft_i_cuda_device *opened;
    weft_i_cuda_memory *memory;
    if (!weft_i_stream_current(device)) /* opens the device, or says why it cannot */
        return weft_last_status();
    WEFT_TRY(weft_i_cuda_open(weft_i_device_index(device), &opened));
    weft_i_cuda_reap();
    WEFT_TRY(make(opened, &memory));
    weft_status status = fill(memory, bytes);
    if (status == WEFT_OK)
        status = weft_i_segment_wrap(weft_i_cuda_span_of(&memory->span, 0), bytes, -1, release,
                                     memory, out);
    if (status < 0)
        end(memory);
    return status;
}

weft_status weft_i_cuda_memory_publish_as(weft_i_fdpass *fdpass, weft_i_key key,
                                          weft_i_segment *block)
{
    if (block->fd < 0 && !weft_i_cuda_is_among_threads(fdpass))
        WEFT_TRY(weft_i_cuda_block_export(weft_i_cuda_memory_of(block)->handle, &block->fd));
    return weft_i_fdpass_publish(fdpass, key, block, WEFT_OK);
}

weft_status weft_i_cuda_memory_publish(weft_i_fdpass *fdpass, weft_i_segment *block)
{
    return weft_i_cuda_memory_publish_as(fdpass, block->key, block);
}

static weft_status import_fd(weft_i_cuda_device *device, int fd, size_t bytes, weft_i_segment **out)
{
    weft_i_cuda_memory *memory;
    WEFT_TRY(make(device, &memory));
    weft_status status = weft_i_cuda_block_import(device, fd, &memory->handle);
    if (status == WEFT_OK)
        status = weft_i_segment_wrap(NULL, bytes, -1, release, memory, out);
    if (status < 0)
        end(memory);
    return status;
}

weft_status weft_i_cuda_memory_import(weft_i_cuda_device *device, const weft_i_fdpass_order *order,
                                      weft_i_segment **out)
{
    int fd = -1;
    if (weft_i_cuda_is_among_threads(order->own))
        return weft_i_fdpass_fetch(order, out);
    WEFT_TRY(weft_i_fdpass_fetch_fd(order, &fd));
    weft_status status = import_fd(device, fd, order->bytes, out);
    WEFT_OS->close(fd);
    return status;
}
