/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the nodes that makes a graph pure; see pure.h. */
#include "graph/pass/pure.h"

#include "base/os/os.h"
#include "functional/ops.h"
#include "grad/ops.h"
#include "graph/ir/replay.h"
#include "graph/pass/passes.h"
#include "nn/ops.h"
#include "symm_coll/ops.h"
#include "tensor/op/ops.h"

#include <string.h>

/* ---- looking at the graph beforehand ---- */

static bool has_pure_form(const weft_i_op *op)
{
    static const weft_i_op *const rows[] = {&weft_i_op_fill,
                                            &weft_i_op_copy,
                                            &weft_i_op_set,
                                            &weft_i_op_uniform,
                                            &weft_i_op_normal,
                                            &weft_i_op_integers,
                                            &weft_i_op_all_reduce_,
                                            &weft_i_op_broadcast_,
                                            &weft_i_op_all_reduce_coalesced_,
                                            &weft_i_op_all_gather_into_tensor_out,
                                            &weft_i_op_reduce_scatter_tensor_out};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] == op)
            return true;
    return false;
}

static void measure_value(weft_i_pure *p, int value)
{
    const weft_i_graph_value *v = &p->old->values[value];
    if (v->absent)
        return;
    weft_i_content *c = weft_i_pure_content(p, value);
    int64_t end = v->offset + 1;
    if (c->first < 0) {
        c->first = value;
        c->bytes = c->first_bytes = v->bytes;
        c->begin = INT64_MAX;
    }
    c->alone |= v->dtype != p->old->values[c->first].dtype;
    for (int i = 0; i < v->shape.ndim; i++)
        end += (v->shape.dim[i] - 1) * v->stride[i];
    if (weft_i_shape_numel(v->shape) == 0)
        return;
    c->begin = v->offset < c->begin ? v->offset : c->begin;
    c->end = end > c->end ? end : c->end;
}

static void look_at_node(weft_i_pure *p, const weft_i_graph_node *node)
{
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k), value = node->first + k;
        p->roots[value] = same < 0 ? value : p->roots[same];
        p->latest[p->roots[value]] = value;
        if (same < 0)
            continue;
        weft_i_content *c = weft_i_pure_content(p, same);
        bool writes = node->into < 0 && node->op->changes != 'r';
        c->alone |= writes && !has_pure_form(node->op);
        c->alone |= node->op == &weft_i_op_resize_storage && c->input < 0;
    }
    if (node->op == &weft_i_op_grad) /* its memory is known elsewhere */
        weft_i_pure_content(p, node->first)->alone = true;
}

static void look(weft_i_pure *p)
{
    const weft_graph *old = p->old;
    for (int i = 0; i < old->storages; i++)
        p->contents[i] = (weft_i_content){.first = -1, .input = -1};
    for (int i = 0; i < old->counters; i++)
        p->counts[i] = (weft_i_count){.base = WEFT_I_COUNT_NUMBER, .input = -1};
    for (int i = old->input_count - 1; i >= 0; i--) {
        const weft_i_graph_value *v = &old->values[old->inputs[i].value];
        p->contents[v->storage].input = i;
        p->counts[v->counter] = (weft_i_count){.base = WEFT_I_COUNT_ENTRY, .input = i};
    }
    for (int i = 0; i < old->value_count; i++) {
        p->roots[i] = p->latest[i] = i;
        measure_value(p, i);
    }
    for (int i = 0; i < old->node_count; i++)
        look_at_node(p, &old->nodes[i]);
    for (int i = 0; i < old->storages; i++)
        if (p->contents[i].begin == INT64_MAX)
            p->contents[i].begin = 0;
}

/* ---- inputs ---- */

static weft_status add_inputs(weft_i_pure *p)
{
    weft_i_replay replay = {.from = p->old, .trace = &p->trace, .fakes = p->fakes};
    WEFT_TRY(weft_i_replay_begin(&replay));
    for (int i = 0; i < p->old->input_count; i++)
        p->inputs[i] = p->fakes[p->old->inputs[i].value];
    return WEFT_OK;
}

/* What the counters of the inputs are before anything happens; dead code takes those away that
 * nobody asks for. */
static weft_status read_counters(weft_i_pure *p)
{
    for (int i = 0; i < p->old->counters; i++) {
        weft_i_count *count = &p->counts[i];
        if (count->input < 0)
            continue;
        weft_tensor *x = p->inputs[count->input];
        if (!(count->at_entry = WEFT_I_PURE(p, version, WEFT_I_TENSOR_ARG(x))))
            return weft_last_status();
    }
    return WEFT_OK;
}

/* ---- nodes ---- */

static weft_tensor *value_of(void *pure, int value)
{
    return weft_i_pure_read(pure, value);
}

