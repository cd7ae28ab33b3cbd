/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a graph with collectives: each is started as soon as its operands are there, and
 * waited for as late as its first user allows, so that it runs behind what is computed meanwhile.
 * No two collectives are swapped: all ranks issue the same order.
 *
 * The nodes that are due are drawn from a heap: first those that feed the earliest collective, waits last,
 * otherwise as captured.  Where the next one would need more memory than the captured order has at
 * its peak, the earliest of the captured order is drawn instead, from a second heap.  If the whole
 * needs more all the same, only waits are sunk; if that does too, the order stays.  A node is pushed
 * and drawn once in each heap, so the time grows like n log n.
 */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/text.h"
#include "functional/ops.h"
#include "graph/ir/order.h"
#include "graph/pass/passes.h"

#include <string.h>

typedef struct heap {
    int *at;
    int count;
    bool plain; /* by place alone */
} heap;

typedef struct scheduling {
    weft_graph *graph;
    weft_i_graph_order order;
    int *after, *next; /* who comes after each node: next[after[i]] ... next[after[i + 1] - 1] */
    int *missing;      /* of each node: so many must be done before it */
    int *blocks;       /* of each node: the first collective that needs it; node_count: none */
    int *uses;         /* of each storage: so many nodes still need it; outputs have one more */
    int *result;
    bool *done, *made; /* of each node; of each storage */
    heap wished, plain;
    bool raise;
    size_t now, most; /* bytes */
} scheduling;

static bool is_wait(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_wait_tensor;
}

/* ---- who goes first ---- */

static bool goes_first(const scheduling *s, const heap *h, int a, int b)
{
    bool wait_a = is_wait(&s->graph->nodes[a]), wait_b = is_wait(&s->graph->nodes[b]);
    if (h->plain)
        return a < b;
    if (s->raise && s->blocks[a] != s->blocks[b])
        return s->blocks[a] < s->blocks[b];
    return wait_a != wait_b ? wait_b : a < b;
}

static void push(const scheduling *s, heap *h, int node)
{
    WEFT_ASSERT(h->count < s->graph->node_count); /* each node comes once */
    int i = h->count++;
    for (; i > 0 && goes_first(s, h, node, h->at[(i - 1) / 2]); i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = node;
}

static void pop(const scheduling *s, heap *h)
{
    int moved = h->at[--h->count], i = 0;
    for (int child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && goes_first(s, h, h->at[child + 1], h->at[child]))
            child++;
        if (!goes_first(s, h, h->at[child], moved))
            break;
        h->at[i] = h->at[child];
    }
    h->at[i] = moved;
}

/* The first that is not done: the other heap may have given it. */
static int top(const scheduling *s, heap *h)
{
    while (h->count && s->done[h->at[0]])
        pop(s, h);
    return h->count ? h->at[0] : -1;
}

/* ---- memory ---- */

/* Bytes that the node makes. */
static size_t made_by(const scheduling *s, int i)
{
    const weft_i_graph_node *node = &s->graph->nodes[i];
    size_t bytes = 0;
    for (int k = 0; k < node->count; k++) {
        const weft_i_graph_value *made = &s->graph->values[node->first + k];
        if (!made->absent && !s->made[made->storage])
            bytes += made->bytes;
    }
    return bytes;
}

/* A wait needs what its collective reads. */
static const weft_i_graph_node *start_of(const weft_graph *graph, const weft_i_graph_node *node)
{
    int start = is_wait(node) ? graph->values[node->terms[0].value].node : -1;
    return start < 0 ? NULL : &graph->nodes[start];
}

static void count_uses(scheduling *s, const weft_i_graph_node *node, int by)
{
    int value;
    for (size_t at = 0; node && weft_i_graph_node_next(node, &at, &value);) {
        const weft_i_graph_value *v = &s->graph->values[value];
        s->uses[v->storage] += by;
        WEFT_ASSERT(s->uses[v->storage] >= 0);
        if (by < 0 && !s->uses[v->storage] && s->made[v->storage])
            s->now -= v->bytes < s->now ? v->bytes : s->now;
    }
}

static void begin_memory(scheduling *s)
{
    const weft_graph *graph = s->graph;
    memset(s->uses, 0, (size_t)graph->storages * sizeof *s->uses);
    memset(s->made, 0, (size_t)graph->storages);
    s->now = 0;
    for (int i = 0; i < graph->node_count; i++) {
        count_uses(s, &graph->nodes[i], 1);
        count_uses(s, start_of(graph, &graph->nodes[i]), 1);
    }
    for (int i = 0; i < graph->output_count; i++)
        s->uses[graph->values[graph->outputs[i]].storage]++;
    for (int i = 0; i < graph->value_count; i++) /* of inputs and constants nothing is counted */
        if (graph->values[i].node < 0)
            s->uses[graph->values[i].storage] = graph->node_count * 4 + 4;
}

/* ---- drawing ---- */

static void finish(scheduling *s, int i)
{
    const weft_i_graph_node *node = &s->graph->nodes[i];
    s->done[i] = true;
    s->now += made_by(s, i);
    for (int k = 0; k < node->count; k++)
        if (!s->graph->values[node->first + k].absent)
            s->made[s->graph->values[node->first + k].storage] = true;
    count_uses(s, node, -1);
    count_uses(s, start_of(s->graph, node), -1);
    for (int e = s->after[i]; e < s->after[i + 1]; e++)
        if (--s->missing[s->next[e]] == 0) {
            push(s, &s->wished, s->next[e]);
            push(s, &s->plain, s->next[e]);
        }
}

