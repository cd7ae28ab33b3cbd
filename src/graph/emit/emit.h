/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emitting: groups of nodes of a pure graph become C functions, with the expressions of eager's own
 * kernels, so that f32 and f64 have the same bits.  A group is one loop over the elements of one
 * shape; in groups with rows, the last dimensions are a row that is summed, maximised or normalised
 * as a whole while it is in the cache.
 *
 *     emit_node.c     what can be emitted, and why the rest cannot
 *     emit_group.c    which nodes go together
 *     emit_outline.c  the order inside a row, and how operands lie
 *     emit_text.c     the C text, with emit_columns.c
 *     emit_kernel.c   the same for GPUs, with emit_element.c
 *     emit_row.c      a function as a row of the interpreter
 *     emit_build.c    all that are new are compiled together (code_cache.h has what was compiled
 *                     before)
 *     emit.c          the pass
 */
#ifndef WEFT_GRAPH_EMIT_H
#define WEFT_GRAPH_EMIT_H

#include "base/report/text.h"
#include "graph/ir/graph.h"

enum { WEFT_I_EMIT_MEMBERS = 96, WEFT_I_EMIT_OPERANDS = 64 };

typedef enum weft_i_emit_kind {
    WEFT_I_EMIT_NOT,
    WEFT_I_EMIT_POINTWISE,
    WEFT_I_EMIT_CONSTANT, /* full */
    WEFT_I_EMIT_COPY,     /* clone, contiguous, to */
    WEFT_I_EMIT_REDUCE,
    WEFT_I_EMIT_SOFTMAX,
    WEFT_I_EMIT_LAYER,
    WEFT_I_EMIT_SOFTMAX_GRAD, /* of log_softmax, too; reads two rows */
    WEFT_I_EMIT_COLUMNS /* a sum over all dimensions before the row: carried from row to row */
} weft_i_emit_kind;

/* What the node is to the emitter; if nothing, `*why` says why. */
weft_i_emit_kind weft_i_emit_kind_of(const weft_graph *graph, const weft_i_graph_node *node,
                                     const char **why);
/* The dtype in which the node computes: f32, f64, an integer, bool. */
weft_dtype weft_i_emit_compute(const weft_graph *graph, const weft_i_graph_node *node);
/* Whether a member of the kind works on whole rows, as arrays; and of how many operands. */
static inline bool weft_i_emit_is_rows(weft_i_emit_kind kind)
{
    return kind > WEFT_I_EMIT_REDUCE && kind < WEFT_I_EMIT_COLUMNS;
}
static inline int weft_i_emit_arrays(weft_i_emit_kind kind)
{
    return weft_i_emit_is_rows(kind) ? 1 + (kind == WEFT_I_EMIT_SOFTMAX_GRAD) : 0;
}
/* Of reductions, softmax and layer_norm: how many of the last dimensions are the row; 0: others
 * than the last are, too.  Of sums of columns: how many are kept. */
int weft_i_emit_row_dims(const weft_graph *graph, const weft_i_graph_node *node);
int64_t weft_i_emit_numel(const weft_shape *shape);

/* Rows of more elements are summed, but not worked on a second time: they leave the cache. */
enum { WEFT_I_EMIT_ROW = 16384 };
/* So many columns are summed at most: their partial sums lie beside, in 16 rows and more. */
enum {
    WEFT_I_EMIT_COLUMN_MOST = 4096,
    WEFT_I_EMIT_COLUMN_BLOCK = 512,
    WEFT_I_EMIT_COLUMN_LANES = 16
};

/* Results of so many bytes and more go past the caches, so many elements at a time.  On Sapphire
 * Rapids (2 MiB of second cache) that pays even if somebody reads them at once; at 4 MiB it does
 * not. */
enum { WEFT_I_EMIT_FAR = 8 << 20, WEFT_I_EMIT_FAR_CHUNK = 64 };

/* Nodes that go together, in order. */
typedef struct weft_i_emit_group {
    int count;
    int nodes[WEFT_I_EMIT_MEMBERS];
    weft_shape shape; /* of the elements that are looped over */
    int inner;        /* so many of the last dimensions are a row; 0: there are no rows */
} weft_i_emit_group;

typedef struct weft_i_emit_groups {
    weft_i_emit_group *at;
    int count;
    int *of;           /* of each node: its group, or -1 */
    bool *wide;        /* of each node in a group: it has an element for each of the shape's */
    int *starts, *on;  /* node i comes after the nodes on[starts[i]] ... on[starts[i + 1] - 1] */
    const char **why;  /* of each node that is in no group: why */
    int *order, units; /* by weft_i_emit_groups_order: a group is its number, node i is -1 - i */
} weft_i_emit_groups;

/* To be cleared, also if it fails. */
weft_status weft_i_emit_groups_find(const weft_graph *graph, weft_i_emit_groups *out);
void weft_i_emit_groups_clear(weft_i_emit_groups *groups);
/* Its nodes stay rows. */
void weft_i_emit_groups_dissolve(weft_i_emit_groups *groups, int group, const char *why);
/* All groups and nodes in an order that keeps what depends on what. */
weft_status weft_i_emit_groups_order(const weft_graph *graph, weft_i_emit_groups *groups);

/* ---- inside one group ---- */

typedef struct weft_i_emit_member {
    int node, value;
    weft_i_emit_kind kind;
    weft_dtype dtype, compute;
    bool wide;        /* has an element for each of the row's; else one for each row */
    int phase, ready; /* when it is computed; from when on it can be used */
    bool kept;        /* wide, and needed as an array: later, or by softmax and layer_norm */
    bool listed;      /* its kept array is its output itself */
    int slot;         /* number of its array in the scratch memory; -1: none */
    int out;          /* which output it is; -1: none */
} weft_i_emit_member;

