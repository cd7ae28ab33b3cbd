/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of memory that collectives by a device's library look at.  When the library has moved
 * megabytes through the caches, the next call begins by asking for all of them at once.
 */
#ifndef WEFT_COLL_LINES_H
#define WEFT_COLL_LINES_H

#include "base/os/os.h"
#include "symm/backend.h"

/* Of the calls of one carrier. */
typedef struct weft_i_call_lines {
    atomic_bool cold; /* the library carried the last call, so that the caches may hold nothing of
                         weft; relaxed: a hint */
    /* What the fast path reads and writes until the library has the call, and writes from then on: */
    weft_i_lines read, written, back;
} weft_i_call_lines;

static inline bool weft_i_lines_are_cold(const weft_i_call_lines *of)
{
    return atomic_load_explicit(&of->cold, memory_order_relaxed);
}

static inline void weft_i_lines_fetch(const weft_i_lines read)
{
    for (int i = 0; i < WEFT_I_LINES; i++)
        __builtin_prefetch(atomic_load_explicit(&read[i], memory_order_relaxed));
}

/* Those that are to be written: others may have them, which takes longer. */
static inline void weft_i_lines_own(const weft_i_lines written)
{
    for (int i = 0; i < WEFT_I_LINES; i++)
        weft_i_os_own_line(atomic_load_explicit(&written[i], memory_order_relaxed));
}

void weft_i_lines_clear(weft_i_lines lines);

/* Asks for what the long way runs through and looks at, if the last call was the library's. */
void weft_i_lines_fetch_all(const weft_i_call_lines *of);

#endif
