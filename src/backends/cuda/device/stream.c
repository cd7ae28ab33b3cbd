/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, marks and stream-ordered memory.  Every stream has its own lists of free memory, by size
 * class: the driver's own allocator costs a microsecond, and several when threads meet in it.
 */
#include "stream.h"

#include "base/os/os.h"
#include "queue.h"

#include <string.h>

/* Size classes: 8 between powers of two, from 512 bytes on; so at most an eighth is wasted. */
static int class_of(size_t bytes, size_t *rounded)
{
    size_t least = bytes < WEFT_I_CUDA_LEAST ? WEFT_I_CUDA_LEAST : bytes;
    int power = 63 - __builtin_clzll(least);
    size_t step = (size_t)1 << (power > 12 ? power - 3 : 9);
    *rounded = (least + step - 1) / step * step;
    power = 63 - __builtin_clzll(*rounded);
    return power <= 12 ? (int)(*rounded / 512)
                       : 8 + (power - 12) * 8 + (int)((*rounded >> (power - 3)) & 7);
}

static unsigned free_number(const weft_i_cuda_device *device)
{
    unsigned number = 0;
    for (const weft_i_cuda_stream *s = device->streams; s;)
        if (s->number == number) {
            number++;
            s = device->streams; /* from the start: another may have the next */
        } else {
            s = s->next;
        }
    return number;
}

static weft_status make(weft_i_cuda_device *device, weft_i_cu_stream raw, bool ours,
                        weft_i_cuda_stream **out)
{
    weft_i_cuda_stream *stream = WEFT_OS->alloc(sizeof *stream);
    if (!stream)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a stream of cuda:%d",
                           device->ordinal);
    stream->device = device;
    stream->raw = raw;
    stream->ours = ours;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_mutex_lock(&device->lock);
    stream->number = free_number(device);
    stream->next = device->streams;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    *out = stream;
    return WEFT_OK;
}

weft_status weft_i_cuda_stream_new(weft_i_cuda_device *device, bool urgent,
                                   weft_i_cuda_stream **out)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream raw = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_cuda_use(device));
    WEFT_CUDA_TRY(cu->cuStreamCreateWithPriority(&raw, WEFT_I_CU_STREAM_NON_BLOCKING,
                                                 urgent ? device->high_priority : 0),
                  "a new stream of cuda:%d", device->ordinal);
    weft_status status = make(device, raw, true, out);
    if (status != WEFT_OK)
        cu->cuStreamDestroy(raw);
    else
        (*out)->urgent = urgent;
    return status;
}

/* What runs on a stream runs in its context, and on the device of that: weft's is the primary one. */
static weft_status check_context(const weft_i_cuda_device *device, weft_i_cu_stream raw)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_ctx ctx = device->ctx;
    weft_i_cu_result result = cu->cuStreamGetCtx ? cu->cuStreamGetCtx(raw, &ctx) : 0;
    if (result == WEFT_I_CUDA_ERROR_NOT_SUPPORTED) /* a green context, which has another question */
        return WEFT_OK;
    WEFT_CUDA_TRY(result, "whose stream is to be wrapped for cuda:%d", device->ordinal);
    for (int i = 0; ctx != device->ctx && i < WEFT_I_CUDA_DEVICES; i++) {
        const weft_i_cuda_device *other = weft_i_cuda_opened(i);
        if (other && other->ctx == ctx)
            return weft_i_fail(WEFT_ERR_TYPE,
                               "a stream of cuda:%d cannot be wrapped as one of cuda:%d", i,
                               device->ordinal);
    }
    return ctx == device->ctx
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_TYPE,
                             "a stream cannot be wrapped as one of cuda:%d: it belongs to another "
                             "device, or to a context that is not the device's primary one",
                             device->ordinal);
}

weft_status weft_i_cuda_stream_wrap(weft_i_cuda_device *device, weft_i_cu_stream raw,
                                    weft_i_cuda_stream **out)
{
    *out = NULL;
    WEFT_TRY(weft_i_cuda_use(device));
    WEFT_TRY(check_context(device, raw));
    return make(device, raw, false, out);
}

weft_i_cu_stream weft_i_cuda_stream_raw(const weft_i_cuda_stream *stream)
{
    return stream->raw;
}

bool weft_i_cuda_stream_is_urgent(const weft_i_cuda_stream *stream)
{
    return stream->urgent;
}

weft_i_cuda_device *weft_i_cuda_stream_device(const weft_i_cuda_stream *stream)
{
    return stream->device;
}

/* A kernel's wait has a deadline, so work ends; a limit is kept by asking again and again.  Of a
 * stream, or of an event if there is one.  Small collectives are over before a sleep would be. */
