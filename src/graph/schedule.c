/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a graph with collectives: each is started as soon as its operands are there, and
 * waited for as late as its first user allows, so that it runs behind what is computed meanwhile.
 * No two collectives are swapped, nor are effects: all ranks issue the same order.  If the new order
 * needs more memory at its peak, waits are sunk only; if that does too, the order stays.
 */
#include "base/os.h"
#include "base/text.h"
#include "functional/ops.h"
#include "graph/order.h"
#include "graph/pass.h"

#include <string.h>

typedef struct scheduling {
    weft_graph *graph;
    weft_i_graph_order order;
    int *blocks; /* of each node: the first collective that needs it, by its place; node_count: none
                  */
    int *result;
    bool *done;
} scheduling;

static bool is_wait(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_wait_tensor;
}

static bool is_start(const weft_i_graph_node *node)
{
    return weft_i_graph_node_is_collective(node);
}

/* An edge between a wait and a collective that only keeps effects in order: starts may pass waits of
 * others, and waits starts. */
static bool is_crossed(const scheduling *s, int on, int by)
{
    const weft_graph *graph = s->graph;
    const weft_i_graph_node *a = &graph->nodes[on], *b = &graph->nodes[by];
    int value, other;
    if (!((is_wait(a) && (is_start(b) || is_wait(b))) || (is_start(a) && is_wait(b))))
        return false;
    for (size_t at = 0; weft_i_graph_node_next(b, &at, &value);)
        for (size_t to = 0; weft_i_graph_node_next(a, &to, &other);)
            if (graph->values[value].storage == graph->values[other].storage)
                return false;
    for (size_t at = 0; weft_i_graph_node_next(b, &at, &value);)
        for (int k = 0; k < a->count; k++)
            if (graph->values[value].storage == graph->values[a->first + k].storage)
                return false;
    return true;
}

/* Whether `i` comes after what is not done.  The chain of effects is one: who crosses its
 * predecessor still comes after the one before. */
static bool is_due(const scheduling *s, int i)
{
    for (int e = s->order.starts[i]; e < s->order.starts[i + 1]; e++)
        if (!s->done[s->order.on[e]] && !is_crossed(s, s->order.on[e], i))
            return false;
    for (int k = 0; k < i; k++) { /* what the crossed edges stood for */
        const weft_i_graph_node *a = &s->graph->nodes[k], *b = &s->graph->nodes[i];
        if (s->done[k] || !weft_i_graph_order_is_chained(s->graph, a) ||
            !weft_i_graph_order_is_chained(s->graph, b))
            continue;
        if (!is_crossed(s, k, i))
            return false;
    }
    return true;
}

static void find_blocks(scheduling *s)
{
    int count = s->graph->node_count;
    for (int i = 0; i < count; i++)
        s->blocks[i] = count;
    for (int i = count - 1; i >= 0; i--) {
        if (is_start(&s->graph->nodes[i]))
            s->blocks[i] = i;
        for (int e = s->order.starts[i]; e < s->order.starts[i + 1]; e++)
            if (!is_crossed(s, s->order.on[e], i) && s->blocks[s->order.on[e]] > s->blocks[i])
                s->blocks[s->order.on[e]] = s->blocks[i];
    }
}

/* Whether `a` goes first: who feeds the earlier collective, then who is no wait, then as they were.
 * Without raising, only waits move. */
static bool goes_first(const scheduling *s, int a, int b, bool raise)
{
    bool wait_a = is_wait(&s->graph->nodes[a]), wait_b = is_wait(&s->graph->nodes[b]);
    if (raise && s->blocks[a] != s->blocks[b])
        return s->blocks[a] < s->blocks[b];
    return wait_a != wait_b ? wait_b : a < b;
}

