/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes on other fakes; see replay.h. */
#include "graph/replay.h"

#include "functional/ops.h"
#include "tensor/ops.h"

weft_tensor *weft_i_replay_value(weft_i_replay *replay, int value)
{
    if (!replay->fakes[value])
        replay->fakes[value] = replay->find(replay, value);
    return replay->fakes[value];
}

static weft_tensor *value_of(void *replay, int value)
{
    return weft_i_replay_value(replay, value);
}

/* Its arguments, and its target. */
static weft_status read_call(weft_i_replay *replay, const weft_i_graph_node *node, weft_i_arg *args,
                             weft_i_op_call *call)
{
    *call = (weft_i_op_call){.op = node->op, .args = args};
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(replay->trace->graph, &node->terms[i], value_of, replay,
                                        &args[i]));
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
