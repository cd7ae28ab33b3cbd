/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The team: threads on which a rank computes.  Work is cut into parts by its shape, never by the number
 * of threads, so the bits of a result do not depend on that number.
 *
 *     int64_t parts = weft_i_team_parts(bytes);
 *     if (parts > 1)
 *         weft_i_team_run(parts, work_on, &state);    // calls work_on(&state, part) for each part
 *
 * The calling thread works too, and begins at once; it never waits for a thread that has not begun a
 * part.  A thread takes the parts of its own share first, the same ones for the same cut, so that what it
 * wrote is still in its cache, and then those that others have not begun.
 *
 * Which team it is.  A process has one, for all of its threads: a thread that finds it at work works alone.
 * Ranks that are threads have one each.  Its threads start with the first work that is worth it, sleep when
 * there is none for some ten microseconds, and end with weft_finish, the rank's thread, or the process.  A child
 * that was forked beside them works alone.  Work inside of a part is done by the thread that has the part.
 */
#ifndef WEFT_BASE_TEAM_H
#define WEFT_BASE_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A part.  It may not fail: what can fail, as memory, is had before. */
typedef void weft_i_team_part(void *argument, int64_t part);

enum {
    WEFT_I_TEAM_LEAST = 256 << 10, /* bytes read and written; less takes about as long as waking */
    WEFT_I_TEAM_PART = 64 << 10,   /* bytes of a part, where there are not too many ... */
    WEFT_I_TEAM_MOST = 128         /* ... parts; any cut into so many keeps 16 threads at work */
};

/* The first two, so that tests can have small work cut; nobody else changes them.  Relaxed: numbers
 * that lead nowhere. */
extern _Atomic int64_t weft_i_team_least, weft_i_team_part_bytes;

/* Calls function(argument, part) for all parts from 0 on, in any order, and returns when all are done;
 * at most INT16_MAX of them. */
void weft_i_team_run(int64_t parts, weft_i_team_part *function, void *argument);

/* Into how many parts work is cut that reads and writes so many bytes, or takes as long as that would; 1: it
 * is not. */
static inline int64_t weft_i_team_parts(int64_t bytes)
{
    if (__builtin_expect(bytes < atomic_load_explicit(&weft_i_team_least, memory_order_relaxed), 1))
        return 1;
    int64_t parts = bytes / atomic_load_explicit(&weft_i_team_part_bytes, memory_order_relaxed);
    return parts < 1 ? 1 : parts < WEFT_I_TEAM_MOST ? parts : WEFT_I_TEAM_MOST;
}

/* Whether n elements of `bytes` each, which lie in memory, may be enough to be cut. */
static inline bool weft_i_team_may_cut(int64_t n, int64_t bytes)
{
    return n * bytes > atomic_load_explicit(&weft_i_team_least, memory_order_relaxed);
}

/* Where part `part` of `parts` begins among n things, each part of about as many; that of `parts` ends. */
static inline int64_t weft_i_team_bound(int64_t n, int64_t parts, int64_t part)
{
    int64_t each = n / parts, rest = n % parts;
    return part * each + (part < rest ? part : rest);
}

/* The same with every bound but the last at a multiple of `grain`. */
static inline int64_t weft_i_team_bound_at(int64_t n, int64_t grain, int64_t parts, int64_t part)
{
    int64_t at = weft_i_team_bound((n + grain - 1) / grain, parts, part) * grain;
    return at < n ? at : n;
}

/* ---- which team, and how large ---- */

/* How many threads the calling thread's team has, itself included. */
int weft_i_team_threads(void);

/* The calling thread, a rank, gets a team of its own; weft_i_team_leave ends it. */
void weft_i_team_own(void);
void weft_i_team_leave(void);

/* The calling thread works alone from now on: its rank has a team that is not the process's. */
void weft_i_team_alone(void);

/* The calling thread's team has `sharers` ranks beside it that may run on its cores, itself counted, of
 * `local` ranks of the job on this host. */
void weft_i_team_share(int sharers, int local);

/* The threads of the calling thread's team end; they start again with the next work. */
void weft_i_team_rest(void);

/* The calling thread's team has so many threads, for tests; 0: as many as decided. */
void weft_i_team_use(int threads);

#endif
