/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cut: what the forward half of a function saves for its backward.  Of all sets of values from
 * which backward can compute again what it needs, the one with the fewest bytes.
 *
 *  - Inputs that a gradient rule had saved anyway, and that are not changed, are free.
 *  - Views are never saved, but taken again; so are they of what is saved.
 *  - Computed again are pointwise operations, copies and makers.  Never collectives and their
 *    waits (ranks might decide differently), draws, effects, and what does more than one operation
 *    an element: matrix products, reductions.
 */
#ifndef WEFT_GRAPH_CUT_H
#define WEFT_GRAPH_CUT_H

#include "graph/ir/graph.h"

typedef struct weft_i_cut {
    int *saved; /* values of the graph; owned */
    int count;
    size_t bytes; /* of the storages behind them */
    size_t whole; /* if all that backward needs were saved */
} weft_i_cut;

/* `graph` is pure; its outputs from number `first` on are what backward needs; `free_inputs` says
 * of each input whether it can be read again. */
weft_status weft_i_cut_find(const weft_graph *graph, int first, const bool *free_inputs,
                            weft_i_cut *cut);
void weft_i_cut_clear(weft_i_cut *cut);

/* Whether the node may be done a second time. */
bool weft_i_cut_is_cheap(const weft_i_graph_node *node);

#endif
