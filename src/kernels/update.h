/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an optimizer over adjacent elements, in f32 or f64; the same bits on every machine.
 */
#ifndef WEFT_KERNELS_UPDATE_H
#define WEFT_KERNELS_UPDATE_H

#include "weft/dtype.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_i_sgd {
    double rate, momentum, decay;
    bool first; /* the velocity holds nothing yet */
} weft_i_sgd;

typedef struct weft_i_adamw {
    double shrink; /* 1 - rate * decay */
    double beta1, beta2, epsilon;
    double rate; /* divided by 1 - beta1^step */
    double root; /* sqrt(1 - beta2^step) */
} weft_i_adamw;

/* `velocity` is NULL without momentum. */
void weft_i_update_sgd(weft_dtype compute, void *param, void *velocity, const void *grad, size_t n,
                       const weft_i_sgd *sgd);
void weft_i_update_adamw(weft_dtype compute, void *param, void *mean, void *square,
                         const void *grad, size_t n, const weft_i_adamw *adamw);

#endif
