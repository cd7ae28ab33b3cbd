/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over strided matrices of any dtype. */
#ifndef WEFT_KERNELS_MATMUL_H
#define WEFT_KERNELS_MATMUL_H

#include "kernels/blas/matrix.h"
#include "weft/status.h"

/*
 * out = a b.  Floats go to CBLAS if there is one, the small ones by way of f32 with one rounding at
 * the end, but for products with few rows or columns (few_rows.h); integers multiply modulo 2^64.
 * Operands whose rows or columns are contiguous are not
 * copied.  `out` overlaps neither operand. WEFT_ERR_NO_MEMORY if a copy is needed and cannot be
 * had; then `out` is untouched.
 */
weft_status weft_i_matmul(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b);

/* The same without instructions that multiply bf16, which round sums otherwise. */
weft_status weft_i_matmul_by_f32(const weft_i_matrix *out, const weft_i_matrix *a,
                                 const weft_i_matrix *b);

/* The same without CBLAS and own instructions: what it is tested against, and what runs where there is none. */
weft_status weft_i_matmul_by_loops(const weft_i_matrix *out, const weft_i_matrix *a,
                                   const weft_i_matrix *b);

#endif
