/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing a function: it is called with the eye open (tensor/eye.h), so that it sees stand-ins of
 * all real tensors, and under a mode that writes every call down (trace.h) instead of running it.
 * The real tensors are not touched.
 */
#ifndef WEFT_GRAPH_CAPTURE_H
#define WEFT_GRAPH_CAPTURE_H

#include "graph/guard.h"

/* The graph of one call, in the current scope; NULL and an error if it cannot be captured.
 * `guards` (may be NULL) gets what it depends on. */
weft_graph *weft_i_capture(const char *name, weft_graph_function function, void *user,
                           weft_tensor *const *in, int ins, int outs, weft_i_guards *guards);

#endif
