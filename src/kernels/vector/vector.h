/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that are compiled for several instruction sets: one table for each.  All of them give
 * the same bits.
 */
#ifndef WEFT_KERNELS_VECTOR_H
#define WEFT_KERNELS_VECTOR_H

#include "kernels/vector/attend_table.h"
#include "kernels/vector/normalize_table.h"
#include "kernels/vector/pointwise.h"
#include "kernels/vector/reduce.h"
#include "kernels/vector/update_table.h"

#include <stdatomic.h>

typedef struct weft_i_vector_table {
    const char *name;
    /* By operation and compute type; NULL if there is none. */
    weft_i_pointwise_kernel *const (*pointwise)[WEFT_DTYPE_COUNT];
    const weft_i_reduce_loops (*reduce)[WEFT_DTYPE_COUNT];
    const weft_i_normalize_loops *normalize[WEFT_DTYPE_COUNT]; /* f32 and f64 only */
    const weft_i_attend_loops *attend[WEFT_DTYPE_COUNT];       /* the same */
    const weft_i_update_loops *update;
} weft_i_vector_table;

/* NULL until somebody asks.  Relaxed, without a partner: it leads to constants only, and threads
 * that choose at the same time choose the same. */
extern _Atomic(const weft_i_vector_table *) weft_i_vector_chosen;
const weft_i_vector_table *weft_i_vector_choose(void);

/* The table for this processor. */
static inline const weft_i_vector_table *weft_i_vector(void)
{
    const weft_i_vector_table *table =
        atomic_load_explicit(&weft_i_vector_chosen, memory_order_relaxed);
    return table ? table : weft_i_vector_choose();
}

/* The instruction sets there are tables for, best first; NULL after the last. */
const char *weft_i_vector_variant(int i);

/* Makes all loops of the process those of one variant, for tests; NULL: the best again.  False if
 * this processor has it not. */
bool weft_i_vector_use(const char *variant);

extern const weft_i_vector_table weft_i_vector_baseline;
#if defined(__x86_64__)
extern const weft_i_vector_table weft_i_vector_avx2, weft_i_vector_avx512;
#endif

#endif
