/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices of codes: integers of 8 or 4 bits, each block of a row with a scale.  An element is code
 * times scale.  The largest magnitude of a block has the largest code, 127 or 7, so an element is off
 * by half a scale at most.
 *
 * Codes of 4 bits stand two to a byte, 8 added to them: of 32 elements the byte i has element i in its
 * low half and element i + 16 in its high one.
 */
#ifndef WEFT_KERNELS_CODED_H
#define WEFT_KERNELS_CODED_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_I_CODED_GROUP = 32 };   /* blocks have a multiple of so many elements */
enum { WEFT_I_CODED_FEW_ROWS = 4 }; /* up to so many rows of x are multiplied from the codes */

typedef struct weft_i_coded {
    const uint8_t *codes;
    const float *scales;
    int64_t rows, columns, block; /* `block` divides `columns` */
    int bits;                     /* 8 or 4 */
} weft_i_coded;

/* Bytes of a row's codes. */
static inline int64_t weft_i_coded_bytes(int bits, int64_t columns)
{
    return bits == 8 ? columns : columns / 2;
}

/* Encodes one row of `columns` elements.  False, and the rest undone, at an infinity or NaN. */
bool weft_i_coded_encode(uint8_t *codes, float *scales, const float *x, int64_t columns,
                         int64_t block, int bits);

/* The elements of the rows [from, to), adjacent. */
void weft_i_coded_decode(float *out, const weft_i_coded *matrix, int64_t from, int64_t to);

/*
 * out [rows, matrix rows] = x [rows, columns] times the matrix transposed, for few rows.  x is adjacent.
 * A sum: within a block term k goes to lane k % 32; a block's lanes are multiplied with its scale and
 * added to those of the row; at last lanes 16, 8, 4, 2 and 1 apart are added.  Every operation is rounded
 * by itself, so every processor gives the same bits.
 */
void weft_i_coded_multiply(float *out, const float *x, int64_t rows, const weft_i_coded *matrix);

/* ---- the loops, one function for each instruction set ---- */

typedef float weft_i_coded_dot(const uint8_t *codes, const float *scales, const float *x,
                               int64_t columns, int64_t block);
typedef struct weft_i_coded_table {
    const char *name;
    weft_i_coded_dot *dot8, *dot4;
} weft_i_coded_table;

extern const weft_i_coded_table weft_i_coded_baseline;
#if defined(__x86_64__)
extern const weft_i_coded_table weft_i_coded_avx2, weft_i_coded_avx512;
#endif

/* As weft_i_few_rows_variant and weft_i_few_rows_use. */
const weft_i_coded_table *weft_i_coded_variant(int i);
bool weft_i_coded_use(const weft_i_coded_table *variant);

#endif
