/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm an operation takes.  The choice depends only on what all ranks know alike
 * (operation, number of ranks, bytes), so they always agree; whether large operands are used in
 * place or through bounce buffers is decided after the entry, from what all have shown.
 */
#ifndef WEFT_COLL_CHOOSE_H
#define WEFT_COLL_CHOOSE_H

#include "base/assert.h"
#include "symm/kind.h"
#include "weft/tune.h"

#include <stdatomic.h>
#include <stddef.h>

typedef enum weft_i_algorithm {
    WEFT_I_ALGO_INLINE,     /* data beside the arrival word: one line each way, one sync */
    WEFT_I_ALGO_EAGER,      /* whole operand through one eager buffer by turns: one sync */
    WEFT_I_ALGO_RENDEZVOUS, /* zero-copy between symmetric operands; else by CMA or pipelined */
    WEFT_I_ALGORITHMS
} weft_i_algorithm;

/* For a carrier on devices: bytes of an all_reduce up to which packets and one-shot pay. */
void weft_i_choose_on_device(int ranks, bool symmetric, size_t *packets, size_t *one_shot);

/* A digest of WEFT_I_LIBRARY_FROM: ranks whose WEFT_TUNE differ do not choose alike. */
uint32_t weft_i_choose_library_digest(int ranks);

/* Reads the thresholds that WEFT_TUNE names; once, before anything is chosen. */
void weft_i_choose_load(void);

/* What is looked up, in bytes. */
typedef enum weft_i_threshold {
    WEFT_I_EAGER_UP_TO,      /* an ordinary operand is shown whole at the entry */
    WEFT_I_ZERO_COPY_BEYOND, /* a symmetric one is used where it lies, which costs another sync */
    WEFT_I_CMA_FROM,         /* of one transfer: CMA copies instead of the pipeline */
    WEFT_I_LIBRARY_FROM,     /* on devices: a carrier uses its library, not its own kernels */
    WEFT_I_CMA_SET, /* not bytes, but a mark: the user has set it, so no trials (trial.h) */
    WEFT_I_THRESHOLDS
} weft_i_threshold;

enum { WEFT_I_CHOOSE_COLUMNS = 4 }; /* 2, 3-4, 5-8 and more ranks */

typedef struct weft_i_thresholds {
    atomic_size_t bytes[WEFT_I_THRESHOLDS][WEFT_I_CHOOSE_COLUMNS];
} weft_i_thresholds;

/* First where each rank has a core, then where they share cores ("crowded"). */
extern weft_i_thresholds weft_i_thresholds_of[2][WEFT_I_COLL_KINDS];

static inline int weft_i_choose_column(int ranks)
{
    return ranks <= 2 ? 0 : ranks <= 4 ? 1 : ranks <= 8 ? 2 : 3;
}

static inline size_t weft_i_threshold_of(weft_i_threshold which, weft_i_coll_kind kind, int ranks,
                                         bool crowded)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS && ranks > 0);
    /* Relaxed: a setting publishes nothing else, and the digest catches ranks that disagree. */
    return atomic_load_explicit(
        &weft_i_thresholds_of[crowded][kind].bytes[which][weft_i_choose_column(ranks)],
        memory_order_relaxed);
}

/* `bytes`: what one rank shows the others (its whole input). */
static inline weft_i_algorithm weft_i_choose(weft_i_coll_kind kind, int ranks, bool crowded,
                                             size_t bytes)
{
    if (bytes <= WEFT_TUNE_INLINE)
        return WEFT_I_ALGO_INLINE;
    size_t most = weft_i_threshold_of(WEFT_I_ZERO_COPY_BEYOND, kind, ranks, crowded);
    return bytes <= most ? WEFT_I_ALGO_EAGER : WEFT_I_ALGO_RENDEZVOUS;
}

#endif
