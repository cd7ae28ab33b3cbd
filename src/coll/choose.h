/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm an operation takes.  The choice depends only on what all ranks know alike
 * (operation, number of ranks, bytes), so they always agree; whether large operands are used in
 * place or through bounce buffers is decided after the entry, from what all have shown.
 */
#ifndef WEFT_COLL_CHOOSE_H
#define WEFT_COLL_CHOOSE_H

#include "symm/kind.h"

#include <stddef.h>

typedef enum weft_i_algorithm {
    WEFT_I_ALGO_INLINE,     /* data beside the arrival word: one line each way, one sync */
    WEFT_I_ALGO_EAGER,      /* whole operand through one eager buffer by turns: one sync */
    WEFT_I_ALGO_RENDEZVOUS, /* direct where operands are symmetric, otherwise pipelined through the
                             * bounce buffer
                             */
    WEFT_I_ALGORITHMS
} weft_i_algorithm;

const char *weft_i_algorithm_name(weft_i_algorithm algorithm);

/* Reads the thresholds that WEFT_TUNE names; once, before anything is chosen. */
void weft_i_choose_load(void);

/* `bytes`: what one rank shows the others (its whole input).  `crowded`: more ranks than cores. */
weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, bool crowded, size_t bytes);

/* Up to how many bytes ordinary operands of a large call are shown whole at the entry, which every
 * rank decides for its own. */
size_t weft_i_choose_eager(weft_i_coll_kind kind, int ranks, bool crowded);

/* Bytes from one rank to another from which on large ordinary operands are copied once by the
 * kernel (cma.h) instead of pipelined. */
size_t weft_i_choose_cma(weft_i_coll_kind kind, int ranks, bool crowded);

#endif
