/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers into memory that is there already.  One whose result goes to an input in the end, and is
 * seen nowhere else before, gathers straight into that input.  One whose result stays in the
 * program gathers into a communication buffer (plan.h): every rank puts its part into those of all,
 * so that nothing is staged, and its operand may be anywhere.  That is done when it returns, so its
 * wait goes.  A gather that asks for symmetric memory by name always gets such a buffer; if its
 * result is seen outside, that is a copy.  Comes behind the buckets, and leaves them as they are.
 */
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/text.h"
#include "fabric/group/group.h"
#include "functional/ops.h"
#include "graph/emit/plan.h"
#include "graph/ir/replay.h"
#include "graph/pass/lower.h"
#include "graph/pass/passes.h"
#include "symm/reach.h"
#include "symm_coll/ops.h"
#include "tensor/op/ops.h"
#include "weft/fake.h"

typedef enum gather_way { AS_IT_IS, PLACED, COPIED } gather_way;

typedef struct gathering {
    weft_graph *graph;
    gather_way *ways;
    int *outs;        /* of each gather: the node that copies its result to an input; -1: none */
    bool *gone;       /* of each node: such a copy, or a clone for it */
    const char **why; /* of each gather that is not placed; NULL: there was no question */
    weft_i_trace trace;
    weft_i_replay replay;
    int placed, kept, copies;
} gathering;

/* ---- looking at the graph ---- */

static bool is_explicit(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_low_contention_all_gather && node->into < 0;
}

static bool is_gather(const weft_i_graph_node *node)
{
    return is_explicit(node) || (node->op == &weft_i_op_all_gather_into_tensor && node->into < 0 &&
                                 node->terms[1].integer == 0);
}

static bool touches(const weft_graph *graph, const weft_i_graph_node *node, int storage)
{
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        if (graph->values[value].storage == storage)
            return true;
    return false;
}

static bool is_output(const weft_graph *graph, int storage)
{
    for (int i = 0; i < graph->output_count; i++)
        if (graph->values[graph->outputs[i]].storage == storage)
            return true;
    return false;
}

/* The input that the value is, and that a gather may write to: nobody else's gradient sees it. */
static bool is_target(const weft_graph *graph, int value, const weft_i_graph_value *like)
{
    const weft_i_graph_value *v = &graph->values[value];
    int64_t stride[WEFT_MAX_DIMS];
    weft_i_shape_strides(v->shape, stride);
    for (int d = 0; d < v->shape.ndim; d++)
        if (v->shape.dim[d] != 1 && v->stride[d] != stride[d])
            return false;
    if (v->dtype != like->dtype || !weft_i_shape_equal(v->shape, like->shape))
        return false;
    for (int i = 0; i < graph->input_count; i++)
        if (graph->inputs[i].value == value)
            return !(graph->inputs[i].flags & WEFT_I_INPUT_GRAD);
    return false;
}

/* The last node that touches the storage. */
static int last_of(const weft_graph *graph, int storage)
{
    int k = graph->node_count - 1;
    while (k >= 0 && !touches(graph, &graph->nodes[k], storage))
        k--;
    return k;
}

/* A clone which only node `copy` looks at, so that it may look at the original instead. */
static bool is_spare(const weft_graph *graph, const weft_i_graph_node *clone, int copy)
{
    int storage = graph->values[clone->first].storage, users = 0;
    for (int k = 0; k < graph->node_count; k++)
        users += touches(graph, &graph->nodes[k], storage);
    return clone->op == &weft_i_op_clone && clone->into < 0 && users == 1 &&
           last_of(graph, storage) == copy && !is_output(graph, storage);
}

/* The node that made what node `copy` copies, seen through views of all of it and a clone, which is
 * `*clone` then. */
static int origin_of(const weft_graph *graph, int copy, int *clone)
{
    int value = graph->nodes[copy].terms[1].value;
    weft_shape shape = graph->values[value].shape;
    *clone = -1;
    for (;;) {
        int maker = graph->values[value].node;
        const weft_i_graph_node *node = maker < 0 ? NULL : &graph->nodes[maker];
        if (!node || !weft_i_shape_equal(shape, graph->values[node->first].shape))
            return -1;
        if (*clone < 0 && is_spare(graph, node, copy))
            *clone = maker;
        else if (node->op != &weft_i_op_view && node->op != &weft_i_op_wait_tensor)
            return maker;
        value = node->terms[0].value;
    }
}

/* The node that copies the result of gather `i` into an input, if nothing touches that input in
 * between and nothing reads the result afterwards; otherwise -1. */
