/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled function; for the files that make one up. */
#ifndef WEFT_GRAPH_FRAME_STATE_H
#define WEFT_GRAPH_FRAME_STATE_H

#include "graph/capture/capture.h"
#include "graph/run/backward.h"
#include "graph/run/device_graph.h"
#include "graph/run/frame.h"
#include "graph/run/frame_back.h"
#include "graph/run/program.h"

enum { WEFT_I_FRAME_ENTRIES = 8 };

typedef struct weft_i_frame_entry {
    weft_graph *graph; /* after the passes; held */
    weft_i_guards guards;
    weft_i_program *program;
    weft_i_device_graph *device_graph; /* NULL: not asked for */
    weft_i_frame_plan *plan;           /* of its gradients; NULL: none, or recorded as usual */
    weft_tensor **inputs;              /* room for those of one call */
    int outs;
    uint64_t runs;
    weft_i_seal seal;          /* what the function called when it was captured */
    uint64_t unchecked, pause; /* runs since it was compared; so many are not, next */
    bool failed;               /* to be compared, the last time */
} weft_i_frame_entry;

struct weft_compiled {
    weft_i_object head;
    weft_graph_function function;
    void *user;
    char *name;
    const weft_i_frame_backend *backend;
    unsigned stages;                               /* the backend's, or fewer */
    bool fullgraph, agree, device_graph, hopeless; /* cannot be captured */
    weft_check check;
    int nested;    /* runs of the function that are under way, one within the other */
    bool too_deep; /* until all of them are over */
    weft_i_frame_entry entries[WEFT_I_FRAME_ENTRIES];
    weft_i_backward *backward; /* instead of a function */
    weft_compiled_info info;
};

#endif
