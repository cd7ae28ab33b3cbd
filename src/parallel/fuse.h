/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass that fuses: in a captured graph an all_gather whose result is multiplied, and a product
 * that is reduce_scattered, become one row.  It runs on pure graphs of backends that rewrite, if
 * the thread has asked for it (weft_fused_rewrite), and notes for every collective of the two kinds
 * what became of it; weft_compiled_explain shows that.
 */
#ifndef WEFT_PARALLEL_FUSE_H
#define WEFT_PARALLEL_FUSE_H

#include "graph/ir/graph.h"
#include "weft/coll.h"

/* A gather or scatter, its wait, and nothing else between: values and nodes of the graph. */
typedef struct weft_i_fuse_match {
    int node;    /* the collective */
    int wait;    /* its wait */
    int operand; /* what is gathered or scattered */
    int result;  /* what it is after the wait, and after views of bytes as something else */
    int dim;
    weft_reduction op; /* of a scatter */
    const weft_i_graph_term *group;
} weft_i_fuse_match;

/* Fills `out`, of which there are as many as nodes, in the order of the graph; returns how many. */
int weft_i_fuse_find_gathers(const weft_graph *graph, weft_i_fuse_match *out);
int weft_i_fuse_find_scatters(const weft_graph *graph, weft_i_fuse_match *out);

/*
 * Which collectives hide behind a product that neither needs them nor is needed by them, each behind
 * one of its own: of each node, in `hidden`, of which there are as many as nodes.
 */
weft_status weft_i_fuse_find_hidden(const weft_graph *graph, bool *hidden);

/* The only node that reads a value, which is no output; -1: none, or several. */
int weft_i_fuse_only_user(const weft_graph *graph, int value);
bool weft_i_fuse_is_output(const weft_graph *graph, int value);

/* The graph with what could be fused, in the current scope; `graph` itself if nothing could. */
weft_graph *weft_i_fuse(weft_graph *graph);

#endif