static void note_fake(weft_i_pure *p, int value, weft_tensor *x)
{
    p->fakes[value] = x;
    p->epochs[value] = weft_i_pure_content(p, value)->epoch;
}

/* The row as it is, on what its arguments are now; `outs` gets the results. */
static weft_status call_again(weft_i_pure *p, const weft_i_graph_node *node, weft_i_arg *args,
                              weft_tensor *into, weft_tensor **outs)
{
    weft_i_op_call call = {.op = node->op, .args = args, .into = into};
    bool several = node->op->flags & WEFT_I_OP_LIST || node->op->results > 1;
    if (several)
        call.outs = outs;
    weft_tensor *out = weft_i_trace_call(&p->trace, &call);
    if (!out)
        return weft_last_status();
    p->trace.graph->nodes[p->trace.graph->node_count - 1].quiet = node->quiet;
    if (!several)
        outs[0] = out;
    return WEFT_OK;
}

/* The tensor is written: its counter counts. */
static void count_write(weft_i_pure *p, const weft_i_graph_node *node, int value)
{
    weft_i_count *count = &p->counts[p->old->values[value].counter];
    count->more++;
    for (int i = 0; i < p->old->input_count && !node->quiet; i++)
        p->loud[i] |=
            p->old->values[p->old->inputs[i].value].counter == p->old->values[value].counter &&
            !node->quiet;
}

/* `x` as a tensor of its own with the shape and dtype of the old value, for a write to it. */
static weft_tensor *fitted(weft_i_pure *p, weft_tensor *x, int value, bool fresh)
{
    const weft_i_graph_value *v = &p->old->values[value];
    if (x && x->dtype != v->dtype) {
        x = WEFT_I_PURE(p, to, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(v->dtype),
                        WEFT_I_INTEGER_ARG(v->device));
        fresh = true;
    }
    if (x && !weft_i_shape_equal(weft_i_tensor_shape(x), v->shape)) {
        x = WEFT_I_PURE(p, expand, WEFT_I_TENSOR_ARG(x),
                        WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim));
        fresh = false;
    }
    return x && !fresh ? WEFT_I_PURE(p, clone, WEFT_I_TENSOR_ARG(x)) : x;
}

static weft_tensor *drawn(weft_i_pure *p, const weft_i_graph_node *node)
{
    const weft_i_graph_value *v = &p->old->values[node->terms[0].value];
    weft_tensor *x =
        WEFT_I_PURE(p, empty, WEFT_I_INTEGER_ARG(v->dtype), WEFT_I_INTEGER_ARG(v->device),
                    WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim));
    weft_i_arg args[WEFT_I_OP_ARGS] = {WEFT_I_TENSOR_ARG(x)};
    for (int i = 1; x && i < node->op->arity; i++)
        if (weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]) < 0)
            return NULL;
    return x ? weft_i_pure_call(p, node->op, args) : NULL;
}

/* The functional form of a collective in place, and its wait, unless it is done by itself. */
static weft_tensor *communicated(weft_i_pure *p, const weft_i_graph_node *node, const weft_i_op *op,
                                 int skip)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    for (int i = skip; i < node->op->arity; i++)
        if (weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i - skip]) <
            0)
            return NULL;
    weft_tensor *out = weft_i_pure_call(p, op, args);
    if (out && !(op->flags & WEFT_I_OP_PLACED) && weft_i_trace_wait(&p->trace, out) < 0)
        return NULL;
    return out;
}

static weft_tensor *filled(weft_i_pure *p, const weft_i_graph_node *node)
{
    const weft_i_graph_value *v = &p->old->values[node->terms[0].value];
    return WEFT_I_PURE(p, full, WEFT_I_INTEGER_ARG(v->dtype), WEFT_I_INTEGER_ARG(v->device),
                       WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim),
                       WEFT_I_NUMBER_ARG(node->terms[1].number));
}

/* What the row writes to its first argument, as a new tensor. */
static weft_tensor *written(weft_i_pure *p, const weft_i_graph_node *node)
{
    int target = node->terms[0].value;
    if (node->op == &weft_i_op_fill)
        return filled(p, node);
    if (node->op == &weft_i_op_copy)
        return fitted(p, weft_i_pure_read(p, node->terms[1].value), target, false);
    if (node->op == &weft_i_op_all_reduce_)
        return communicated(p, node, &weft_i_op_all_reduce, 0);
    if (node->op == &weft_i_op_broadcast_)
        return communicated(p, node, &weft_i_op_broadcast, 0);
    if (node->op == &weft_i_op_all_gather_into_tensor_out)
        return communicated(p, node, &weft_i_op_all_gather_into_tensor, 1);
    if (node->op == &weft_i_op_reduce_scatter_tensor_out)
        return communicated(p, node, &weft_i_op_reduce_scatter_tensor, 1);
    if (node->op == &weft_i_op_low_contention_all_gather_out)
        return communicated(p, node, &weft_i_op_low_contention_all_gather, 1);
    return drawn(p, node);
}

