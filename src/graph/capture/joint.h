/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two halves of a joint graph (capture.h).  The forward half is made pure and cut (cut.h); its
 * outputs are those of the function, then what the inputs are that were given a history, then what
 * is saved.  The backward half begins with the gradients of outputs and with what was saved, takes
 * again what was not, and hands out the gradients of inputs in the order in which the engine came
 * to them.  Inputs that backward reads it reads as they are then: what was written to them
 * meanwhile where the version counter did not see it is what eager execution would read, too.
 */
#ifndef WEFT_GRAPH_JOINT_H
#define WEFT_GRAPH_JOINT_H

#include "graph/capture/capture.h"

/* What an input of the backward half is. */
typedef struct weft_i_back_input {
    enum { WEFT_I_BACK_TANGENT, WEFT_I_BACK_INPUT, WEFT_I_BACK_SAVED } kind;
    int index;    /* of the tangent, of the forward half's input, of what is saved */
    bool checked; /* a gradient rule needs it: it must not have been written */
} weft_i_back_input;

/* Whose gradient is handed out: an input's, or that of a leaf which the function makes and
 * returns. */
typedef struct weft_i_back_edge {
    bool made;      /* it is an output */
    int index;      /* of the input, or output */
    uint64_t needs; /* which tangents it depends on; the last bit stands for all others */
} weft_i_back_edge;

typedef struct weft_i_halves {
    weft_graph *forward, *back; /* in the current scope */
    int outs, changed, saved;   /* outputs of the forward half, in this order */
    int *tangents;              /* of each tangent: its output; owned, as the next two */
    int tangent_count;
    weft_i_back_input *inputs; /* of each input of the backward half */
    int input_count;
    weft_i_back_edge *edges;
    int edge_count;
    int *changed_inputs;             /* which inputs those are; owned */
    size_t saved_bytes, whole_bytes; /* with the cut and without */
} weft_i_halves;

/* The passes of `stages` run on both. */
weft_status weft_i_joint_split(const weft_graph *joint, const weft_i_capture_how *how,
                               unsigned stages, weft_i_halves *halves);
void weft_i_halves_clear(weft_i_halves *halves); /* not the graphs */

#endif
