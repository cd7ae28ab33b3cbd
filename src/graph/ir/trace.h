/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a graph down by calling its rows on fakes.  A call computes what the row's shape rule
 * says and becomes a node; the fake's `node` is the value that it is now.  Captures, the parser and
 * passes that rewrite all build their graphs this way, so that a graph holds only calls whose
 * arguments passed every check.
 */
#ifndef WEFT_GRAPH_TRACE_H
#define WEFT_GRAPH_TRACE_H

#include "graph/ir/graph.h"
#include "tensor/object/fake.h"

typedef struct weft_i_trace {
    weft_graph *graph;
    uint64_t id;
    int64_t *starts; /* of each counter: what it was at the entry */
    int start_room;
    bool quiet; /* nodes are written down as not recorded for gradients */
} weft_i_trace;

/* The graph is made in the current scope and is the trace's until weft_i_trace_end. */
weft_status weft_i_trace_begin(weft_i_trace *trace, const char *name);
void weft_i_trace_abandon(weft_i_trace *trace);
/* The finished graph, renumbered, in the current scope; the trace is over.  `outputs` are values.
 */
weft_graph *weft_i_trace_end(weft_i_trace *trace, const int *outputs, int count);

/*
 * The fake of an input with the layout `like`, whose numbers do not count.  It shares the storage
 * of the fake `base` and the counter of the fake `counted`, unless they are NULL: then the storage
 * has `like->bytes` and the counter starts at `like->version`.
 */
weft_tensor *weft_i_trace_input(weft_i_trace *trace, const weft_i_graph_value *like,
                                weft_tensor *base, weft_tensor *counted,
                                const weft_i_graph_input *input);
weft_tensor *weft_i_trace_constant(weft_i_trace *trace, weft_tensor *tensor);

/* Applies the row to fakes and writes the call down: as weft_i_op_apply. */
weft_tensor *weft_i_trace_call(weft_i_trace *trace, const weft_i_op_call *call);
/* Without a row that runs: the tensor stays itself and gets a new value. */
weft_status weft_i_trace_wait(weft_i_trace *trace, weft_tensor *x);

static inline bool weft_i_trace_owns(const weft_i_trace *trace, const weft_storage *storage)
{
    return storage->fake && storage->fake->capture == trace->id;
}

/* The layout of a tensor, without numbers. */
weft_i_graph_value weft_i_graph_value_of(const weft_tensor *x);

#endif
