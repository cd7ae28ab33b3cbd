/* SPDX-License-Identifier: Apache-2.0 */
/* out += a b, for sums of products that come one after the other. */
#ifndef WEFT_KERNELS_MATMUL_ADD_H
#define WEFT_KERNELS_MATMUL_ADD_H

#include "kernels/blas/matrix.h"

/* All f32 or all f64, `out` and `b` row-major; `a` is row-major or transposed.  The rows of `out` are cut by its
 * shape among the threads of the team. */
void weft_i_matmul_add(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b);

#endif
