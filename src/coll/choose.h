/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm an operation takes.  The choice depends only on what all ranks know alike
 * (operation, number of ranks, bytes), so they always agree; whether large operands are used in
 * place or staged is decided after the entry, from what all have shown.
 */
#ifndef WEFT_COLL_CHOOSE_H
#define WEFT_COLL_CHOOSE_H

#include "base/record.h"

#include <stddef.h>

typedef enum weft_i_coll_kind {
#define COLL(name_, text_, record_) WEFT_I_##name_,
#include "coll/kinds.def"
#undef COLL
    WEFT_I_COLL_KINDS
} weft_i_coll_kind;

typedef enum weft_i_algorithm {
    WEFT_I_ALGO_TINY,   /* data beside the arrival word: one line each way, one sync */
    WEFT_I_ALGO_STAGED, /* whole operand through one stage slot by turns: one sync */
    WEFT_I_ALGO_LARGE, /* direct where operands are symmetric, otherwise pipelined through the stage
                        */
    WEFT_I_ALGORITHMS
} weft_i_algorithm;

const char *weft_i_coll_name(weft_i_coll_kind kind);
const weft_i_record_name *weft_i_coll_record_name(weft_i_coll_kind kind);
const char *weft_i_algorithm_name(weft_i_algorithm algorithm);

/* `bytes`: what one rank shows the others (its whole input).  `crowded`: more ranks than cores. */
weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, bool crowded, size_t bytes);

/* Bytes from one rank to another from which on large ordinary operands are copied once by the
 * kernel (peek.h) instead of staged. */
size_t weft_i_choose_single(weft_i_coll_kind kind, int ranks, bool crowded);

#endif
