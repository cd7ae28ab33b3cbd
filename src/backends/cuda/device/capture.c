/* SPDX-License-Identifier: Apache-2.0 */
/* Captures, replays and their memory; see capture.h. */
#include "capture.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "stream.h"

#include <string.h>

enum { GRAIN = 512 };

/* One allocation.  Free ones serve the stream that freed them: what it is given later comes later.
 */
typedef struct block {
    weft_i_cu_ptr memory;
    size_t bytes;
    const weft_i_cuda_stream *by;
    bool taken;
} block;

struct weft_i_cuda_replay {
    weft_i_cuda_device *device;
    weft_i_cu_graph_exec exec; /* NULL until the capture has ended */
    weft_i_cuda_mark run;      /* behind the last run */
    uint64_t number;
    weft_i_cuda_front *noted; /* see queue.h */
    /* The device's lock guards the rest. */
    block *blocks; /* by address */
    size_t count, room, taken;
    bool dropped;
    weft_i_cuda_replay *next;
};

weft_status weft_i_cuda_is_capturing(weft_i_cuda_stream *stream, bool *out)
{
    int status = WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuStreamIsCapturing(stream->raw, &status),
                  "whether a stream of cuda:%d is captured", stream->device->ordinal);
    *out = status != WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    return WEFT_OK;
}

weft_status weft_i_cuda_refuse_capture(weft_i_cuda_stream *stream, const char *what)
{
    bool capturing = false;
    WEFT_TRY(weft_i_cuda_is_capturing(stream, &capturing));
    return capturing ? weft_i_fail(WEFT_ERR_STATE,
                                   "the stream of cuda:%d is being captured: %s would run now, and "
                                   "not when the capture is replayed",
                                   stream->device->ordinal, what)
                     : WEFT_OK;
}

/* ---- memory ---- */

/* Where the block at this address is, or would be. */
static size_t place_of(const weft_i_cuda_replay *replay, weft_i_cu_ptr memory)
{
    size_t low = 0, high = replay->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (replay->blocks[middle].memory < memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reuse(weft_i_cuda_replay *replay, const weft_i_cuda_stream *stream, size_t bytes,
                  weft_i_cu_ptr *out)
{
    for (size_t i = 0; i < replay->count; i++) {
        block *at = &replay->blocks[i];
        if (at->taken || at->bytes != bytes || at->by != stream)
            continue;
        at->taken = true;
        replay->taken++;
        *out = at->memory;
        return true;
    }
    return false;
}

static weft_status grow(weft_i_cuda_replay *replay)
{
    if (replay->count < replay->room)
        return WEFT_OK;
    size_t room = replay->room ? 2 * replay->room : 64;
    block *larger = WEFT_OS->alloc(room * sizeof *larger);
    if (!larger)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to note the memory of a capture");
    if (replay->count)
        memcpy(larger, replay->blocks, replay->count * sizeof *larger);
    WEFT_OS->free(replay->blocks);
    replay->blocks = larger;
    replay->room = room;
    return WEFT_OK;
}

/* From the driver, on a stream that is not captured: on this one it would become part of it. */
static weft_status add_block(weft_i_cuda_replay *replay, const weft_i_cuda_stream *stream,
                             size_t bytes, weft_i_cu_ptr *out)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream service = replay->device->service->raw;
    WEFT_TRY(grow(replay));
    WEFT_CUDA_TRY(cu->cuMemAllocAsync(out, bytes, service), "no memory for %zu bytes on cuda:%d",
                  bytes, replay->device->ordinal);
    WEFT_CUDA_TRY(cu->cuStreamSynchronize(service), "memory of a capture");
    size_t at = place_of(replay, *out);
    memmove(&replay->blocks[at + 1], &replay->blocks[at],
            (replay->count - at) * sizeof *replay->blocks);
    replay->blocks[at] = (block){*out, bytes, stream, true};
    replay->count++;
    replay->taken++;
    return WEFT_OK;
}

weft_status weft_i_cuda_capture_alloc(weft_i_cuda_stream *stream, size_t bytes, weft_i_cu_ptr *out)
{
    weft_i_cuda_replay *replay = stream->capture;
    if (!replay && !stream->ours)
        WEFT_TRY(weft_i_cuda_refuse_capture(stream, "an allocation"));
    if (!replay)
        return WEFT_ERR_NOT_FOUND;
    if (bytes > PTRDIFF_MAX)
        return WEFT_ERR_NO_MEMORY;
    size_t rounded = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    pthread_mutex_lock(&stream->device->lock);
    weft_status status =
        reuse(replay, stream, rounded, out) ? WEFT_OK : add_block(replay, stream, rounded, out);
    pthread_mutex_unlock(&stream->device->lock);
    return status;
}

/* Nobody holds it any more.  Under the device's lock. */
static void destroy(weft_i_cuda_replay *replay)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_device *device = replay->device;
    weft_i_cuda_replay **at = &device->replays;
    while (*at != replay)
        at = &(*at)->next;
    *at = replay->next;
    weft_i_cuda_after(device->service, &replay->run); /* a run may be under way */
    for (size_t i = 0; i < replay->count; i++)
        cu->cuMemFreeAsync(replay->blocks[i].memory, device->service->raw);
    if (replay->exec)
        cu->cuGraphExecDestroy(replay->exec);
    weft_i_cuda_mark_release(&replay->run);
    weft_i_cuda_queue_drop_noted(replay->noted);
    WEFT_OS->free(replay->blocks);
    WEFT_OS->free(replay);
}

