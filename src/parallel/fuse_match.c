/* SPDX-License-Identifier: Apache-2.0 */
/* Finding collectives that could be fused; see fuse.h. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "functional/ops.h"
#include "parallel/fuse.h"
#include "tensor/op/ops.h"

bool weft_i_fuse_is_output(const weft_graph *graph, int value)
{
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] == value)
            return true;
    return false;
}

int weft_i_fuse_only_user(const weft_graph *graph, int value)
{
    int user = -1, read;
    for (int i = 0; i < graph->node_count; i++)
        for (size_t at = 0; weft_i_graph_node_next(&graph->nodes[i], &at, &read);) {
            if (read != value || user == i)
                continue;
            if (user >= 0)
                return -1;
            user = i;
        }
    return weft_i_fuse_is_output(graph, value) ? -1 : user;
}

/* The node that makes a value, if it is one of this row; else -1. */
static int maker(const weft_graph *graph, int value, const weft_i_op *op)
{
    int node = graph->values[value].node;
    return node >= 0 && graph->nodes[node].op == op ? node : -1;
}

/* Bytes that were gathered as another dtype of their size: what they are before and after. */
static void look_through_bytes(const weft_graph *graph, weft_i_fuse_match *match)
{
    int before = maker(graph, match->operand, &weft_i_op_view_dtype);
    int after = weft_i_fuse_only_user(graph, match->result);
    if (before < 0 || after < 0 || graph->nodes[after].op != &weft_i_op_view_dtype)
        return;
    int from = graph->nodes[before].terms[0].value, to = graph->nodes[after].first;
    weft_dtype dtype = graph->values[from].dtype;
    if (dtype != graph->values[to].dtype ||
        weft_dtype_size(dtype) != weft_dtype_size(graph->values[match->operand].dtype))
        return;
    match->operand = from;
    match->result = to;
}

static bool match_collective(const weft_graph *graph, int node, int dim, weft_i_fuse_match *out)
{
    const weft_i_graph_node *n = &graph->nodes[node];
    int wait = weft_i_fuse_only_user(graph, n->first);
    if (wait < 0 || graph->nodes[wait].op != &weft_i_op_wait_tensor)
        return false;
    int64_t at = n->terms[dim].integer;
    int operand = n->terms[0].value, ndim = graph->values[operand].shape.ndim;
    *out = (weft_i_fuse_match){.node = node,
                               .wait = wait,
                               .operand = operand,
                               .result = graph->nodes[wait].first,
                               .dim = (int)(at < 0 ? at + ndim : at),
                               .group = &n->terms[n->op->arity - 1]};
    return true;
}

int weft_i_fuse_find_gathers(const weft_graph *graph, weft_i_fuse_match *out)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == &weft_i_op_all_gather_into_tensor &&
            match_collective(graph, i, 1, &out[count]))
            look_through_bytes(graph, &out[count++]);
    return count;
}

int weft_i_fuse_find_scatters(const weft_graph *graph, weft_i_fuse_match *out)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == &weft_i_op_reduce_scatter_tensor &&
            match_collective(graph, i, 3, &out[count]))
            out[count++].op = (weft_reduction)graph->nodes[i].terms[1].integer;
    return count;
}

/* ---- what hides ---- */

/* Marks the node, and all that need what it makes. */
static void mark_below(const weft_graph *graph, int node, bool *marks)
{
    int read;
    marks[node] = true;
    for (int i = node + 1; i < graph->node_count; i++)
        for (size_t at = 0; !marks[i] && weft_i_graph_node_next(&graph->nodes[i], &at, &read);) {
            int maker_of = graph->values[read].node;
            marks[i] = maker_of >= 0 && marks[maker_of] && maker_of >= node;
        }
}

/* The same with all that it needs. */
static void mark_above(const weft_graph *graph, int node, bool *marks)
{
    int read;
    marks[node] = true;
    for (int i = node; i >= 0; i--)
        for (size_t at = 0; marks[i] && weft_i_graph_node_next(&graph->nodes[i], &at, &read);)
            if (graph->values[read].node >= 0)
                marks[graph->values[read].node] = true;
}

static bool is_product(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_mm || node->op == &weft_i_op_bmm ||
           node->op == &weft_i_op_scaled_mm;
}

weft_status weft_i_fuse_find_hidden(const weft_graph *graph, bool *hidden)
{
    size_t nodes = (size_t)graph->node_count + 1;
    bool *room = WEFT_OS->alloc(3 * nodes), *taken = room, *below = room ? room + nodes : NULL;
    if (!room)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu nodes", nodes);
    for (int i = 0; i < graph->node_count; i++) {
        bool *above = below + nodes;
        hidden[i] = false;
        if (!weft_i_graph_node_is_collective(&graph->nodes[i]))
            continue;
        for (size_t k = 0; k < 2 * nodes; k++)
            below[k] = false;
        mark_below(graph, i, below);
        mark_above(graph, i, above);
        for (int k = 0; !hidden[i] && k < graph->node_count; k++)
            if (is_product(&graph->nodes[k]) && !taken[k] && !below[k] && !above[k])
                hidden[i] = taken[k] = true;
    }
    WEFT_OS->free(room);
    return WEFT_OK;
}