static void arrange(scheduling *s, bool raise)
{
    int count = s->graph->node_count;
    memset(s->done, 0, (size_t)count);
    for (int at = 0; at < count; at++) {
        int best = -1;
        for (int i = 0; i < count; i++)
            if (!s->done[i] && (best < 0 || goes_first(s, i, best, raise)) && is_due(s, i))
                best = i;
        s->done[best] = true; /* the first that is not done is always due */
        s->result[at] = best;
    }
}

/* ---- memory ---- */

/* The most bytes that are alive at once in this order (NULL: as it is); operands of a collective
 * live until its wait. */
static size_t peak_of(const weft_graph *graph, const int *order, int *last, int *first)
{
    size_t peak = 0, now = 0;
    int value;
    memset(first, 0xff, (size_t)graph->storages * sizeof *first);
    memset(last, 0xff, (size_t)graph->storages * sizeof *last);
    for (int at = 0; at < graph->node_count; at++) {
        const weft_i_graph_node *node = &graph->nodes[order ? order[at] : at];
        for (size_t k = 0; weft_i_graph_node_next(node, &k, &value);)
            last[graph->values[value].storage] = at;
        if (is_wait(node)) { /* so does what the collective read */
            const weft_i_graph_node *start =
                &graph->nodes[graph->values[node->terms[0].value].node];
            for (size_t k = 0; graph->values[node->terms[0].value].node >= 0 &&
                               weft_i_graph_node_next(start, &k, &value);)
                last[graph->values[value].storage] = at;
        }
        for (int k = 0; k < node->count; k++) {
            const weft_i_graph_value *made = &graph->values[node->first + k];
            if (!made->absent && first[made->storage] < 0 && made->node >= 0)
                first[made->storage] = last[made->storage] = at;
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        last[graph->values[graph->outputs[i]].storage] = graph->node_count;
    for (int i = 0; i < graph->input_count; i++)
        first[graph->values[graph->inputs[i].value].storage] = -1;
    for (int at = 0; at < graph->node_count; at++, now = 0) {
        for (int i = 0; i < graph->value_count; i++) {
            const weft_i_graph_value *v = &graph->values[i];
            bool maker = !v->absent && v->node >= 0 && first[v->storage] >= 0 &&
                         (order ? order[first[v->storage]] : first[v->storage]) == v->node;
            if (maker && first[v->storage] <= at && last[v->storage] >= at)
                now += v->bytes;
        }
        peak = now > peak ? now : peak;
    }
    return peak;
}

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

static weft_graph *choose(scheduling *s, int *room)
{
    const weft_graph *graph = s->graph;
    int *last = room, *first = room + graph->storages;
    size_t before = peak_of(graph, NULL, last, first);
    for (int raise = 1; raise >= 0; raise--) {
        arrange(s, raise);
        size_t after = peak_of(graph, s->result, last, first);
        if (after <= before)
            return rebuild(s, raise ? "collectives raised, waits sunk" : "waits sunk", before,
                           after);
    }
    for (int i = 0; i < graph->node_count; i++)
        s->result[i] = i;
    return rebuild(s, "as captured: another order needs more memory", before, before);
}

weft_graph *weft_i_graph_pass_schedule(weft_graph *graph)
{
    scheduling s = {.graph = graph};
    size_t count = (size_t)graph->node_count + 1;
    bool any = false;
    for (int i = 0; i < graph->node_count; i++)
        any |= is_start(&graph->nodes[i]);
    if (!any)
        return graph;
    if (weft_i_graph_order_find(graph, &s.order) < 0)
        return NULL;
    int *room = WEFT_OS->alloc((3 * count + 2 * (size_t)graph->storages) * sizeof *room);
    weft_graph *to = NULL;
    if (room) {
        s.blocks = room;
        s.result = room + count;
        s.done = (bool *)(room + 2 * count);
        find_blocks(&s);
        to = choose(&s, room + 3 * count);
    } else
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to order %d nodes", graph->node_count);
    WEFT_OS->free(room);
    weft_i_graph_order_clear(&s.order);
    return to;
}
