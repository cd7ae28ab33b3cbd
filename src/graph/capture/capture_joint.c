/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in a capture: the histories of stand-ins, and the walk back from the results. */
#include "graph/capture/capture_state.h"

#include "base/os/os.h"
#include "grad/engine.h"
#include "grad/ops.h"

#include <stdio.h>

/* ---- inputs ---- */

bool weft_i_guard_has_grad(const weft_tensor *x)
{
    const weft_i_history *history = weft_i_history_if(x);
    return history && history->grad;
}

static weft_status require(weft_tensor *x)
{
    weft_i_history *history = weft_i_history_of(x);
    if (history)
        history->required = true;
    return history ? WEFT_OK : weft_last_status();
}

/* The real tensor was computed, so this one may be written in place: its gradients end in a leaf
 * before it, which has the same value. */
static weft_status put_leaf_before(weft_tensor *twin)
{
    weft_tensor *leaf =
        weft_i_tensor_new_view(twin->storage, twin->version, twin->dtype, weft_i_tensor_shape(twin),
                               twin->stride, twin->offset);
    if (!leaf)
        return weft_last_status();
    leaf->node = twin->node;
    leaf->lifted = true;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(&leaf, 1)};
    weft_i_op_call call = {.op = &weft_i_op_pass, .args = args};
    weft_i_edge edges[2] = {{NULL, 0}, {&leaf->head, 0}};
    weft_i_node_plan plan = {
        .call = &call, .edges = edges, .count = 2, .outputs = 1, .dims = twin->ndim};
    weft_i_node *node = require(leaf) < 0 ? NULL : weft_i_node_new(&plan);
    weft_release(leaf); /* the node has it */
    if (!node)
        return weft_last_status();
    weft_i_node_output(node, twin);
    weft_status status = weft_i_history_set(twin, node, 0);
    weft_i_object_drop(node);
    return status;
}

/* There is a gradient already; what it is nobody asks yet. */
static weft_status mark_gradient(weft_i_capture_state *c, const weft_tensor *grad,
                                 weft_tensor *twin)
{
    weft_i_history *history = weft_i_history_of(twin);
    weft_tensor *mark = history
                            ? weft_i_fake_new(c->trace.id, grad->dtype, weft_i_tensor_device(grad),
                                              weft_i_tensor_shape(grad), grad->stride)
                            : NULL;
    if (!mark)
        return weft_last_status();
    mark->node = -1;
    history->grad = weft_i_object_hold(mark);
    weft_release(mark);
    return WEFT_OK;
}

weft_status weft_i_capture_give_history(weft_i_capture_state *c, weft_tensor *real,
                                        weft_i_lifted *lifted, unsigned flags)
{
    int output;
    const weft_i_history *history = weft_i_history_if(real);
    if (flags & WEFT_I_INPUT_GRAD && c->recording && !c->how->blind)
        WEFT_TRY(weft_i_history_node(real, &output) ? put_leaf_before(lifted->twin)
                                                    : require(lifted->twin));
    lifted->history = weft_i_history_node(lifted->twin, &output);
    return history && history->grad ? mark_gradient(c, history->grad, lifted->twin) : WEFT_OK;
}

void weft_i_capture_mark_needed(weft_i_capture_state *c)
{
    weft_graph *graph = c->trace.graph;
    for (int i = 0; i < c->lifted_count; i++)
        for (int k = 0; k < graph->input_count; k++)
            if (graph->inputs[k].value == c->lifted[i].value &&
                c->lifted[i].twin->storage->fake->unpacked)
                graph->inputs[k].flags |= WEFT_I_INPUT_NEEDED;
}

/* ---- backward ---- */

/* Where it begins: edges of results, and the inputs that stand for their gradients. */
typedef struct beginning {
    weft_i_edge *roots;
    weft_tensor **seeds, **results;
    size_t count;
} beginning;

static bool is_known(const beginning *b, const weft_tensor *x)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->results[i] == x)
            return true;
    return false;
}

