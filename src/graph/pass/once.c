/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is computed twice is computed once, and what is the same in every run is computed now: masks that
 * each layer makes anew, casts of one weight for two uses, views of views.  Nothing that somebody outside may
 * hold, write or compare is touched, nor what is written in place.  Of two equal nodes the second goes
 * only where the first one's result still is there, or is small: a value that lives longer must not raise the
 * peak.  Constants become tensors of the graph when something that is no constant needs them.
 */
#include "base/os/os.h"
#include "graph/ir/replay.h"
#include "graph/pass/passes.h"
#include "tensor/op/autocast.h"
#include "tensor/op/ops.h"
#include "weft/grad.h"

#include <string.h>

enum { SMALL = 1 << 20, FOLDED_MOST = 16 << 20, FOLDED_ALL = 64 << 20 };

typedef struct once {
    const weft_graph *graph;
    int *same;          /* of each value: the first that is equal */
    int *last;          /* of each such: the last node that needs it */
    int *chain;         /* of each node: the one before it with the same key; -1 */
    int heads[512];     /* the last node of each key; -1 */
    bool *closed;       /* of each storage: somebody outside may see it, or a node writes it */
    bool *constant;     /* of each value: the same in every run */
    weft_tensor **real; /* of constants that were computed */
    size_t folded;
    int merged, constants;
    weft_i_trace trace;
    weft_i_replay replay;
} once;

/* ---- what may be touched ---- */

static bool is_plain(const weft_i_graph_node *node)
{
    enum { NEVER = WEFT_I_OP_RANDOM | WEFT_I_OP_EFFECT | WEFT_I_OP_LAYOUT | WEFT_I_OP_LIST };
    return !(node->op->flags & NEVER) && !node->op->changes && node->into < 0 &&
           !weft_i_graph_node_has_effect(node) && !weft_i_graph_node_is_collective(node);
}

static void close_storages(once *o)
{
    const weft_graph *graph = o->graph;
    int value;
    for (int i = 0; i < graph->output_count; i++)
        o->closed[graph->values[graph->outputs[i]].storage] = true;
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        if (is_plain(node) || node->op->flags & WEFT_I_OP_RANDOM)
            continue;
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
            o->closed[graph->values[value].storage] = true;
        for (int k = 0; k < node->count; k++)
            if (!graph->values[node->first + k].absent)
                o->closed[graph->values[node->first + k].storage] = true;
    }
}

/* Whether all that it reads and makes is the graph's own, and stays as it was made. */
static bool is_open(const once *o, const weft_i_graph_node *node)
{
    const weft_graph *graph = o->graph;
    int value;
    if (!is_plain(node))
        return false;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        if (o->closed[graph->values[value].storage])
            return false;
    for (int k = 0; k < node->count; k++)
        if (graph->values[node->first + k].absent ||
            o->closed[graph->values[node->first + k].storage])
            return false;
    return node->count > 0;
}

static size_t bytes_of(const once *o, int value)
{
    const weft_i_graph_value *v = &o->graph->values[value];
    return (size_t)weft_i_shape_numel(v->shape) * weft_i_dtype_size(v->dtype);
}

/* ---- equal nodes ---- */

static uint64_t mixed(uint64_t key, uint64_t more)
{
    return (key ^ more) * 0x9e3779b97f4a7c15u + (key >> 29);
}

static unsigned key_of(const once *o, const weft_i_graph_node *node)
{
    uint64_t key = mixed((uint64_t)(uintptr_t)node->op, node->quiet);
    for (int i = 0; i < node->op->arity; i++) {
        const weft_i_graph_term *term = &node->terms[i];
        key = mixed(key, (uint64_t)term->kind << 32 | term->count);
        if (term->kind == WEFT_I_ARG_TENSOR)
            key = mixed(key, (uint64_t)o->same[term->value]);
    }
    return (unsigned)(key >> 32) % 512;
}

static bool same_values(const once *o, const weft_i_graph_term *a, const weft_i_graph_term *b)
{
    for (size_t i = 0; i < a->count; i++) {
        int x = a->values[i] < 0 ? -1 : o->same[a->values[i]],
            y = b->values[i] < 0 ? -1 : o->same[b->values[i]];
        if (x != y)
            return false;
    }
    return true;
}

