/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions.  The order in which elements are combined depends on their logical order only, not on
 * strides: blocks of 512 are combined in 16 lanes (element i in lane i % 16), lanes pairwise (l
 * with l + 8, then l + 4, 2, 1), blocks pairwise as they come (tests/tensor/test_reduce.c has it plainly).
 * So sums are accurate, vectorise, and have the same bits in every layout and on every machine.
 */
#ifndef WEFT_KERNELS_REDUCE_H
#define WEFT_KERNELS_REDUCE_H

#include "base/share/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_I_REDUCE_SUM,
    WEFT_I_REDUCE_PROD,
    WEFT_I_REDUCE_MAX,
    WEFT_I_REDUCE_MIN,
    WEFT_I_REDUCE_COUNT
};
enum { WEFT_I_REDUCE_MEAN = 0x100 }; /* in an op row: the sum, divided */
enum { WEFT_I_REDUCE_DIMS = 8 };

/* Two groups of dimensions, outermost first; strides in bytes. */
typedef struct weft_i_reduce {
    int which;
    bool mean;          /* divide by the number of elements at the end */
    weft_dtype in, out; /* in memory */
    weft_dtype compute; /* f32, f64, i64, u64, or u8 (max and min of bytes) */
    weft_dtype taken;   /* elements become this first: bool for any and all, else `compute` */
    const char *from;
    char *to;
    int kept, reduced;
    int64_t kept_dim[WEFT_I_REDUCE_DIMS], kept_in[WEFT_I_REDUCE_DIMS], kept_out[WEFT_I_REDUCE_DIMS];
    int64_t reduced_dim[WEFT_I_REDUCE_DIMS], reduced_in[WEFT_I_REDUCE_DIMS];
} weft_i_reduce;

void weft_i_reduce_run(const weft_i_reduce *what);

/* The index of the first largest (MAX) or smallest (MIN) element; NaN is both.  `to` has elements
 * of i64. */
void weft_i_reduce_index(const weft_i_reduce *what);

/* ---- the inner loops, by operation and compute type; reduce.c drives them ---- */

enum { WEFT_I_REDUCE_BLOCK = 512, WEFT_I_REDUCE_LANES = 16, WEFT_I_REDUCE_LEVELS = 56 };

typedef struct weft_i_reduce_loops {
    /* All of n adjacent elements, in the order of reduce.h; `out` gets one value. */
    void (*all)(size_t n, const void *x, void *out);
    void (*fold)(size_t n, void *into, const void *from); /* into[i] takes in from[i] */
    /* Lane i % LANES, a row of `width`, takes in row i of n, which lie `stride` bytes apart. */
    void (*rows)(size_t n, const char *x, int64_t stride, size_t width, void *lanes);
    const void *identity;
} weft_i_reduce_loops;

#endif
