/* SPDX-License-Identifier: Apache-2.0 */
/* Finding collectives that could be fused; see fuse.h. */
#include "coll/ops.h"
#include "parallel/fuse.h"
#include "tensor/ops.h"

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
