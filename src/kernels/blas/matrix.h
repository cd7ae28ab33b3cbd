/* SPDX-License-Identifier: Apache-2.0 */
/* Strided matrices, and what the ways of multiplying them share: copies in another layout, CBLAS. */
#ifndef WEFT_KERNELS_MATRIX_H
#define WEFT_KERNELS_MATRIX_H

#include "base/share/dtype.h"
#include "kernels/blas/blas.h"
#include "kernels/walk/loop.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_i_matrix {
    weft_dtype dtype;
    char *data;
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* elements */
} weft_i_matrix;

/* Row-major, with distance `*ld` between rows.  The stride of a single row or column does not
 * matter. */
bool weft_i_matrix_is_row_major(const weft_i_matrix *x, int64_t *ld);
/* WEFT_I_BLAS_PLAIN if x is row-major, else WEFT_I_BLAS_TRANSPOSED: its transpose must be. */
int weft_i_matrix_transposition(const weft_i_matrix *x, int64_t *ld);
weft_i_matrix weft_i_matrix_transposed(const weft_i_matrix *x);
/* Rows [from, to) of x. */
weft_i_matrix weft_i_matrix_rows(const weft_i_matrix *x, int64_t from, int64_t to);

weft_i_loop weft_i_matrix_loop(const weft_i_matrix *x);
void weft_i_matrix_copy(const weft_i_matrix *to, const weft_i_matrix *from);
/* A row-major matrix of x's size; `memory` owns it.  False if there is none. */
bool weft_i_matrix_allocate(weft_i_matrix *out, void **memory, weft_dtype dtype,
                            const weft_i_matrix *x);
/* x itself if the multiplication can read it (`either_way`: also transposed), else a copy that
 * `memory` owns. */
bool weft_i_matrix_prepare(weft_i_matrix *out, void **memory, weft_dtype compute,
                           const weft_i_matrix *x, bool either_way);

/* Whether sizes and strides fit CBLAS's int. */
bool weft_i_matrix_fits_blas(const weft_i_matrix *x);
/* f32 or f64, `out` row-major, the operands or their transposes too. */
void weft_i_matrix_by_blas(const weft_i_blas *blas, const weft_i_matrix *out,
                           const weft_i_matrix *a, const weft_i_matrix *b);

#endif
