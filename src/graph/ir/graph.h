/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph: what a function of tensors does, written down.  A node is a row of the registry
 * (tensor/op/op.h) and its arguments; what it gives are values.  Nodes stand in the order in which
 * they were called, and that order is the order of their effects.
 *
 * A value is a tensor as the program sees it: layout, and the number of its storage.  Values with
 * one storage number share memory.  A node that changes an argument (letters w, m, r, or a target)
 * gives new values for what it changed, on the same storage: %2 = fill %1 value=0 is the tensor %1,
 * later.  `set` gives one on another storage.  The tensors behind %1 and %2 are the same object.
 *
 * Values are numbered: first those of the inputs, then the constants', then the nodes' in order.  A
 * graph is built once (trace.h, parse.c) and then only read; a pass makes another one (pass.h). All
 * that a graph points to is its own and goes with it.
 */
#ifndef WEFT_GRAPH_GRAPH_H
#define WEFT_GRAPH_GRAPH_H

#include "base/report/text.h"
#include "tensor/op/op.h"
#include "weft/graph.h"

typedef struct weft_i_graph_value {
    weft_dtype dtype;
    weft_device device;
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS];
    int64_t offset;  /* elements */
    int storage;     /* its number */
    int counter;     /* number of its version counter: views share it */
    int64_t version; /* of the counter, less what it was at the entry; < 0: not known */
    size_t bytes;    /* of the storage, when the value was made */
    int node;        /* who makes it; -1: an input or a constant */
    bool absent;     /* of several results: not made (NULL) */
} weft_i_graph_value;

/* One argument of a node, by its kind as in weft_i_arg. */
typedef struct weft_i_graph_term {
    weft_i_arg_kind kind;
    size_t count;
    union {
        int value;
        const int *values; /* -1: absent */
        double number;
        int64_t integer;
        const int64_t *integers;
        struct {
            const char *name;
            void *handle; /* held; NULL if the graph was read from text */
        } group;
    };
} weft_i_graph_term;

typedef struct weft_i_graph_node {
    const weft_i_op *op;
    weft_i_graph_term *terms; /* op->arity of them */
    int into;                 /* the target, a value; -1: none */
    int first, count;         /* its results are the values first .. first + count - 1 */
    bool quiet;               /* no gradient was recorded for it */
} weft_i_graph_node;

typedef enum weft_i_graph_input_flags {
    WEFT_I_INPUT_GRAD = 1,      /* requires a gradient */
    WEFT_I_INPUT_PARAMETER = 2, /* is a parameter */
    WEFT_I_INPUT_FREE = 4,      /* not an argument: the function found it elsewhere */
    WEFT_I_INPUT_TANGENT = 8,   /* of a joint graph: the gradient of an output */
    WEFT_I_INPUT_NEEDED = 16    /* of a joint graph: a gradient rule had saved it */
} weft_i_graph_input_flags;

typedef struct weft_i_graph_input {
    const char *name;
    unsigned flags;
    int value;
    weft_tensor *tensor; /* held: the one that was found; NULL: it is an argument */
} weft_i_graph_input;

/* A tensor that the function made from plain memory, held.  Nobody writes it: a run that must,
 * takes a copy. */
typedef struct weft_i_graph_constant {
    weft_tensor *tensor;
    int value;
} weft_i_graph_constant;

typedef struct weft_i_graph_chunk weft_i_graph_chunk;

struct weft_graph {
    weft_i_object head;
    const char *name;
    weft_i_graph_value *values;
    int value_count, value_room;
    weft_i_graph_node *nodes;
    int node_count, node_room;
    weft_i_graph_input *inputs;
    int input_count, input_room;
    weft_i_graph_constant *constants;
    int constant_count, constant_room;
    int *arguments; /* which input each argument of the function is: two may be the same tensor */
    int argument_count;
    int *outputs; /* values; an input among them is returned itself */
    int output_count;
    int storages, counters; /* how many numbers are in use */
    void **held;            /* groups */
    int held_count, held_room;
    weft_i_graph_chunk *chunks; /* memory of names, terms and lists */
    bool planned;               /* its values may lie in an arena (plan.h) */
    const char *notes; /* what passes have to say, for people; NULL: nothing.  Not in its text */
};

