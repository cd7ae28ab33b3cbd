/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph: a node is one recorded call, an edge says where the gradient of one of its arguments
 * goes on.  Edges lead from newer nodes to older ones and hold them; results hold their node.  So a
 * graph lives as long as one of its results.
 *
 * weft_tensor.grad is a node (the tensor is its result 0 and nothing else is known about it) or a
 * weft_i_history.
 */
#ifndef WEFT_GRAD_NODE_H
#define WEFT_GRAD_NODE_H

#include "grad/hook.h"
#include "grad/rule.h"

typedef struct weft_i_node weft_i_node;
typedef struct weft_i_task weft_i_task; /* of a backward, see engine.h */

/* Where a gradient goes. */
typedef struct weft_i_edge {
    weft_i_object *to; /* held: a node, or a leaf itself; NULL: none is needed */
    int output;        /* of the node */
} weft_i_edge;

/* What a tensor looks like; sizes and strides lie behind the node. */
typedef struct weft_i_meta {
    weft_dtype dtype;
    weft_device device;
    int ndim;
    int64_t offset;
    int64_t *sizes, *strides;
} weft_i_meta;

/*
 * A tensor that the rule needs.  What has no history and is no view is held itself: what backward
 * reads is what it is then, also if it was given another storage (weft_set).  All others are held
 * as memory and layout, so that they may get a history that leads here without a cycle.
 */
typedef struct weft_i_saved {
    int place;           /* argument, or arity + item of the list, or -1 - result */
    weft_tensor *tensor; /* itself, or NULL */
    weft_storage *storage;
    weft_i_version *version; /* NULL: the storage's own */
    int64_t count;           /* of writes when it was saved; -1: nobody checks it */
    int64_t value;           /* of a fake: the value that it was */
    weft_tensor *unpacked;   /* what stands for it while a backward is captured; borrowed */
    weft_i_meta meta;
} weft_i_saved;

/* A gradient that backward keeps for a tensor which is no leaf; shared by tensor and node. */
typedef struct weft_i_retained {
    weft_i_object head;
    weft_tensor *grad; /* held */
    int output;
    struct weft_i_retained *next; /* of the node's; held */
} weft_i_retained;

struct weft_i_node {
    weft_i_object head;
    const weft_i_op *op;
    uint64_t sequence; /* higher than that of every node its edges lead to */
    weft_i_task *task; /* in the innermost backward that has come here */
    weft_i_hook *hooks;
    weft_i_retained *retained;
    weft_i_node *next; /* in the list of those that die, or of those still to be looked at */
    uint64_t visit;    /* the last walk that came here */
    int outputs, edges, slots;
    bool released; /* backward has let go of what was saved */
    weft_i_meta *output;
    weft_i_edge *edge; /* one for each argument, then one for each tensor of the list */
    weft_i_saved *slot;
    weft_i_arg *arg;     /* tensors only while the rule runs */
    weft_tensor **item;  /* of the list argument, likewise */
    weft_i_meta *listed; /* what they are */
    int64_t *sizes;      /* the next free place for sizes and strides */
};

/* What is known about a tensor if a node does not say it all. */
typedef struct weft_i_history {
    weft_i_object head;
    bool required; /* a leaf that requires gradients */
    int output;
    weft_i_node *node;         /* held; NULL: a leaf */
    weft_tensor *grad;         /* of a leaf; held */
    weft_i_retained *retained; /* held */
    weft_i_hook *hooks, *accumulated;
    weft_i_task *task; /* as of nodes */
    /* Of a leaf: called when nothing of a backward reads its value any more, which may be before its
     * gradient is there (weft_i_back_spent).  NULL: nobody asks. */
    weft_status (*spent)(void *user);
    void *spent_user;
} weft_i_history;

/*
 * A node for the checked call, with edges (copied from `edges`, held) and plain arguments; outputs
 * and slots are to be filled in.  `dims` is the sum of the dimensions of all outputs and slots.
 */
typedef struct weft_i_node_plan {
    const weft_i_op_call *call;
    const weft_i_edge *edges;
    int count; /* of edges */
    int outputs, slots, dims;
} weft_i_node_plan;

