/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers: every array is read and written once. */
#include "kernels/update.h"

#include "kernels/convert.h"

#include <math.h>

#define LOOPS(type_, sqrt_)                                                                        \
    static void sgd_##type_(type_ *param, type_ *velocity, const type_ *grad, size_t n,            \
                            const weft_i_sgd *sgd)                                                 \
    {                                                                                              \
        type_ rate = (type_)sgd->rate, momentum = (type_)sgd->momentum, decay = (type_)sgd->decay; \
        if (!velocity) {                                                                           \
            WEFT_I_VECTOR_LOOP                                                                     \
            for (size_t i = 0; i < n; i++)                                                         \
                param[i] -= rate * (grad[i] + decay * param[i]);                                   \
            return;                                                                                \
        }                                                                                          \
        if (sgd->first)                                                                            \
            for (size_t i = 0; i < n; i++)                                                         \
                velocity[i] = 0;                                                                   \
        WEFT_I_VECTOR_LOOP                                                                         \
        for (size_t i = 0; i < n; i++) {                                                           \
            velocity[i] = momentum * velocity[i] + (grad[i] + decay * param[i]);                   \
            param[i] -= rate * velocity[i];                                                        \
        }                                                                                          \
    }                                                                                              \
    static void adamw_##type_(type_ *param, type_ *mean, type_ *square, const type_ *grad,         \
                              size_t n, const weft_i_adamw *adamw)                                 \
    {                                                                                              \
        type_ shrink = (type_)adamw->shrink, rate = (type_)adamw->rate;                            \
        type_ keep = (type_)adamw->beta1, take = (type_)(1 - adamw->beta1);                        \
        type_ keep2 = (type_)adamw->beta2, take2 = (type_)(1 - adamw->beta2);                      \
        type_ root = (type_)adamw->root, epsilon = (type_)adamw->epsilon;                          \
        WEFT_I_VECTOR_LOOP                                                                         \
        for (size_t i = 0; i < n; i++) {                                                           \
            mean[i] = keep * mean[i] + take * grad[i];                                             \
            square[i] = keep2 * square[i] + take2 * (grad[i] * grad[i]);                           \
            param[i] = shrink * param[i] - rate * (mean[i] / (sqrt_(square[i]) / root + epsilon)); \
        }                                                                                          \
    }
LOOPS(float, sqrtf)
LOOPS(double, sqrt)

void weft_i_update_sgd(weft_dtype compute, void *param, void *velocity, const void *grad, size_t n,
                       const weft_i_sgd *sgd)
{
    if (compute == WEFT_F64)
        sgd_double(param, velocity, grad, n, sgd);
    else
        sgd_float(param, velocity, grad, n, sgd);
}

void weft_i_update_adamw(weft_dtype compute, void *param, void *mean, void *square,
                         const void *grad, size_t n, const weft_i_adamw *adamw)
{
    if (compute == WEFT_F64)
        adamw_double(param, mean, square, grad, n, adamw);
    else
        adamw_float(param, mean, square, grad, n, adamw);
}
