/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's innermost limit, as calls read it. */
#ifndef WEFT_FABRIC_LIMIT_H
#define WEFT_FABRIC_LIMIT_H

#include "weft/limit.h"

/* WEFT_DEFAULT while no limit is open; written by limit.c, and by weft_i_limit_swap. */
extern _Thread_local int64_t weft_i_limit;

/* The limit of a call: its argument, else the thread's innermost, else `own`. */
static inline int64_t weft_i_limit_of(int64_t timeout_ms, int64_t own)
{
    if (timeout_ms != WEFT_DEFAULT)
        return timeout_ms;
    return weft_i_limit != WEFT_DEFAULT ? weft_i_limit : own;
}

/* Sets the innermost limit for a part of a call; returns the one before, to be set again. */
static inline int64_t weft_i_limit_swap(int64_t timeout_ms)
{
    int64_t before = weft_i_limit;
    weft_i_limit = timeout_ms;
    return before;
}

#endif
