/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must come before what in a graph: the node that makes a value before those that use it, readers of a storage
 * before the node that changes it, and effects as they are.  For passes that move nodes.
 */
#ifndef WEFT_GRAPH_ORDER_H
#define WEFT_GRAPH_ORDER_H

#include "graph/ir/graph.h"

typedef struct weft_i_graph_order {
    int *starts, *on; /* node i comes after the nodes on[starts[i]] ... on[starts[i + 1] - 1] */
} weft_i_graph_order;

typedef enum weft_i_graph_chain {
    /* Effects, collectives, waits, draws and changes of what the caller sees stay in their order. */
    WEFT_I_CHAIN_ALL,
    /* Collectives among themselves, and gradients that are handed out or added to leaves among
     * themselves; waits go where they like, and all of them stay on their side of other effects. */
    WEFT_I_CHAIN_COLLECTIVES
} weft_i_graph_chain;

/* There are about as many edges as arguments. */
weft_status weft_i_graph_order_find(const weft_graph *graph, weft_i_graph_chain chain,
                                    weft_i_graph_order *out);
void weft_i_graph_order_clear(weft_i_graph_order *order);

/*
 * The most bytes that are in use at once if the nodes run in this order (NULL: as they are), values
 * that nobody needs being let go of at once.  Operands of a collective live until its waits, and
 * outputs to the end; inputs do not count.  `*peak` is set unless memory runs out.
 */
weft_status weft_i_graph_order_peak(const weft_graph *graph, const int *order, size_t *peak);

#endif
