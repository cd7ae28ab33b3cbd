/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path of collectives that a device's backend hands to a library, as NCCL.
 *
 * The library may move megabytes through the processor's caches, and nothing of weft is there any
 * more when the next call comes: it waits for every line of code and data that it touches.  So a
 * call that nothing is unusual about has a path of its own.  It checks what the long way checks
 * (coll.c, work.c, run.c, carrier.c), with a quarter of the lines, and asks for these at its
 * beginning, so that they come together.  What the library need not wait for, as the flight record,
 * is done while the library is at it.  Whatever is unusual is left to the long way before anything
 * has happened.
 */
#ifndef WEFT_COLL_FAST_H
#define WEFT_COLL_FAST_H

#include "coll/device/carrier.h"

/* Runs a call of which op, kind, reduction and root are given: all_reduce, all_gather, reduce_scatter
 * or broadcast.  WEFT_ERR_UNSUPPORTED without a message: it is one for the long way, and nothing has
 * happened. */
weft_status weft_i_fast_run(weft_i_carrier *carrier, weft_i_plain *call, weft_tensor *out,
                            weft_tensor *in, weft_group *group);

/* The same, after asking for what it begins with: line by line that would take as long as the rest. */
static inline weft_status weft_i_fast_try(weft_i_call_lines *fast, weft_i_plain *call,
                                          weft_tensor *out, weft_tensor *in, weft_group *group)
{
    weft_i_carrier *carrier = (weft_i_carrier *)((char *)fast - offsetof(weft_i_carrier, lines));
    const char *code = (const char *)(uintptr_t)weft_i_fast_run;
    __builtin_prefetch(code);
    __builtin_prefetch(code + 64);
    __builtin_prefetch(code + 128);
    __builtin_prefetch(code + 192);
    __builtin_prefetch(code + 256);
    __builtin_prefetch(carrier);
    __builtin_prefetch(group);
    weft_i_os_own_line(&group->on_lane);
    __builtin_prefetch(in);
    __builtin_prefetch(out);
    return in && out ? weft_i_fast_run(carrier, call, out, in, group) : WEFT_ERR_UNSUPPORTED;
}

#endif
