/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness.  Each process rank has one library thread that holds the life word of its record for as
 * long as the rank is in the job: when the process dies by whatever cause, the kernel marks the
 * word before it even unmaps the memory (about 40 us after kill -9), and peers read it in their
 * waits without a system call.  The same thread beats the heart, so that a stopped rank can be told
 * from a slow one, and answers fetches.
 */
#ifndef WEFT_FABRIC_WATCH_H
#define WEFT_FABRIC_WATCH_H

#include "base/report/text.h"
#include "base/share/fdpass.h"
#include "fabric/world/job.h"

#include <linux/futex.h>

typedef struct weft_i_watch weft_i_watch;

/* Starts the thread; on return the life word is held. */
weft_status weft_i_watch_start(weft_i_rank_record *mine, weft_i_fdpass *fdpass, weft_i_watch **out);

/* Ends the thread in order: the word is let go, not marked. */
void weft_i_watch_stop(weft_i_watch *watch);

typedef enum weft_i_fate { WEFT_I_ALIVE, WEFT_I_LEFT, WEFT_I_DEAD } weft_i_fate;

/* Cheap enough for every round of a wait: three loads. */
weft_i_fate weft_i_watch_fate(const weft_i_rank_record *rank_record);

/* Does the rank seem to live?  For a look in passing: relaxed, so whoever seems to be gone is asked
 * for its fate. */
static inline bool weft_i_watch_seems_alive(const weft_i_rank_record *rank_record)
{
    uint32_t word = atomic_load_explicit(&rank_record->life.word, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&rank_record->life.exit, memory_order_relaxed);
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_relaxed);
    return state == WEFT_I_RANK_HERE && !((word & FUTEX_OWNER_DIED) | seen);
}

/* Is the rank's process stopped by a signal?  For messages; reads /proc. */
bool weft_i_watch_is_stopped(const weft_i_rank_record *rank_record);

/*
 * Writes what is known of a rank: "killed by signal 9", "stopped (SIGSTOP) for 1.2 s", and its last
 * operation. For messages; reads /proc.
 */
void weft_i_watch_describe(const weft_i_rank_record *rank_record, weft_i_text *out);

#endif
