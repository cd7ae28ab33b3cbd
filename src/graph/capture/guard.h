/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards: what must be as it was when a graph was captured, or the graph does not stand for the
 * function any more.  The layouts of the inputs are in the graph itself; the rest is noted here
 * while capturing.
 */
#ifndef WEFT_GRAPH_GUARD_H
#define WEFT_GRAPH_GUARD_H

#include "graph/ir/graph.h"

typedef enum weft_i_guard_kind {
    WEFT_I_GUARD_WATCH,   /* bytes of the caller's memory */
    WEFT_I_GUARD_VERSION, /* an input's counter, which the function read as a number */
    WEFT_I_GUARD_BYTES,   /* the size of an input's storage, which it read */
    WEFT_I_GUARD_PREMUL,  /* this rank's factor of premul_sum */
    WEFT_I_GUARD_GRAD,    /* whether an input has a gradient */
    WEFT_I_GUARD_OBJECT   /* a number of an object: a module's structure, or what it is bound to */
} weft_i_guard_kind;

typedef struct weft_i_guard {
    weft_i_guard_kind kind;
    int input;
    int64_t number;
    double factor;
    const void *memory;
    void *copy;   /* of `number` bytes at `memory`; or the name that `read` gets */
    void *object; /* held */
    int64_t (*read)(void *object, const char *name);
} weft_i_guard;

typedef struct weft_i_guards {
    weft_i_guard *at;
    int count, room;
    int mode; /* weft_i_guard_mode() then */
} weft_i_guards;

/* The thread's weft_grad_mode, and above 8 bits the dtype of its autocast block. */
int weft_i_guard_mode(void);

bool weft_i_guard_has_grad(const weft_tensor *x);

/* Notes a guard, once; takes over `guard.copy` and holds `guard.object`, also if
 * it fails. */
weft_status weft_i_guards_add(weft_i_guards *guards, weft_i_guard guard);
void weft_i_guards_clear(weft_i_guards *guards);

/* Whether all hold for these inputs (one a graph's input); `why` gets the first that does not. */
bool weft_i_guards_hold(const weft_i_guards *guards, const weft_graph *graph,
                        weft_tensor *const *inputs, char *why, size_t bytes);

#endif