/* The gradient of x, which is result number `output` of the graph, comes from outside. */
static weft_status begin_at(weft_i_capture_state *c, beginning *b, weft_tensor *x, int output)
{
    weft_i_edge edge;
    char name[32];
    WEFT_TRY(weft_i_history_edge(x, &edge));
    if (!edge.to || !weft_i_is_node(edge.to) || is_known(b, x))
        return WEFT_OK;
    weft_i_graph_value like = weft_i_graph_value_of(x);
    weft_i_shape_strides(like.shape, like.stride);
    like.offset = like.version = 0;
    like.bytes = (size_t)weft_i_shape_numel(like.shape) * weft_i_dtype_size(like.dtype);
    snprintf(name, sizeof name, "tangent%d", output);
    weft_i_graph_input input = {.name = name, .flags = WEFT_I_INPUT_TANGENT};
    weft_tensor *seed = weft_i_trace_input(&c->trace, &like, NULL, NULL, &input);
    if (!seed)
        return weft_last_status();
    b->roots[b->count] = edge;
    b->seeds[b->count] = seed;
    b->results[b->count++] = x;
    return WEFT_OK;
}

/* An input that was written has another history now; its gradient would have to be shared with
 * inputs on the same storage. */
static weft_status check_alone(const weft_i_capture_state *c, const weft_i_lifted *changed)
{
    for (int i = 0; i < c->lifted_count; i++)
        if (&c->lifted[i] != changed && c->lifted[i].twin->storage == changed->twin->storage)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "an input is written where gradients are recorded, and another "
                               "input lies on its storage");
    return WEFT_OK;
}

static weft_status add_output(weft_i_capture_state *c, int value)
{
    size_t bytes = ((size_t)c->output_count + 2) * sizeof *c->outputs;
    int *more = WEFT_OS->resize(c->outputs, bytes);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    c->outputs = more;
    c->outputs[c->output_count++] = value;
    return WEFT_OK;
}

static weft_status begin_at_changed(weft_i_capture_state *c, beginning *b)
{
    for (int i = 0, output; i < c->lifted_count; i++) {
        weft_i_lifted *lifted = &c->lifted[i];
        const weft_i_node *node = weft_i_history_node(lifted->twin, &output);
        if (node == lifted->history)
            continue;
        WEFT_TRY(check_alone(c, lifted));
        c->how->changed++;
        WEFT_TRY(add_output(c, (int)lifted->twin->node));
        WEFT_TRY(begin_at(c, b, lifted->twin, c->output_count - 1));
    }
    return WEFT_OK;
}

static weft_status begin(weft_i_capture_state *c, beginning *b, weft_tensor *const *out, int outs)
{
    for (int i = 0; i < outs; i++) {
        weft_tensor *x = c->eye.see(&c->eye, out[i]);
        if (!x)
            return weft_last_status();
        if (!x->lifted)
            WEFT_TRY(begin_at(c, b, x, i));
    }
    return begin_at_changed(c, b);
}

weft_status weft_i_capture_backward(weft_i_capture_state *c, weft_tensor *const *out, int outs)
{
    size_t most = (size_t)outs + (size_t)c->lifted_count + 1;
    beginning b = {.roots = WEFT_OS->alloc(most * sizeof *b.roots),
                   .seeds = WEFT_OS->alloc(2 * most * sizeof *b.seeds)};
    weft_i_backward_pass run = {.frame = true};
    weft_status status = b.roots && b.seeds
                             ? WEFT_OK
                             : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d results", outs);
    b.results = b.seeds + most;
    if (status >= 0)
        status = begin(c, &b, out, outs);
    int split = c->trace.graph->node_count;
    if (status >= 0 && b.count) {
        c->how->split = split;
        status = weft_i_engine_run(&run, b.roots, b.seeds, b.count);
    }
    WEFT_OS->free(b.roots);
    WEFT_OS->free(b.seeds);
    return status;
}
