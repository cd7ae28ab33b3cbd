/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving out what has no use.  From the last node to the first: a node stays if it has an effect,
 * if a node that stays (or the output) needs what it gives, or if it changes what somebody will
 * look at: memory, sizes and counters of inputs and outputs, or those that a node that stays reads
 * later.  Where gradients are recorded, a rule may have saved what a node reads or makes, and
 * backward looks at that, and at its counter, when the program is done.
 * A wait is an effect, so a collective whose result is not used stays by its wait: another
 * rank's program may need this rank in it.
 */
#include "base/os/os.h"
#include "graph/pass/passes.h"
#include "tensor/op/ops.h"

#include <string.h>

typedef struct life {
    const weft_graph *graph;
    bool *keep;                         /* of nodes */
    bool *values, *storages, *counters; /* somebody looks at it later */
    bool *argued;                       /* values that are the tensors of inputs */
} life;

static void look_at(life *l, int value)
{
    l->values[value] = true;
    l->storages[l->graph->values[value].storage] = true;
}

static bool is_recorded(const weft_graph *graph)
{
    for (int i = 0; i < graph->input_count; i++)
        if (graph->inputs[i].flags & WEFT_I_INPUT_GRAD)
            return true;
    return false;
}

static void note_saved(life *l, const weft_i_graph_node *node, int value)
{
    const weft_i_graph_value *v = &l->graph->values[value];
    if (v->absent || node->quiet)
        return;
    l->storages[v->storage] = true;
    l->counters[v->counter] = true;
}

/* What backward may look at; all of it is made or read by a node that is recorded. */
static void look_for_backward(life *l)
{
    int value;
    for (int i = 0; i < l->graph->node_count; i++) {
        const weft_i_graph_node *node = &l->graph->nodes[i];
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
            note_saved(l, node, value);
        for (int k = 0; k < node->count; k++)
            note_saved(l, node, node->first + k);
    }
}

static void begin(life *l)
{
    const weft_graph *graph = l->graph;
    for (int i = 0; i < graph->input_count; i++) {
        int value = graph->inputs[i].value;
        l->argued[value] = true;
        l->storages[graph->values[value].storage] = true;
        l->counters[graph->values[value].counter] = true;
    }
    for (int i = 0; i < graph->output_count; i++) {
        look_at(l, graph->outputs[i]);
        l->counters[graph->values[graph->outputs[i]].counter] = true;
    }
    for (int i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].count; k++) {
            int same = weft_i_graph_node_same(&graph->nodes[i], k),
                value = graph->nodes[i].first + k;
            if (same < 0 || !l->argued[same])
                continue;
            l->argued[value] = true;
            l->storages[graph->values[value].storage] = true; /* perhaps it was given to it */
        }
    if (is_recorded(graph))
        look_for_backward(l);
}

/* The node changes `value`, and somebody will see it. */
static bool change_shows(const life *l, const weft_i_graph_node *node, int value)
{
    const weft_i_graph_value *v = &l->graph->values[value];
    if (node->op == &weft_i_op_set)
        return l->argued[value] || l->counters[v->counter];
    if (node->op == &weft_i_op_set_version)
        return l->counters[v->counter];
    return l->storages[v->storage] || (node->op->changes != 'r' && l->counters[v->counter]);
}

static bool is_needed(const life *l, const weft_i_graph_node *node)
{
    if (weft_i_graph_node_has_effect(node))
        return true;
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k);
        if (l->values[node->first + k] || (same >= 0 && change_shows(l, node, same)))
            return true;
    }
    return false;
}

static void walk(life *l)
{
    int value;
    for (int i = l->graph->node_count - 1; i >= 0; i--) {
        const weft_i_graph_node *node = &l->graph->nodes[i];
        if (!(l->keep[i] = is_needed(l, node)))
            continue;
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
            look_at(l, value);
        if (node->op == &weft_i_op_version)
            l->counters[l->graph->values[node->terms[0].value].counter] = true;
    }
}

weft_graph *weft_i_graph_pass_drop_dead(weft_graph *graph)
{
    size_t nodes = (size_t)graph->node_count, values = (size_t)graph->value_count;
    size_t storages = (size_t)graph->storages, counters = (size_t)graph->counters;
    bool *room = WEFT_OS->alloc(nodes + 2 * values + storages + counters + 1);
    if (!room)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %zu values", values);
    life l = {.graph = graph,
              .keep = room,
              .values = room + nodes,
              .argued = room + nodes + values,
              .storages = room + nodes + 2 * values,
              .counters = room + nodes + 2 * values + storages};
    begin(&l);
    walk(&l);
    /* With constants some of these may be dead although no node is. */
    bool whole = !graph->constant_count && !memchr(l.keep, false, nodes);
    weft_graph *rest = whole ? graph : weft_i_graph_rebuild(graph, l.keep);
    WEFT_OS->free(room);
    return rest;
}