static int find_out(const weft_graph *graph, int i, int *clone)
{
    const weft_i_graph_value *made = &graph->values[graph->nodes[i].first];
    int copy = graph->node_count - 1;
    while (copy > i &&
           !(graph->nodes[copy].op == &weft_i_op_copy && origin_of(graph, copy, clone) == i))
        copy--;
    if (copy <= i || is_output(graph, made->storage) || last_of(graph, made->storage) > copy)
        return -1;
    int target = graph->nodes[copy].terms[0].value;
    if (!is_target(graph, target, made))
        return -1;
    for (int k = i; k < copy; k++)
        if (touches(graph, &graph->nodes[k], graph->values[target].storage))
            return -1;
    return copy;
}

/* ---- deciding ---- */

static const char *cannot_meet(const weft_i_graph_node *node)
{
    const weft_group *group = weft_i_graph_node_group(node)->group.handle;
    if (!group)
        return "its group is only a name";
    if (weft_fake_is(group))
        return "its group is a fake";
    bool meets = weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_LANE;
    return meets ? NULL : "its group spans hosts";
}

/* Why the result cannot be left in a communication buffer; NULL: it can. */
static const char *cannot_stay(const weft_graph *graph, int i)
{
    const weft_i_graph_value *made = &graph->values[graph->nodes[i].first];
    if (is_output(graph, made->storage))
        return "its result is seen outside, and a communication buffer never is";
    for (int k = i + 1; k < graph->node_count; k++) {
        const weft_i_graph_node *node = &graph->nodes[k];
        if (node->op != &weft_i_op_wait_tensor && touches(graph, node, made->storage) &&
            !weft_i_plan_only_reads(node))
            return "somebody may hold on to its result";
    }
    return NULL;
}

/* Whether it is large enough for a bounce buffer, and so small that nothing is hidden behind it.
 * On a device every plain gather is staged, however small. */
static const char *does_not_pay(const weft_graph *graph, const weft_i_graph_node *node)
{
    const weft_group *group = weft_i_graph_node_group(node)->group.handle;
    const weft_i_graph_value *made = &graph->values[node->first];
    weft_i_ground ground = weft_i_tune_ground(group->world->mode);
    size_t bytes = (size_t)weft_i_shape_numel(made->shape) * weft_dtype_size(made->dtype);
    if (made->device == WEFT_CPU &&
        bytes / (size_t)group->size <=
            weft_i_tune_of(WEFT_I_TUNE_EAGER, WEFT_I_ALL_GATHER, group->size, ground))
        return "it is so small that it goes along with the entry";
    return weft_i_lower_choose(group->size, ground, bytes) == WEFT_I_LOWER_NOT
               ? "it is so large that it rather runs behind what is computed"
               : NULL;
}

static void decide(gathering *g, int i)
{
    const weft_i_graph_node *node = &g->graph->nodes[i];
    const weft_i_graph_value *made = &g->graph->values[node->first];
    g->outs[i] = -1;
    if (!is_gather(node) || made->device == WEFT_META || !made->bytes)
        return;
    int clone = -1;
    g->outs[i] = find_out(g->graph, i, &clone);
    if (g->outs[i] >= 0) {
        g->gone[g->outs[i]] = true;
        if (clone >= 0)
            g->gone[clone] = true;
    } else if (!(g->why[i] = cannot_meet(node))) {
        g->why[i] = cannot_stay(g->graph, i);
        if (!g->why[i] && !is_explicit(node))
            g->why[i] = does_not_pay(g->graph, node);
        g->ways[i] = !g->why[i] ? PLACED : is_explicit(node) ? COPIED : AS_IT_IS;
    }
}

/* ---- rewriting ---- */

/* A named gather is done when it returns; a plain one stays under way until its wait. */
static weft_status gather_into(gathering *g, int i)
{
    const weft_i_graph_node *node = &g->graph->nodes[i];
    weft_i_arg old[WEFT_I_OP_ARGS];
    WEFT_TRY(weft_i_replay_args(&g->replay, node, old));
    weft_tensor *out = weft_i_replay_value(&g->replay, g->graph->nodes[g->outs[i]].terms[0].value);
    if (!out)
        return weft_last_status();
    bool named = is_explicit(node);
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(out), old[0], old[1], named ? old[1] : old[2]};
    weft_i_op_call call = {.op = named ? &weft_i_op_low_contention_all_gather_out
                                       : &weft_i_op_all_gather_into_tensor_out,
                           .args = args};
    g->kept++;
    g->replay.fakes[node->first] = weft_i_trace_call(&g->trace, &call);
    return g->replay.fakes[node->first] ? WEFT_OK : weft_last_status();
}