bool weft_i_cuda_capture_free(weft_i_cuda_stream *stream, weft_i_cu_ptr memory)
{
    weft_i_cuda_device *device = stream->device;
    bool found = false;
    if (!atomic_load_explicit(&device->captured, memory_order_relaxed)) /* never was any */
        return false;
    if (weft_i_cuda_use(device) < 0)
        return false;
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_replay *replay = device->replays; replay && !found; replay = replay->next) {
        size_t at = place_of(replay, memory);
        found = at < replay->count && replay->blocks[at].memory == memory;
        if (!found)
            continue;
        replay->blocks[at].taken = false;
        replay->blocks[at].by = stream;
        if (--replay->taken == 0 && replay->dropped) {
            destroy(replay);
            break;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

/* ---- captures ---- */

static weft_status make_service(weft_i_cuda_device *device)
{
    weft_i_cuda_stream *made = NULL;
    pthread_mutex_lock(&device->lock);
    bool there = device->service;
    pthread_mutex_unlock(&device->lock);
    if (there)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_new(device, false, &made));
    pthread_mutex_lock(&device->lock);
    there = device->service;
    if (!there)
        device->service = made;
    pthread_mutex_unlock(&device->lock);
    if (there)
        weft_i_cuda_stream_drop(made);
    return WEFT_OK;
}

uint64_t weft_i_cuda_capture_number(const weft_i_cuda_replay *replay)
{
    return replay->number;
}

weft_i_cuda_front **weft_i_cuda_capture_noted(weft_i_cuda_replay *replay)
{
    return &replay->noted;
}

static weft_status make_replay(weft_i_cuda_device *device, weft_i_cuda_replay **out)
{
    static atomic_uint_least64_t numbers; /* relaxed: only to tell them apart */
    weft_i_cuda_replay *replay = WEFT_OS->alloc(sizeof *replay);
    if (!replay)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a capture on cuda:%d",
                           device->ordinal);
    replay->device = device;
    replay->number = 1 + atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
    pthread_mutex_lock(&device->lock);
    replay->next = device->replays;
    device->replays = replay;
    pthread_mutex_unlock(&device->lock);
    /* Relaxed: whoever frees memory of a capture has seen the capture begin. */
    atomic_store_explicit(&device->captured, true, memory_order_relaxed);
    *out = replay;
    return WEFT_OK;
}

void weft_i_cuda_replay_drop(weft_i_cuda_replay *replay)
{
    if (weft_i_cuda_check_process() < 0 || weft_i_cuda_use(replay->device) < 0)
        return; /* a child's copy; the parent has the real one */
    weft_i_cuda_device *device = replay->device;
    pthread_mutex_lock(&device->lock);
    replay->dropped = true;
    if (replay->taken == 0)
        destroy(replay);
    pthread_mutex_unlock(&device->lock);
}

weft_status weft_i_cuda_capture_begin(weft_i_cuda_stream *stream)
{
    weft_i_cuda_device *device = stream->device;
    weft_i_cuda_replay *replay = NULL;
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "another capture"));
    WEFT_TRY(make_service(device));
    WEFT_TRY(weft_i_cuda_queue_settle(stream));
    WEFT_TRY(weft_i_cuda_mark_set(&stream->before, stream));
    WEFT_TRY(make_replay(device, &replay));
    weft_i_cu_result result = weft_i_cuda_driver()->cuStreamBeginCapture(
        stream->raw, WEFT_I_CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != WEFT_I_CUDA_SUCCESS) {
        weft_i_cuda_replay_drop(replay);
        return weft_i_cuda_fail(result, "capturing a stream of cuda:%d", device->ordinal);
    }
    /* Relaxed, here and where streams join: other threads only compare it, in forget_capture. */
    __atomic_store_n(&stream->capture, replay, __ATOMIC_RELAXED);
    return WEFT_OK;
}

