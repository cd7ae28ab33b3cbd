/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between dtypes; small.h has those of single small floats. */
#ifndef WEFT_KERNELS_CONVERT_H
#define WEFT_KERNELS_CONVERT_H

#include "base/share/dtype.h"
#include "kernels/number/small.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Converts `n` adjacent elements; the arrays do not overlap.  Floats become integers by truncation,
 * saturating at the ends of the range, NaN becoming 0; integers become narrower ones by dropping
 * high bits; bool is "not equal to 0". Every conversion to a float rounds once.
 */
void weft_i_convert(weft_dtype to, void *out, weft_dtype from, const void *in, size_t n);

/* A loop whose rounds do not depend on each other, although an output may be the very array of an
 * input. */
#if defined(__clang__)
#define WEFT_I_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEFT_I_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#endif
