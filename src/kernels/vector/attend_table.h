/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over one row of scores of attention, in f32 or f64. */
#ifndef WEFT_KERNELS_ATTEND_TABLE_H
#define WEFT_KERNELS_ATTEND_TABLE_H

#include <stddef.h>

typedef struct weft_i_attend_loops {
    /* The largest element, or NaN if there is one; minus infinity of none. */
    double (*largest)(const void *x, size_t n);
    /* x = e^(x - most); their sum, in the order of reduce.h. */
    double (*grow)(void *x, size_t n, double most);
    /* out = out * factor + x */
    void (*fade)(void *out, size_t n, double factor, const void *x);
    /* out = p * (out - mean) */
    void (*slope)(void *out, const void *p, size_t n, double mean);
    /* The sum of a * b. */
    double (*dot)(const void *a, const void *b, size_t n);
} weft_i_attend_loops;

#endif
