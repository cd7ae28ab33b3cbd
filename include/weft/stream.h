/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: the order of work on a device.  An operation on tensors of a GPU is enqueued on the
 * calling thread's current stream of that GPU and returns at once.  Work on one stream runs in
 * order; different streams run concurrently.  Memory remembers the streams that used it: if a
 * tensor is used on another stream, that stream waits for the first.  Results are therefore correct
 * without any call from this header.  Use streams to make work overlap, to cooperate with other
 * libraries, or to replay work.
 *
 * Work on the CPU is done when its call returns, so a CPU stream is always idle and always in
 * order.  weft_item, weft_print, copies to the CPU and weft_stream_sync wait for a device; little
 * else does.
 */
#ifndef WEFT_STREAM_H
#define WEFT_STREAM_H

#include "weft/storage.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_stream weft_stream;
typedef struct weft_event weft_event;
typedef struct weft_replay weft_replay;

/* A new stream of the device, in the current scope.  An `urgent` stream runs before others, if the
 * device supports that. */
WEFT_API weft_stream *weft_stream_new(weft_device device, bool urgent);

/*
 * Wraps a stream of another library.  `native` is a CUstream or cudaStream_t.  It still belongs to
 * that library, and must live longer than this handle and the tensors made on it.  A stream of another
 * device, or of a context that is not its device's primary one, is refused.
 */
WEFT_API weft_stream *weft_stream_wrap(weft_device device, void *native);

/* Returns the stream as the device's own library knows it, or NULL on the CPU. */
WEFT_API void *weft_stream_native(const weft_stream *stream);
WEFT_API weft_device weft_stream_device(const weft_stream *stream);

/* Returns the calling thread's current stream of the device, borrowed.  Each thread starts with a
 * stream of its own, which lives as long as the thread: weft_stream_use may come back to it. */
WEFT_API weft_stream *weft_stream_current(weft_device device);

/* Makes `stream` the calling thread's current stream of its device, until the next such call or the
 * end of the thread.  The thread holds it so long. */
WEFT_API weft_status weft_stream_use(weft_stream *stream);

/* Waits for all work on the stream.  WEFT_ERR_TIMEOUT after `timeout_ms`. */
WEFT_API weft_status weft_stream_sync(weft_stream *stream, int64_t timeout_ms);

/* Returns WEFT_OK if all work on the stream is done, WEFT_IN_PROGRESS if not, or the error of a
 * device that failed.  Does not wait. */
WEFT_API weft_status weft_stream_test(weft_stream *stream);

/* Work enqueued on `stream` from now on waits for the work already on `other`.  The host does not
 * wait. */
WEFT_API weft_status weft_stream_after(weft_stream *stream, weft_stream *other);

/* Records an event: it stands for all work on the stream so far.  It belongs to the current
 * scope. */
WEFT_API weft_event *weft_event_record(weft_stream *stream);
/* Work enqueued on `stream` from now on waits for the event.  The host does not wait. */
WEFT_API weft_status weft_stream_after_event(weft_stream *stream, const weft_event *event);
WEFT_API weft_status weft_event_sync(const weft_event *event, int64_t timeout_ms);
WEFT_API weft_status weft_event_test(const weft_event *event);

/*
 * Capture.  Between begin and end, work on the stream is recorded instead of run.  Tensors made
 * meanwhile have no content before the first run; the replay owns their memory.  Everything that is
 * used must have been used on the stream before, and must live as long as the replay.  Reading to
 * the host fails with WEFT_ERR_STATE.  The CPU has no captures (WEFT_ERR_UNSUPPORTED).
 */
WEFT_API weft_status weft_capture_begin(weft_stream *stream);
/* Returns the captured work, in the current scope, or NULL if it cannot be run. */
WEFT_API weft_replay *weft_capture_end(weft_stream *stream);

/* Enqueues the captured work once more on the thread's current stream of the device.  Does not
 * wait. */
WEFT_API weft_status weft_replay_run(weft_replay *replay);

#ifdef __cplusplus
}
#endif

#endif
