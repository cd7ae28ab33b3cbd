/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on symmetric memory instead of plain ones; see lower.h. */
#include "graph/pass/lower.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/text.h"
#include "fabric/group/group.h"
#include "functional/ops.h"
#include "graph/emit/plan.h"
#include "graph/ir/replay.h"
#include "graph/pass/passes.h"
#include "symm/reach.h"
#include "symm_coll/ops.h"
#include "tensor/op/ops.h"
#include "weft/coll.h"
#include "weft/fake.h"

#include <string.h>

/* Of each storage. */
typedef struct home {
    int maker;   /* the node that makes it; -1: an input or a constant */
    int last;    /* the last node that needs it */
    int holding; /* so many nodes may hold on to it */
    bool shown;  /* it is an output */
    size_t bytes;
} home;

typedef struct lowering {
    weft_graph *graph;
    home *homes;
    weft_i_lower_way *ways; /* of each node */
    const char **why;       /* of each node that stays: why; NULL: there was no question */
    weft_i_trace trace;
    weft_i_replay replay;
    int lowered, copies;
} lowering;

/* ---- which way ---- */

weft_i_lower_way weft_i_lower_choose(int ranks, weft_i_ground ground, size_t bytes)
{
    if (bytes <= weft_i_tune_or_variable(WEFT_I_TUNE_ONE_SHOT, WEFT_I_ALL_REDUCE, ranks, ground))
        return WEFT_I_LOWER_ONE_SHOT;
    if (bytes <= weft_i_tune_or_variable(WEFT_I_TUNE_TWO_SHOT, WEFT_I_ALL_REDUCE, ranks, ground))
        return WEFT_I_LOWER_TWO_SHOT;
    return WEFT_I_LOWER_NOT;
}

/* ---- looking at the graph ---- */

static bool is_lowered(const lowering *l, int node)
{
    return node >= 0 && l->ways[node] != WEFT_I_LOWER_NOT;
}

/* What a row wants in symmetric memory it does not hold on to. */
static bool holds(const weft_i_graph_node *node, int value)
{
    if (weft_i_plan_only_reads(node))
        return false;
    for (int i = -1; (i = weft_i_graph_node_symmetric(node, i + 1)) >= 0;)
        if (node->terms[i].value == value)
            return false;
    return true;
}

static void look(lowering *l)
{
    const weft_graph *graph = l->graph;
    int value;
    for (int i = 0; i < graph->storages; i++)
        l->homes[i] = (home){.maker = -1};
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
            home *h = &l->homes[graph->values[value].storage];
            h->last = i;
            h->holding += holds(node, value);
        }
        for (int k = 0; k < node->count; k++) {
            const weft_i_graph_value *made = &graph->values[node->first + k];
            home *h = made->absent ? NULL : &l->homes[made->storage];
            if (h && !h->last && h->maker < 0 && weft_i_graph_node_same(node, k) < 0 &&
                !(node->op->flags & WEFT_I_OP_VIEW))
                *h = (home){.maker = i, .last = i, .bytes = made->bytes};
        }
    }
    for (int i = 0; i < graph->input_count; i++)
        l->homes[graph->values[graph->inputs[i].value].storage].maker = -1;
    for (int i = 0; i < graph->constant_count; i++)
        l->homes[graph->values[graph->constants[i].value].storage].maker = -1;
    for (int i = 0; i < graph->output_count; i++)
        l->homes[graph->values[graph->outputs[i]].storage].shown = true;
}

/* Why the memory of the value cannot be a communication buffer; NULL: it can.  `own`: so many of
 * those that hold on to it are the asker. */
static const char *cannot_place(const lowering *l, int value, int own)
{
    const weft_i_graph_value *v = &l->graph->values[value];
    const home *h = &l->homes[v->storage];
    if (h->maker < 0)
        return "its operand is an input of the graph";
    if (v->device == WEFT_META)
        return "its operand has no memory";
    if (!v->bytes || weft_i_shape_numel(v->shape) == 0)
        return "its operand is empty";
    if (!is_lowered(l, h->maker) && !weft_i_plan_is_told(&l->graph->nodes[h->maker]))
        return "what makes its operand allocates it itself";
    if (h->shown)
        return "its operand is seen outside, and a communication buffer never is";
    return h->holding > own ? "somebody else may hold on to its operand" : NULL;
}

