/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work: an operation that was posted and may still be under way.  The group's helper thread runs
 * it, or the thread that waits for it first.  So posting an operation and waiting for it right away
 * costs little more than the plain call, and whatever is computed in between overlaps with it.  On
 * a device it is enqueued on a stream: weft_work_wait blocks until it is done there, and
 * weft_work_order makes a stream wait for it.
 *
 * Until the operation is done, its inputs must not be written, and its outputs neither written nor
 * read.  They keep their memory that long: weft_set on one of these tensors, and resizing its
 * storage, fail with WEFT_ERR_STATE.
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
 * Blocks until the operation is done and returns how it ended; may be called again.
 * WEFT_ERR_TIMEOUT after `timeout_ms` means that it is still under way.  NULL returns the thread's last error.
 */
WEFT_API weft_status weft_work_wait(weft_work *work, int64_t timeout_ms);

/*
 * Orders a stream behind the operation without blocking: what `stream` (NULL: the calling thread's
 * current stream of the operands' device) is given from now on waits for it.  An operation on the
 * CPU has no stream and is waited for.
 */
WEFT_API weft_status weft_work_order(weft_work *work, weft_stream *stream);

/* Does not block: WEFT_IN_PROGRESS, or how it ended. */
WEFT_API weft_status weft_work_test(weft_work *work);

/*
 * As weft_work_test, for a thread that only wants to know: it does not push the operation on, and
 * does not set the thread's error.
 */
WEFT_API weft_status weft_work_status(const weft_work *work);

/* Why it failed; "" if it has not.  The text lives as long as the work.  Any thread may read it. */
WEFT_API const char *weft_work_error(const weft_work *work);

/*
 * The number of the operation in its group, counted from 1: the one that messages name.  0 until it
 * is done; sends and receives have none.
 */
WEFT_API uint64_t weft_work_sequence(const weft_work *work);

/*
 * One line for a log: `all_reduce of 100 f32, sum, shape [10, 10] in group "0": under way`.
 * Always terminated; returns `out`.
 */
WEFT_API char *weft_work_describe(const weft_work *work, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
