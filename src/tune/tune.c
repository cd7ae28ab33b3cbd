/* SPDX-License-Identifier: Apache-2.0 */
/* The table of decisions, and how users look at it and change it; see tune.h. */
#include "tune/tune.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "base/share/signal.h"

#include <string.h>
#include <strings.h>

#define K     ((size_t)1 << 10)
#define M     ((size_t)1 << 20)
#define NEVER SIZE_MAX

/* ---- the rows ---- */

typedef enum measured {
    NOWHERE,
#define DECISION(...)
#define DECIDE(...)
#define MEASURED(name_, text_) MEASURED_##name_,
#include "tune/tune.def"
#undef MEASURED
} measured;

static const char *const measured_text[] = {
    "",
#define MEASURED(name_, text_) text_,
#include "tune/tune.def"
#undef MEASURED
#undef DECISION
};
#define MEASURED(...)

#define SENSE_UP_TO        WEFT_TUNE_UP_TO
#define SENSE_BEYOND       WEFT_TUNE_BEYOND
#define SENSE_FROM         WEFT_TUNE_FROM
#define UNIT_BYTES         false
#define UNIT_BYTES_RANKS_2 true
#define COLUMNS_RANKS      false
#define COLUMNS_SAME       true
#define WEFT_I_ENV_NONE    (-1)
#define FIXED              0
const weft_i_decision_row weft_i_decisions[WEFT_I_DECISIONS] = {
#define DECISION(name_, text_, cells_, op_, columns_, sense_, unit_, limit_, variable_, meaning_) \
    {text_,                                                                                       \
     op_,                                                                                         \
     meaning_,                                                                                    \
     WEFT_I_TUNE_AT_##name_,                                                                      \
     WEFT_I_TUNE_CELLS_##cells_ > 1,                                                              \
     COLUMNS_##columns_,                                                                          \
     UNIT_##unit_,                                                                                \
     SENSE_##sense_,                                                                              \
     WEFT_I_ENV_##variable_,                                                                      \
     limit_},
#include "tune/tune.def"
#undef DECISION
};
#undef DECIDE
#define DECISION(...)

/* ---- their values ---- */

/* Rows of the other instruction set are no part of this build. */
#define ON_ANY(...) __VA_ARGS__
#if defined(__aarch64__)
#define ON_AARCH64(...) __VA_ARGS__
#define ON_X86_64(...)
#else
#define ON_AARCH64(...)
#define ON_X86_64(...) __VA_ARGS__
#endif
#define GROUND_ROOMY(at_, ...)   [WEFT_I_GROUND_ROOMY][at_] = __VA_ARGS__,
#define GROUND_CROWDED(at_, ...) [WEFT_I_GROUND_CROWDED][at_] = __VA_ARGS__,
#define GROUND_ANY(at_, ...)     GROUND_ROOMY(at_, __VA_ARGS__) GROUND_CROWDED(at_, __VA_ARGS__)

/* A decision has a cell for each kind of operation, or one for all: then the kind is the first. */
#define EACH_OF(op_)     ((int)WEFT_I_##op_)
#define WEFT_I_ONE       0 /* the operation of rows that have one cell */
#define CELL(name_, op_) (WEFT_I_TUNE_AT_##name_ + EACH_OF(op_))
#define IN_BRACES(...) \
    {                  \
        __VA_ARGS__    \
    }
#define SAME(value_) (value_, value_, value_, value_)
atomic_size_t weft_i_tune_cells[WEFT_I_GROUNDS][WEFT_I_TUNE_CELLS][WEFT_I_TUNE_COLUMNS] = {
#define DECIDE(name_, op_, isa_, ground_, values_, measured_) \
    ON_##isa_(GROUND_##ground_(CELL(name_, op_), IN_BRACES values_))
#include "tune/tune.def"
#undef DECIDE
};

/* Where those were measured; NOWHERE: there is no such value. */
static const uint8_t measured_at[WEFT_I_GROUNDS][WEFT_I_TUNE_CELLS] = {
#define DECIDE(name_, op_, isa_, ground_, values_, measured_) \
    ON_##isa_(GROUND_##ground_(CELL(name_, op_), MEASURED_##measured_))
#include "tune/tune.def"
#undef DECIDE
};

atomic_uchar weft_i_tune_setters[WEFT_I_GROUNDS][WEFT_I_TUNE_CELLS][WEFT_I_TUNE_COLUMNS];

/* ---- inside ---- */

weft_i_ground weft_i_tune_ground_here(int ranks)
{
    return weft_i_tune_ground(weft_i_wait_mode_for(ranks, weft_i_os_cores()));
}