static bool is_contiguous(const weft_i_graph_value *v)
{
    int64_t stride[WEFT_MAX_DIMS];
    weft_i_shape_strides(v->shape, stride);
    for (int i = 0; i < v->shape.ndim; i++)
        if (v->shape.dim[i] != 1 && v->stride[i] != stride[i])
            return false;
    return true;
}

/* Why the all_reduce stays; NULL: it can be lowered. */
static const char *cannot_lower(const lowering *l, const weft_i_graph_node *node)
{
    const weft_i_graph_term *term = weft_i_graph_node_group(node);
    const weft_group *group = term->group.handle;
    if (!group)
        return "its group is only a name";
    if (weft_fake_is(group))
        return "its group is a fake";
    if (weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) != WEFT_I_REACH_LANE)
        return "its group spans hosts";
    if (node->terms[1].integer != WEFT_SUM)
        return "it is not a sum";
    if (!is_contiguous(&l->graph->values[node->terms[0].value]))
        return "its operand is not contiguous";
    return cannot_place(l, node->terms[0].value, 1);
}

static void decide(lowering *l, int i)
{
    const weft_i_graph_node *node = &l->graph->nodes[i];
    if (node->op != &weft_i_op_all_reduce || node->into >= 0 || (l->why[i] = cannot_lower(l, node)))
        return;
    const weft_i_graph_value *x = &l->graph->values[node->terms[0].value];
    const weft_group *group = weft_i_graph_node_group(node)->group.handle;
    size_t bytes = (size_t)weft_i_shape_numel(x->shape) * weft_dtype_size(x->dtype);
    l->ways[i] = weft_i_lower_choose(group->size, weft_i_tune_ground(group->world->mode), bytes);
    if (l->ways[i] == WEFT_I_LOWER_NOT)
        l->why[i] = "it is so large that it rather runs behind what is computed";
    else
        l->homes[x->storage].holding--;
}

/* ---- rewriting ---- */

/* The collective, and its result in place of what was waited for. */
static weft_status lower(lowering *l, int i)
{
    const weft_i_graph_node *node = &l->graph->nodes[i];
    bool one = l->ways[i] == WEFT_I_LOWER_ONE_SHOT;
    weft_i_arg old[WEFT_I_OP_ARGS];
    WEFT_TRY(weft_i_replay_args(&l->replay, node, old));
    bool dies = l->homes[l->graph->values[node->terms[0].value].storage].last == i;
    weft_i_arg two_args[] = {old[0], old[1], old[2], WEFT_I_INTEGER_ARG(!dies), old[3]};
    weft_i_op_call call = {.op = one ? &weft_i_op_one_shot_all_reduce
                                     : &weft_i_op_two_shot_all_reduce,
                           .args = one ? old : two_args};
    l->trace.quiet = node->quiet;
    l->lowered++;
    return (l->replay.fakes[node->first] = weft_i_trace_call(&l->trace, &call))
               ? WEFT_OK
               : weft_last_status();
}

/* In a buffer that the program places. */
static weft_tensor *copied(lowering *l, weft_tensor *x)
{
    weft_i_op_call call = {.op = &weft_i_op_clone, .args = &WEFT_I_TENSOR_ARG(x)};
    l->copies++;
    return weft_i_trace_call(&l->trace, &call);
}

/* The argument, or a copy where it cannot lie in symmetric memory. */
static weft_status place(lowering *l, int i, int value, weft_i_arg *arg)
{
    const weft_i_graph_value *v = &l->graph->values[value];
    if (v->device == WEFT_META || !weft_i_shape_numel(v->shape))
        return WEFT_OK;
    l->why[i] = cannot_place(l, value, 0);
    return !l->why[i] || (arg->tensor = copied(l, arg->tensor)) ? WEFT_OK : weft_last_status();
}

/* A row that wants symmetric memory.  One that brings memory to copy to needs none: its operand
 * lies in ours, or is copied there. */