static weft_status sync_within(weft_i_cu_stream stream, weft_i_cu_event event, int64_t deadline)
{
    enum { AWAKE_NS = 100 * 1000 };
    const weft_i_cuda *cu = weft_i_cuda_driver();
    int64_t pause = 1000, awake_until = WEFT_OS->clock_ns() + AWAKE_NS;
    for (;;) {
        weft_i_cu_result result = event ? cu->cuEventQuery(event) : cu->cuStreamQuery(stream);
        if (result != WEFT_I_CUDA_ERROR_NOT_READY)
            return weft_i_cuda_fail(result, "work on a stream");
        int64_t now = WEFT_OS->clock_ns();
        if (now >= deadline)
            return weft_i_fail(WEFT_ERR_TIMEOUT,
                               "work enqueued on a stream has not ended by the deadline");
        if (now < awake_until)
            continue;
        WEFT_OS->sleep_ns(pause);
        pause = pause < 100000 ? 2 * pause : pause;
    }
}

weft_status weft_i_cuda_stream_sync(weft_i_cuda_stream *stream, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_cuda_use(stream->device));
    if (timeout_ms >= 0)
        WEFT_TRY(sync_within(stream->raw, NULL, weft_i_os_deadline(timeout_ms)));
    else
        WEFT_CUDA_TRY(weft_i_cuda_driver()->cuStreamSynchronize(stream->raw),
                      "work on a stream of cuda:%d", stream->device->ordinal);
    return weft_i_cuda_stream_check(stream);
}

enum { CHECKS_MOST = 4 };
static weft_status (*checks[CHECKS_MOST])(const weft_i_cuda_stream *stream);

void weft_i_cuda_after_sync(weft_status (*check)(const weft_i_cuda_stream *stream))
{
    for (int i = 0; i < CHECKS_MOST; i++)
        if (!checks[i]) {
            checks[i] = check;
            return;
        }
}

weft_status weft_i_cuda_stream_check(weft_i_cuda_stream *stream)
{
    WEFT_TRY(weft_i_cuda_check_fault(stream->device));
    for (int i = 0; i < CHECKS_MOST && checks[i]; i++)
        WEFT_TRY(checks[i](stream));
    return WEFT_OK;
}

static void unlist(weft_i_cuda_stream *stream)
{
    weft_i_cuda_device *device = stream->device;
    pthread_mutex_lock(&device->lock);
    weft_i_cuda_stream **at = &device->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&device->lock);
}

/* Gives all free memory of the stream back to the driver, in the stream's order. */
static weft_status empty_lists(weft_i_cuda_stream *stream)
{
    weft_i_cu_result first = WEFT_I_CUDA_SUCCESS;
    pthread_mutex_lock(&stream->lock);
    for (int c = 0; c < WEFT_I_CUDA_CLASSES; c++)
        while (stream->free[c]) {
            weft_i_cuda_block *block = stream->free[c];
            stream->free[c] = block->next;
            weft_i_cu_result result =
                weft_i_cuda_driver()->cuMemFreeAsync(block->memory, stream->raw);
            first = first ? first : result;
            WEFT_OS->free(block);
        }
    stream->cached = 0;
    pthread_mutex_unlock(&stream->lock);
    return weft_i_cuda_fail(first, "giving memory back on cuda:%d", stream->device->ordinal);
}

static weft_status forget(weft_i_cuda_stream *stream)
{
    unlist(stream);
    weft_i_cuda_queue_leave_stream(stream);
    weft_status status = empty_lists(stream);
    if (stream->ours)
        weft_i_cuda_driver()->cuStreamDestroy(stream->raw);
    weft_i_cuda_mark_release(&stream->before);
    pthread_mutex_destroy(&stream->lock);
    WEFT_OS->free(stream);
    return status;
}

weft_status weft_i_cuda_stream_release(weft_i_cuda_stream *stream)
{
    weft_status status = weft_i_cuda_stream_sync(stream, WEFT_FOREVER);
    weft_status forgotten = forget(stream);
    return status != WEFT_OK ? status : forgotten;
}

/* A child of the process that made it leaves it: the locks may be held by nobody. */
void weft_i_cuda_stream_drop(weft_i_cuda_stream *stream)
{
    if (weft_i_cuda_check_process() == WEFT_OK && weft_i_cuda_use(stream->device) == WEFT_OK)
        forget(stream);
}

weft_status weft_i_cuda_mark_set(weft_i_cuda_mark *mark, weft_i_cuda_stream *stream)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    WEFT_TRY(weft_i_cuda_use(stream->device));
    if (!mark->event)
        WEFT_CUDA_TRY(cu->cuEventCreate(&mark->event, WEFT_I_CU_EVENT_DISABLE_TIMING), "a mark");
    WEFT_CUDA_TRY(cu->cuEventRecord(mark->event, stream->raw), "marking a stream of cuda:%d",
                  stream->device->ordinal);
    return WEFT_OK;
}

weft_status weft_i_cuda_after(weft_i_cuda_stream *stream, const weft_i_cuda_mark *mark)
{
    WEFT_TRY(weft_i_cuda_use(stream->device));
    if (mark->event)
        WEFT_CUDA_TRY(weft_i_cuda_driver()->cuStreamWaitEvent(stream->raw, mark->event, 0),
                      "ordering a stream of cuda:%d", stream->device->ordinal);
    return WEFT_OK;
}

