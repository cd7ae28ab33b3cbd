/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering to symmetric memory.  A sum all_reduce whose operand the program makes itself becomes an
 * operation on symmetric memory: its maker writes straight into a communication buffer (plan.h),
 * and all ranks read it there.  One shot up to a threshold, two shots up to another, beyond which
 * the plain collective stays, which runs behind what is computed meanwhile.  The operations are
 * done when they return, so the wait goes.
 *
 * A row that asks for symmetric memory itself, of the library or the user's, gets its operand in a
 * communication buffer as well: if the program does not make it, or somebody else holds on to it,
 * by a copy.
 */
#ifndef WEFT_GRAPH_LOWER_H
#define WEFT_GRAPH_LOWER_H

#include "graph/ir/graph.h"
#include "tune/tune.h"

typedef enum weft_i_lower_way {
    WEFT_I_LOWER_NOT,
    WEFT_I_LOWER_ONE_SHOT,
    WEFT_I_LOWER_TWO_SHOT
} weft_i_lower_way;

/* Which way pays for so many bytes; the same on all ranks that have the same settings. */
weft_i_lower_way weft_i_lower_choose(int ranks, weft_i_ground ground, size_t bytes);

#endif
