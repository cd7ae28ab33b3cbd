/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the fold, one table for each instruction set they are compiled for.  fold.c drives
 * the loops of one table; tests try all of them.
 */
#ifndef WEFT_KERNELS_FOLD_TABLE_H
#define WEFT_KERNELS_FOLD_TABLE_H

#include "kernels/fold/fold.h"

/* Passes exist for these numbers of inputs; longer folds are made of several passes. */
enum { WEFT_I_FOLD_OF_1, WEFT_I_FOLD_OF_2, WEFT_I_FOLD_OF_3, WEFT_I_FOLD_OF_4, WEFT_I_FOLD_OF_8 };
enum { WEFT_I_FOLD_ARITIES = 5, WEFT_I_FOLD_WIDEST = 8 };

/*
 * to[i] = in[0][i] op in[1][i] ..., for n elements; `to` may be one of `in`.  The passes in `twice`
 * write `twin` too.  A NaN result is the canonical one.
 */
typedef void weft_i_fold_pass(void *to, void *twin, const void *const *in, size_t n,
                              const double *factors);

/* By WEFT_I_FOLD_OF_...; NULL where there is none.  Those of 2 and 3 are there if the operation is;
 * that of 1 only if it does something. */
typedef struct weft_i_fold_passes {
    weft_i_fold_pass *once[WEFT_I_FOLD_ARITIES], *twice[WEFT_I_FOLD_ARITIES];
} weft_i_fold_passes;

typedef struct weft_i_fold_table {
    const char *name;
    /* Bytes of result up to which storing it twice beats copying it; see fold.c. */
    size_t twice_most;
    /* AVG is as SUM.  Small floats have sums only, whose factors[0] is multiplied to the sum; in
     * all other folds they are widened, folded as f32 and rounded. */
    weft_i_fold_passes passes[WEFT_I_FOLD_OPS][WEFT_DTYPE_COUNT];
    /* What turns a sum into an average, in place; NULL if nothing is to be done. */
    void (*divide[WEFT_DTYPE_COUNT])(void *x, size_t n, int by);
    /* Copies past the caches, which pays for much data and saves reading what is overwritten; the
     * last call has to be followed by `drain`.  NULL where it does not pay. */
    void (*stream)(void *to, const void *from, size_t n);
    void (*drain)(void);
    void (*widen[WEFT_DTYPE_COUNT])(float *to, const void *from, size_t n);
    void (*round[WEFT_DTYPE_COUNT])(void *to, const float *from, size_t n);
} weft_i_fold_table;

extern const weft_i_fold_table weft_i_fold_baseline;
#if defined(__x86_64__)
extern const weft_i_fold_table weft_i_fold_avx2, weft_i_fold_avx512;
#endif

#endif
