/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes: from a graph to one that does the same.  A backend names the stages it wants.  This
 * floor's passes stand in graph/pass/passes.c; other floors add passes of their own to a stage when
 * the library is loaded.
 */
#ifndef WEFT_GRAPH_PASS_H
#define WEFT_GRAPH_PASS_H

#include "graph/ir/graph.h"

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

/* Behind those of the same stage that are there.  By a constructor, in a file that has more than
 * that: a static library drops the others. */
void weft_i_graph_pass_add(weft_i_graph_pass *pass);

/* The first pass; NULL: none was added. */
const weft_i_graph_pass *weft_i_graph_pass_first(void);

#endif