static weft_status do_list(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor **outs = weft_i_graph_alloc(p->trace.graph, (size_t)node->count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]));
    weft_i_op_call call = {.op = &weft_i_op_all_reduce_coalesced, .args = args, .outs = outs};
    if (!weft_i_trace_call(&p->trace, &call))
        return weft_last_status();
    for (int k = 0; k < node->count; k++)
        WEFT_TRY(weft_i_trace_wait(&p->trace, outs[k]));
    for (int k = 0; k < node->count; k++) {
        WEFT_TRY(weft_i_pure_write(p, node->terms[0].values[k], node->first + k, outs[k]));
        count_write(p, node, node->terms[0].values[k]);
    }
    return WEFT_OK;
}

/* The tensor is on another storage from now on. */
static weft_status do_set(weft_i_pure *p, const weft_i_graph_node *node)
{
    int x = node->terms[0].value, source = node->terms[1].value;
    weft_i_content *was = weft_i_pure_content(p, x);
    was->shrunk_before_set |= was->input >= 0 && was->bytes != was->first_bytes;
    count_write(p, node, x);
    p->fakes[node->first] = p->fakes[source];
    p->epochs[node->first] = p->epochs[source];
    return WEFT_OK;
}

static weft_status do_set_version(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_count *count = &p->counts[p->old->values[node->terms[0].value].counter];
    const weft_i_graph_term *to = &node->terms[1];
    count->hidden = true;
    p->fakes[node->first] = p->fakes[node->terms[0].value];
    p->epochs[node->first] = p->epochs[node->terms[0].value];
    if (to->kind == WEFT_I_ARG_NUMBER) {
        count->base = WEFT_I_COUNT_NUMBER;
        count->more = (int64_t)to->number;
        return WEFT_OK;
    }
    weft_tensor *value = weft_i_pure_read(p, to->value);
    bool entry = value == count->at_entry;
    count->base = entry ? WEFT_I_COUNT_ENTRY : WEFT_I_COUNT_VALUE;
    count->more = 0;
    count->value = value;
    return value ? WEFT_OK : weft_last_status();
}

static weft_status do_version(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_tensor *value =
        weft_i_pure_count(p, &p->counts[p->old->values[node->terms[0].value].counter]);
    if (!value)
        return weft_last_status();
    note_fake(p, node->first, value);
    return WEFT_OK;
}

static weft_status do_resize(weft_i_pure *p, const weft_i_graph_node *node)
{
    int x = node->terms[0].value;
    for (int i = 0; i < p->old->input_count && !node->quiet; i++)
        p->loud[i] |= p->old->values[p->old->inputs[i].value].storage == p->old->values[x].storage;
    return weft_i_pure_resize(p, x, (size_t)node->terms[1].integer);
}

/* A collective that is waited for already, by what took its place, is not waited for again. */
static weft_status do_wait(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_tensor *x = weft_i_pure_read(p, node->terms[0].value);
    const weft_graph *graph = p->trace.graph;
    if (!x)
        return weft_last_status();
    int maker = graph->values[x->node].node;
    if (maker >= 0 && weft_i_graph_node_is_posted(&graph->nodes[maker]))
        WEFT_TRY(weft_i_trace_wait(&p->trace, x));
    note_fake(p, node->first, x);
    return WEFT_OK;
}

static weft_status do_into(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor *out = NULL;
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]));
    WEFT_TRY(call_again(p, node, args, NULL, &out));
    if (weft_i_graph_node_is_posted(node))
        WEFT_TRY(weft_i_trace_wait(&p->trace, out));
    WEFT_TRY(weft_i_pure_write(p, node->into, node->first, fitted(p, out, node->into, true)));
    count_write(p, node, node->into);
    return WEFT_OK;
}

/* A row that changes nothing, or a storage that is left alone. */
static weft_status do_plain(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor *into = node->into < 0 ? NULL : weft_i_pure_read(p, node->into);
    weft_tensor **outs = weft_i_graph_alloc(p->trace.graph, (size_t)node->count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]));
    if (node->op == &weft_i_op_as_strided) /* its offset is that of the storage */
        args[3].integer += args[0].tensor->offset - p->old->values[node->terms[0].value].offset;
    WEFT_TRY(call_again(p, node, args, into, outs));
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k);
        if (same >= 0 && node->op->changes != 'r')
            count_write(p, node, same);
        if (outs[k])
            note_fake(p, node->first + k, outs[k]);
    }
    return WEFT_OK;
}

