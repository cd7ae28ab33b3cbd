/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing a function: it is called with the eye open (tensor/object/eye.h), so that it sees stand-ins of
 * all real tensors, and under a mode that writes every call down (trace.h) instead of running it.
 * The real tensors are not touched.
 *
 * The stand-in of a tensor that requires gradients does so too: the recorder, which lies above the
 * mode, makes the nodes of the graph that backward would walk, out of stand-ins.  The joint graph
 * is what the function does, and then what the engine does when it walks them from the gradients of
 * the outputs (inputs "tangent0" ...): hooks are entered there, and only what they call stays.
 * Gradients end in `accumulate` nodes, in the order in which the engine comes to the leaves.
 */
#ifndef WEFT_GRAPH_CAPTURE_H
#define WEFT_GRAPH_CAPTURE_H

#include "graph/capture/guard.h"
#include "graph/capture/seal.h"

typedef enum weft_i_joint {
    WEFT_I_JOINT_NEVER,
    WEFT_I_JOINT_IF_HOOKED, /* the function puts hooks on what it computes */
    WEFT_I_JOINT_ALWAYS
} weft_i_joint;

typedef struct weft_i_capture_how {
    weft_i_guards *guards; /* get what it depends on; NULL: nobody asks */
    weft_i_joint joint;
    bool blind;        /* stand-ins require no gradients, whatever they stand for */
    weft_i_seal *seal; /* gets what the function itself called; NULL: nobody asks */
    bool only_seal;    /* there is no backward, and the graph is of no use to anybody */
    /* What came of it: */
    bool hooked; /* the function put hooks on what it computes */
    int split;   /* the first node of backward; -1: none, no result requires a gradient */
    int changed; /* inputs that were given a history; the graph's last outputs are what they are */
} weft_i_capture_how;

/* The graph of one call, in the current scope; NULL and an error if it cannot be captured.
 * `how` may be NULL. */
weft_graph *weft_i_capture(const char *name, weft_graph_function function, void *user,
                           weft_tensor *const *in, int ins, int outs, weft_i_capture_how *how);

#endif
