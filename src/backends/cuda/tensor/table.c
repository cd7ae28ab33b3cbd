/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA as a kind of device for tensors: the table of tensor/object/device.h over the streams, marks and
 * memory of this folder.  Every entry takes a weft_i_cuda_stream, but the first that a thread
 * makes, which opens the device.
 */
#include "table.h"

#include "backends/cuda/device/capture.h"
#include "backends/cuda/device/code.h"
#include "backends/cuda/device/launch.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "columns.h"

#include <stdio.h>

static weft_i_cu_ptr ptr_of(const void *memory)
{
    return (weft_i_cu_ptr)(uintptr_t)memory;
}

/* Why a device cannot be opened is told with its name. */
static weft_status open_device(weft_device device, weft_i_cuda_device **out)
{
    weft_status status = weft_i_cuda_open(weft_i_device_index(device), out);
    char name[16], reason[600];
    if (status >= 0 || status == WEFT_ERR_NO_MEMORY)
        return status;
    snprintf(reason, sizeof reason, "%s", weft_last_error());
    return weft_i_fail(status, "%s cannot be used: %s", weft_device_name(device, name), reason);
}

static weft_status alloc(weft_device device, void *stream, size_t bytes, void **out)
{
    weft_i_cu_ptr memory = 0;
    (void)device;
    weft_status status = weft_i_cuda_capture_alloc(stream, bytes, &memory);
    if (status == WEFT_ERR_NOT_FOUND)
        status = weft_i_cuda_alloc(stream, bytes, &memory);
    *out = (void *)(uintptr_t)memory;
    return status;
}

/* What fails here has failed before, or is a child of the process that has the memory. */
static void free_memory(weft_device device, void *stream, void *memory, size_t bytes)
{
    weft_i_errors before;
    (void)device;
    weft_i_errors_save(&before);
    if (weft_i_cuda_check_process() == WEFT_OK && !weft_i_cuda_capture_free(stream, ptr_of(memory)))
        weft_i_cuda_free(stream, ptr_of(memory), bytes, NULL);
    weft_i_errors_restore(&before);
}

/*
 * Plain memory of the host is waited for before and after: a copy that waits inside the driver
 * could keep other ranks of the process from launching what it waits for.
 */
static weft_status copy(weft_device device, void *stream, void *to, bool to_host, const void *from,
                        bool from_host, size_t bytes)
{
    (void)device;
    if (!to_host && !from_host)
        return weft_i_cuda_copy(stream, to, from, bytes);
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "a copy between host and device"));
    return weft_i_cuda_read(stream, to, from, bytes);
}

static weft_status fill(weft_device device, void *stream, void *to, unsigned char value,
                        size_t bytes)
{
    weft_i_cuda_stream *s = stream;
    (void)device;
    if (bytes == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_use(s->device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemsetD8Async(ptr_of(to), value, bytes, s->raw),
                  "filling %zu bytes on cuda:%d", bytes, s->device->ordinal);
    return WEFT_OK;
}

static weft_status check(weft_device device, const void *memory, size_t bytes)
{
    weft_i_cuda_device *opened;
    const weft_i_cuda *cu = weft_i_cuda_driver();
    int type = 0, ordinal = -1;
    WEFT_TRY(open_device(device, &opened));
    if (cu->cuPointerGetAttribute(&type, WEFT_I_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr_of(memory)) ||
        type != WEFT_I_CU_MEMORYTYPE_DEVICE ||
        cu->cuPointerGetAttribute(&ordinal, WEFT_I_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  ptr_of(memory)) ||
        ordinal != opened->ordinal)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "the %zu bytes at %p are not memory of cuda:%d",
                           bytes, memory, opened->ordinal);
    return WEFT_OK;
}

static weft_status stream_new(weft_device device, bool urgent, void **out)
{
    weft_i_cuda_device *opened;
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(open_device(device, &opened));
    WEFT_TRY(weft_i_cuda_stream_new(opened, urgent, &stream));
    *out = stream;
    return WEFT_OK;
}

static weft_status stream_wrap(weft_device device, void *raw, void **out)
{
    weft_i_cuda_device *opened;
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(open_device(device, &opened));
    WEFT_TRY(weft_i_cuda_stream_wrap(opened, raw, &stream));
    *out = stream;
    return WEFT_OK;
}

static void *stream_raw(void *stream)
{
    return weft_i_cuda_stream_raw(stream);
}

