/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of update.h for one instruction set. */
#ifndef WEFT_KERNELS_UPDATE_TABLE_H
#define WEFT_KERNELS_UPDATE_TABLE_H

#include "kernels/vector/update_step.h"

#include <stddef.h>

/* Every array is read and written once. */
typedef struct weft_i_update_loops {
    void (*sgd_f32)(float *param, float *velocity, const float *grad, size_t n,
                    const weft_i_sgd *sgd);
    void (*sgd_f64)(double *param, double *velocity, const double *grad, size_t n,
                    const weft_i_sgd *sgd);
    void (*adamw_f32)(float *param, float *mean, float *square, const float *grad, size_t n,
                      const weft_i_adamw *adamw);
    void (*adamw_f64)(double *param, double *mean, double *square, const double *grad, size_t n,
                      const weft_i_adamw *adamw);
} weft_i_update_loops;

#endif
