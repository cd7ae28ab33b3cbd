/* SPDX-License-Identifier: Apache-2.0 */
/* What must come before what; see order.h. */
#include "graph/ir/order.h"

#include "base/os/os.h"
#include "functional/ops.h"
#include "grad/ops.h"
#include "symm_coll/ops.h"

#include <string.h>

typedef struct reading {
    int node, next; /* of the same storage; -1: none */
} reading;

/* What a node is to the chains. */
typedef enum role { FREE, COLLECTIVE, WAIT, GRADIENT, EFFECT } role;

typedef struct finding {
    const weft_graph *graph;
    weft_i_graph_chain chain;
    weft_i_graph_order *out;
    int count, room;
    int *writer;  /* of each storage: who changed it last; -1: nobody */
    int *readers; /* of each storage: the last reading since then; -1: none */
    reading *readings;
    int reading_count, reading_room;
    int last[EFFECT + 1]; /* of each kind; -1: none */
    int waits;            /* the last of the waits since the last effect, as a reading */
} finding;

static weft_status no_memory(const finding *f)
{
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the order of \"%s\"", f->graph->name);
}

static weft_status add(finding *f, int on)
{
    if (on < 0)
        return WEFT_OK;
    if (f->count == f->room) {
        int room = f->room ? 2 * f->room : 64;
        int *bigger = WEFT_OS->resize(f->out->on, (size_t)room * sizeof *bigger);
        if (!bigger)
            return no_memory(f);
        f->out->on = bigger;
        f->room = room;
    }
    f->out->on[f->count++] = on;
    return WEFT_OK;
}

/* Puts the node in front of a list. */
static weft_status push(finding *f, int *list, int node)
{
    if (f->reading_count == f->reading_room) {
        int room = f->reading_room ? 2 * f->reading_room : 64;
        reading *bigger = WEFT_OS->resize(f->readings, (size_t)room * sizeof *bigger);
        if (!bigger)
            return no_memory(f);
        f->readings = bigger;
        f->reading_room = room;
    }
    f->readings[f->reading_count] = (reading){node, *list};
    *list = f->reading_count++;
    return WEFT_OK;
}

/* After all of a list, which is empty then. */
static weft_status follow_list(finding *f, int *list, int node)
{
    for (int i = *list; i >= 0; i = f->readings[i].next)
        if (f->readings[i].node != node)
            WEFT_TRY(add(f, f->readings[i].node));
    *list = -1;
    return WEFT_OK;
}

/* ---- chains ---- */

static role role_of(const finding *f, const weft_i_graph_node *node)
{
    bool effect = weft_i_graph_node_has_effect(node) || node->op->changes || node->into >= 0;
    if (f->chain == WEFT_I_CHAIN_ALL)
        return effect || weft_i_graph_node_is_collective(node) ? EFFECT : FREE;
    if (node->op == &weft_i_op_wait_tensor)
        return WAIT;
    if (weft_i_graph_node_is_collective(node))
        return COLLECTIVE;
    if (node->op == &weft_i_op_hand_out || node->op == &weft_i_op_accumulate)
        return GRADIENT;
    return effect ? EFFECT : FREE;
}

static weft_status follow_chain(finding *f, int i)
{
    role kind = role_of(f, &f->graph->nodes[i]);
    if (kind == FREE)
        return WEFT_OK;
    WEFT_TRY(add(f, f->last[EFFECT]));
    if (kind == WAIT)
        return push(f, &f->waits, i);
    WEFT_TRY(kind == EFFECT ? WEFT_OK : add(f, f->last[kind]));
    if (kind == EFFECT) {
        WEFT_TRY(add(f, f->last[COLLECTIVE]));
        WEFT_TRY(add(f, f->last[GRADIENT]));
        WEFT_TRY(follow_list(f, &f->waits, i));
    }
    f->last[kind] = i;
    return WEFT_OK;
}

/* ---- storages ---- */

static weft_status follow(finding *f, int i)
{
    const weft_graph *graph = f->graph;
    const weft_i_graph_node *node = &graph->nodes[i];
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        int storage = graph->values[value].storage;
        WEFT_TRY(add(f, graph->values[value].node));
        WEFT_TRY(add(f, f->writer[storage]));
        WEFT_TRY(push(f, &f->readers[storage], i));
    }
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k);
        if (same < 0)
            continue;
        int from = graph->values[same].storage, to = graph->values[node->first + k].storage;
        WEFT_TRY(follow_list(f, &f->readers[from], i));
        f->writer[from] = i;
        if (to >= 0 && to != from)
            f->writer[to] = i;
    }
    return follow_chain(f, i);
}

