/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of products with few rows: one table for each instruction set.
 *
 * The order of a sum over k, for every instruction set: where the matrix is adjacent in k, term k
 * goes to lane k % 16 (8 of f64), and the lanes are added pairwise, those half of them apart first.
 * Where it is adjacent in columns, each 8 terms are summed one after the other from 0, and these
 * sums as well.  A product and the addition to its sum are rounded once together, where the
 * instruction set can do that (`fused`).
 */
#ifndef WEFT_KERNELS_FEW_ROWS_TABLE_H
#define WEFT_KERNELS_FEW_ROWS_TABLE_H

#include "base/share/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_I_FEW_ROWS = 4 };        /* at most */
enum { WEFT_I_FEW_ROWS_DEPTH = 8 };  /* terms that are summed before their sum is added */
enum { WEFT_I_FEW_ROWS_LANES = 64 }; /* bytes of sums */

/* out [rows, columns] = x [rows, depth] times the matrix [depth, columns].  x and `out` are of the
 * type of the sums, their elements adjacent in a row.  Skips are elements, between rows of x and
 * `out`, and between columns (`dot`) or rows (`axpy`) of the matrix.  `out` should fit a first-level
 * cache. */
typedef struct weft_i_few_rows_product {
    const void *matrix, *x;
    void *out;
    int64_t matrix_skip, x_skip, out_skip;
    int64_t rows, depth, columns;
} weft_i_few_rows_product;

typedef void weft_i_few_rows_loop(const weft_i_few_rows_product *p);

typedef struct weft_i_few_rows_loops {
    weft_i_few_rows_loop *dot;  /* the matrix is adjacent in depth */
    weft_i_few_rows_loop *axpy; /* it is adjacent in columns */
} weft_i_few_rows_loops;

typedef struct weft_i_few_rows_table {
    const char *name;
    bool fused;
    weft_i_few_rows_loops of[WEFT_DTYPE_COUNT]; /* by the matrix' dtype; NULL if there are none */
} weft_i_few_rows_table;

/* The tables of this architecture, best first, whether or not this processor can use them; NULL
 * after the last. */
const weft_i_few_rows_table *weft_i_few_rows_variant(int i);

/* Makes all products of the process use one variant, for tests; NULL: the best again.  False if
 * this processor has it not. */
bool weft_i_few_rows_use(const weft_i_few_rows_table *variant);

extern const weft_i_few_rows_table weft_i_few_rows_baseline;
#if defined(__x86_64__)
extern const weft_i_few_rows_table weft_i_few_rows_avx2, weft_i_few_rows_avx512;
#endif

#endif