static void arrange(scheduling *s, bool raise)
{
    int count = s->graph->node_count;
    s->raise = raise;
    s->wished = (heap){s->wished.at, 0, false};
    s->plain = (heap){s->plain.at, 0, true};
    memset(s->done, 0, (size_t)count);
    begin_memory(s);
    for (int i = 0; i < count; i++)
        if (!(s->missing[i] = s->order.starts[i + 1] - s->order.starts[i])) {
            push(s, &s->wished, i);
            push(s, &s->plain, i);
        }
    for (int at = 0; at < count; at++) {
        int node = top(s, &s->wished); /* there is one: the order has no circles */
        if (s->now + made_by(s, node) > s->most)
            node = top(s, &s->plain);
        WEFT_ASSERT(node >= 0 && !s->done[node] && !s->missing[node]);
        s->result[at] = node;
        finish(s, node);
    }
}

/* ---- looking at the graph ---- */

static void find_blocks(scheduling *s)
{
    int count = s->graph->node_count;
    for (int i = 0; i < count; i++)
        s->blocks[i] = count;
    for (int i = count - 1; i >= 0; i--) {
        if (weft_i_graph_node_is_collective(&s->graph->nodes[i]))
            s->blocks[i] = i;
        for (int e = s->order.starts[i]; e < s->order.starts[i + 1]; e++)
            if (s->blocks[s->order.on[e]] > s->blocks[i])
                s->blocks[s->order.on[e]] = s->blocks[i];
    }
}

/* The edges the other way round. */
static void turn_edges(scheduling *s)
{
    int count = s->graph->node_count, edges = s->order.starts[count];
    memset(s->after, 0, ((size_t)count + 1) * sizeof *s->after);
    for (int e = 0; e < edges; e++)
        s->after[s->order.on[e]]++;
    for (int i = 0, sum = 0; i <= count; i++) {
        sum += i < count ? s->after[i] : 0;
        s->after[i] = sum; /* the end; filled from behind */
    }
    for (int i = 0; i < count; i++)
        for (int e = s->order.starts[i]; e < s->order.starts[i + 1]; e++)
            s->next[--s->after[s->order.on[e]]] = i;
}

/* ---- the pass ---- */

static weft_graph *rebuild(scheduling *s, const char *how, size_t before, size_t after)
{
    int count = s->graph->node_count, moved = 0;
    weft_i_graph_step *steps = WEFT_OS->alloc(((size_t)count + 1) * sizeof *steps);
    if (!steps)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to order %d nodes", count);
    for (int i = 0; i < count; i++) {
        steps[i].node = s->result[i];
        moved += s->result[i] != i;
    }
    weft_graph *to = weft_i_graph_rebuild_steps(s->graph, steps, count);
    WEFT_OS->free(steps);
    char line[200];
    weft_i_text text = {line, sizeof line, 0};
    weft_i_text_put(&text, "  schedule: %s, %d nodes moved; at most %zu bytes in use, were %zu\n",
                    how, moved, after, before);
    if (to && weft_i_graph_add_notes(to, line) < 0) {
        weft_release(to);
        return NULL;
    }
    return to;
}

static weft_graph *choose(scheduling *s)
{
    size_t after;
    if (weft_i_graph_order_peak(s->graph, NULL, &s->most) < 0)
        return NULL;
    find_blocks(s);
    turn_edges(s);
    for (int raise = 1; raise >= 0; raise--) {
        arrange(s, raise);
        if (weft_i_graph_order_peak(s->graph, s->result, &after) < 0)
            return NULL;
        if (after <= s->most)
            return rebuild(s, raise ? "collectives raised, waits sunk" : "waits sunk", s->most,
                           after);
    }
    for (int i = 0; i < s->graph->node_count; i++)
        s->result[i] = i;
    return rebuild(s, "as captured: another order needs more memory", s->most, s->most);
}

static weft_graph *schedule(scheduling *s)
{
    size_t nodes = (size_t)s->graph->node_count + 1, storages = (size_t)s->graph->storages + 1,
           edges = (size_t)s->order.starts[s->graph->node_count] + 1;
    int *room = WEFT_OS->alloc((6 * nodes + storages + edges) * sizeof *room + nodes + storages);
    if (!room)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to order %zu nodes", nodes - 1);
    s->blocks = room;
    s->result = s->blocks + nodes;
    s->missing = s->result + nodes;
    s->after = s->missing + nodes;
    s->wished.at = s->after + nodes;
    s->plain.at = s->wished.at + nodes;
    s->uses = s->plain.at + nodes;
    s->next = s->uses + storages;
    s->done = (bool *)(s->next + edges);
    s->made = s->done + nodes;
    weft_graph *to = choose(s);
    WEFT_OS->free(room);
    return to;
}

weft_graph *weft_i_graph_pass_schedule(weft_graph *graph)
{
    scheduling s = {.graph = graph};
    bool any = false;
    for (int i = 0; i < graph->node_count; i++)
        any |= weft_i_graph_node_is_collective(&graph->nodes[i]);
    if (!any)
        return graph;
    if (weft_i_graph_order_find(graph, WEFT_I_CHAIN_COLLECTIVES, &s.order) < 0)
        return NULL;
    weft_graph *to = schedule(&s);
    weft_i_graph_order_clear(&s.order);
    return to;
}
