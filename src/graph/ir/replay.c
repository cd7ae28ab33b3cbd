/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes on other fakes; see replay.h. */
#include "graph/ir/replay.h"

#include "base/os/assert.h"
#include "base/report/status.h"
#include "functional/ops.h"
#include "tensor/op/ops.h"

weft_tensor *weft_i_replay_value(weft_i_replay *replay, int value)
{
    WEFT_ASSERT(value >= 0 && value < replay->from->value_count);
    if (!replay->fakes[value])
        replay->fakes[value] =
            replay->find ? replay->find(replay, value)
                         : weft_i_null(WEFT_ERR_INTERNAL, "value %%%d of graph \"%s\" is nowhere",
                                       value, replay->from->name);
    return replay->fakes[value];
}

/* ---- inputs ---- */

static int first_sharing(const weft_graph *graph, int i, bool counter)
{
    const weft_i_graph_value *v = &graph->values[graph->inputs[i].value];
    for (int k = 0; k < i; k++) {
        const weft_i_graph_value *other = &graph->values[graph->inputs[k].value];
        if (counter ? other->counter == v->counter : other->storage == v->storage)
            return graph->inputs[k].value;
    }
    return -1;
}

weft_status weft_i_replay_begin(weft_i_replay *replay)
{
    const weft_graph *from = replay->from;
    for (int i = 0; i < from->input_count; i++) {
        const weft_i_graph_input *input = &from->inputs[i];
        weft_i_graph_value like = from->values[input->value];
        int base = first_sharing(from, i, false), counted = first_sharing(from, i, true);
        like.version = 0;
        replay->fakes[input->value] =
            weft_i_trace_input(replay->trace, &like, base < 0 ? NULL : replay->fakes[base],
                               counted < 0 ? NULL : replay->fakes[counted], input);
        if (!replay->fakes[input->value])
            return weft_last_status();
    }
    for (int i = 0; i < from->constant_count; i++) {
        const weft_i_graph_constant *constant = &from->constants[i];
        replay->fakes[constant->value] = weft_i_trace_constant(replay->trace, constant->tensor);
        if (!replay->fakes[constant->value])
            return weft_last_status();
    }
    return weft_i_graph_set_arguments(replay->trace->graph, from->arguments, from->argument_count);
}

/* ---- nodes ---- */

static weft_tensor *value_of(void *replay, int value)
{
    return weft_i_replay_value(replay, value);
}

weft_status weft_i_replay_args(weft_i_replay *replay, const weft_i_graph_node *node,
                               weft_i_arg *args)
{
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(replay->trace->graph, &node->terms[i], value_of, replay,
                                        &args[i]));
    return WEFT_OK;
}

/* Its arguments, and its target. */
static weft_status read_call(weft_i_replay *replay, const weft_i_graph_node *node, weft_i_arg *args,
                             weft_i_op_call *call)
{
    *call = (weft_i_op_call){.op = node->op, .args = args};
    WEFT_TRY(weft_i_replay_args(replay, node, args));
    if (node->op == &weft_i_op_as_strided) /* its offset is that of the storage */
        args[3].integer +=
            args[0].tensor->offset - replay->from->values[node->terms[0].value].offset;
    if (node->into >= 0 && !(call->into = weft_i_replay_value(replay, node->into)))
        return weft_last_status();
    return WEFT_OK;
}

weft_status weft_i_replay_node(weft_i_replay *replay, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_i_op_call call;
    bool several = node->op->flags & WEFT_I_OP_LIST || node->op->results > 1;
    WEFT_TRY(read_call(replay, node, args, &call));
    weft_tensor **outs =
        weft_i_graph_alloc(replay->trace->graph, (size_t)node->count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    call.outs = several ? outs : NULL;
    replay->trace->quiet = node->quiet;
    weft_tensor *out = weft_i_trace_call(replay->trace, &call);
    if (!out)
        return weft_last_status();
    for (int k = 0; k < node->count; k++)
        replay->fakes[node->first + k] = several ? outs[k] : out;
    return WEFT_OK;
}

weft_graph *weft_i_replay_end(weft_i_replay *replay)
{
    const weft_graph *from = replay->from;
    int *outputs =
        weft_i_graph_alloc(replay->trace->graph, (size_t)from->output_count * sizeof *outputs);
    if (!outputs)
        return NULL;
    for (int i = 0; i < from->output_count; i++) {
        weft_tensor *out = weft_i_replay_value(replay, from->outputs[i]);
        if (!out)
            return NULL;
        outputs[i] = (int)out->node;
    }
    return weft_i_trace_end(replay->trace, outputs, from->output_count);
}

static weft_status walk_all(weft_i_replay *replay, weft_status (*walk)(void *user))
{
    WEFT_TRY(weft_i_trace_begin(replay->trace, replay->from->name));
    WEFT_TRY(weft_i_replay_begin(replay));
    return walk(replay->user);
}

static weft_graph *end_all(weft_i_replay *replay)
{
    int count = replay->from->value_count;
    weft_graph *to = weft_i_replay_end(replay);
    replay->numbers =
        to ? weft_i_graph_alloc(to, ((size_t)count + 1) * sizeof *replay->numbers) : NULL;
    for (int i = 0; replay->numbers && i < count; i++)
        replay->numbers[i] = replay->fakes[i] ? (int)replay->fakes[i]->node : -1;
    return replay->numbers ? to : NULL;
}

weft_graph *weft_i_replay_rewrite(weft_i_replay *replay, weft_status (*walk)(void *user))
{
    if (weft_scope_open() < 0)
        return NULL;
    weft_graph *to = walk_all(replay, walk) < 0 ? NULL : weft_keep(end_all(replay));
    if (replay->trace->graph)
        weft_i_trace_abandon(replay->trace);
    weft_scope_close();
    return to ? weft_i_object_scope(to) : NULL;
}

static int number_of(const void *about, int value)
{
    const weft_i_replay *replay = about;
    if (value >= replay->from->value_count)
        return -1;
    return replay->numbers ? replay->numbers[value] : value; /* or it was only copied */
}

weft_status weft_i_replay_write_notes(const weft_i_replay *replay, weft_graph *to,
                                      void (*put)(weft_i_text *s, const void *about),
                                      const void *about)
{
    WEFT_TRY(weft_i_graph_write_notes(to, put, about));
    return weft_i_graph_renumber_notes(to, number_of, replay);
}
