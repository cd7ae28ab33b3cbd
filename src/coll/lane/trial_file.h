/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trials have taught, kept for later jobs on the same machine: one small file in the cache
 * folder for each number of ranks.  Its name and its second line tell processor, cores, kernel and
 * weft, so a file of another machine that shares the home folder is never taken.  A file that is
 * cut off, changed, a link, or another user's counts as none, and one that cannot be written is
 * done without: the next job tries again what this one has tried.
 *
 * Ranks need not agree on it.  What a rank has read it shows beside its arrival, as it shows what it
 * has timed itself (trial.h).
 */
#ifndef WEFT_COLL_TRIAL_FILE_H
#define WEFT_COLL_TRIAL_FILE_H

#include "symm/kind.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_I_TRIAL_FROM = 64 << 10, /* bytes; reading the clock must not matter */
    WEFT_I_TRIAL_RUNS = 4,        /* of a way before its time counts; fewer of one that is slower */
    WEFT_I_TRIAL_SIZES = 12,
    WEFT_I_TRIAL_COLD = 2, /* runs that touch new pages, of the operands and the bounce buffers */
    WEFT_I_TRIAL_PATH = 1300
};

/* What all ranks have agreed to do as a rule. */
enum { WEFT_I_TRIAL_NONE, WEFT_I_TRIAL_STAGED, WEFT_I_TRIAL_CMA };

/* Through bounce buffers, and by CMA. */
typedef struct weft_i_trial {
    uint32_t mean[2]; /* ns */
    uint8_t runs[2];
    uint8_t
        kept[2]; /* of a mean of an earlier job, or of too few calls: runs until it is replaced */
    /* Of these an earlier job says nothing: */
    uint8_t agreed;
    uint8_t roots; /* calls of a gather that were not timed: see weft_i_trial_end */
} weft_i_trial;

/* By kind, in whatever order kinds.def has them, and power of two of the bytes.  Other forms of a kind
 * are timed with it, so most of the rows stay empty. */
typedef weft_i_trial weft_i_trials[WEFT_I_COLL_KINDS][WEFT_I_TRIAL_SIZES];

/* Of this machine and this many ranks; false if there is no folder for it. */
bool weft_i_trial_file_path(int ranks, char path[WEFT_I_TRIAL_PATH]);

/* Fills the means of what the file knows, both ways of a kind and size; how many it knows. */
int weft_i_trial_file_read(int ranks, weft_i_trials trials);

/* Writes what is known of both ways; false if that cannot be. */
bool weft_i_trial_file_write(int ranks, weft_i_trials trials);

/* The same where WEFT_LEARN asks for it: at the first large call of a lane, and when both ways of a
 * kind and size are known.  Rows of the file that `trials` knows nothing of stay. */
void weft_i_trial_remember(int ranks, weft_i_trials trials);
void weft_i_trial_keep(int ranks, weft_i_trials trials);

#endif