/* What the variable of a decision makes of it, if it says anything. */
static bool variable_says(const weft_i_decision_row *row, size_t *value)
{
    if (row->variable < 0)
        return false;
    weft_i_env variable = (weft_i_env)row->variable;
    const char *text = weft_i_env_text(variable);
    bool off = !strcasecmp(text, "off"), always = !strcasecmp(text, "always");
    if (variable == WEFT_I_ENV_CMA || variable == WEFT_I_ENV_NCCL) {
        *value = off ? NEVER : 0;
        return off || (always && variable == WEFT_I_ENV_NCCL);
    }
    int64_t number = weft_i_env_number_or_default(variable);
    *value = number < 0 ? 0 : (size_t)number;
    return number >= 0;
}

size_t weft_i_tune_or_variable(weft_i_decision which, weft_i_coll_kind kind, int ranks,
                               weft_i_ground ground)
{
    size_t value;
    weft_i_tune_load();
    return variable_says(&weft_i_decisions[which], &value)
               ? value
               : weft_i_tune_of(which, kind, ranks, ground);
}

uint32_t weft_i_tune_library_digest(int ranks)
{
    uint32_t digest = 0;
    weft_i_tune_load();
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++)
        digest = weft_i_digest(digest, weft_i_tune_of(WEFT_I_TUNE_NCCL, (weft_i_coll_kind)kind,
                                                      ranks, WEFT_I_GROUND_ROOMY));
    return digest;
}

uint32_t weft_i_tune_kernels_digest(int ranks)
{
    uint32_t digest = 0;
    weft_i_tune_load();
    for (int which = WEFT_I_TUNE_CUDA_PACKETS; which <= WEFT_I_TUNE_CUDA_MEET_FIRST; which++)
        digest = weft_i_digest(digest, weft_i_tune_of((weft_i_decision)which, WEFT_I_ALL_REDUCE,
                                                      ranks, WEFT_I_GROUND_ROOMY));
    return digest;
}

static weft_i_tune_learned *learned;

void weft_i_tune_ask_learned(weft_i_tune_learned *ask)
{
    learned = ask;
}

/* ---- checks ---- */

static weft_status check_decision(weft_i_decision which)
{
    return (unsigned)which < WEFT_I_DECISIONS
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_tune: %d is no threshold", (int)which);
}

/* Which kind of operation it is; 0 where there is one value for all. */
static weft_status check_op(weft_i_decision which, const char *op, weft_i_coll_kind *kind)
{
    const weft_i_decision_row *row = &weft_i_decisions[which];
    *kind = (weft_i_coll_kind)0;
    if (!row->each)
        return op && !strcmp(op, row->op)
                   ? WEFT_OK
                   : weft_i_fail(WEFT_ERR_NOT_FOUND, "%s is decided for \"%s\", not for \"%s\"",
                                 row->text, row->op, op ? op : "(null)");
    int named = weft_i_kind_named(op);
    if (named < 0)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "\"%s\" is not a collective", op ? op : "(null)");
    if (!measured_at[0][row->at + named])
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "%s is not decided for \"%s\"", row->text, op);
    *kind = (weft_i_coll_kind)named;
    return WEFT_OK;
}

static weft_status check_value(weft_i_decision which, const char *op, int ranks, size_t value)
{
    const weft_i_decision_row *row = &weft_i_decisions[which];
    if (!row->limit)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s cannot be set: other code relies on the value compiled in",
                           row->text);
    if (ranks < 1 || value > row->limit)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: thresholds are for 1 rank and more, and %s is at most %zu bytes",
                           op, row->text, row->limit);
    return WEFT_OK;
}

static void set_cell(int cell, int column, size_t value, weft_tune_source by)
{
    for (int ground = 0; ground < WEFT_I_GROUNDS; ground++) {
        atomic_store_explicit(&weft_i_tune_cells[ground][cell][column], value,
                              memory_order_relaxed);
        atomic_store_explicit(&weft_i_tune_setters[ground][cell][column], (unsigned char)by,
                              memory_order_relaxed);
    }
}

weft_status weft_i_tune_set(weft_i_decision which, const char *op, int ranks, size_t value,
                            weft_tune_source by)
{
    weft_i_coll_kind kind;
    WEFT_TRY(check_decision(which));
    WEFT_TRY(check_op(which, op, &kind));
    WEFT_TRY(check_value(which, op, ranks, value));
    if (by == WEFT_TUNE_COMPILED)
        return WEFT_OK;
    bool same = weft_i_decisions[which].same;
    for (int column = 0; column < WEFT_I_TUNE_COLUMNS; column++)
        if (same || column == weft_i_tune_column(ranks))
            set_cell(weft_i_tune_cell(which, kind), column, value, by);
    return which == WEFT_I_TUNE_EAGER ? weft_i_tune_set(WEFT_I_TUNE_ZERO_COPY, op, ranks, value, by)
                                      : WEFT_OK;
}

