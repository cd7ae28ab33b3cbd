/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must come before what in a graph: who makes a value before who uses it, who reads a storage
 * before who changes it, and effects as they are.  For passes that move nodes.
 */
#ifndef WEFT_GRAPH_ORDER_H
#define WEFT_GRAPH_ORDER_H

#include "graph/graph.h"

typedef struct weft_i_graph_order {
    int *starts, *on; /* node i comes after the nodes on[starts[i]] ... on[starts[i + 1] - 1] */
} weft_i_graph_order;

weft_status weft_i_graph_order_find(const weft_graph *graph, weft_i_graph_order *out);
void weft_i_graph_order_clear(weft_i_graph_order *order);

/* Whether the node is one of those whose order among themselves stays: effects, collectives, waits,
 * draws and changes of what the caller sees. */
bool weft_i_graph_order_is_chained(const weft_graph *graph, const weft_i_graph_node *node);

#endif
