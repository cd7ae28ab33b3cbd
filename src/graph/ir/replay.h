/* SPDX-License-Identifier: Apache-2.0 */
/* Calling nodes of a graph again, on the fakes of another trace: what they give is laid out as it
 * is there. */
#ifndef WEFT_GRAPH_REPLAY_H
#define WEFT_GRAPH_REPLAY_H

#include "graph/ir/trace.h"

typedef struct weft_i_replay {
    const weft_graph *from;
    weft_i_trace *trace;
    weft_tensor **fakes; /* of each value of `from`; NULL: not there yet */
    /* The fake of a value that is not there; NULL and an error.  NULL: there must be one. */
    weft_tensor *(*find)(struct weft_i_replay *replay, int value);
    void *user; /* whose replay it is */
    /* Set by weft_i_replay_rewrite, in memory of the new graph: there, each value of `from` has this
     * number; -1: none. */
    int *numbers;
} weft_i_replay;

/* For a graph that is walked as a whole: its inputs, constants and arguments; and what was traced,
 * with its outputs, in the current scope. */
weft_status weft_i_replay_begin(weft_i_replay *replay);
weft_graph *weft_i_replay_end(weft_i_replay *replay);

/* The same in one: begins the trace, lets `walk` call the nodes as `user` wants them, and ends it.
 */
weft_graph *weft_i_replay_rewrite(weft_i_replay *replay, weft_status (*walk)(void *user));

/* What there is to say of a graph that was rewritten, said with the numbers of `from`. */
weft_status weft_i_replay_write_notes(const weft_i_replay *replay, weft_graph *to,
                                      void (*put)(weft_i_text *s, const void *about),
                                      const void *about);

/* The fake of a value. */
weft_tensor *weft_i_replay_value(weft_i_replay *replay, int value);
/* Calls the node; the fakes of its results are noted. */
weft_status weft_i_replay_node(weft_i_replay *replay, const weft_i_graph_node *node);

/* The arguments that it would be called with. */
weft_status weft_i_replay_args(weft_i_replay *replay, const weft_i_graph_node *node,
                               weft_i_arg *args);

#endif
