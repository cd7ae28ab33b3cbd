/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time limits of whole stretches of a program.  The limit of a call in a group is, in this order:
 * the call's own argument, unless it is WEFT_DEFAULT or the call has none; the calling thread's
 * innermost open limit; the group's own (weft_group_timeout), which it inherited from its parent
 * when it was made.  A posted operation keeps the limit that held where it was posted.
 */
#ifndef WEFT_LIMIT_H
#define WEFT_LIMIT_H

#include "weft/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_MAX_LIMITS = 32 };

/*
 * Opens a limit of `timeout_ms` (or WEFT_FOREVER) for the calls of this thread, until the matching
 * weft_limit_close().  Limits nest; the innermost counts, also if it is the longer one.  Local,
 * never blocks.  WEFT_ERR_INVALID_ARG for a number that is no limit, WEFT_ERR_LIMIT for the 33rd.
 */
WEFT_API weft_status weft_limit_open(int64_t timeout_ms);

/* Closes the innermost limit.  WEFT_ERR_STATE if this thread has none open. */
WEFT_API weft_status weft_limit_close(void);

/* The innermost limit of this thread, or WEFT_DEFAULT if none is open. */
WEFT_API int64_t weft_limit_now(void);

#ifdef __cplusplus
}
#endif

#endif
