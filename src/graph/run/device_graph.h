/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs as graphs of their device.  The second call of a program is captured from its stream, and
 * calls after that give the device all of it in one launch.  What is replayed reads and writes the
 * same addresses, so a call is replayed only if
 *
 *     its inputs lie where they lay; one that moves, and is only read, is copied to a place first
 *     nobody holds the results of the last replay any more, which this one writes
 *     it is given to the same stream
 *
 * and runs node by node if not, with the same results.  What a program may have in it is judged from
 * its graph; what the capture refuses, it says.  Ranks that make the same calls decide alike.  If
 * they do not, a replay on one rank still works with a plain call on another: both launch the same kernels.
 */
#ifndef WEFT_GRAPH_DEVICE_GRAPH_H
#define WEFT_GRAPH_DEVICE_GRAPH_H

#include "graph/run/program.h"

typedef struct weft_i_device_graph weft_i_device_graph;

/* Of a program of this graph, which lives longer.  NULL and an error if memory runs out. */
weft_i_device_graph *weft_i_device_graph_new(const weft_graph *graph);
void weft_i_device_graph_free(weft_i_device_graph *d);

/* As weft_i_program_run, by a replay where that can be.  No gradients are recorded meanwhile. */
weft_status weft_i_device_graph_run(weft_i_device_graph *d, weft_i_program *program,
                                    weft_tensor *const *inputs, weft_tensor **outs);

/* How many calls were replayed, and why the last one was not, for people. */
void weft_i_device_graph_text(const weft_i_device_graph *d, weft_i_text *s);

#endif
