/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: what a function of tensors does, captured without running it. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "weft/tensor.h"

typedef struct weft_graph weft_graph;

#endif
