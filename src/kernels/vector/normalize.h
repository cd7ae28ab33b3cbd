/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that are normalised as a whole, in f32 or f64.  Sums are in the type of the row and in the
 * order of reduce.h.
 */
#ifndef WEFT_KERNELS_NORMALIZE_H
#define WEFT_KERNELS_NORMALIZE_H

#include "base/share/dtype.h"

#include <stddef.h>

enum { WEFT_I_NORMALIZE_SOFTMAX, WEFT_I_NORMALIZE_LOG_SOFTMAX };

/* `compute` is WEFT_F32 or WEFT_F64, the type of all arrays; `out` is not `row`, and weight and
 * bias may be NULL. */
void weft_i_normalize_softmax(int which, weft_dtype compute, void *out, const void *row, size_t n);
void weft_i_normalize_layer(weft_dtype compute, void *out, const void *row, size_t n,
                            const void *weight, const void *bias, double epsilon);

#endif