static weft_status call_symmetric(lowering *l, int i)
{
    const weft_i_graph_node *node = &l->graph->nodes[i];
    bool staged = node->op == &weft_i_op_one_shot_all_reduce_copy;
    weft_i_arg args[WEFT_I_OP_ARGS];
    WEFT_TRY(weft_i_replay_args(&l->replay, node, args));
    if (staged)
        WEFT_TRY(place(l, i, node->terms[1].value, &args[1]));
    for (int k = -1; !staged && (k = weft_i_graph_node_symmetric(node, k + 1)) >= 0;)
        WEFT_TRY(place(l, i, node->terms[k].value, &args[k]));
    weft_i_op_call call = {.op = staged ? &weft_i_op_one_shot_all_reduce : node->op,
                           .args = staged ? args + 1 : args};
    l->trace.quiet = node->quiet;
    return (l->replay.fakes[node->first] = weft_i_trace_call(&l->trace, &call))
               ? WEFT_OK
               : weft_last_status();
}

static weft_status walk(void *user)
{
    lowering *l = user;
    const weft_graph *graph = l->graph;
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        bool wait = node->op == &weft_i_op_wait_tensor;
        if (is_lowered(l, i))
            WEFT_TRY(lower(l, i));
        else if (wait && is_lowered(l, graph->values[node->terms[0].value].node))
            l->replay.fakes[node->first] = l->replay.fakes[node->terms[0].value];
        else
            WEFT_TRY(weft_i_graph_node_symmetric(node, 0) >= 0 && node->into < 0
                         ? call_symmetric(l, i)
                         : weft_i_replay_node(&l->replay, node));
    }
    return WEFT_OK;
}

/* ---- what there is to say ---- */

static void put_notes(weft_i_text *s, const void *about)
{
    const lowering *l = about;
    const weft_graph *graph = l->graph;
    weft_i_text_put(s, "%s", graph->notes ? graph->notes : "");
    weft_i_text_put(s, "  lowered: %d collectives, %d copies\n", l->lowered, l->copies);
    for (int i = 0; i < graph->node_count; i++)
        if (l->why[i])
            weft_i_text_put(s, "  %s: %s of %%%d: %s\n",
                            weft_i_graph_node_symmetric(&graph->nodes[i], 0) >= 0 ? "copied"
                                                                                  : "not lowered",
                            graph->nodes[i].op->name, graph->nodes[i].terms[0].value, l->why[i]);
}

static void log_reasons(const lowering *l)
{
    for (int i = 0; i < l->graph->node_count; i++)
        if (l->why[i])
            weft_i_log(WEFT_LOG_INFO, "graph \"%s\": %s of %%%d is not lowered: %s", l->graph->name,
                       l->graph->nodes[i].op->name, l->graph->nodes[i].terms[0].value, l->why[i]);
}

static weft_status note(const lowering *l, weft_graph *to)
{
    log_reasons(l);
    return weft_i_replay_write_notes(&l->replay, to, put_notes, l);
}

/* ---- the pass ---- */

static bool is_asked(const weft_graph *graph)
{
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == &weft_i_op_all_reduce ||
            weft_i_graph_node_symmetric(&graph->nodes[i], 0) >= 0)
            return true;
    return false;
}

static weft_graph *rewrite(lowering *l)
{
    weft_graph *to = weft_i_replay_rewrite(&l->replay, walk);
    if (to && note(l, to) < 0) {
        weft_release(to);
        to = NULL;
    }
    return to;
}

weft_graph *weft_i_graph_pass_lower(weft_graph *graph)
{
    if (!is_asked(graph))
        return graph;
    size_t nodes = (size_t)graph->node_count + 1, values = (size_t)graph->value_count + 1;
    lowering l = {.graph = graph};
    l.homes = WEFT_OS->alloc(((size_t)graph->storages + 1) * sizeof *l.homes);
    l.why = WEFT_OS->alloc(nodes * (sizeof *l.why + sizeof *l.ways));
    weft_tensor **fakes = WEFT_OS->alloc(values * sizeof *fakes);
    weft_graph *to = NULL;
    if (l.homes && l.why && fakes) {
        l.ways = (weft_i_lower_way *)(void *)(l.why + nodes);
        l.replay = (weft_i_replay){graph, &l.trace, fakes, NULL, &l, NULL};
        look(&l);
        for (int i = 0; i < graph->node_count; i++)
            decide(&l, i);
        to = rewrite(&l);
    } else
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to lower %d nodes", graph->node_count);
    WEFT_OS->free(l.homes);
    WEFT_OS->free(l.why);
    WEFT_OS->free(fakes);
    return to;
}