/* An empty graph in the current scope. */
weft_graph *weft_i_graph_new(const char *name);

/* Zeroed memory that lives as long as the graph; and copies into it.  NULL and an error if memory
 * runs out.  0 bytes are fine. */
void *weft_i_graph_alloc(weft_graph *graph, size_t bytes);

/* The argument that a term stands for; lists live as long as `graph`.  `value_of` gives the tensor
 * of a value, NULL after an error. */
weft_status weft_i_graph_read_term(weft_graph *graph, const weft_i_graph_term *term,
                                   weft_tensor *(*value_of)(void *self, int value), void *self,
                                   weft_i_arg *arg);
void *weft_i_graph_copy(weft_graph *graph, const void *bytes, size_t count);
const char *weft_i_graph_string(weft_graph *graph, const char *text);

/* Adds to what there is to say about it. */
weft_status weft_i_graph_add_notes(weft_graph *graph, const char *more);
/* Replaces the graph's notes with what `put` writes about `about`; calls `put` twice. */
weft_status weft_i_graph_write_notes(weft_graph *graph,
                                     void (*put)(weft_i_text *s, const void *about),
                                     const void *about);
/* What there is to say was said of values of the graph before: `number_of` gives their numbers in
 * this one, -1 for those that are no longer there. */
weft_status weft_i_graph_renumber_notes(weft_graph *graph,
                                        int (*number_of)(const void *about, int value),
                                        const void *about);

/* Each makes room for one more and counts it; -1 and an error if memory runs out. */
int weft_i_graph_add_value(weft_graph *graph, const weft_i_graph_value *value);
int weft_i_graph_add_node(weft_graph *graph, const weft_i_graph_node *node);
int weft_i_graph_add_input(weft_graph *graph, const weft_i_graph_input *input);
int weft_i_graph_add_constant(weft_graph *graph, weft_tensor *tensor, int value);
/* Holds a group as long as the graph lives. */
weft_status weft_i_graph_hold(weft_graph *graph, void *group);
weft_status weft_i_graph_set_outputs(weft_graph *graph, const int *values, int count);
weft_status weft_i_graph_set_arguments(weft_graph *graph, const int *inputs, int count);

/*
 * The graph again, in the current scope, with the nodes for which `keep` is true (NULL: all), the
 * constants they use, and all inputs; values, storages and counters get new numbers in the order
 * inputs, constants, nodes.  What is kept must not use what is not.
 */
weft_graph *weft_i_graph_rebuild(const weft_graph *graph, const bool *keep);

/* One step of a graph that is made from another: its node, or a row that stands for several. */
typedef struct weft_i_graph_step {
    int node;            /* >= 0: this one */
    const weft_i_op *op; /* takes a list and nothing else */
    const int *in, *out; /* values of the other graph */
    int ins, outs;
} weft_i_graph_step;

/* The graph made of these steps, with all inputs and constants; the order is the caller's care. */
weft_graph *weft_i_graph_rebuild_steps(const weft_graph *graph, const weft_i_graph_step *steps,
                                       int count);

/* The values that a node reads or changes, lists included, its target last; `at` starts at 0.
 * Returns false behind the last. */
bool weft_i_graph_node_next(const weft_i_graph_node *node, size_t *at, int *value);

/* Result k is the tensor of this value itself, changed; -1 if it is a new tensor. */
int weft_i_graph_node_same(const weft_i_graph_node *node, int k);

/* Must not be left out though nobody uses what it gives: waits, random draws, and whatever its row
 * says. */
bool weft_i_graph_node_has_effect(const weft_i_graph_node *node);
/* Takes random numbers, of which the next draw gets the next. */
bool weft_i_graph_node_is_draw(const weft_i_graph_node *node);
/* Has a group among its arguments. */
bool weft_i_graph_node_is_collective(const weft_i_graph_node *node);
/* A collective that is under way when the node is done: somebody waits for it. */
bool weft_i_graph_node_is_posted(const weft_i_graph_node *node);
/* The first argument from `from` on that must lie in symmetric memory; -1: none. */
int weft_i_graph_node_symmetric(const weft_i_graph_node *node, int from);
/* The group of a collective; NULL: it has none. */
const weft_i_graph_term *weft_i_graph_node_group(const weft_i_graph_node *node);

#endif
