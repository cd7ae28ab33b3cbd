/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement of ranks: before a program runs for the first time, the ranks of each group compare the
 * collectives that their programs have for it, in their order.  Programs may differ otherwise.
 */
#ifndef WEFT_GRAPH_AGREE_H
#define WEFT_GRAPH_AGREE_H

#include "graph/ir/graph.h"

/* `graphs` run one after the other; NULL among them counts as none.  WEFT_ERR_MISMATCH on all ranks
 * of a group whose programs differ, with two of the lines.  A rank that is gone ends it. */
weft_status weft_i_agree(const weft_graph *const *graphs, int count);

#endif
