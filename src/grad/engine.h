/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: walks a graph back, in the calling thread.  First it counts how many gradients every
 * node will get; then it runs those that have all of theirs, leaves before nodes and newer nodes
 * before older ones, so that a leaf's gradient is complete as early as can be.
 *
 *     tensor hooks -> retained gradients -> chosen ones -> node hooks -> rule -> fit -> edges
 *
 * A node runs in a scope of its own: what its rule made dies with it, but for the gradients that go
 * on.  No gradient is waited for here: one that is a collective under way is waited for by the
 * operation that uses it first.
 */
#ifndef WEFT_GRAD_ENGINE_H
#define WEFT_GRAD_ENGINE_H

#include "grad/node.h"

/* What one backward knows about a node or leaf. */
struct weft_i_task {
    weft_i_object *target;  /* held */
    weft_i_task *outer;     /* the task that the target has in the backward around this one */
    weft_i_task *next;      /* of all, or of those still to be looked at */
    uint64_t order;         /* in the heap: the highest runs first */
    int pending;            /* gradients that are still to come */
    bool needed;            /* something that was asked for lies at or behind it */
    bool runs;              /* behind it */
    bool own;               /* g[0] is a sum that nobody else has seen */
    weft_tensor **g, *only; /* gradients that came, held; `g` is `&only` for one result */
};

typedef struct weft_i_backward_pass {
    int autocast; /* of the thread, which has none meanwhile */
    struct weft_i_backward_pass *outer;
    bool create, retain;
    bool frame;  /* of stand-ins: the backward of a function that is captured */
    bool chosen; /* only what leads to `inputs` is needed, and no leaf is added to */
    weft_i_edge *inputs;
    size_t input_count;
    weft_tensor **captured; /* held; one for each input */
    weft_i_task *tasks;     /* all, newest first */
    struct chunk *chunks;
    size_t task_count;
    weft_i_task **heap;
    size_t heap_count;
    uint64_t arrivals;    /* of leaves: they keep their order */
    size_t widest;        /* gradients that one rule may leave */
    weft_tensor **room;   /* for those, and for the saved results */
    weft_i_hook *finally; /* callbacks */
} weft_i_backward_pass;

/* Runs from the roots, with one seed each (in the current scope). */
weft_status weft_i_engine_run(weft_i_backward_pass *run, const weft_i_edge *roots,
                              weft_tensor *const *seeds, size_t count);
/* `body` is the backward, instead of nodes: hooks that it calls may queue callbacks, which run behind
 * it, and hooks that they remove stay till the end. */
weft_status weft_i_engine_run_by(weft_i_backward_pass *run, weft_status (*body)(void *user),
                                 void *user);
/* As weft_backward_all, by another engine (NULL: this one): what it starts from is found and
 * checked. */
typedef weft_status weft_i_engine(void *user, weft_i_backward_pass *run, const weft_i_edge *roots,
                                  weft_tensor *const *seeds, size_t count);
weft_status weft_i_backward_by(weft_tensor *const *outputs, size_t count,
                               const weft_backward_opts *opts, weft_i_engine *engine, void *user);
/* Whether a backward runs in this thread; the innermost. */
bool weft_i_engine_runs(void);
weft_i_backward_pass *weft_i_engine_now(void);
/* As weft_backward_then, behind the outermost backward of the thread: one that a rule starts, to
 * compute again what it did not keep, is a piece of that. */
weft_status weft_i_backward_finally(weft_hook hook, void *user);

/*
 * For rows whose rule hands out its gradients itself (weft_i_gradient.hands_out), while it runs:
 * `g`, or NULL for none, goes where edge `at` of the node leads.  `ours`: the caller's scope gives
 * g up.  Leaves that have all of theirs now run at once.
 */
weft_status weft_i_engine_hand_out(const weft_i_node *node, int at, weft_tensor *g, bool ours);

/* The gradient of x as a tensor of its own, for programs; NULL and an error if there is none. */
weft_tensor *weft_i_grad_alias(weft_tensor *x);

/* Adds g to the gradient of the leaf, or takes it over; then runs the hooks for that. */
weft_status weft_i_accumulate(weft_tensor *leaf, weft_tensor *g, bool create);

/* The tasks of a run (task.c): found or made, all taken back, and the heap. */
weft_i_task *weft_i_task_of(weft_i_backward_pass *run, weft_i_object *target);
weft_i_task *weft_i_task_if(const weft_i_backward_pass *run,
                            weft_i_object *target); /* NULL: none */
weft_i_task **weft_i_task_field(weft_i_object *target);
void weft_i_task_end_all(weft_i_backward_pass *run);
void weft_i_heap_push(weft_i_backward_pass *run, weft_i_task *task);
weft_i_task *weft_i_heap_pop(weft_i_backward_pass *run);

#endif
