/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work: an operation that was posted and may still be under way.  It is run by the group's helper
 * thread, or by whoever waits for it first, so that posting and waiting at once costs no more than
 * the plain call, and posting, computing and waiting overlaps.  The tensors of an operation must
 * not be written (outputs: not read either) until it is done.
 */
#ifndef WEFT_WORK_H
#define WEFT_WORK_H

#include "weft/status.h"

#include <stdbool.h>
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

/* Does not block: WEFT_IN_PROGRESS, or how it ended. */
WEFT_API weft_status weft_work_test(weft_work *work);

#ifdef __cplusplus
}
#endif

#endif
