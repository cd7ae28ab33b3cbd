/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the clock of this host stands to that of another one: for traces of several hosts, which are to
 * be put on one clock.  Monotonic clocks of two hosts have nothing in common, and their wall clocks may
 * be seconds apart.  So a rank compares its clock with that of the store's server (meet_clock.c), when
 * the job has met and once more when it ends, since no two clocks run equally fast.
 */
#ifndef WEFT_BASE_CLOCK_NOTE_H
#define WEFT_BASE_CLOCK_NOTE_H

#include <stdatomic.h>
#include <stdint.h>

struct weft_i_json;

enum { WEFT_I_CLOCK_POINTS = 2 }; /* the first comparison, and the last one */

/* One comparison. */
typedef struct weft_i_clock_point {
    uint64_t of;       /* which clock ours was compared with; 0: it was not */
    int64_t at_ns;     /* when, on our clock */
    int64_t ahead_ns;  /* of ours that one is by so much ... */
    int64_t within_ns; /* ... give or take this */
} weft_i_clock_point;

/* Where the points lie, normally in a page that others read: each word is atomic, and `of`, stored last
 * with release, says that the others belong together; readers load it with acquire, before and after. */
typedef struct weft_i_clock_note {
    struct {
        _Atomic uint64_t of;
        _Atomic int64_t at_ns, ahead_ns, within_ns;
    } point[WEFT_I_CLOCK_POINTS];
} weft_i_clock_note;

_Static_assert(sizeof(weft_i_clock_note) == 64, "a cache line of the flight record");

/* Notes a comparison: the first one stays, later ones take each other's place.  Only the owner does. */
void weft_i_clock_note_put(weft_i_clock_note *note, const weft_i_clock_point *point);
/* What was noted; how many. */
int weft_i_clock_note_get(const weft_i_clock_note *note,
                          weft_i_clock_point out[WEFT_I_CLOCK_POINTS]);

/* The note of this process, for traces that no job page has to do with. */
weft_i_clock_note *weft_i_clock_note_own(void);

/* Writes whose clock the times of a trace are of, as `weft trace` reads it: host, the wall clock now, and
 * what `note` says. */
void weft_i_clock_note_write(struct weft_i_json *json, const weft_i_clock_note *note);

#endif
