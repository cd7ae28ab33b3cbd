/* SPDX-License-Identifier: Apache-2.0 */
/* Placing values in an arena, by a linear scan over the nodes; see plan.h. */
#include "graph/emit/plan.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "graph/emit/emit.h"
#include "tensor/op/ops.h"

#include <string.h>

enum { ALIGNMENT = 64 };

typedef struct place {
    size_t at, bytes;
    int storage;
} place;

typedef struct planning {
    const weft_graph *graph;
    weft_i_plan *out;
    bool *fixed; /* of each storage: it has memory of its own */
    int *first,
        *last;     /* of each storage: who makes it, who uses it last; -1: it is not made here */
    size_t *bytes; /* of each storage */
    weft_device *devices;             /* of each storage that is made here */
    int64_t *placed;                  /* of each storage; -1: nowhere yet */
    int *comm;                        /* of each storage: its communication buffer; -1: none */
    size_t top;                       /* the arena up to here was in use before */
    const weft_i_graph_node **wanted; /* of each storage: who wants it in symmetric memory */
    place *live;                      /* places in use, by where they are */
    int live_count;
} planning;

/* By their own layout. */
static bool only_reads(const weft_i_graph_node *node)
{
    const weft_i_op *op = node->op;
    if (op == &weft_i_op_as_strided || op == &weft_i_op_view_scatter || op == &weft_i_op_view_dtype)
        return false; /* count from the beginning of the storage */
    if (weft_i_emit_row_is(op))
        return true;
    return !weft_i_graph_node_is_collective(node) && !weft_i_graph_node_has_effect(node) &&
           !op->changes && node->into < 0 && !(op->flags & (WEFT_I_OP_LAYOUT | WEFT_I_OP_EFFECT));
}

static void fix(planning *p, int value)
{
    if (value >= 0 && !p->graph->values[value].absent)
        p->fixed[p->graph->values[value].storage] = true;
}

/* Rows of this floor and the tensors' keep nothing; of those above nobody knows. */
static bool is_ours(const weft_i_graph_node *node)
{
    return weft_i_emit_row_is(node->op) || node->op->flags & WEFT_I_OP_VIEW ||
           node->op == &weft_i_op_mm || node->op == &weft_i_op_bmm ||
           node->op == &weft_i_op_linear || node->op == &weft_i_op_cat ||
           node->op == &weft_i_op_embedding || node->op == &weft_i_op_layer_norm ||
           node->op == &weft_i_op_layer_norm_grad || node->op->run[0] == weft_i_pointwise_run ||
           node->op->run[0] == weft_i_reduce_row_run || node->op->run[0] == weft_i_softmax_run ||
           node->op->run[0] == weft_i_softmax_grad_run || node->op->run[0] == weft_i_clone_run;
}

bool weft_i_plan_is_told(const weft_i_graph_node *node)
{
    enum { NEVER = WEFT_I_OP_LIST | WEFT_I_OP_RANDOM | WEFT_I_OP_VIEW | WEFT_I_OP_LAYOUT };
    if (weft_i_emit_row_is(node->op))
        return true;
    return !(node->op->flags & NEVER) && !node->op->changes && node->into < 0 && node->count == 1 &&
           (node->op->flags & WEFT_I_OP_STRIDED || is_ours(node));
}

/* Collectives on symmetric memory are done when they return. */
bool weft_i_plan_only_reads(const weft_i_graph_node *node)
{
    return (only_reads(node) && is_ours(node)) ||
           (weft_i_graph_node_is_collective(node) && !weft_i_graph_node_is_posted(node));
}

/* Notes what the node wants in symmetric memory. */
static void want(planning *p, const weft_i_graph_node *node)
{
    for (int i = -1; (i = weft_i_graph_node_symmetric(node, i + 1)) >= 0;)
        p->wanted[p->graph->values[node->terms[i].value].storage] = node;
    if (node->op->flags & WEFT_I_OP_PLACED && !node->op->changes)
        p->wanted[p->graph->values[node->first].storage] = node;
}