weft_status weft_i_graph_order_find(const weft_graph *graph, weft_i_graph_chain chain,
                                    weft_i_graph_order *out)
{
    size_t storages = (size_t)graph->storages + 1;
    finding f = {.graph = graph, .chain = chain, .out = out, .waits = -1};
    out->on = NULL;
    out->starts = WEFT_OS->alloc(((size_t)graph->node_count + 1) * sizeof *out->starts);
    f.writer = WEFT_OS->alloc(2 * storages * sizeof *f.writer);
    weft_status status = out->starts && f.writer ? WEFT_OK : no_memory(&f);
    if (status >= 0) {
        memset(f.writer, 0xff, 2 * storages * sizeof *f.writer);
        memset(f.last, 0xff, sizeof f.last);
        f.readers = f.writer + storages;
    }
    for (int i = 0; status >= 0 && i < graph->node_count; i++) {
        out->starts[i] = f.count;
        status = follow(&f, i);
        out->starts[i + 1] = f.count;
    }
    if (status >= 0 && !graph->node_count)
        out->starts[0] = 0;
    WEFT_OS->free(f.writer);
    WEFT_OS->free(f.readings);
    if (status < 0)
        weft_i_graph_order_clear(out);
    return status;
}

void weft_i_graph_order_clear(weft_i_graph_order *order)
{
    WEFT_OS->free(order->starts);
    WEFT_OS->free(order->on);
    *order = (weft_i_graph_order){NULL, NULL};
}

/* ---- memory ---- */

typedef struct life {
    int first, last; /* by place; first < 0: not made here */
    size_t bytes;
} life;

static void use(life *lives, const weft_graph *graph, const weft_i_graph_node *node, int at)
{
    int value;
    for (size_t k = 0; weft_i_graph_node_next(node, &k, &value);)
        lives[graph->values[value].storage].last = at;
}

static void find_lives(const weft_graph *graph, const int *order, life *lives)
{
    for (int i = 0; i < graph->storages; i++)
        lives[i] = (life){-1, -1, 0};
    for (int at = 0; at < graph->node_count; at++) {
        const weft_i_graph_node *node = &graph->nodes[order ? order[at] : at];
        use(lives, graph, node, at);
        if (node->op == &weft_i_op_wait_tensor) { /* so is what the collective read */
            int start = graph->values[node->terms[0].value].node;
            if (start >= 0)
                use(lives, graph, &graph->nodes[start], at);
        }
        for (int k = 0; k < node->count; k++) {
            const weft_i_graph_value *made = &graph->values[node->first + k];
            life *l = made->absent ? NULL : &lives[made->storage];
            if (!l)
                continue;
            l->first = l->first < 0 && l->last < 0 ? at : l->first;
            l->last = at;
            l->bytes = made->bytes > l->bytes ? made->bytes : l->bytes;
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        lives[graph->values[graph->outputs[i]].storage].last = graph->node_count;
    for (int i = 0; i < graph->input_count; i++)
        lives[graph->values[graph->inputs[i].value].storage].first = -1;
}

weft_status weft_i_graph_order_peak(const weft_graph *graph, const int *order, size_t *peak)
{
    size_t nodes = (size_t)graph->node_count + 2;
    life *lives = WEFT_OS->alloc(((size_t)graph->storages + 1) * sizeof *lives);
    size_t *change = WEFT_OS->alloc(nodes * sizeof *change), now = 0;
    *peak = 0;
    if (lives && change) {
        find_lives(graph, order, lives);
        for (int i = 0; i < graph->storages; i++)
            if (lives[i].first >= 0) { /* modulo 2^64: what goes was there */
                change[lives[i].first] += lives[i].bytes;
                change[lives[i].last + 1] -= lives[i].bytes;
            }
        for (int i = 0; i < graph->node_count; i++) {
            now += change[i];
            *peak = now > *peak ? now : *peak;
        }
    }
    bool done = lives && change;
    WEFT_OS->free(lives);
    WEFT_OS->free(change);
    return done ? WEFT_OK
                : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to measure %d nodes",
                              graph->node_count);
}