/* What a stream is given that is still captured would never run: its work goes on on a new one,
 * behind what the old one was given before the capture. */
static weft_i_cu_result replace(weft_i_cuda_stream *stream)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_stream raw, old = stream->raw;
    weft_i_cu_result result = cu->cuStreamCreateWithPriority(
        &raw, WEFT_I_CU_STREAM_NON_BLOCKING, stream->urgent ? stream->device->high_priority : 0);
    if (result != WEFT_I_CUDA_SUCCESS)
        return result;
    if ((result = cu->cuStreamWaitEvent(raw, stream->before.event, 0)) != WEFT_I_CUDA_SUCCESS) {
        cu->cuStreamDestroy(raw);
        return result;
    }
    stream->raw = raw;
    cu->cuStreamDestroy(old); /* if the driver does that to it */
    return result;
}

/* After an end that failed; a stream of the program's is not ours to replace. */
static void leave_capture(weft_i_cuda_stream *stream)
{
    int status = WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    weft_i_cu_result result = weft_i_cuda_driver()->cuStreamIsCapturing(stream->raw, &status);
    if (result == WEFT_I_CUDA_SUCCESS && status == WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE)
        return;
    bool replaced = stream->ours && replace(stream) == WEFT_I_CUDA_SUCCESS;
    weft_i_log(WEFT_LOG_WARN,
               replaced ? "cuda:%d: the driver did not end a capture: a new stream takes the "
                          "place of the one it holds, with another native handle"
                        : "cuda:%d: the driver did not end a capture: the stream stays in it",
               stream->device->ordinal);
}

/* The streams that were captured, joined ones too, run their work again. */
static void forget_capture(weft_i_cuda_device *device, const weft_i_cuda_replay *replay, bool ended)
{
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_stream *stream = device->streams; stream; stream = stream->next)
        if (__atomic_load_n(&stream->capture, __ATOMIC_RELAXED) == replay) { /* others' too */
            __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELAXED);
            if (!ended)
                leave_capture(stream);
        }
    pthread_mutex_unlock(&device->lock);
}

weft_status weft_i_cuda_capture_end(weft_i_cuda_stream *stream, weft_i_cuda_replay **out)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_replay *replay = stream->capture;
    weft_i_cu_graph graph = NULL;
    if (out)
        *out = NULL;
    if (!replay)
        return weft_i_fail(WEFT_ERR_STATE, "the stream of cuda:%d is not being captured",
                           stream->device->ordinal);
    WEFT_TRY(weft_i_cuda_use(stream->device));
    weft_i_cu_result result = cu->cuStreamEndCapture(stream->raw, &graph);
    forget_capture(stream->device, replay, result == WEFT_I_CUDA_SUCCESS);
    weft_i_cuda_queue_end_capture(&replay->noted);
    if (result == WEFT_I_CUDA_SUCCESS && out)
        result = cu->cuGraphInstantiateWithFlags(&replay->exec, graph, 0);
    if (graph)
        cu->cuGraphDestroy(graph);
    if (result == WEFT_I_CUDA_SUCCESS && out) {
        *out = replay;
        return WEFT_OK;
    }
    weft_i_cuda_replay_drop(replay);
    return weft_i_cuda_fail(result, "the capture of a stream of cuda:%d", stream->device->ordinal);
}

weft_status weft_i_cuda_replay_run(weft_i_cuda_replay *replay, weft_i_cuda_stream *stream)
{
    WEFT_TRY(weft_i_cuda_use(stream->device));
    WEFT_TRY(weft_i_cuda_queue_enter_noted(replay->noted, stream));
    weft_i_cu_result result = weft_i_cuda_driver()->cuGraphLaunch(replay->exec, stream->raw);
    weft_status left = weft_i_cuda_queue_leave_noted(replay->noted, stream);
    WEFT_CUDA_TRY(result, "replaying a capture on cuda:%d", stream->device->ordinal);
    WEFT_TRY(left);
    bool capturing = false;
    WEFT_TRY(weft_i_cuda_is_capturing(stream, &capturing));
    return capturing ? WEFT_OK : weft_i_cuda_mark_set(&replay->run, stream);
}
