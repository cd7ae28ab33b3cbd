/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of this floor: passes.c has their order. */
#ifndef WEFT_GRAPH_PASSES_H
#define WEFT_GRAPH_PASSES_H

#include "graph/ir/pass.h"

/* Runs the passes of the stages (a sum of weft_i_graph_stage) in their order.  The graph that comes
 * out is in the current scope; the one that went in stays the caller's. */
weft_graph *weft_i_graph_pass_run(weft_graph *graph, unsigned stages);

weft_graph *weft_i_graph_pass_drop_dead(weft_graph *graph);
weft_graph *weft_i_graph_pass_make_pure(weft_graph *graph);
weft_graph *weft_i_graph_pass_once(weft_graph *graph);
weft_graph *weft_i_graph_pass_lower(weft_graph *graph);
weft_graph *weft_i_graph_pass_bucket(weft_graph *graph);
weft_graph *weft_i_graph_pass_gather(weft_graph *graph);
weft_graph *weft_i_graph_pass_schedule(weft_graph *graph);

#endif
