/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the values of a program lie: those that are not seen outside share one arena, in which a
 * place is used again as soon as its value is dead, or at once by what is computed from it element
 * by element.  Outputs, operands of collectives and whatever a row may hold on to have memory of
 * their own.  What a row wants in symmetric memory lies in communication buffers (comm.h), if the
 * program makes it: neither is ever turned into the other in place.
 */
#ifndef WEFT_GRAPH_PLAN_H
#define WEFT_GRAPH_PLAN_H

#include "base/report/text.h"
#include "graph/ir/comm.h"
#include "graph/ir/graph.h"

typedef struct weft_i_plan {
    size_t bytes;       /* of the arena; 0: nothing is planned */
    weft_device device; /* of the arena; values on others have memory of their own */
    int from, until;    /* the first and the last node that need it */
    int64_t *at;        /* of each value: where its storage lies in the arena; -1: not there */
    int buffers, in_place, reused;
    int *comm; /* of each value: the communication buffer in which it lies; -1: none */
    weft_i_comm_buffer *symmetric;
    int symmetric_count;
    size_t peak, free; /* the most bytes in use, with the plan and without it */
} weft_i_plan;

/* Whether the row writes its result where it is told to. */
bool weft_i_plan_is_told(const weft_i_graph_node *node);
/* Whether the row only reads its tensors, and is done with them when it returns. */
bool weft_i_plan_only_reads(const weft_i_graph_node *node);

/* To be cleared by weft_i_plan_clear, also if it fails. */
weft_status weft_i_plan_make(const weft_graph *graph, weft_i_plan *out);
void weft_i_plan_clear(weft_i_plan *plan);
void weft_i_plan_text(const weft_i_plan *plan, const weft_graph *graph, weft_i_text *s);

#endif
