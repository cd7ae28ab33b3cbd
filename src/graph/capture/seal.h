/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals: what a function called while it was captured, and with which numbers, as a number for each call.  A
 * function that is called again on stand-ins, with the same inputs, has another seal if it depends on a
 * plain C value that has changed: its graph does not stand for it any more.
 */
#ifndef WEFT_GRAPH_SEAL_H
#define WEFT_GRAPH_SEAL_H

#include "graph/ir/graph.h"

typedef struct weft_i_seal {
    uint64_t *calls; /* of each node of the function itself, as it was captured; owned */
    int count;
    uint64_t rest; /* inputs that are no arguments, constants with their bytes, and results */
} weft_i_seal;

/* Of the first `nodes` nodes of a graph that is being captured, whose results are these values. */
weft_status weft_i_seal_make(const weft_graph *graph, int nodes, const int *outputs, int outs,
                             weft_i_seal *seal);
void weft_i_seal_clear(weft_i_seal *seal);

/* Whether both are the same; `*call` is the first call that is not, or -1 if it is no call. */
bool weft_i_seal_equal(const weft_i_seal *a, const weft_i_seal *b, int *call);

#endif
