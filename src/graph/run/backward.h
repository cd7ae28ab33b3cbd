/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled backward.  A backward is captured by running the engine with the eye open, on the real
 * nodes and with stand-ins for all tensors: rules and hooks write down what they do, adding to
 * leaves is a node, compiled functions on the way are taken apart again.  The program serves every
 * backward with the same key (route.h) whose tensors pass the guards.
 */
#ifndef WEFT_GRAPH_BACKWARD_H
#define WEFT_GRAPH_BACKWARD_H

#include "base/report/text.h"
#include "graph/ir/graph.h"
#include "weft/grad.h"

typedef struct weft_i_backward weft_i_backward;

typedef struct weft_i_backward_how {
    const char *name; /* of graphs; the caller's, as long as it lives */
    unsigned stages;
    bool fullgraph, agree;
} weft_i_backward_how;

weft_i_backward *weft_i_backward_new(weft_i_backward_how how);
void weft_i_backward_free(weft_i_backward *backward);
weft_status weft_i_backward_run(weft_i_backward *backward, weft_tensor *const *outputs,
                                size_t count, const weft_backward_opts *opts,
                                weft_compiled_info *info);
void weft_i_backward_explain(const weft_i_backward *backward, bool whole, weft_i_text *s);

#endif
