/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 by instructions that multiply bf16.  Both operands are repacked into tiles of 16
 * lines and 32 values of k, 1 KiB each, in the order in which the instructions want them.  A line
 * is a row of the left or a column of the right operand; a strip is the tiles of 16 lines along k.
 */
#ifndef WEFT_KERNELS_BF16_H
#define WEFT_KERNELS_BF16_H

#include "kernels/blas/matrix.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_I_BF16_LINES = 16, /* of a tile */
    WEFT_I_BF16_DEPTH = 32, /* values of k of a tile */
    WEFT_I_BF16_TILE = 512, /* elements */
    WEFT_I_BF16_BLOCK = 32, /* rows and columns that `block` does: two strips by two */
    WEFT_I_BF16_PAIRS = 16, /* of neighbours in k, in a tile */
};

/* Part of an operand: elements, and the distances between them. */
typedef struct weft_i_bf16_lines {
    const uint16_t *data;
    int64_t lines, depth;
    int64_t line_stride, depth_stride;
} weft_i_bf16_lines;

typedef struct weft_i_bf16_kernel {
    const char *name; /* a word, for WEFT_BF16 */
    const char *text; /* for people */
    bool (*usable)(void);
    /* Fill one tile from at most 16 lines and 32 values of k; what is missing counts as 0. */
    void (*pack_left)(uint16_t *tile, const weft_i_bf16_lines *from);
    void (*pack_right)(uint16_t *tile, const weft_i_bf16_lines *from);
    /* Around calls of `block`, in one thread; NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /*
     * z [32][32] is set to, or gains, the product of two left and two right strips of `tiles` tiles
     * each; the second strip begins `skip` elements behind the first.
     */
    void (*block)(float *z, const uint16_t *left, int64_t left_skip, const uint16_t *right,
                  int64_t right_skip, int64_t tiles, bool gains);
    /* Rounds `rows` rows of 32 sums, as weft_i_f32_to_bf16 does; NULL: that does it. */
    void (*round)(uint16_t *out, int64_t row_stride, const float *sums, int64_t rows);
} weft_i_bf16_kernel;

/* What the compiler could make for this architecture, best first; NULL after the last. */
const weft_i_bf16_kernel *weft_i_bf16_variant(int i);

/* out = a b, all bf16, sums in f32.  False if there was no memory; then `out` is untouched. */
bool weft_i_bf16_multiply(const weft_i_bf16_kernel *kernel, const weft_i_matrix *out,
                          const weft_i_matrix *a, const weft_i_matrix *b);

/* A tile's part of an operand that is not whole, or has gaps in both directions, in lines of 32
 * with zeros in place of what is missing. */
void weft_i_bf16_stage(uint16_t stage[WEFT_I_BF16_TILE], const weft_i_bf16_lines *from);

/* One file each; NULL if the compiler does not know the instructions. */
const weft_i_bf16_kernel *weft_i_bf16_amx(void);
const weft_i_bf16_kernel *weft_i_bf16_avx512(void);
const weft_i_bf16_kernel *weft_i_bf16_neon(void);

#endif
