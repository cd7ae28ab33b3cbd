/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: the order of work on a device.  Operations on tensors of a GPU are given to the calling
 * thread's current stream of that GPU and return at once; what one stream is given runs in that
 * order, different streams run beside each other.  Memory knows the streams that used it: a tensor
 * that is used on another stream makes that stream wait for the first, so results are right without
 * a word here.  Streams are for those who want work to overlap, to meet code of others, or to
 * replay it.
 *
 * Work on the CPU is done when its call returns, so a stream of the CPU is always done and orders
 * by itself.  weft_item, weft_print, copies to the CPU and weft_stream_sync wait for a device;
 * little else does.
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

/* A new stream of the device, in the current scope.  `urgent`: before others, where a device can.
 */
WEFT_API weft_stream *weft_stream_new(weft_device device, bool urgent);

/*
 * A stream of another library (`native` is a CUstream or cudaStream_t), which stays theirs and must
 * live longer than this one and the tensors that were made on it.
 */
WEFT_API weft_stream *weft_stream_wrap(weft_device device, void *native);

/* The stream as the device's own library knows it; NULL on the CPU. */
WEFT_API void *weft_stream_native(const weft_stream *stream);
WEFT_API weft_device weft_stream_device(const weft_stream *stream);

/* The calling thread's stream of the device, borrowed.  Each thread begins with one of its own. */
WEFT_API weft_stream *weft_stream_current(weft_device device);

/* Makes it the calling thread's stream of its device, until the next use or the thread's end. */
WEFT_API weft_status weft_stream_use(weft_stream *stream);

/* Waits for all that the stream was given; WEFT_ERR_TIMEOUT after `timeout_ms`. */
WEFT_API weft_status weft_stream_sync(weft_stream *stream, int64_t timeout_ms);

/* Does not wait: WEFT_OK if all is done, WEFT_IN_PROGRESS, or the error of a device that failed. */
WEFT_API weft_status weft_stream_test(weft_stream *stream);

/* What `stream` is given from now on waits for what `other` was given before; the host does not. */
WEFT_API weft_status weft_stream_after(weft_stream *stream, weft_stream *other);

/* An event stands for all that a stream was given before it, in the current scope. */
WEFT_API weft_event *weft_event_record(weft_stream *stream);
/* What `stream` is given from now on waits for the event; the host does not. */
WEFT_API weft_status weft_stream_after_event(weft_stream *stream, const weft_event *event);
WEFT_API weft_status weft_event_sync(const weft_event *event, int64_t timeout_ms);
WEFT_API weft_status weft_event_test(const weft_event *event);

/*
 * Capture: from begin to end, what the stream is given is noted and not run.  Tensors that are made
 * meanwhile have no content before the first run; their memory stays the replay's.  All that is
 * used must have been used on the stream before, and must live as long as the replay.  Reading to
 * the host is WEFT_ERR_STATE.  The CPU has no captures (WEFT_ERR_UNSUPPORTED).
 */
WEFT_API weft_status weft_capture_begin(weft_stream *stream);
/* In the current scope; NULL if what was captured cannot be run. */
WEFT_API weft_replay *weft_capture_end(weft_stream *stream);

/* Gives it all to the thread's current stream of the device once more; does not wait. */
WEFT_API weft_status weft_replay_run(weft_replay *replay);

#ifdef __cplusplus
}
#endif

#endif
