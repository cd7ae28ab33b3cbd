/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's innermost limit, as calls read it. */
#ifndef WEFT_FABRIC_LIMIT_H
#define WEFT_FABRIC_LIMIT_H

#include "weft/limit.h"

/* WEFT_DEFAULT while no limit is open; only limit.c writes it. */
extern _Thread_local int64_t weft_i_limit;

/* The limit of a call: its argument, else the thread's innermost, else `own`. */
static inline int64_t weft_i_limit_of(int64_t timeout_ms, int64_t own)
{
    if (timeout_ms != WEFT_DEFAULT)
        return timeout_ms;
    return weft_i_limit != WEFT_DEFAULT ? weft_i_limit : own;
}

#endif
