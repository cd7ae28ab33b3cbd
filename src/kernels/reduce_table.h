/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of a reduction, by operation and compute type; reduce.c drives them. */
#ifndef WEFT_KERNELS_REDUCE_TABLE_H
#define WEFT_KERNELS_REDUCE_TABLE_H

#include "kernels/reduce.h"

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
