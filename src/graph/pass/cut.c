/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Min-cut = max-flow.  Every value is two vertices with an edge between them as wide as its bytes;
 * a value flows into those that are computed from it.  The source feeds what can be had for
 * certain, the sink drinks what backward needs.  Paths are found by breadth first search (Edmonds
 * and Karp): graphs have hundreds of values, most of them out of its reach.
 */
#include "graph/pass/cut.h"

#include "base/os/os.h"
#include "functional/ops.h"

#include <string.h>

static const int64_t forever = INT64_MAX / 4;

typedef struct conduit {
    int to, next; /* of the same vertex; -1: none */
    int64_t room; /* pipe i ^ 1 is the way back */
} conduit;

typedef struct flow {
    int *first; /* pipe of each vertex */
    int *came;  /* by which pipe the search came; -1: not */
    int *queue;
    int vertices, source, sink;
    conduit *pipes;
    int count, room;
} flow;

static weft_status join_up(flow *f, int from, int to, int64_t room)
{
    if (f->count + 2 > f->room) {
        int more = f->room ? 2 * f->room : 256;
        conduit *pipes = WEFT_OS->resize(f->pipes, (size_t)more * sizeof *pipes);
        if (!pipes)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a cut of %d edges", more);
        f->pipes = pipes;
        f->room = more;
    }
    f->pipes[f->count] = (conduit){to, f->first[from], room};
    f->first[from] = f->count++;
    f->pipes[f->count] = (conduit){from, f->first[to], 0};
    f->first[to] = f->count++;
    return WEFT_OK;
}

/* Looks for a way from the source to the sink. */
static bool search(flow *f)
{
    int head = 0, tail = 0;
    memset(f->came, 0xff, (size_t)f->vertices * sizeof *f->came);
    f->came[f->source] = INT32_MAX;
    f->queue[tail++] = f->source;
    while (head < tail && f->came[f->sink] < 0) {
        int at = f->queue[head++];
        for (int i = f->first[at]; i >= 0; i = f->pipes[i].next)
            if (f->pipes[i].room > 0 && f->came[f->pipes[i].to] < 0) {
                f->came[f->pipes[i].to] = i;
                f->queue[tail++] = f->pipes[i].to;
            }
    }
    return f->came[f->sink] >= 0;
}

static void push(flow *f)
{
    int64_t least = forever;
    for (int at = f->sink; at != f->source; at = f->pipes[f->came[at] ^ 1].to)
        least = f->pipes[f->came[at]].room < least ? f->pipes[f->came[at]].room : least;
    for (int at = f->sink; at != f->source; at = f->pipes[f->came[at] ^ 1].to) {
        f->pipes[f->came[at]].room -= least;
        f->pipes[f->came[at] ^ 1].room += least;
    }
}

/* Marks all from which water could still reach the sink: of the narrowest places, the cut next to
 * the sink leaves the least to be computed again. */
static void search_back(flow *f)
{
    int head = 0, tail = 0;
    memset(f->came, 0xff, (size_t)f->vertices * sizeof *f->came);
    f->came[f->sink] = INT32_MAX;
    f->queue[tail++] = f->sink;
    while (head < tail) {
        int at = f->queue[head++];
        for (int i = f->first[at]; i >= 0; i = f->pipes[i].next)
            if (f->pipes[i ^ 1].room > 0 && f->came[f->pipes[i].to] < 0) {
                f->came[f->pipes[i].to] = i;
                f->queue[tail++] = f->pipes[i].to;
            }
    }
}

static bool is_view(const weft_i_graph_node *node)
{
    return node->op->flags & WEFT_I_OP_VIEW && !(node->op->flags & WEFT_I_OP_LIST);
}

bool weft_i_cut_is_cheap(const weft_i_graph_node *node)
{
    enum { NEVER = WEFT_I_OP_RANDOM | WEFT_I_OP_EFFECT | WEFT_I_OP_LAYOUT | WEFT_I_OP_LIST };
    const weft_i_op *op = node->op;
    if (op->flags & NEVER || op->changes || node->into >= 0 || node->count != 1 ||
        op == &weft_i_op_wait_tensor || weft_i_graph_node_is_collective(node))
        return false;
    bool elementwise = (op->flags & WEFT_I_OP_ELEMENTWISE) == WEFT_I_OP_ELEMENTWISE;
    bool reads = false;
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        reads = true;
    return op->flags & WEFT_I_OP_VIEW || elementwise || !reads;
}

