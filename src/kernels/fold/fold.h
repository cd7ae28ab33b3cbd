/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fold: several arrays reduced to one, element by element, in one pass: out[i] = in[0][i] op
 * in[1][i] op ...  The order is that of the inputs, always, so every rank that folds the same inputs gets
 * the same bits.
 */
#ifndef WEFT_KERNELS_FOLD_H
#define WEFT_KERNELS_FOLD_H

#include "weft/dtype.h"

#include <stdbool.h>
#include <stddef.h>

/* As weft_reduction of weft/coll.h, which is above this floor. */
typedef enum weft_i_fold_op {
    WEFT_I_FOLD_SUM,
    WEFT_I_FOLD_AVG,
    WEFT_I_FOLD_PRODUCT,
    WEFT_I_FOLD_MIN,
    WEFT_I_FOLD_MAX,
    WEFT_I_FOLD_BAND,
    WEFT_I_FOLD_BOR,
    WEFT_I_FOLD_BXOR,
    WEFT_I_FOLD_PREMUL_SUM,
    WEFT_I_FOLD_OPS
} weft_i_fold_op;

/*
 * Folds `count` elements of `inputs` arrays (1 or more) and stores the result to each of `outputs`
 * arrays.  An output may be one of the inputs (same address), or overlap none.  Arrays need no
 * alignment.  `factors` (one per input) is for PREMUL_SUM only.  When the call returns, a release
 * by this thread publishes the results.
 *
 * Floats of 8 and 16 bits accumulate in float32 and are rounded once at the end; float32 and
 * float64 in their own type, to which factors are rounded too; integers wrap.  AVG divides the sum
 * (of integers: the wrapped one) by `inputs` before rounding; integers are cut towards zero.  MIN
 * and MAX give NaN if any input is NaN; of two equal numbers, as zeros of both signs, the later one
 * counts.  For bool, bytes of 0 or 1, SUM and MAX are or, PRODUCT, MIN and AVG are and.
 *
 * Results have the same bits for all instruction sets, counts and addresses: a NaN result is always
 * the positive quiet one without payload.  Only a single input is copied as it is (PREMUL_SUM
 * multiplies it).
 */
typedef void (*weft_i_fold)(void *const *out, int outputs, const void *const *in, int inputs,
                            size_t count, const double *factors);

/* The fold for a dtype; NULL if the operation has no meaning for it (bits of floats, premul of
 * integers). */
weft_i_fold weft_i_fold_find(weft_dtype dtype, weft_i_fold_op op);

/*
 * Folds in two levels, for ranks on several hosts: each host folds the inputs of its members to a
 * partial, partials are joined two by two, and the last one is finished.  A partial of floats of 8
 * and 16 bits is float32, so that the result is rounded once; of all others it has the dtype of the
 * inputs.  Nothing is divided before the end (AVG); factors are multiplied to the inputs.
 */
weft_dtype weft_i_fold_partial_dtype(weft_dtype dtype);

/* Inputs of `dtype` to partials; NULL as weft_i_fold_find. */
weft_i_fold weft_i_fold_partial_find(weft_dtype dtype, weft_i_fold_op op);

/* Partials to one, earlier hosts first; `factors` is not looked at. */
weft_i_fold weft_i_fold_join_find(weft_dtype dtype, weft_i_fold_op op);

/* The last partial, of so many inputs in all, to `count` results, which may lie there too if they
 * have its dtype. */
void weft_i_fold_finish(weft_dtype dtype, weft_i_fold_op op, void *out, const void *partial,
                        size_t count, int inputs);

/* The instruction sets that folds are compiled for, best first; NULL after the last. */
const char *weft_i_fold_variant(int i);

/* Makes all folds of the process use one of them, for tests; NULL: the best again.  False if this
 * processor has it not. */
bool weft_i_fold_use(const char *variant);

#endif
