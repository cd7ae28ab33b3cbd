/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the nodes of a program cost: the bytes that they read and write, which the graph says, and their time in
 * some of its runs.  Runs 2 to 5 are measured, and then one of 64; the first touches code and memory
 * that was not touched.
 */
#ifndef WEFT_GRAPH_WORK_H
#define WEFT_GRAPH_WORK_H

#include "base/report/text.h"
#include "graph/ir/graph.h"

typedef struct weft_i_work {
    const weft_graph *graph; /* the program's */
    int64_t *ns;             /* of each node, in all measured runs */
    int64_t whole;           /* of these runs */
    uint64_t runs, measured;
} weft_i_work;

weft_status weft_i_work_open(weft_i_work *work, const weft_graph *graph);
void weft_i_work_close(weft_i_work *work);

/* Counts a run; whether it is to be measured. */
bool weft_i_work_begin(weft_i_work *work);

/* Where the time goes, in some tens of lines: by operation, the longest nodes, what is fused. */
void weft_i_work_text(const weft_i_work *work, weft_i_text *s);

#endif
