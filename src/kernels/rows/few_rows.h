/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of which an operand has one to four rows, or the other one as many columns: generating
 * text, vectors.  Such a product is a matrix that is read once.  A BLAS packs it first, as it does
 * for products in which it is used again and again, and takes two to three times as long.
 */
#ifndef WEFT_KERNELS_FEW_ROWS_H
#define WEFT_KERNELS_FEW_ROWS_H

#include "kernels/blas/matrix.h"
#include "weft/status.h"

#include <stdbool.h>

/* Whether out = a b is such a product, of dtypes that there are loops for. */
bool weft_i_few_rows_fits(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b);

/* out = a b, if it fits.  Sums are f32, or f64 for f64, and the result is rounded once.  Their order
 * depends only on the inner size and on which way the matrix lies in memory (few_rows_table.h).
 * WEFT_ERR_NO_MEMORY if a copy is needed and cannot be had; then `out` is untouched. */
weft_status weft_i_few_rows(const weft_i_matrix *out, const weft_i_matrix *a,
                            const weft_i_matrix *b);

#endif