weft_status weft_i_cuda_reached(const weft_i_cuda_mark *mark)
{
    WEFT_TRY(weft_i_cuda_check_process());
    weft_i_cu_result result =
        mark->event ? weft_i_cuda_driver()->cuEventQuery(mark->event) : WEFT_I_CUDA_SUCCESS;
    return result == WEFT_I_CUDA_ERROR_NOT_READY ? WEFT_IN_PROGRESS
                                                 : weft_i_cuda_fail(result, "work before a mark");
}

weft_status weft_i_cuda_mark_sync(const weft_i_cuda_mark *mark, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_cuda_check_process());
    if (!mark->event)
        return WEFT_OK;
    if (timeout_ms >= 0)
        return sync_within(NULL, mark->event, weft_i_os_deadline(timeout_ms));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuEventSynchronize(mark->event), "work before a mark");
    return WEFT_OK;
}

void weft_i_cuda_mark_release(weft_i_cuda_mark *mark)
{
    if (mark->event && weft_i_cuda_check_process() == WEFT_OK)
        weft_i_cuda_driver()->cuEventDestroy(mark->event);
    mark->event = NULL;
}

static bool take(weft_i_cuda_stream *stream, int class, size_t bytes, weft_i_cu_ptr *out)
{
    pthread_mutex_lock(&stream->lock);
    weft_i_cuda_block *block = stream->free[class];
    if (block) {
        stream->free[class] = block->next;
        stream->cached -= bytes;
    }
    pthread_mutex_unlock(&stream->lock);
    if (!block)
        return false;
    *out = block->memory;
    WEFT_OS->free(block);
    return true;
}

weft_status weft_i_cuda_trim(weft_i_cuda_device *device)
{
    weft_status status = WEFT_OK;
    WEFT_TRY(weft_i_cuda_use(device));
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_stream *stream = device->streams; stream; stream = stream->next) {
        weft_status emptied = empty_lists(stream);
        status = status != WEFT_OK ? status : emptied;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

weft_status weft_i_cuda_alloc(weft_i_cuda_stream *stream, size_t bytes, weft_i_cu_ptr *out)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    size_t rounded;
    *out = 0;
    if (bytes == 0)
        return WEFT_OK;
    if (bytes > PTRDIFF_MAX)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes on cuda:%d", bytes,
                           stream->device->ordinal);
    WEFT_TRY(weft_i_cuda_use(stream->device));
    int class = class_of(bytes, &rounded);
    if (take(stream, class, rounded, out))
        return WEFT_OK;
    weft_i_cu_result result = cu->cuMemAllocAsync(out, rounded, stream->raw);
    if (result == WEFT_I_CUDA_ERROR_OUT_OF_MEMORY) {
        WEFT_TRY(weft_i_cuda_trim(stream->device));
        result = cu->cuMemAllocAsync(out, rounded, stream->raw);
    }
    WEFT_CUDA_TRY(result, "no memory for %zu bytes on cuda:%d", bytes, stream->device->ordinal);
    return WEFT_OK;
}

weft_status weft_i_cuda_order(weft_i_cuda_stream *stream, weft_i_cuda_stream *other)
{
    weft_i_cuda_mark mark = {NULL};
    bool joins = other->capture && !stream->capture;
    weft_status status = joins ? weft_i_cuda_queue_settle(stream) : WEFT_OK;
    if (joins && status == WEFT_OK)
        status = weft_i_cuda_mark_set(&stream->before, stream);
    if (status == WEFT_OK)
        status = weft_i_cuda_mark_set(&mark, other);
    if (status == WEFT_OK)
        status = weft_i_cuda_after(stream, &mark);
    weft_i_cuda_mark_release(&mark);
    if (status == WEFT_OK && other->capture)
        __atomic_store_n(&stream->capture, other->capture, __ATOMIC_RELAXED); /* it has joined */
    return status;
}

weft_status weft_i_cuda_free(weft_i_cuda_stream *stream, weft_i_cu_ptr memory, size_t bytes,
                             weft_i_cuda_stream *other)
{
    if (!memory)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    if (other && other != stream)
        WEFT_TRY(weft_i_cuda_order(stream, other));
    size_t rounded;
    int class = class_of(bytes, &rounded);
    weft_i_cuda_block *block = WEFT_OS->alloc(sizeof *block);
    if (!block) { /* no list without a node: then the driver gets it */
        WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemFreeAsync(memory, stream->raw), "freeing memory");
        return WEFT_OK;
    }
    block->memory = memory;
    pthread_mutex_lock(&stream->lock);
    block->next = stream->free[class];
    stream->free[class] = block;
    stream->cached += rounded;
    pthread_mutex_unlock(&stream->lock);
    return WEFT_OK;
}

size_t weft_i_cuda_cached(weft_i_cuda_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    size_t cached = stream->cached;
    pthread_mutex_unlock(&stream->lock);
    return cached;
}