static bool same_term(const once *o, const weft_i_graph_term *a, const weft_i_graph_term *b)
{
    if (a->kind != b->kind || a->count != b->count)
        return false;
    switch (a->kind) {
    case WEFT_I_ARG_NONE:
        return true;
    case WEFT_I_ARG_TENSOR:
        return o->same[a->value] == o->same[b->value];
    case WEFT_I_ARG_TENSORS:
        return same_values(o, a, b);
    case WEFT_I_ARG_NUMBER: /* with the sign of a zero, and NaN */
        return !memcmp(&a->number, &b->number, sizeof a->number);
    case WEFT_I_ARG_INTEGER:
        return a->integer == b->integer;
    case WEFT_I_ARG_INTEGERS:
        return !a->count || !memcmp(a->integers, b->integers, a->count * sizeof *a->integers);
    case WEFT_I_ARG_GROUP:
        return false;
    }
    return false;
}

static bool are_equal(const once *o, const weft_i_graph_node *a, const weft_i_graph_node *b)
{
    if (a->op != b->op || a->quiet != b->quiet || a->count != b->count)
        return false;
    for (int i = 0; i < a->op->arity; i++)
        if (!same_term(o, &a->terms[i], &b->terms[i]))
            return false;
    return true;
}

/* Whether node `i` can do without what it makes, since the earlier one's results serve: they are still
 * there, or small enough to be kept. */
static bool serves(const once *o, const weft_i_graph_node *earlier, int i)
{
    bool view = earlier->op->flags & WEFT_I_OP_VIEW;
    for (int k = 0; k < earlier->count; k++) {
        int value = earlier->first + k;
        if (!view && !o->constant[value] && o->last[value] < i && bytes_of(o, value) > SMALL)
            return false;
    }
    return true;
}

static void note_uses(once *o, int i)
{
    int value;
    for (size_t at = 0; weft_i_graph_node_next(&o->graph->nodes[i], &at, &value);)
        o->last[o->same[value]] = i;
}

/* Lives are those of the captured order; who is merged with it lengthens that of the first. */
static void note_lives(once *o)
{
    for (int i = 0; i < o->graph->node_count; i++)
        note_uses(o, i);
}

static void merge(once *o, int i)
{
    const weft_i_graph_node *node = &o->graph->nodes[i];
    unsigned key = key_of(o, node);
    int at = o->heads[key];
    while (at >= 0 && !are_equal(o, &o->graph->nodes[at], node))
        at = o->chain[at];
    const weft_i_graph_node *earlier = at < 0 ? NULL : &o->graph->nodes[at];
    if (!earlier || !serves(o, earlier, i)) {
        o->chain[i] = o->heads[key];
        o->heads[key] = i;
        return;
    }
    for (int k = 0; k < node->count; k++) {
        int first = earlier->first + k, later = node->first + k;
        o->same[later] = first;
        o->last[first] = o->last[later] > o->last[first] ? o->last[later] : o->last[first];
    }
    o->merged++;
}

/* ---- constants ---- */

static bool is_view(const weft_i_graph_node *node)
{
    return node->op->flags & WEFT_I_OP_VIEW;
}

/* Nodes that cost nothing to run, and that groups can see into, are not kept as tensors. */
static bool is_light(const weft_i_graph_node *node)
{
    return is_view(node) || node->op == &weft_i_op_full;
}

static void note_constant(once *o, int i)
{
    const weft_i_graph_node *node = &o->graph->nodes[i];
    bool constant = node->count == 1 && bytes_of(o, node->first) <= FOLDED_MOST &&
                    o->graph->values[node->first].device == WEFT_CPU;
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        constant &= o->constant[value];
    o->constant[node->first] = constant;
}

static weft_tensor *real_of(void *self, int value);

static weft_tensor *compute(once *o, int value)
{
    const weft_i_graph_node *node = &o->graph->nodes[o->graph->values[value].node];
    weft_i_arg args[WEFT_I_OP_ARGS];
    for (int i = 0; i < node->op->arity; i++)
        if (weft_i_graph_read_term(o->trace.graph, &node->terms[i], real_of, o, &args[i]) < 0)
            return NULL;
    return weft_i_op_apply(node->op, NULL, args);
}

/* The tensor of a constant, computed by its rows. */
static weft_tensor *real_of(void *self, int value)
{
    once *o = self;
    for (int i = 0; !o->real[value] && i < o->graph->constant_count; i++)
        if (o->graph->constants[i].value == value)
            o->real[value] = o->graph->constants[i].tensor;
    if (!o->real[value])
        o->real[value] = compute(o, value);
    return o->real[value];
}

