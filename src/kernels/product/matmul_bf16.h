/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 by something faster than f32, where there is something. */
#ifndef WEFT_KERNELS_MATMUL_BF16_H
#define WEFT_KERNELS_MATMUL_BF16_H

#include "kernels/blas/matrix.h"

#include <stdbool.h>

/* For people: "AMX", "libdnnl.so.2"; "" if it is f32.  Looks for the fastest at the first call. */
const char *weft_i_matmul_bf16_way(void);

/* out = a b, all of bf16 and not empty, rounded once.  False if it was not done: there is nothing
 * faster than f32, or no memory. */
bool weft_i_matmul_bf16(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b);

#endif
