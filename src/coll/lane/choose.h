/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm an operation takes.  The choice depends only on what all ranks know alike
 * (operation, number of ranks, bytes), so they always agree; whether large operands are used in
 * place or through bounce buffers is decided after the entry, from what all have shown.
 */
#ifndef WEFT_COLL_CHOOSE_H
#define WEFT_COLL_CHOOSE_H

#include "tune/tune.h"

#include <stddef.h>

typedef enum weft_i_algorithm {
    WEFT_I_ALGO_INLINE,     /* data beside the arrival word: one line each way, one sync */
    WEFT_I_ALGO_EAGER,      /* whole operand through one eager buffer by turns: one sync */
    WEFT_I_ALGO_RENDEZVOUS, /* zero-copy between symmetric operands; else by CMA or pipelined */
    WEFT_I_ALGORITHMS
} weft_i_algorithm;

/* For a carrier on devices: bytes of an all_reduce up to which packets and one-shot pay. */
static inline void weft_i_choose_on_device(int ranks, bool symmetric, size_t *packets,
                                           size_t *one_shot)
{
    *packets = weft_i_tune_of(symmetric ? WEFT_I_TUNE_CUDA_PACKETS_SYMM : WEFT_I_TUNE_CUDA_PACKETS,
                              WEFT_I_ALL_REDUCE, ranks, WEFT_I_GROUND_ROOMY);
    *one_shot =
        weft_i_tune_of(symmetric ? WEFT_I_TUNE_CUDA_ONE_SHOT_SYMM : WEFT_I_TUNE_CUDA_ONE_SHOT,
                       WEFT_I_ALL_REDUCE, ranks, WEFT_I_GROUND_ROOMY);
}

/* `bytes`: what one rank shows the others (its whole input). */
static inline weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, weft_i_ground ground,
                                             size_t bytes)
{
    if (bytes <= WEFT_TUNE_INLINE)
        return WEFT_I_ALGO_INLINE;
    size_t most = weft_i_tune_of(WEFT_I_TUNE_ZERO_COPY, kind, ranks, ground);
    return bytes <= most ? WEFT_I_ALGO_EAGER : WEFT_I_ALGO_RENDEZVOUS;
}

#endif
