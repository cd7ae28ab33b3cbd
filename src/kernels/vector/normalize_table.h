/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over one row that is normalised as a whole, in f32 or f64. */
#ifndef WEFT_KERNELS_NORMALIZE_TABLE_H
#define WEFT_KERNELS_NORMALIZE_TABLE_H

#include <stddef.h>

typedef struct weft_i_normalize_loops {
    void (*softmax)(void *out, const void *x, size_t n);
    void (*log_softmax)(void *out, const void *x, size_t n);
    /* Of the gradient and the result, y. */
    void (*softmax_grad)(void *out, const void *grad, const void *y, size_t n);
    void (*log_softmax_grad)(void *out, const void *grad, const void *y, size_t n);
    void (*layer)(void *out, const void *x, size_t n, const void *weight, const void *bias,
                  double epsilon);
    /* The gradient of the row; those of weight and bias are added to what is there, or left out if
     * NULL. */
    void (*layer_grad)(void *out, const void *grad, const void *x, size_t n, const void *weight,
                       double epsilon, void *weight_grad, void *bias_grad);
} weft_i_normalize_loops;

#endif