static void look_at(planning *p, int i)
{
    const weft_graph *graph = p->graph;
    const weft_i_graph_node *node = &graph->nodes[i];
    bool reads = weft_i_plan_only_reads(node), told = weft_i_plan_is_told(node);
    int value;
    want(p, node);
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        int storage = graph->values[value].storage;
        p->last[storage] = i;
        if (!reads && p->wanted[storage] != node)
            fix(p, value);
    }
    for (int k = 0; k < node->count; k++) {
        const weft_i_graph_value *made = &graph->values[node->first + k];
        if (made->absent)
            continue;
        if (p->first[made->storage] < 0) {
            p->first[made->storage] = i;
            p->bytes[made->storage] = made->bytes;
            p->devices[made->storage] = made->device;
            if (!told || made->offset || made->device != p->out->device || !made->bytes)
                p->fixed[made->storage] = true;
        }
        p->last[made->storage] = i > p->last[made->storage] ? i : p->last[made->storage];
        p->bytes[made->storage] =
            made->bytes > p->bytes[made->storage] ? made->bytes : p->bytes[made->storage];
    }
}

/* The device whose memory the arena is of: the one that is not the CPU, if there is one. */
static weft_device arena_device(const weft_graph *graph)
{
    for (int i = 0; i < graph->value_count; i++)
        if (graph->values[i].node >= 0 && !graph->values[i].absent &&
            graph->values[i].device != WEFT_CPU && graph->values[i].device != WEFT_META)
            return graph->values[i].device;
    return WEFT_CPU;
}

static void look_at_all(planning *p)
{
    const weft_graph *graph = p->graph;
    p->out->device = arena_device(graph);
    for (int i = 0; i < graph->input_count; i++)
        fix(p, graph->inputs[i].value);
    for (int i = 0; i < graph->constant_count; i++)
        fix(p, graph->constants[i].value);
    for (int i = 0; i < graph->node_count; i++)
        look_at(p, i);
    for (int i = 0; i < graph->output_count; i++) {
        fix(p, graph->outputs[i]);
        p->last[graph->values[graph->outputs[i]].storage] = graph->node_count;
    }
}

/* ---- placing ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The first gap that is large enough. */
static void put(planning *p, int storage)
{
    size_t bytes = rounded(p->bytes[storage]), at = 0;
    int i = 0;
    while (i < p->live_count && p->live[i].at - at < bytes) {
        at = p->live[i].at + p->live[i].bytes;
        i++;
    }
    WEFT_ASSERT(i == p->live_count ||
                at + bytes <= p->live[i].at); /* nothing that lives lies there */
    memmove(p->live + i + 1, p->live + i, (size_t)(p->live_count - i) * sizeof *p->live);
    WEFT_ASSERT(p->live_count < p->graph->storages && at % ALIGNMENT == 0);
    p->live[i] = (place){at, bytes, storage};
    p->live_count++;
    p->placed[storage] = (int64_t)at;
    p->out->reused += at < p->top;
    p->out->from = p->first[storage] < p->out->from ? p->first[storage] : p->out->from;
    p->out->until = p->last[storage] > p->out->until ? p->last[storage] : p->out->until;
    p->top = at + bytes > p->top ? at + bytes : p->top;
    p->out->bytes = at + bytes > p->out->bytes ? at + bytes : p->out->bytes;
}

static void take_away(planning *p, int node)
{
    int kept = 0;
    for (int i = 0; i < p->live_count; i++)
        if (p->last[p->live[i].storage] > node)
            p->live[kept++] = p->live[i];
    p->live_count = kept;
}

static bool same_layout(const weft_i_graph_value *a, const weft_i_graph_value *b)
{
    if (a->dtype != b->dtype || a->shape.ndim != b->shape.ndim || a->bytes != b->bytes || b->offset)
        return false;
    for (int d = 0; d < a->shape.ndim; d++)
        if (a->shape.dim[d] != b->shape.dim[d] ||
            (a->shape.dim[d] > 1 && a->stride[d] != b->stride[d]))
            return false;
    return true;
}

/* How many operands of the node lie in the storage. */
static int operands_in(const weft_graph *graph, const weft_i_graph_node *node, int storage)
{
    int value, count = 0;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        count += graph->values[value].storage == storage;
    return count;
}

