/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work: an operation that was posted and may still be under way.  It is run by the group's helper
 * thread, or by whoever waits for it first, so that posting and waiting at once costs no more than
 * the plain call, and posting, computing and waiting overlaps.  On a device it is enqueued on a
 * stream; weft_work_wait waits for it there, weft_work_order lets a stream wait.  The tensors of an
 * operation must not be written (outputs: not read either) until it is done.  Until then they keep
 * their memory: weft_set of one of them, and resizing its storage, are refused with WEFT_ERR_STATE.
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
 * WEFT_ERR_TIMEOUT after `timeout_ms` means that it goes on.  NULL returns the thread's last error.
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
 * Does not block: how it ended, as weft_work_test, but without helping it on and without setting
 * the thread's error: for a thread that only wants to know.
 */
WEFT_API weft_status weft_work_status(const weft_work *work);

/* Why it failed; "" if it has not.  Valid as long as the work, in any thread. */
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