weft_i_node *weft_i_node_new(const weft_i_node_plan *plan);
/* Fills the next output, or slot: */
void weft_i_node_output(weft_i_node *node, const weft_tensor *x);
void weft_i_node_save(weft_i_node *node, int place, weft_tensor *x, bool by_reference);
/* Lets go of what was saved. */
void weft_i_node_release(weft_i_node *node);

/* Fails if what was saved was written since. */
weft_status weft_i_saved_check(const weft_i_node *node, const weft_i_saved *slot);
/* A tensor like the saved one, in the current scope or the saved tensor itself (borrowed).  Fails
 * if it was written since. */
weft_tensor *weft_i_saved_get(weft_i_node *node, const weft_i_saved *slot, bool history);

void weft_i_edge_hold(weft_i_edge *edge, weft_i_object *to, int output);
void weft_i_edge_drop(weft_i_edge *edge);

/* Whether a walk from `from` comes to `to` (a node or a leaf). */
bool weft_i_node_reaches(weft_i_node *from, const weft_i_object *to);
/* `x` is getting a history that leads to `from`: nothing behind that may hold x itself. */
void weft_i_node_untie(weft_i_node *from, weft_tensor *x);

void weft_i_meta_layout(const weft_i_meta *meta, weft_i_layout *out);
/* What the tensor looks like to which the edge (not to NULL) leads. */
void weft_i_edge_layout(const weft_i_edge *edge, weft_i_layout *out);
/* g summed over what was broadcast, and converted; g itself if it fits. */
weft_tensor *weft_i_fit(weft_tensor *g, const weft_i_layout *to);

static inline bool weft_i_is_node(const weft_i_object *object)
{
    return object->kind == WEFT_I_NODE;
}

/* The history, made if there is none yet; NULL and an error if memory runs out. */
weft_i_history *weft_i_history_of(weft_tensor *x);
/* The same, but NULL if there is none. */
static inline weft_i_history *weft_i_history_if(const weft_tensor *x)
{
    return x->grad && !weft_i_is_node(x->grad) ? (weft_i_history *)x->grad : NULL;
}
/* The node that made x, and which of its results it is; NULL if there is none.  Does not look at
 * the base of a view. */
weft_i_node *weft_i_history_node(const weft_tensor *x, int *output);
bool weft_i_is_required_leaf(const weft_tensor *x);

/* Sets what is called when the value of a leaf, which has a history, is read no more. */
void weft_i_leaf_on_spent(weft_tensor *leaf, weft_status (*spent)(void *user), void *user);

/* Where the gradient of x goes (not held); to NULL if it needs none.  Makes the history of a view
 * anew from its base if that was written. */
weft_status weft_i_history_edge(weft_tensor *x, weft_i_edge *out);
/* x is result `output` of the node from now on; NULL: of none.  Cannot fail if x has a history or
 * output is 0. */
weft_status weft_i_history_set(weft_tensor *x, weft_i_node *node, int output);
/* Fails if x may not be written in place while recording. */
weft_status weft_i_history_check_write(const char *what, weft_tensor *x);
/*
 * x was written by the call of `node` (NULL: gets a value that needs no gradient).  `spare` is what
 * weft_i_history_prepare gave for it: memory is taken before anything is written.
 */
weft_status weft_i_history_prepare(weft_tensor *x, int output, weft_i_node **spare);
void weft_i_history_written(weft_tensor *x, weft_i_node *node, int output, weft_i_node *spare);

/* The thread's mode, and the next sequence number. */
extern _Thread_local weft_grad_mode weft_i_grad_mode;
uint64_t weft_i_node_next(void);

/*
 * The list identity around a module's inputs or outputs: out[i] is a view of in[i], none of
 * which is NULL.  `hook` runs once all gradients that come are there, on all of them (NULL where
 * none came) and may replace them; `done` runs when the node dies.  If nothing is recorded, out[i]
 * is in[i], *made is false, and nobody calls `hook` or `done`.
 */
weft_status weft_i_pass(weft_tensor **out, weft_tensor *const *in, size_t count,
                        weft_i_node_hook hook, weft_i_hook_identity *identity, void *user,
                        void (*done)(void *user), bool *made);

#endif
