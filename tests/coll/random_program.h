/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random program of several ranks, as a value: what each step is follows from the seed alone, so
 * that every rank can tell it without asking, and a seed that fails can be run again.
 *
 * A program has chapters.  The first is the world's; a rank whose call fails revokes the group of
 * the chapter and shrinks it, and the ranks that are left go on with the next chapter.  One or two
 * faults come on the way.
 */
#ifndef WEFT_TESTS_RANDOM_PROGRAM_H
#define WEFT_TESTS_RANDOM_PROGRAM_H

#include "coll_acts.h"

#include <stdatomic.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_MISMATCH,  /* another operation, count, dtype, root or order than the others */
    FAULT_KILL,      /* SIGKILL at any moment of a step */
    FAULT_STOP,      /* SIGSTOP for less than the limit: nobody may notice */
    FAULT_STOP_LONG, /* for longer; ranks that are threads sleep instead */
    FAULT_LEAVE,     /* weft_finish before the others */
    FAULT_REVOKE,    /* a rank revokes the group between two calls */
    FAULT_KINDS
} fault_kind;

typedef enum step_kind {
    STEP_COLLECTIVE,
    STEP_MONITORED,
    STEP_RING,
    STEP_SYMMETRIC,
    STEP_OBJECTS,
    STEP_FUNCTIONAL,
    STEP_GRADIENT,
    STEP_NEW,
    STEP_SPLIT,
    STEP_KINDS
} step_kind;

typedef struct fault {
    fault_kind kind;
    int victim; /* rank of the world */
    int chapter, step;
    int delay_us; /* from the beginning of the step */
    int64_t ms;   /* how long a stop takes */
    int variant;
} fault;

enum {
    PROGRAM_RANKS = 6,
    PROGRAM_FAULTS = 2,
    PROGRAM_STEPS = 30,
    PROGRAM_CHAPTERS = 4,
    PROGRAM_SHRINK = 3, /* limits that a shrink has: others are in a call that fails meanwhile */
    PROGRAM_SLOW = VALUES_SANITIZED ? 5 : 1
};

typedef struct program {
    uint64_t seed;
    int ranks;
    bool threads;
    int64_t limit_ms;
    int faults;
    fault fault[PROGRAM_FAULTS];
} program;

static const char *const fault_names[FAULT_KINDS] = {"no fault",  "mismatch", "kill",  "short stop",
                                                     "long stop", "leave",    "revoke"};
static const char *const step_names[STEP_KINDS] = {
    "collective", "monitored barrier", "ring", "symmetric memory", "objects", "functional",
    "gradient",   "group_new",         "split"};

static inline uint64_t program_draw(const program *p, int chapter, int step, int what)
{
    return values_random(values_mix(p->seed) + (uint64_t)(chapter * 1000 + step), (uint64_t)what);
}

static inline bool program_has(const program *p, fault_kind kind)
{
    for (int i = 0; i < p->faults; i++)
        if (p->fault[i].kind == kind)
            return true;
    return false;
}

/* The mismatch that this step is about, or NULL. */
static inline const fault *program_mismatch(const program *p, int chapter, int step)
{
    for (int i = 0; i < p->faults; i++) {
        const fault *f = &p->fault[i];
        bool swaps = f->variant == 4 && step == f->step + 1;
        if (f->kind == FAULT_MISMATCH && f->chapter == chapter && (f->step == step || swaps))
            return f;
    }
    return NULL;
}

/* A fault that only ranks that are processes can have has another kind among threads. */
static fault_kind program_fault_kind(const program *p, uint64_t random)
{
    static const fault_kind kinds[] = {FAULT_NONE,  FAULT_NONE,      FAULT_MISMATCH, FAULT_MISMATCH,
                                       FAULT_KILL,  FAULT_KILL,      FAULT_KILL,     FAULT_STOP,
                                       FAULT_LEAVE, FAULT_STOP_LONG, FAULT_REVOKE,   FAULT_MISMATCH,
                                       FAULT_KILL,  FAULT_LEAVE};
    fault_kind kind = kinds[random % (sizeof kinds / sizeof *kinds)];
    return p->threads && kind == FAULT_KILL ? FAULT_LEAVE : kind;
}

static void program_draw_fault(program *p, int number)
{
    fault *f = &p->fault[number];
    int base = 500 + 20 * number;
    *f = (fault){.kind = program_fault_kind(p, program_draw(p, 9, 0, base)),
                 .victim = (int)(program_draw(p, 9, 0, base + 1) % (unsigned)p->ranks),
                 .step = (int)(program_draw(p, 9, 0, base + 2) % (PROGRAM_STEPS - 2)),
                 .delay_us = (int)(program_draw(p, 9, 0, base + 3) % 4000),
                 .variant = (int)(program_draw(p, 9, 0, base + 4) % 5)};
    if (number &&
        (f->kind == FAULT_MISMATCH || f->kind == FAULT_NONE || f->kind == FAULT_STOP_LONG))
        f->kind = p->threads ? FAULT_LEAVE : FAULT_KILL;
    if (number) {
        f->chapter = (int)(program_draw(p, 9, 0, base + 5) % 2);
        f->victim = (p->fault[0].victim + 1) % p->ranks;
        f->step %= 10;
    }
}