/* The operand that dies here and lies like the result: its place becomes the result's. */
static bool put_over(planning *p, int i, int made)
{
    const weft_graph *graph = p->graph;
    const weft_i_graph_node *node = &graph->nodes[i];
    int value, storage = graph->values[made].storage;
    if (!weft_i_emit_row_is(node->op) || !weft_i_emit_row_in_place(node->op))
        return false;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        const weft_i_graph_value *from = &graph->values[value];
        if (p->fixed[from->storage] || p->placed[from->storage] < 0 ||
            p->last[from->storage] != i || !same_layout(&graph->values[made], from) ||
            operands_in(graph, node, from->storage) != 1)
            continue;
        for (int k = 0; k < p->live_count; k++)
            if (p->live[k].storage == from->storage) {
                p->live[k].storage = storage;
                p->placed[storage] = p->placed[from->storage];
                p->out->until = p->last[storage] > p->out->until ? p->last[storage] : p->out->until;
                p->out->in_place++;
                return true;
            }
    }
    return false;
}

/* ---- communication buffers ---- */

/* One that is free at node `i`: the smallest that is large enough, else the largest, which grows. */
static int free_buffer(const planning *p, const weft_i_comm_buffer *like, int i)
{
    int best = -1;
    for (int k = 0; k < p->out->symmetric_count; k++) {
        const weft_i_comm_buffer *b = &p->out->symmetric[k];
        if (b->group != like->group || b->device != like->device || b->until >= i)
            continue;
        const weft_i_comm_buffer *was = best < 0 ? NULL : &p->out->symmetric[best];
        bool fits = b->bytes >= like->bytes;
        if (!was ||
            (was->bytes < like->bytes ? b->bytes > was->bytes : fits && b->bytes < was->bytes))
            best = k;
    }
    return best;
}

static void put_symmetric(planning *p, int storage, int i)
{
    const weft_i_graph_term *group = weft_i_graph_node_group(p->wanted[storage]);
    weft_i_comm_buffer like = {.group = group ? group->group.handle : NULL,
                               .name = group ? group->group.name : "",
                               .device = p->devices[storage],
                               .bytes = rounded(p->bytes[storage])};
    int at = free_buffer(p, &like, i);
    if (at < 0) {
        at = p->out->symmetric_count++;
        p->out->symmetric[at] = like;
    }
    weft_i_comm_buffer *b = &p->out->symmetric[at];
    WEFT_ASSERT(!b->values || b->until < i); /* what lay there is not needed any more */
    b->bytes = like.bytes > b->bytes ? like.bytes : b->bytes;
    b->until = p->last[storage];
    b->values++;
    p->comm[storage] = at;
}

static void place_all(planning *p)
{
    const weft_graph *graph = p->graph;
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        for (int k = 0; k < node->count; k++) {
            const weft_i_graph_value *made = &graph->values[node->first + k];
            if (made->absent || p->fixed[made->storage] || p->first[made->storage] != i ||
                p->placed[made->storage] >= 0 || p->comm[made->storage] >= 0)
                continue;
            if (p->wanted[made->storage]) {
                put_symmetric(p, made->storage, i);
                continue;
            }
            p->out->buffers++;
            if (!put_over(p, i, node->first + k))
                put(p, made->storage);
        }
        take_away(p, i);
    }
}

/* ---- is it worth it ---- */

/* The most bytes in use at once: with the plan, the arena stands for what lies in it. */
static size_t peak_of(const planning *p, bool planned)
{
    const weft_graph *graph = p->graph;
    size_t peak = 0;
    for (int i = 0; i < graph->node_count; i++) {
        bool open = planned && i >= p->out->from && i <= p->out->until;
        size_t now = open ? p->out->bytes : 0;
        for (int s = 0; s < graph->storages; s++)
            if (p->first[s] >= 0 && p->first[s] <= i && p->last[s] >= i && p->comm[s] < 0 &&
                (!planned || p->placed[s] < 0))
                now += p->bytes[s];
        peak = now > peak ? now : peak;
    }
    return peak;
}

