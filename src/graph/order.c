/* SPDX-License-Identifier: Apache-2.0 */
/* What must come before what; see order.h. */
#include "graph/order.h"

#include "base/os.h"

#include <string.h>

typedef struct finding {
    const weft_graph *graph;
    weft_i_graph_order *out;
    int count, room;
    int *writer; /* of each storage: who changed it last; -1: nobody */
    int *made;   /* of each storage: who made it; -1: it is an input's or a constant's */
    int chained; /* the last of the chain; -1: none */
} finding;

static weft_status add(finding *f, int on)
{
    if (on < 0)
        return WEFT_OK;
    if (f->count == f->room) {
        int room = f->room ? 2 * f->room : 64;
        int *bigger = WEFT_OS->resize(f->out->on, (size_t)room * sizeof *bigger);
        if (!bigger)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the order of \"%s\"",
                               f->graph->name);
        f->out->on = bigger;
        f->room = room;
    }
    f->out->on[f->count++] = on;
    return WEFT_OK;
}

static bool reads(const weft_graph *graph, const weft_i_graph_node *node, int storage)
{
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        if (graph->values[value].storage == storage)
            return true;
    return false;
}

/* A change comes after all that read the storage since it was made or changed last. */
static weft_status follow_readers(finding *f, int i, int storage)
{
    const weft_graph *graph = f->graph;
    int from = f->writer[storage] > f->made[storage] ? f->writer[storage] : f->made[storage];
    for (int k = from < 0 ? 0 : from; k < i; k++)
        if (reads(graph, &graph->nodes[k], storage))
            WEFT_TRY(add(f, k));
    return WEFT_OK;
}

bool weft_i_graph_order_is_chained(const weft_graph *graph, const weft_i_graph_node *node)
{
    (void)graph;
    return weft_i_graph_node_has_effect(node) || weft_i_graph_node_is_collective(node) ||
           node->op->changes || node->into >= 0;
}

static weft_status follow(finding *f, int i)
{
    const weft_graph *graph = f->graph;
    const weft_i_graph_node *node = &graph->nodes[i];
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        WEFT_TRY(add(f, graph->values[value].node));
        WEFT_TRY(add(f, f->writer[graph->values[value].storage]));
    }
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k),
            storage = graph->values[node->first + k].storage;
        if (same < 0)
            continue;
        WEFT_TRY(follow_readers(f, i, graph->values[same].storage));
        f->writer[graph->values[same].storage] = i;
        if (storage >= 0 && storage != graph->values[same].storage)
            f->writer[storage] = i;
    }
    if (weft_i_graph_order_is_chained(graph, node)) {
        WEFT_TRY(add(f, f->chained));
        f->chained = i;
    }
    return WEFT_OK;
}

static weft_status find_all(finding *f)
{
    const weft_graph *graph = f->graph;
    for (int i = 0; i < graph->node_count; i++) {
        f->out->starts[i] = f->count;
        WEFT_TRY(follow(f, i));
        for (int k = 0; k < graph->nodes[i].count; k++) {
            const weft_i_graph_value *made = &graph->values[graph->nodes[i].first + k];
            if (!made->absent && f->made[made->storage] < 0)
                f->made[made->storage] = i;
        }
    }
    f->out->starts[graph->node_count] = f->count;
    return WEFT_OK;
}

weft_status weft_i_graph_order_find(const weft_graph *graph, weft_i_graph_order *out)
{
    size_t storages = (size_t)graph->storages + 1;
    finding f = {.graph = graph, .out = out, .chained = -1};
    out->on = NULL;
    out->starts = WEFT_OS->alloc(((size_t)graph->node_count + 1) * sizeof *out->starts);
    f.writer = WEFT_OS->alloc(2 * storages * sizeof *f.writer);
    weft_status status = WEFT_OK;
    if (!out->starts || !f.writer)
        status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the order of \"%s\"", graph->name);
    else {
        memset(f.writer, 0xff, 2 * storages * sizeof *f.writer);
        f.made = f.writer + storages;
        status = find_all(&f);
    }
    WEFT_OS->free(f.writer);
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