/* Nodes of the graph itself, and what they need of constants, when it is needed. */
static weft_tensor *find(weft_i_replay *replay, int value)
{
    once *o = replay->user;
    int first = o->same[value];
    if (replay->fakes[first])
        return replay->fakes[first];
    const weft_i_graph_node *node = &o->graph->nodes[o->graph->values[first].node];
    if (is_light(node) || o->folded + bytes_of(o, first) > FOLDED_ALL)
        return weft_i_replay_node(replay, node) < 0 ? NULL : replay->fakes[first];
    weft_tensor *real = real_of(o, first);
    if (!real)
        return NULL;
    o->folded += bytes_of(o, first);
    o->constants++;
    return replay->fakes[first] = weft_i_trace_constant(replay->trace, real);
}

/* ---- the new graph ---- */

static bool is_left_out(const once *o, const weft_i_graph_node *node)
{
    return is_open(o, node) && (o->same[node->first] != node->first || o->constant[node->first]);
}

static weft_status walk(void *user)
{
    once *o = user;
    weft_grad_block block = weft_grad_block_enter(WEFT_GRAD_OFF);
    weft_status status = WEFT_OK;
    int autocast = weft_i_autocast;
    weft_i_autocast = 0; /* its conversions are nodes */
    for (int i = 0; status >= 0 && i < o->graph->node_count; i++)
        if (!is_left_out(o, &o->graph->nodes[i]))
            status = weft_i_replay_node(&o->replay, &o->graph->nodes[i]);
    weft_i_autocast = autocast;
    weft_grad_block_leave(&block);
    return status;
}

static void look(once *o)
{
    const weft_graph *graph = o->graph;
    memset(o->heads, 0xff, sizeof o->heads);
    for (int i = 0; i < graph->value_count; i++)
        o->same[i] = i;
    for (int i = 0; i < graph->constant_count; i++)
        o->constant[graph->constants[i].value] = true;
    close_storages(o);
    note_lives(o);
    for (int i = 0; i < graph->node_count; i++)
        if (is_open(o, &graph->nodes[i])) {
            note_constant(o, i);
            merge(o, i);
        }
}

static bool does_nothing(const once *o)
{
    for (int i = 0; i < o->graph->node_count; i++) {
        const weft_i_graph_node *node = &o->graph->nodes[i];
        if (is_left_out(o, node) && (o->same[node->first] != node->first || !is_light(node)))
            return false;
    }
    return true;
}

static void put_notes(weft_i_text *s, const void *about)
{
    const once *o = about;
    weft_i_text_put(s, "%s", o->graph->notes ? o->graph->notes : "");
    if (o->merged || o->constants)
        weft_i_text_put(s,
                        "  once: %d nodes were there twice, %d constants of %zu bytes computed at "
                        "the capture\n",
                        o->merged, o->constants, o->folded);
}

static weft_graph *rewrite(once *o)
{
    o->replay = (weft_i_replay){
        .from = o->graph, .trace = &o->trace, .fakes = o->replay.fakes, .find = find, .user = o};
    weft_graph *to = weft_i_replay_rewrite(&o->replay, walk);
    if (to && weft_i_replay_write_notes(&o->replay, to, put_notes, o) < 0) {
        weft_release(to);
        return NULL;
    }
    return to;
}

weft_graph *weft_i_graph_pass_once(weft_graph *graph)
{
    size_t values = (size_t)graph->value_count + 1, nodes = (size_t)graph->node_count + 1;
    once o = {.graph = graph};
    o.real = WEFT_OS->alloc(2 * values * sizeof *o.real);
    o.same = WEFT_OS->alloc((2 * values + nodes) * sizeof *o.same);
    o.constant = WEFT_OS->alloc(values + (size_t)graph->storages + 1);
    weft_graph *to = NULL;
    if (o.real && o.same && o.constant) {
        o.replay.fakes = o.real + values;
        o.last = o.same + values;
        o.chain = o.last + values;
        o.closed = o.constant + values;
        look(&o);
        to = does_nothing(&o) ? graph : rewrite(&o);
    } else {
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu values", values);
    }
    WEFT_OS->free(o.real);
    WEFT_OS->free(o.same);
    WEFT_OS->free(o.constant);
    return to;
}
