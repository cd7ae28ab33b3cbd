/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions by size: one table of all values, and the one lookup.  tune.def has the rows; weft/tune.h is
 * how users look at them and change them.
 */
#ifndef WEFT_TUNE_TUNE_H
#define WEFT_TUNE_TUNE_H

#include "base/os/assert.h"
#include "base/share/wait.h"
#include "symm/kind.h"
#include "weft/tune.h"

#include <stdatomic.h>
#include <stddef.h>

/* In the order of weft_threshold. */
typedef enum weft_i_decision {
#define DECISION(name_, ...) WEFT_I_TUNE_##name_,
#define MEASURED(...)
#define DECIDE(...)
#include "tune/tune.def"
#undef DECISION
    WEFT_I_DECISIONS
} weft_i_decision;

/* What the ranks of a group run on.  Another one is a name here, and rows in tune.def; files and
 * weft_tune_set mean all of them. */
typedef enum weft_i_ground {
    WEFT_I_GROUND_ROOMY,   /* a core for each rank */
    WEFT_I_GROUND_CROWDED, /* more ranks than cores */
    WEFT_I_GROUNDS
} weft_i_ground;

enum { WEFT_I_TUNE_COLUMNS = 4 }; /* 2, 3-4, 5-8 and more ranks */

/* Where the cells of a decision begin, and where they end: one, or one for each kind. */
#define WEFT_I_TUNE_CELLS_EACH WEFT_I_COLL_KINDS
#define WEFT_I_TUNE_CELLS_ONE  1
enum {
#define DECISION(name_, text_, cells_, ...) \
    WEFT_I_TUNE_AT_##name_,                 \
        WEFT_I_TUNE_END_##name_ = WEFT_I_TUNE_AT_##name_ + WEFT_I_TUNE_CELLS_##cells_ - 1,
#include "tune/tune.def"
#undef DECISION
    WEFT_I_TUNE_CELLS
};

/* A row of tune.def, without its values. */
typedef struct weft_i_decision_row {
    const char *text, *op, *meaning;
    uint16_t at;   /* its first cell */
    bool each;     /* a cell for each kind follows */
    bool same;     /* for any number of ranks */
    bool squared;  /* unit: bytes times the square of the number of ranks */
    uint8_t sense; /* weft_tune_sense */
    int variable;  /* weft_i_env; -1: none */
    size_t limit;  /* the largest value that can be set; 0: none can */
} weft_i_decision_row;

extern const weft_i_decision_row weft_i_decisions[WEFT_I_DECISIONS];

/* Relaxed: a setting publishes nothing else, and the digest of a call catches ranks that disagree. */
extern atomic_size_t weft_i_tune_cells[WEFT_I_GROUNDS][WEFT_I_TUNE_CELLS][WEFT_I_TUNE_COLUMNS];

/* Who has set a cell; 0: it is compiled in. */
extern atomic_uchar weft_i_tune_setters[WEFT_I_GROUNDS][WEFT_I_TUNE_CELLS][WEFT_I_TUNE_COLUMNS];

static inline weft_i_ground weft_i_tune_ground(weft_i_wait_mode mode)
{
    return mode == WEFT_I_WAIT_SPIN ? WEFT_I_GROUND_ROOMY : WEFT_I_GROUND_CROWDED;
}

static inline int weft_i_tune_column(int ranks)
{
    WEFT_ASSERT(ranks > 0);
    return ranks <= 2 ? 0 : ranks <= 4 ? 1 : ranks <= 8 ? 2 : 3;
}

/* The cell of a decision for one kind of operation. */
static inline int weft_i_tune_cell(weft_i_decision which, weft_i_coll_kind kind)
{
    static const struct {
        uint16_t at;
        bool each;
    } cells[WEFT_I_DECISIONS] = {
#define DECISION(name_, text_, cells_, ...) \
    {WEFT_I_TUNE_AT_##name_, WEFT_I_TUNE_CELLS_##cells_ > 1},
#include "tune/tune.def"
#undef DECISION
    };
    WEFT_ASSERT(which < WEFT_I_DECISIONS && kind < WEFT_I_COLL_KINDS);
    return cells[which].at + (cells[which].each ? (int)kind : 0);
}

#undef MEASURED
#undef DECIDE

/* The value of a decision; `kind` means nothing to those that have one for all operations. */
static inline size_t weft_i_tune_of(weft_i_decision which, weft_i_coll_kind kind, int ranks,
                                    weft_i_ground ground)
{
    return atomic_load_explicit(
        &weft_i_tune_cells[ground][weft_i_tune_cell(which, kind)][weft_i_tune_column(ranks)],
        memory_order_relaxed);
}

/* The same of a decision that is the SAME for any number of ranks, on every ground. */
static inline size_t weft_i_tune_same(weft_i_decision which, weft_i_coll_kind kind)
{
    return atomic_load_explicit(&weft_i_tune_cells[0][weft_i_tune_cell(which, kind)][0],
                                memory_order_relaxed);
}

/* Has somebody set it? */
static inline bool weft_i_tune_is_set(weft_i_decision which, weft_i_coll_kind kind, int ranks,
                                      weft_i_ground ground)
{
    return atomic_load_explicit(
        &weft_i_tune_setters[ground][weft_i_tune_cell(which, kind)][weft_i_tune_column(ranks)],
        memory_order_relaxed);
}

/* The value of a decision whose variable sets a number, which is looked at now. */
size_t weft_i_tune_or_variable(weft_i_decision which, weft_i_coll_kind kind, int ranks,
                               weft_i_ground ground);

/* A digest of the sizes from which a library carries operands of devices: ranks whose WEFT_TUNE
 * differ do not choose alike.  And of those by which weft's own kernels choose. */
uint32_t weft_i_tune_library_digest(int ranks);
uint32_t weft_i_tune_kernels_digest(int ranks);

/* Reads the file that WEFT_TUNE names; once, before anything is chosen. */
void weft_i_tune_load(void);

/* The setter behind weft_tune_set and files: checks, and with `by` != COMPILED sets. */
weft_status weft_i_tune_set(weft_i_decision which, const char *op, int ranks, size_t value,
                            weft_tune_source by);

/* Would a world of that many ranks on this machine have a core for each? */
weft_i_ground weft_i_tune_ground_here(int ranks);

/* What finds out while it runs says here of which operations it has; set before main. */
typedef bool weft_i_tune_learned(weft_i_decision which, const char *op, int ranks);
void weft_i_tune_ask_learned(weft_i_tune_learned *ask);

#endif
