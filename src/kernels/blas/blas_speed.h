/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a BLAS as fast as this machine lets it be?  A small product of f32 and the vector units alone
 * are measured by turns, in processor time, so that a busy machine slows both; the outcome is kept
 * in the cache folder for this machine and this library.
 */
#ifndef WEFT_KERNELS_BLAS_SPEED_H
#define WEFT_KERNELS_BLAS_SPEED_H

#include "kernels/blas/blas.h"

#include <stdbool.h>

/* Some milliseconds.  False if memory ran out, or this architecture has no loop for it. */
bool weft_i_blas_speed_measure(const weft_i_blas *blas, weft_i_blas_speed *out);

/* The same, but what an earlier process has measured and kept is taken as it is, and what is
 * measured is kept, unless WEFT_LEARN forbids it or there is no folder. */
bool weft_i_blas_speed_get(const weft_i_blas *blas, weft_i_blas_speed *out);

/* Below a third of the vector units. */
bool weft_i_blas_speed_is_low(const weft_i_blas_speed *speed);

#endif