/* A value from outside as the loop reads it, or an output as the loop writes it.  Strides are in
 * elements. */
typedef struct weft_i_emit_operand {
    int value, at; /* `at`: index of its address */
    bool wide, written;
    int64_t outer[WEFT_MAX_DIMS], inner;
} weft_i_emit_operand;

typedef struct weft_i_emit_outline {
    const weft_graph *graph;
    const weft_i_emit_group *group;
    weft_i_emit_member members[WEFT_I_EMIT_MEMBERS];
    int count, phases;
    weft_i_emit_operand operands[3 * WEFT_I_EMIT_OPERANDS];
    int operand_count;
    int in[WEFT_I_EMIT_OPERANDS], ins; /* values read from outside */
    int out[WEFT_I_EMIT_OPERANDS], outs;
    int outer; /* loops around the row */
    int64_t dim[WEFT_MAX_DIMS], n;
    int64_t piece; /* elements of a row that a unit of work has; n: all */
    int slots;     /* arrays of n elements of 8 bytes that it needs beside */
    bool angles;
    bool far;      /* results go past the caches, in chunks; see kernels/walk/far.h */
    bool far_rows; /* the same of a group with rows: each, when it is done */
} weft_i_emit_outline;

/* False if the group cannot be one function; `*why` says why. */
bool weft_i_emit_outline_make(const weft_graph *graph, const weft_i_emit_group *group,
                              const bool *outside, weft_i_emit_outline *out, const char **why);
const weft_i_emit_member *weft_i_emit_member_of(const weft_i_emit_outline *outline, int value);
int weft_i_emit_operand_of(const weft_i_emit_outline *outline, int value, bool wide, bool written);
int64_t weft_i_emit_row_count(const weft_i_emit_outline *outline);
size_t weft_i_emit_scratch(const weft_i_emit_outline *outline);
/* Of each sum of columns: bytes of its partial sums, those of all blocks and of the levels of their
 * tree.  Of the group: those of all its sums. */
size_t weft_i_emit_partials(const weft_i_emit_outline *outline);
size_t weft_i_emit_sums(const weft_i_emit_outline *outline);
/* What one function does at once: rows, or pieces of them.  Which of them are done by one thread, and
 * in which order, does not show in what they give. */
int64_t weft_i_emit_units(const weft_i_emit_outline *outline);
/* How much work all of it is, as bytes that are read and written. */
int64_t weft_i_emit_work(const weft_i_emit_outline *outline);
/* Of a group whose results go past the caches: elements of a page. */
int64_t weft_i_emit_far_page(const weft_i_emit_outline *outline);
/* Where all of it lies. */
weft_device weft_i_emit_device(const weft_i_emit_outline *outline);

/* The group as a C function. */
void weft_i_emit_function(weft_i_text *s, const weft_i_emit_outline *outline, const char *name);
/* The expressions that the group uses, a flag for each; and those with a flag, as functions. */
enum { WEFT_I_EMIT_EXPRESSIONS = 64 * (int)WEFT_DTYPE_COUNT };
void weft_i_emit_uses(const weft_i_emit_outline *outline, bool *used);
void weft_i_emit_expressions(weft_i_text *s, const bool *used);
/* What stands before all functions: eager's own text. */
void weft_i_emit_prelude(weft_i_text *s);

/* Does the units first ... last - 1.  `addresses` are those of the inputs, then of the outputs. With sums of
 * columns: of these rows only those of lanes lane ... lane + lanes - 1, which are summed into `sums`;
 * `first` begins a block of WEFT_I_EMIT_COLUMN_BLOCK rows, and `last` ends one or all. */
typedef void weft_i_emit_code(char *const *addresses, char *scratch, char *sums, int64_t first,
                              int64_t last, int64_t lane, int64_t lanes);
/* When all rows are done: the sums of columns. */
typedef void weft_i_emit_end(char *const *addresses, char *sums);

/* ---- rows ---- */

typedef struct weft_i_emit_row weft_i_emit_row;

/* The row for this group, made once for each text of a function and never unmade: captures of
 * captures may name it.  NULL and an error if memory runs out. */
const weft_i_op *weft_i_emit_row_make(const weft_i_emit_outline *outline);
bool weft_i_emit_row_is(const weft_i_op *op);
weft_device weft_i_emit_row_device(const weft_i_op *op);
/* Whether it has code, or will have some. */
bool weft_i_emit_row_ready(const weft_i_op *op);
/* How many nodes it stands for. */
int weft_i_emit_row_members(const weft_i_op *op);
/* The row's text, for people. */
const char *weft_i_emit_row_text(const weft_i_op *op);
/* Computes `outs` from `ins`; both as the row has them.  For those that chose the memory. */
weft_status weft_i_emit_row_run(const weft_i_op *op, weft_tensor *const *ins, size_t count,
                                weft_tensor *const *outs);
/* Whether an output may lie where an input of the same layout does. */
bool weft_i_emit_row_in_place(const weft_i_op *op);

/* ---- compiling ---- */

/*
 * Compiles all rows that have no code yet, together, or finds them compiled.  False: there is no
 * code, and the reason was logged, once.  Between weft_i_emit_hold(true) and (false) the pass does
 * not compile: many graphs share one compilation.  For tests.
 */
bool weft_i_emit_build(void);
void weft_i_emit_hold(bool hold);

/* The compiler for a device, or why there is none. */
void weft_i_emit_describe(weft_device device, char *out, size_t bytes);

/* The pass of backend c: what it can compute becomes nodes that call compiled code. */
weft_graph *weft_i_graph_pass_emit(weft_graph *graph);

#endif