/* Values that make their storage have its place. */
static void tell_values(planning *p)
{
    const weft_graph *graph = p->graph;
    for (int i = 0; i < graph->value_count; i++) {
        const weft_i_graph_value *value = &graph->values[i];
        if (value->absent || value->node < 0 || p->first[value->storage] != value->node)
            continue;
        p->out->at[i] = p->out->bytes ? p->placed[value->storage] : -1;
        p->out->comm[i] = p->comm[value->storage];
    }
}

static void finish(planning *p)
{
    p->out->free = p->out->peak = peak_of(p, false);
    if (p->out->bytes)
        p->out->peak = peak_of(p, true);
    /* An arena lives as long as a value in it, so what is made meanwhile adds to it: little may.
     * Eager itself keeps all until a scope closes. */
    if (p->out->peak > p->out->free + p->out->free / 64) {
        p->out->peak = p->out->free;
        p->out->bytes = 0;
    }
    tell_values(p);
}

static weft_status make_room(planning *p)
{
    const weft_graph *graph = p->graph;
    weft_i_plan *out = p->out;
    size_t storages = (size_t)graph->storages + 1, values = (size_t)graph->value_count + 1;
    *out = (weft_i_plan){.from = graph->node_count,
                         .at = WEFT_OS->alloc(values * (sizeof *out->at + sizeof *out->comm)),
                         .symmetric = WEFT_OS->alloc(storages * sizeof *out->symmetric)};
    p->live =
        WEFT_OS->alloc(storages * (sizeof *p->live + sizeof *p->wanted + sizeof *p->bytes +
                                   sizeof *p->placed + 4 * sizeof *p->first + sizeof *p->fixed));
    if (!p->live || !out->at || !out->symmetric)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to plan %d values", graph->value_count);
    out->comm = (int *)(out->at + values);
    p->wanted = (const weft_i_graph_node **)(void *)(p->live + storages);
    p->bytes = (size_t *)(p->wanted + storages);
    p->placed = (int64_t *)(p->bytes + storages);
    p->first = (int *)(p->placed + storages);
    p->last = p->first + storages;
    p->comm = p->last + storages;
    p->devices = p->comm + storages;
    p->fixed = (bool *)(p->devices + storages);
    memset(p->placed, 0xff, storages * (sizeof *p->placed + 3 * sizeof *p->first));
    memset(out->at, 0xff, values * (sizeof *out->at + sizeof *out->comm));
    return WEFT_OK;
}

weft_status weft_i_plan_make(const weft_graph *graph, weft_i_plan *out)
{
    planning p = {.graph = graph, .out = out};
    weft_status status = make_room(&p);
    if (status >= 0) {
        look_at_all(&p);
        place_all(&p);
        finish(&p);
    }
    WEFT_OS->free(p.live);
    return status;
}

void weft_i_plan_clear(weft_i_plan *plan)
{
    weft_i_comm_forget(plan->symmetric, plan->symmetric_count);
    WEFT_OS->free(plan->symmetric);
    WEFT_OS->free(plan->at);
    *plan = (weft_i_plan){0};
}

static void put_symmetric_text(const weft_i_plan *plan, const weft_graph *graph, weft_i_text *s)
{
    for (int i = 0; i < plan->symmetric_count; i++) {
        const weft_i_comm_buffer *b = &plan->symmetric[i];
        weft_i_text_put(s, "  symmetric buffer %d: %zu bytes, group \"%s\", holds", i, b->bytes,
                        b->name);
        for (int k = 0; k < graph->value_count; k++)
            if (plan->comm[k] == i)
                weft_i_text_put(s, " %%%d", k);
        if (b->id)
            weft_i_text_put(s, ", id %llx", (unsigned long long)b->id);
        weft_i_text_put(s, "\n");
    }
}

void weft_i_plan_text(const weft_i_plan *plan, const weft_graph *graph, weft_i_text *s)
{
    bool any = plan->bytes > 0;
    weft_i_text_put(
        s,
        "  plan: %d values in an arena of %zu bytes, %d in place, %d where others were; "
        "at most %zu bytes in use, %zu without it\n",
        any ? plan->buffers : 0, plan->bytes, any ? plan->in_place : 0, any ? plan->reused : 0,
        plan->peak, plan->free);
    put_symmetric_text(plan, graph, s);
}