static weft_status gather_placed(gathering *g, int i)
{
    const weft_i_graph_node *node = &g->graph->nodes[i];
    weft_i_arg old[WEFT_I_OP_ARGS];
    WEFT_TRY(weft_i_replay_args(&g->replay, node, old));
    weft_i_arg args[] = {old[0], old[is_explicit(node) ? 1 : 2]};
    weft_i_op_call call = {.op = &weft_i_op_low_contention_all_gather, .args = args};
    weft_tensor *out = weft_i_trace_call(&g->trace, &call);
    g->placed++;
    if (out && g->ways[i] == COPIED) {
        weft_i_op_call copy = {.op = &weft_i_op_clone, .args = &WEFT_I_TENSOR_ARG(out)};
        g->copies++;
        out = weft_i_trace_call(&g->trace, &copy);
    }
    return (g->replay.fakes[node->first] = out) ? WEFT_OK : weft_last_status();
}

/* A wait for what is done by itself. */
static bool is_idle(const gathering *g, const weft_i_graph_node *node)
{
    int maker =
        node->op == &weft_i_op_wait_tensor ? g->graph->values[node->terms[0].value].node : -1;
    return maker >= 0 && g->ways[maker] != AS_IT_IS;
}

static weft_status walk(void *user)
{
    gathering *g = user;
    const weft_graph *graph = g->graph;
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        g->trace.quiet = node->quiet;
        if (g->gone[i] || is_idle(g, node))
            g->replay.fakes[node->first] = weft_i_replay_value(&g->replay, node->terms[0].value);
        else
            WEFT_TRY(g->outs[i] >= 0          ? gather_into(g, i)
                     : g->ways[i] != AS_IT_IS ? gather_placed(g, i)
                                              : weft_i_replay_node(&g->replay, node));
    }
    return WEFT_OK;
}

/* ---- what there is to say ---- */

static void put_notes(weft_i_text *s, const void *about)
{
    const gathering *g = about;
    weft_i_text_put(s, "%s", g->graph->notes ? g->graph->notes : "");
    weft_i_text_put(s, "  gathers: %d into symmetric memory, %d into inputs, %d copies\n",
                    g->placed, g->kept, g->copies);
    for (int i = 0; i < g->graph->node_count; i++)
        if (g->why[i])
            weft_i_text_put(
                s, "  %s: %s of %%%d: %s\n", g->ways[i] == COPIED ? "copied" : "not placed",
                g->graph->nodes[i].op->name, g->graph->nodes[i].terms[0].value, g->why[i]);
}

static weft_status note(const gathering *g, weft_graph *to)
{
    return weft_i_replay_write_notes(&g->replay, to, put_notes, g);
}

/* ---- the pass ---- */

static weft_graph *rewrite(gathering *g)
{
    weft_graph *to = weft_i_replay_rewrite(&g->replay, walk);
    if (to && note(g, to) < 0) {
        weft_release(to);
        to = NULL;
    }
    return to;
}

static bool is_asked(const weft_graph *graph)
{
    for (int i = 0; i < graph->node_count; i++)
        if (is_gather(&graph->nodes[i]))
            return true;
    return false;
}

weft_graph *weft_i_graph_pass_gather(weft_graph *graph)
{
    if (!is_asked(graph))
        return graph;
    size_t nodes = (size_t)graph->node_count + 1, values = (size_t)graph->value_count + 1;
    gathering g = {.graph = graph};
    g.why =
        WEFT_OS->alloc(nodes * (sizeof *g.why + sizeof *g.ways + sizeof *g.outs + sizeof *g.gone));
    weft_tensor **fakes = WEFT_OS->alloc(values * sizeof *fakes);
    weft_graph *to = NULL;
    if (g.why && fakes) {
        g.ways = (gather_way *)(void *)(g.why + nodes);
        g.outs = (int *)(g.ways + nodes);
        g.gone = (bool *)(g.outs + nodes);
        g.replay = (weft_i_replay){graph, &g.trace, fakes, NULL, &g, NULL};
        for (int i = 0; i < graph->node_count; i++)
            decide(&g, i);
        to = rewrite(&g);
    } else
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to place gathers of %d nodes",
                    graph->node_count);
    WEFT_OS->free(g.why);
    WEFT_OS->free(fakes);
    return to;
}
