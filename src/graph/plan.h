/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the values of a program lie: those that nobody sees outside share one arena, in which a
 * place is used again as soon as its value is dead, or at once by what is computed from it element
 * by element.  Outputs, operands of collectives and whatever a row may hold on to have memory of
 * their own.
 */
#ifndef WEFT_GRAPH_PLAN_H
#define WEFT_GRAPH_PLAN_H

#include "base/text.h"
#include "graph/graph.h"

typedef struct weft_i_plan {
    size_t bytes; /* of the arena; 0: nothing is planned */
    int64_t *at;  /* of each value: where its storage lies in the arena; -1: not there */
    int buffers, in_place;
    size_t peak, free; /* the most bytes in use, with the plan and without it */
} weft_i_plan;

/* `out->at` is to be freed by weft_i_plan_clear, also if it fails. */
weft_status weft_i_plan_make(const weft_graph *graph, weft_i_plan *out);
void weft_i_plan_clear(weft_i_plan *plan);
void weft_i_plan_text(const weft_i_plan *plan, weft_i_text *s);

#endif