/* These are about the tensor itself, not about what it holds. */
static bool is_about_tensor(const weft_i_op *op)
{
    return op == &weft_i_op_accumulate || op == &weft_i_op_set_grad || op == &weft_i_op_grad ||
           op == &weft_i_op_bind;
}

static weft_status do_about(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor *out = NULL;
    int x = node->terms[0].value, root = p->roots[x];
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]));
    if (root < p->old->input_count) /* input i is value i */
        args[0].tensor = p->inputs[root];
    WEFT_TRY(call_again(p, node, args, NULL, &out));
    if (weft_i_graph_node_same(node, 0) < 0) {
        note_fake(p, node->first, out);
    } else {
        p->fakes[node->first] = p->fakes[x];
        p->epochs[node->first] = p->epochs[x];
    }
    return WEFT_OK;
}

static weft_status do_hand_out(weft_i_pure *p, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor *out = NULL;
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(p->trace.graph, &node->terms[i], value_of, p, &args[i]));
    WEFT_TRY(call_again(p, node, args, NULL, &out));
    note_fake(p, node->first, out);
    return WEFT_OK;
}

static bool is_alone(weft_i_pure *p, const weft_i_graph_node *node)
{
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k);
        if (same >= 0 && weft_i_pure_content(p, same)->alone)
            return true;
    }
    return false;
}

static weft_status do_node(weft_i_pure *p, const weft_i_graph_node *node)
{
    if (node->op == &weft_i_op_version)
        return do_version(p, node);
    if (node->op == &weft_i_op_set_version)
        return do_set_version(p, node);
    if (node->op == &weft_i_op_wait_tensor)
        return do_wait(p, node);
    if (node->op == &weft_i_op_set)
        return do_set(p, node);
    if (is_about_tensor(node->op))
        return do_about(p, node);
    if (node->op == &weft_i_op_hand_out)
        return do_hand_out(p, node);
    if (weft_i_graph_node_same(node, 0) < 0 || is_alone(p, node))
        return do_plain(p, node);
    if (node->into >= 0)
        return do_into(p, node);
    if (node->op == &weft_i_op_resize_storage)
        return do_resize(p, node);
    if (node->op->changes == 'm')
        return do_list(p, node);
    count_write(p, node, node->terms[0].value);
    return weft_i_pure_write(p, node->terms[0].value, node->first, written(p, node));
}

/* ---- all of it ---- */

static weft_status make_room(weft_i_pure *p)
{
    size_t values = (size_t)p->old->value_count + 1;
    p->fakes = WEFT_OS->alloc((values + (size_t)p->old->input_count) * sizeof *p->fakes);
    p->epochs = WEFT_OS->alloc(3 * values * sizeof *p->epochs);
    p->contents = WEFT_OS->alloc(((size_t)p->old->storages + 1) * sizeof *p->contents);
    p->counts = WEFT_OS->alloc(((size_t)p->old->counters + 1) * sizeof *p->counts);
    p->loud = WEFT_OS->alloc((size_t)p->old->input_count + 1);
    if (!p->fakes || !p->epochs || !p->contents || !p->counts || !p->loud)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu values", values);
    p->inputs = p->fakes + values;
    p->roots = p->epochs + values;
    p->latest = p->roots + values;
    return WEFT_OK;
}

static void give_room_back(weft_i_pure *p)
{
    for (int i = 0; p->contents && i < p->old->storages; i++)
        WEFT_OS->free(p->contents[i].written);
    WEFT_OS->free(p->fakes);
    WEFT_OS->free(p->epochs);
    WEFT_OS->free(p->contents);
    WEFT_OS->free(p->counts);
    WEFT_OS->free(p->loud);
}

static weft_status walk(weft_i_pure *p, int **outputs)
{
    WEFT_TRY(make_room(p));
    look(p);
    WEFT_TRY(weft_i_trace_begin(&p->trace, p->old->name));
    WEFT_TRY(add_inputs(p));
    WEFT_TRY(read_counters(p));
    for (int i = 0; i < p->old->node_count; i++)
        WEFT_TRY(do_node(p, &p->old->nodes[i]));
    *outputs = weft_i_graph_alloc(p->trace.graph, (size_t)p->old->output_count * sizeof **outputs);
    return *outputs ? weft_i_pure_finish(p, *outputs) : weft_last_status();
}

weft_graph *weft_i_graph_pass_make_pure(weft_graph *graph)
{
    weft_i_pure p = {.old = graph};
    int *outputs = NULL;
    if (weft_scope_open() < 0)
        return NULL;
    weft_graph *pure = walk(&p, &outputs) < 0
                           ? NULL
                           : weft_keep(weft_i_trace_end(&p.trace, outputs, graph->output_count));
    if (p.trace.graph)
        weft_i_trace_abandon(&p.trace);
    give_room_back(&p);
    weft_scope_close();
    return pure ? weft_i_object_scope(pure) : NULL;
}
