/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter: a graph made ready to run, row by row, on real tensors.  Values are let go of as
 * soon as nobody needs them.
 */
#ifndef WEFT_GRAPH_PROGRAM_H
#define WEFT_GRAPH_PROGRAM_H

#include "base/report/text.h"
#include "graph/ir/graph.h"

typedef struct weft_i_program weft_i_program;

/* Holds the graph.  NULL and an error if memory runs out. */
weft_i_program *weft_i_program_new(weft_graph *graph);
void weft_i_program_free(weft_i_program *program);

/* `inputs` has one tensor for each input of the graph; `outs` gets its outputs, in the current
 * scope.  If a row fails, what was done stays done, as if the function itself had failed there. */
weft_status weft_i_program_run(weft_i_program *program, weft_tensor *const *inputs,
                               weft_tensor **outs);

/* The backward of a function hands out gradients while it runs: those of its inputs, by number.
 * `ours`: the program gives the tensor up, and the taker must let go of it. */
typedef struct weft_i_hands {
    weft_status (*take)(void *user, int place, weft_tensor *grad, bool ours);
    void *user;
} weft_i_hands;

weft_status weft_i_program_run_back(weft_i_program *program, weft_tensor *const *inputs,
                                    weft_tensor **outs, const weft_i_hands *hands);

/* How its memory is planned, for people; and where its time goes. */
void weft_i_program_text(const weft_i_program *program, weft_i_text *s);
void weft_i_program_work(const weft_i_program *program, weft_i_text *s);

#endif
