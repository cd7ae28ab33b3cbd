/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work: an operation that was posted and may still be in progress.  The group's helper thread runs
 * it, or the thread that waits for it first.  So posting an operation and waiting for it right away
 * costs little more than the plain call, and anything computed in between overlaps with it.  On a
 * device the operation is enqueued on a stream: weft_work_wait blocks until it is done there, and
 * weft_work_order makes a stream wait for it.
 *
 * Until the operation is done, do not write its inputs, and neither read nor write its outputs.
 * They keep their memory until then: weft_set on one of these tensors, and resizing its storage,
 * fail with WEFT_ERR_STATE.
 */
#ifndef WEFT_WORK_H
#define WEFT_WORK_H

#include "weft/status.h"
#include "weft/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_work weft_work;

/*
 * Blocks until the operation is done and returns its status.  May be called again.
 * WEFT_ERR_TIMEOUT after `timeout_ms` means that the operation is still in progress.  For NULL,
 * returns the thread's last error.
 */
WEFT_API weft_status weft_work_wait(weft_work *work, int64_t timeout_ms);

/*
 * Orders a stream after the operation without blocking: anything enqueued on `stream` from now on
 * waits for it.  If `stream` is NULL, it is the calling thread's current stream on the operands'
 * device.  An operation on the CPU has no stream, so the call waits for it.
 */
WEFT_API weft_status weft_work_order(weft_work *work, weft_stream *stream);

/* Returns WEFT_IN_PROGRESS, or the status of the finished operation.  Does not block. */
WEFT_API weft_status weft_work_test(weft_work *work);

/*
 * Like weft_work_test, for a thread that only observes: it does not make the operation progress,
 * and does not set the thread's error.
 */
WEFT_API weft_status weft_work_status(const weft_work *work);

/* Returns why the operation failed, or "" if it has not failed.  The text lives as long as the
 * work.  Any thread may read it. */
WEFT_API const char *weft_work_error(const weft_work *work);

/* Called when an operation is over, with how it ended. */
typedef void (*weft_work_done)(void *argument, weft_status status);

/*
 * Has `done` called once, when the operation is over, however it ends: in the thread that ends it,
 * or in this call if it is over already.  That thread may be the group's helper thread, or one that
 * waits for another operation.  So `done` must be short, must not wait, and must not end or release
 * the group; it may ask weft_work_status and weft_work_error, if the caller keeps the work until
 * then.  Dropping the work does not take the call back.  A thread that waits for the operation may go
 * on a moment before the call.
 *
 * A work has one such function: a second is WEFT_ERR_STATE.  WEFT_ERR_UNSUPPORTED for an operation
 * that is under way on a stream of a device, where no thread ends it.
 */
WEFT_API weft_status weft_work_on_done(weft_work *work, weft_work_done done, void *argument);

/*
 * Ends sends and receives of this work with WEFT_ERR_CANCELLED, unless they have met their
 * counterpart: a receive for which no message has come, a send of which nothing has left.  Returns
 * WEFT_OK if all of them are over then.  WEFT_ERR_STATE if one goes on, because its bytes are moving;
 * WEFT_ERR_UNSUPPORTED for a collective, which the other ranks count on.  Local; never blocks.
 */
WEFT_API weft_status weft_work_cancel(weft_work *work);

/*
 * Returns the number of the operation in its group, counted from 1, as messages show it.  0 until
 * the operation is done.  Operations on a device that a backend carries are counted apart from those
 * in host memory.  Sends and receives have none.
 */
WEFT_API uint64_t weft_work_sequence(const weft_work *work);

/*
 * Writes one line for a log to `out`: `all_reduce of 100 f32, sum, shape [10, 10] in group "0":
 * under way`.  The text is always terminated.  Returns `out`.
 */
WEFT_API char *weft_work_describe(const weft_work *work, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
