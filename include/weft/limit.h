/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time limits for a section of a program.  The limit of a call in a group is the first of these
 * that applies: the call's own argument, if it has one and it is not WEFT_DEFAULT; the innermost
 * limit that the calling thread has open; the group's own limit (weft_group_timeout), which it
 * inherits from its parent.  A posted operation keeps the limit in force when it was posted.
 */
#ifndef WEFT_LIMIT_H
#define WEFT_LIMIT_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_MAX_LIMITS = 32 };

/*
 * Opens a limit of `timeout_ms` (or WEFT_FOREVER) for the calls of this thread, until the matching
 * weft_limit_close().  Limits nest.  The innermost one applies, even if it is longer than those
 * around it.  Local; never blocks.  WEFT_ERR_INVALID_ARG if the number is not a valid limit,
 * WEFT_ERR_LIMIT if 32 limits are open already.
 */
WEFT_API weft_status weft_limit_open(int64_t timeout_ms);

/* Closes the innermost limit.  WEFT_ERR_STATE if this thread has none open. */
WEFT_API weft_status weft_limit_close(void);

/* Says whether the thread should stop waiting. */
typedef bool (*weft_interrupt)(void *argument);

/*
 * Sets a function that can cut the waits of this thread short, for programs in which a signal or a
 * user ends what a thread is doing.  While a call of the thread waits for another rank, `asked` is
 * called every 50 ms or so.  Once it returns true, the call ends as if its limit had passed, with
 * WEFT_ERR_TIMEOUT.  It must not call weft.  If `asked` is NULL, nothing is called any more.  Local.
 */
WEFT_API void weft_limit_interrupt(weft_interrupt asked, void *argument);

/* Returns the innermost limit of this thread, or WEFT_DEFAULT if none is open. */
WEFT_API int64_t weft_limit_now(void);

#ifdef __cplusplus
}
#endif

#endif