static program program_of(uint64_t seed, bool threads)
{
    program p = {.seed = seed, .threads = threads};
    p.ranks = 2 + (int)(program_draw(&p, 9, 0, 1) % (PROGRAM_RANKS - 1));
    p.faults = 1 + (p.ranks > 2 && program_draw(&p, 9, 0, 2) % 3 == 0);
    for (int i = 0; i < p.faults; i++)
        program_draw_fault(&p, i);
    if (p.fault[0].kind == FAULT_NONE)
        p.faults = 1;
    /* Where nobody stops, a limit that passes is a finding, on however busy a machine. */
    p.limit_ms = program_has(&p, FAULT_STOP_LONG) ? 300 * PROGRAM_SLOW : 60000;
    for (int i = 0; i < p.faults; i++) {
        fault *f = &p.fault[i];
        int64_t times = 2 + (int64_t)(program_draw(&p, 9, 1, i) % 5);
        f->ms = f->kind == FAULT_STOP_LONG ? times * p.limit_ms
                                           : 5 + (int64_t)(program_draw(&p, 9, 2, i) % 60);
    }
    return p;
}

static int program_steps(int chapter)
{
    return chapter ? 10 : PROGRAM_STEPS;
}

static step_kind program_step(const program *p, int chapter, int step)
{
    unsigned pick = (unsigned)(program_draw(p, chapter, step, 1) % 32);
    if (program_mismatch(p, chapter, step))
        return STEP_COLLECTIVE;
    return pick < 16   ? STEP_COLLECTIVE
           : pick < 18 ? STEP_MONITORED
           : pick < 21 ? STEP_RING
           : pick < 23 ? STEP_SYMMETRIC
           : pick < 25 ? STEP_OBJECTS
           : pick < 27 ? STEP_FUNCTIONAL
           : pick < 29 ? STEP_GRADIENT
           : pick < 31 ? STEP_NEW
                       : STEP_SPLIT;
}

static act program_act(const program *p, int chapter, int step, int size)
{
    static const int64_t counts[] = {0, 1, 7, 60, 300, 1000, 5000, 40000};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_I64, WEFT_U8};
    act a = {.kind = (act_kind)(program_draw(p, chapter, step, 11) % ACT_KINDS),
             .dtype = dtypes[program_draw(p, chapter, step, 12) % 5],
             .reduction = (weft_reduction)(program_draw(p, chapter, step, 13) % (WEFT_MAX + 1)),
             .root = (int)(program_draw(p, chapter, step, 14) % (unsigned)size),
             .count = counts[program_draw(p, chapter, step, 15) % 8],
             .posted = program_draw(p, chapter, step, 16) % 4 == 0,
             .seed = program_draw(p, chapter, step, 17)};
    const fault *f = program_mismatch(p, chapter, step);
    if (f && f->step != step) /* the second of two that a rank swaps differs from the first */
        a.kind = (act_kind)((program_act(p, chapter, f->step, size).kind + 1) % ACT_BARRIER);
    else if (f)
        a.kind = (act_kind)((int)a.kind % (int)ACT_BARRIER);
    if (!values_has_meaning(a.dtype, a.reduction))
        a.reduction = WEFT_SUM;
    return a;
}

/* What the victim of a mismatch does instead. */
static act program_other_act(const program *p, const fault *f, int step, int size)
{
    act a = program_act(p, f->chapter, step, size);
    switch (f->variant) {
    case 0:
        a.kind = (act_kind)(((int)a.kind + 1) % (int)ACT_BARRIER);
        break;
    case 1:
        a.count += 1;
        break;
    case 2:
        a.dtype = a.dtype == WEFT_F32 ? WEFT_I64 : WEFT_F32;
        a.reduction = values_has_meaning(a.dtype, a.reduction) ? a.reduction : WEFT_SUM;
        break;
    case 3:
        if (act_has_root(a.kind))
            a.root = (a.root + 1) % size;
        else if (act_folds(a.kind))
            a.reduction = a.reduction == WEFT_SUM ? WEFT_MAX : WEFT_SUM;
        else
            a.count += 1;
        break;
    default:
        a = program_act(p, f->chapter, f->step + (step == f->step), size);
    }
    return a;
}

/* ---- what the ranks of a program report, in memory that they share with who started it ---- */

enum { GONE_KILLED = 1, GONE_LEFT = 2 };

typedef struct program_rank {
    atomic_int pid;
    atomic_int gone;        /* set before it goes, that whoever sees it gone sees this */
    atomic_llong stopped;   /* ms of a stop that has begun: to be ended by who started it */
    atomic_int at;          /* chapter * 1000 + step that it has begun */
    int done;               /* its function has returned */
    int errors, operations; /* calls that failed as they may; steps that succeeded */
    int first_error;        /* status of the first */
    int shrinks, left_out;  /* groups shrunk; ranks that were not in them */
    long long worst_ms;     /* of a step that failed */
    long long when;         /* ns: of the complaint */
    char complaint[1400];
} program_rank;

typedef struct program_page {
    program_rank rank[PROGRAM_RANKS];
    atomic_int revoked;
    atomic_int seen_gone; /* bits of GONE_* over all ranks */
    int descriptor;       /* one that was left open, or -1 */
    int result;           /* of the launch */
    char why[512];        /* it could not be started */
} program_page;

#endif
