/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward of a compiled function: one node of the graph of gradients for a whole call.  Its
 * rule runs the backward half and hands out the gradient of an input as soon as it is complete, so
 * that leaves are added to, and their hooks run, in the order of eager execution.
 */
#ifndef WEFT_GRAPH_FRAME_BACK_H
#define WEFT_GRAPH_FRAME_BACK_H

#include "graph/capture/joint.h"
#include "graph/run/program.h"

/* What all calls of one capture share; nodes hold it. */
typedef struct weft_i_frame_plan {
    weft_i_object head;
    weft_i_halves halves;    /* its graphs are held */
    weft_i_program *program; /* of the backward half */
    uint64_t runs;
} weft_i_frame_plan;

/* Takes `halves` over, also if it fails; the plan is the caller's reference. */
weft_i_frame_plan *weft_i_frame_plan_new(weft_i_halves *halves);

/* A call of the forward half: before it runs, and after.  `inputs` are those of the forward half,
 * `outs` all its outputs. */
typedef struct weft_i_frame_call {
    weft_i_frame_plan *plan;
    weft_tensor *const *inputs;
    struct weft_i_node **spare; /* of each input that gets a history */
} weft_i_frame_call;

weft_status weft_i_frame_prepare(weft_i_frame_call *call);
weft_status weft_i_frame_attach(weft_i_frame_call *call, weft_tensor *const *outs);
/* Lets go of the outputs that are not the function's. */
void weft_i_frame_release(const weft_i_frame_plan *plan, weft_tensor *const *inputs,
                          weft_tensor **outs);
void weft_i_frame_finish(weft_i_frame_call *call);

#endif