static void stream_free(void *stream)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_cuda_stream_drop(stream);
    weft_i_errors_restore(&before);
}

static weft_status stream_sync(void *stream, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "waiting for a stream"));
    return weft_i_cuda_stream_sync(stream, timeout_ms);
}

static weft_status stream_query(void *stream)
{
    weft_i_cuda_stream *s = stream;
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "asking a stream"));
    WEFT_TRY(weft_i_cuda_use(s->device));
    weft_i_cu_result result = weft_i_cuda_driver()->cuStreamQuery(s->raw);
    if (result == WEFT_I_CUDA_ERROR_NOT_READY)
        return WEFT_IN_PROGRESS;
    WEFT_CUDA_TRY(result, "work on a stream of cuda:%d", s->device->ordinal);
    return weft_i_cuda_stream_check(s);
}

static bool stream_captured(void *stream)
{
    bool captured = false;
    weft_i_errors before;
    weft_i_errors_save(&before); /* a device that has failed captures nothing */
    weft_status status = weft_i_cuda_is_capturing(stream, &captured);
    weft_i_errors_restore(&before);
    return status == WEFT_OK && captured;
}

/* The driver is asked for streams of others, which may capture what they like. */
WEFT_I_HOT static bool stream_noted(void *stream)
{
    const weft_i_cuda_stream *s = stream;
    return weft_i_cuda_is_captured(s) || (!s->ours && stream_captured(stream));
}

static weft_status stream_after(void *stream, void *other, bool join)
{
    bool here = false, there = false;
    WEFT_TRY(weft_i_cuda_is_capturing(stream, &here));
    WEFT_TRY(weft_i_cuda_is_capturing(other, &there));
    if (here != there && !(join && there))
        return weft_i_fail(
            WEFT_ERR_STATE,
            "a stream of cuda:%d that is %s captured must wait for one that is%s: memory that a "
            "capture uses was last used on another stream; use it on this one before the capture "
            "begins, and what the capture makes after it has ended",
            ((weft_i_cuda_stream *)stream)->device->ordinal, here ? "being" : "not being",
            there ? "" : " not");
    return weft_i_cuda_order(stream, other);
}

static weft_status event_record(void **event, void *stream)
{
    weft_i_cuda_mark mark = {*event};
    weft_status status = weft_i_cuda_mark_set(&mark, stream);
    *event = mark.event;
    return status;
}

static weft_status event_wait(void *stream, void *event)
{
    return weft_i_cuda_after(stream, &(weft_i_cuda_mark){event});
}

static weft_status event_query(void *event)
{
    return weft_i_cuda_reached(&(weft_i_cuda_mark){event});
}

static weft_status event_sync(void *event, int64_t timeout_ms)
{
    return weft_i_cuda_mark_sync(&(weft_i_cuda_mark){event}, timeout_ms);
}

static void event_free(void *event)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_cuda_mark_release(&(weft_i_cuda_mark){event});
    weft_i_errors_restore(&before);
}

static weft_status capture_begin(void *stream)
{
    return weft_i_cuda_capture_begin(stream);
}

static weft_status capture_end(void *stream, void **replay)
{
    weft_i_cuda_replay *made = NULL;
    weft_status status = weft_i_cuda_capture_end(stream, replay ? &made : NULL);
    if (replay)
        *replay = made;
    return status;
}

static weft_status replay_run(void *replay, void *stream)
{
    return weft_i_cuda_replay_run(replay, stream);
}

static void replay_free(void *replay)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_cuda_replay_drop(replay);
    weft_i_errors_restore(&before);
}

const weft_i_device weft_i_device_cuda = {
    .name = "cuda",
    .count = WEFT_I_CUDA_DEVICES,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .fill = fill,
    .check = check,
    .stream_new = stream_new,
    .stream_wrap = stream_wrap,
    .stream_raw = stream_raw,
    .stream_free = stream_free,
    .stream_sync = stream_sync,
    .stream_query = stream_query,
    .stream_captured = stream_captured,
    .stream_noted = stream_noted,
    .stream_after = stream_after,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_free = event_free,
    .multiply_part = weft_i_cuda_multiply_part,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay_run = replay_run,
    .replay_free = replay_free,
    .code = &weft_i_cuda_code,
};

/* Nothing of CUDA is touched: the rows learn how they run. */
__attribute__((constructor)) static void add(void)
{
    weft_i_cuda_add_columns();
    weft_i_cuda_add_computing();
}
