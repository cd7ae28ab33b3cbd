/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order among streams.  What the kernels of some operations share (the words in which all members of a
 * group meet, one semaphore) suits one of them at a time; on one stream they run one after the other
 * anyway.  A queue has a front for each such thing: where its last operation went.  The next one, on
 * another stream, waits for the mark behind that, and not for what followed it there.
 *
 * Calls and every capture have fronts of their own: what is noted runs when it is replayed, and a replay
 * takes its place among the calls as one operation.
 */
#ifndef WEFT_CUDA_QUEUE_H
#define WEFT_CUDA_QUEUE_H

#include "device.h"

typedef struct weft_i_cuda_queue weft_i_cuda_queue;
typedef struct weft_i_cuda_front weft_i_cuda_front;

weft_status weft_i_cuda_queue_new(weft_i_cuda_queue **out);
weft_i_cuda_queue *weft_i_cuda_queue_hold(weft_i_cuda_queue *queue);
void weft_i_cuda_queue_drop(weft_i_cuda_queue *queue); /* NULL: nothing */

/*
 * Before an operation on front `key` is given to `stream`: orders the stream, and keeps other threads out
 * until weft_i_cuda_queue_leave, which follows if this succeeds, whatever becomes of the operation.
 */
weft_status weft_i_cuda_queue_enter(weft_i_cuda_queue *queue, weft_i_cuda_stream *stream,
                                    uint64_t key, weft_i_cuda_front **out);
weft_status weft_i_cuda_queue_leave(weft_i_cuda_front *front, weft_i_cuda_stream *stream);

/* ---- for streams and captures ---- */

/* The stream begins to be captured, or joins a capture: what others have yet to wait for on it is marked
 * before. */
weft_status weft_i_cuda_queue_settle(weft_i_cuda_stream *stream);
/* The same when it goes. */
void weft_i_cuda_queue_leave_stream(weft_i_cuda_stream *stream);

/* The operations of a capture, taken from their queues when it ends; and dropped with its replay.  The
 * list is put into an order. */
void weft_i_cuda_queue_end_capture(weft_i_cuda_front **noted);
void weft_i_cuda_queue_drop_noted(weft_i_cuda_front *noted);
/* A replay of them enters `stream`; leaving follows success. */
weft_status weft_i_cuda_queue_enter_noted(weft_i_cuda_front *noted, weft_i_cuda_stream *stream);
weft_status weft_i_cuda_queue_leave_noted(weft_i_cuda_front *noted, weft_i_cuda_stream *stream);

#endif