/* ---- public ---- */

#define DECIDE(...)
#undef DECISION
#define DECISION(name_, ...)                                      \
    _Static_assert((int)WEFT_TUNE_##name_ == WEFT_I_TUNE_##name_, \
                   "thresholds are the same, in the same order");
#include "tune/tune.def"

size_t weft_tune_get(weft_threshold which, const char *op, int ranks)
{
    weft_i_coll_kind kind;
    size_t value;
    weft_i_decision decision = (weft_i_decision)which;
    weft_i_tune_load();
    if (check_decision(decision) < 0 || check_op(decision, op, &kind) < 0)
        return 0;
    if (ranks < 1)
        return (void)weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: thresholds are for 1 rank and more",
                                 op),
               0;
    /* A variable that switches CMA or NCCL on or off leaves their sizes alone. */
    if (which != WEFT_TUNE_CMA && which != WEFT_TUNE_NCCL &&
        variable_says(&weft_i_decisions[which], &value))
        return value;
    return weft_i_tune_of(decision, kind, ranks, weft_i_tune_ground_here(ranks));
}

weft_status weft_tune_set(weft_threshold which, const char *op, int ranks, size_t bytes)
{
    return weft_i_tune_set((weft_i_decision)which, op, ranks, bytes, WEFT_TUNE_PROGRAM);
}

/* The next decision and kind that has a value; false: there is none. */
static bool step(int *which, int *kind)
{
    for (; *which < WEFT_I_DECISIONS; (*which)++, *kind = -1) {
        const weft_i_decision_row *row = &weft_i_decisions[*which];
        while (++*kind < (row->each ? WEFT_I_COLL_KINDS : 1))
            if (measured_at[0][row->at + *kind])
                return true;
    }
    return false;
}

int weft_tune_decision_count(void)
{
    int which = 0, kind = -1, count = 0;
    while (step(&which, &kind))
        count++;
    return count;
}

/* Who has set it, and what; `out` has what the table says. */
static void find_source(const weft_i_decision_row *row, int ranks, weft_tune_decision *out)
{
    size_t value;
    if (variable_says(row, &value)) {
        out->source = WEFT_TUNE_VARIABLE;
        out->variable = weft_i_env_row_of((weft_i_env)row->variable)->name;
        out->value = value;
    } else if (out->source == WEFT_TUNE_COMPILED && learned &&
               learned((weft_i_decision)out->which, out->op, ranks)) {
        out->source = WEFT_TUNE_LEARNED;
    }
}

static void describe(int which, int kind, int ranks, weft_tune_decision *out)
{
    const weft_i_decision_row *row = &weft_i_decisions[which];
    weft_i_ground ground = weft_i_tune_ground_here(ranks);
    int cell = row->at + kind, column = weft_i_tune_column(ranks);
    *out = (weft_tune_decision){
        .which = (weft_threshold)which,
        .name = row->text,
        .op = row->each ? weft_i_coll_name((weft_i_coll_kind)kind) : row->op,
        .meaning = row->meaning,
        .unit = row->squared ? "bytes x ranks x ranks" : "bytes",
        .sense = (weft_tune_sense)row->sense,
        .value =
            atomic_load_explicit(&weft_i_tune_cells[ground][cell][column], memory_order_relaxed),
        .source = (weft_tune_source)atomic_load_explicit(&weft_i_tune_setters[ground][cell][column],
                                                         memory_order_relaxed),
        .measured = measured_text[measured_at[ground][cell]],
        .any_ranks = row->same,
        .can_be_set = row->limit != 0,
    };
    find_source(row, ranks, out);
}

weft_status weft_tune_decision_describe(int index, int ranks, weft_tune_decision *out)
{
    int which = 0, kind = -1, left = index;
    weft_i_tune_load();
    while (out && index >= 0 && ranks > 0 && step(&which, &kind))
        if (!left--) {
            describe(which, kind, ranks, out);
            return WEFT_OK;
        }
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "weft_tune_decision_describe: row %d for %d ranks, out %s; there are %d "
                       "rows, for 1 rank and more",
                       index, ranks, out ? "given" : "NULL", weft_tune_decision_count());
}
