/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes: from a graph to one that does the same.  A backend names the stages it wants; other
 * floors add passes of their own to a stage when the library is loaded.
 */
#ifndef WEFT_GRAPH_PASS_H
#define WEFT_GRAPH_PASS_H

#include "graph/graph.h"

typedef enum weft_i_graph_stage {
    WEFT_I_STAGE_CLEAN = 1,       /* after the capture: leave out what has no use */
    WEFT_I_STAGE_PURE = 2,        /* no writes in place but at the end */
    WEFT_I_STAGE_REWRITE = 4,     /* patterns, on pure graphs */
    WEFT_I_STAGE_COLLECTIVES = 8, /* other collectives with the same results */
    WEFT_I_STAGE_SCHEDULE = 16,   /* order */
    WEFT_I_STAGE_LOWER = 32       /* what a backend replaces */
} weft_i_graph_stage;

typedef struct weft_i_graph_pass {
    const char *name;
    weft_i_graph_stage stage;
    /* The new graph, in the current scope, or `graph` itself; NULL and an error. */
    weft_graph *(*run)(weft_graph *graph);
    struct weft_i_graph_pass *next; /* set when added */
} weft_i_graph_pass;

/* Behind those of the same stage that are there; by a constructor. */
void weft_i_graph_pass_add(weft_i_graph_pass *pass);

/* Runs the passes of the stages (a sum of weft_i_graph_stage) in their order.  The graph that comes
 * out is in the current scope; the one that went in stays the caller's. */
weft_graph *weft_i_graph_pass_run(weft_graph *graph, unsigned stages);

/* The passes of this floor. */
weft_graph *weft_i_graph_pass_drop_dead(weft_graph *graph);
weft_graph *weft_i_graph_pass_make_pure(weft_graph *graph);
weft_graph *weft_i_graph_pass_lower(weft_graph *graph);
weft_graph *weft_i_graph_pass_bucket(weft_graph *graph);
weft_graph *weft_i_graph_pass_gather(weft_graph *graph);
weft_graph *weft_i_graph_pass_schedule(weft_graph *graph);
weft_graph *weft_i_graph_pass_emit(weft_graph *graph);

#endif
