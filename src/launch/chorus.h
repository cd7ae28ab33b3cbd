/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal messages of several ranks, which become one.  A message of the library ("weft WARN [rank
 * 2]: ...") is held back for a moment; ranks that say the same meanwhile join it.  Messages leave
 * in the order in which they came, and a rank's own stay in order: it never joins one that came
 * before another of its own.
 *
 * Two messages are equal if they differ at most in how long ago something was ("about 2.1 ms ago", "begun 2.1 ms ago")
 * and in their own rank: "rank 0 calls sum, but rank 2 calls max" of rank 0 and "rank 1 calls sum,
 * but rank 2 calls max" of rank 1 are both "this rank calls sum, but rank 2 calls max".
 */
#ifndef WEFT_LAUNCH_CHORUS_H
#define WEFT_LAUNCH_CHORUS_H

#include "base/os/os.h"

enum {
    WEFT_I_CHORUS_HELD = 32,    /* messages at once */
    WEFT_I_CHORUS_LINE = 4096,  /* longer lines are not held; nor does the library write any */
    WEFT_I_CHORUS_TEXT = 8192,  /* room for a message that names several ranks */
    WEFT_I_CHORUS_PREFIX = 256, /* and for the list of them */
    WEFT_I_CHORUS_MS = 200      /* how long a message waits for others that say the same */
};

/* One message, and who says it. */
typedef struct weft_i_verse {
    char *
        text; /* as `first` said it, with its newline; behind it a byte for each rank: says it too */
    size_t length;
    int first, count;
    bool by_own; /* equal but for the own rank of each; else word by word */
    int64_t due;
} weft_i_verse;

typedef struct weft_i_chorus {
    int ranks, used;
    weft_i_verse verses[WEFT_I_CHORUS_HELD];
} weft_i_chorus;

/* Holds a line of a rank.  False: it is no message of the library, or there is no room for it, and
 * the caller writes it itself, after the _before() messages of the rank. */
bool weft_i_chorus_take(weft_i_chorus *chorus, int rank, const char *line, size_t length,
                        int64_t now);

/* How many messages, from the oldest on, have to leave before another line of the rank may. */
int weft_i_chorus_before(const weft_i_chorus *chorus, int rank);

/* How many have waited long enough by `now` or are said by all ranks.  _due: when the next will
 * have, or WEFT_I_NEVER. */
int weft_i_chorus_ripe(const weft_i_chorus *chorus, int64_t now);
int64_t weft_i_chorus_due(const weft_i_chorus *chorus);

/* Takes the oldest message out: its text, ended by 0, into WEFT_I_CHORUS_TEXT bytes.  `prefix`
 * (WEFT_I_CHORUS_PREFIX bytes) gets "[0-2,5] ", or nothing if one rank alone said it.  Returns the
 * rank that said it first. */
int weft_i_chorus_leave(weft_i_chorus *chorus, char *prefix, char *text);

/* Is the line one of the library's? */
bool weft_i_chorus_knows(const char *line, size_t length);

void weft_i_chorus_close(weft_i_chorus *chorus);

#endif
