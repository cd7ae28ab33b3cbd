/* SPDX-License-Identifier: Apache-2.0 */
/* A capture under way; for the files that make one up. */
#ifndef WEFT_GRAPH_CAPTURE_STATE_H
#define WEFT_GRAPH_CAPTURE_STATE_H

#include "graph/capture/capture.h"
#include "graph/ir/pointers.h"
#include "graph/ir/trace.h"
#include "tensor/object/eye.h"

/* One input. */
typedef struct weft_i_lifted {
    weft_tensor *twin;   /* held by the table of twins */
    int value;           /* that it was */
    const void *history; /* the node that it began with; NULL: none */
} weft_i_lifted;

/* What an object gets back at the end. */
typedef struct weft_i_undo {
    struct weft_i_undo *next;
    void *object; /* held */
    void (*put_back)(void *object, const char *name, void *old);
    void *old; /* held */
    char name[];
} weft_i_undo;

typedef struct weft_i_capture_state {
    weft_i_eye eye; /* first */
    weft_i_mode mode;
    weft_i_trace trace;
    weft_i_capture_how *how;
    weft_i_guards *guards;
    /* Real tensors and their stand-ins, both held; storages and counters of real ones, and one of
     * the stand-ins that has the storage or counter that stands for it. */
    weft_i_pointers twins, storages, counters;
    weft_i_lifted *lifted; /* what is stood for; not the tangents */
    int lifted_count, lifted_room;
    weft_i_undo *undone;
    int *outputs; /* values */
    int output_count;
    int free_count;
    bool recording;     /* gradients were recorded when it began */
    weft_status status; /* why the capture fails; `message` says it */
    char message[512];
} weft_i_capture_state;

/* Gives the stand-in what gradients need to know about it (capture_joint.c). */
weft_status weft_i_capture_give_history(weft_i_capture_state *c, weft_tensor *real,
                                        weft_i_lifted *lifted, unsigned flags);
/* Walks back from the results, with the eye open: the second half of a joint graph. */
weft_status weft_i_capture_backward(weft_i_capture_state *c, weft_tensor *const *out, int outs);
/* Says of each input whether a gradient rule had saved it. */
void weft_i_capture_mark_needed(weft_i_capture_state *c);

#endif