/* A storage that nodes write in place is as it is in the end: what lies on it is saved itself. */
static bool *find_written(const weft_graph *graph)
{
    bool *written = WEFT_OS->alloc((size_t)graph->storages + 1);
    for (int i = 0; written && i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].count; k++) {
            int same = weft_i_graph_node_same(&graph->nodes[i], k);
            bool wait = graph->nodes[i].op == &weft_i_op_wait_tensor;
            if (same >= 0 && !wait)
                written[graph->values[same].storage] = true;
        }
    return written;
}

static int64_t width(const weft_graph *graph, int value, bool written)
{
    const weft_i_graph_value *v = &graph->values[value];
    const weft_i_graph_node *node = v->node < 0 ? NULL : &graph->nodes[v->node];
    if (node && is_view(node) && !written)
        return forever;
    return (int64_t)v->bytes + 1; /* of two equal ways the one with fewer values */
}

/* In- and outgoing vertex of a value. */
static int in(int value)
{
    return 2 * value;
}

static int out(int value)
{
    return 2 * value + 1;
}

static weft_status add_value(flow *f, const weft_graph *graph, int i, const bool *free_inputs,
                             const bool *written)
{
    const weft_i_graph_value *v = &graph->values[i];
    const weft_i_graph_node *node = v->node < 0 ? NULL : &graph->nodes[v->node];
    bool input = i < graph->input_count, constant = !input && !node;
    int value;
    if (v->absent)
        return WEFT_OK;
    if (constant || (input && free_inputs[i]))
        return WEFT_OK; /* whoever needs it has it */
    WEFT_TRY(join_up(f, in(i), out(i), input ? forever : width(graph, i, written[v->storage])));
    if (input || written[v->storage] || !weft_i_cut_is_cheap(node))
        return join_up(f, f->source, in(i), forever);
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        WEFT_TRY(join_up(f, out(value), in(i), forever));
    return WEFT_OK;
}

static weft_status build(flow *f, const weft_graph *graph, int first, const bool *free_inputs,
                         const bool *written)
{
    f->source = 2 * graph->value_count;
    f->sink = f->source + 1;
    f->vertices = f->sink + 1;
    f->first = WEFT_OS->alloc(3 * (size_t)f->vertices * sizeof *f->first);
    if (!f->first)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a cut of %d values",
                           graph->value_count);
    f->came = f->first + f->vertices;
    f->queue = f->came + f->vertices;
    memset(f->first, 0xff, (size_t)f->vertices * sizeof *f->first);
    for (int i = 0; i < graph->value_count; i++)
        WEFT_TRY(add_value(f, graph, i, free_inputs, written));
    for (int i = first; i < graph->output_count; i++)
        WEFT_TRY(join_up(f, out(graph->outputs[i]), f->sink, forever));
    return WEFT_OK;
}

/* The values whose two vertices lie on different sides. */
static weft_status read_cut(const flow *f, const weft_graph *graph, int first, weft_i_cut *cut)
{
    if (!(cut->saved = WEFT_OS->alloc(((size_t)graph->value_count + 1) * sizeof *cut->saved)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what is saved");
    for (int i = 0; i < graph->value_count; i++)
        if (f->came[in(i)] < 0 && f->came[out(i)] >= 0) {
            cut->saved[cut->count++] = i;
            cut->bytes += graph->values[i].bytes;
        }
    for (int i = first; i < graph->output_count; i++) {
        bool again = false;
        for (int k = first; k < i; k++)
            again |= graph->values[graph->outputs[k]].storage ==
                     graph->values[graph->outputs[i]].storage;
        cut->whole += again ? 0 : graph->values[graph->outputs[i]].bytes;
    }
    return WEFT_OK;
}

weft_status weft_i_cut_find(const weft_graph *graph, int first, const bool *free_inputs,
                            weft_i_cut *cut)
{
    flow f = {0};
    bool *written = find_written(graph);
    weft_status status = written ? build(&f, graph, first, free_inputs, written)
                                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a cut");
    *cut = (weft_i_cut){0};
    while (status >= 0 && search(&f))
        push(&f);
    if (status >= 0) {
        search_back(&f);
        status = read_cut(&f, graph, first, cut);
    }
    WEFT_OS->free(written);
    WEFT_OS->free(f.first);
    WEFT_OS->free(f.pipes);
    return status;
}

void weft_i_cut_clear(weft_i_cut *cut)
{
    WEFT_OS->free(cut->saved);
    *cut = (weft_i_cut){0};
}
