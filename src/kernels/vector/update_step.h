/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element of an optimizer's step.  The loops of the CPU (update.c) and the kernels of GPUs are
 * made of this text, so that all devices agree on every bit.
 */
#ifndef WEFT_KERNELS_UPDATE_STEP_H
#define WEFT_KERNELS_UPDATE_STEP_H

#include "kernels/number/math.h"

#include <stdint.h>

typedef struct weft_i_sgd {
    double rate, momentum, decay;
    int32_t first; /* the velocity holds nothing yet */
    int32_t pad;
} weft_i_sgd;

typedef struct weft_i_adamw {
    double shrink; /* 1 - rate * decay */
    double beta1, beta2, epsilon;
    double rate; /* divided by 1 - beta1^step */
    double root; /* sqrt(1 - beta2^step) */
} weft_i_adamw;

#define WEFT_I_UPDATE_STEPS(suffix_, T_, sqrt_)                                                   \
    typedef struct weft_i_sgd_##suffix_ {                                                         \
        T_ rate, momentum, decay;                                                                 \
    } weft_i_sgd_##suffix_;                                                                       \
    typedef struct weft_i_adamw_##suffix_ {                                                       \
        T_ shrink, keep, take, keep2, take2, epsilon, rate, root;                                 \
    } weft_i_adamw_##suffix_;                                                                     \
    WEFT_I_MATH weft_i_sgd_##suffix_ weft_i_sgd_in_##suffix_(const weft_i_sgd *sgd)               \
    {                                                                                             \
        weft_i_sgd_##suffix_ s = {(T_)sgd->rate, (T_)sgd->momentum, (T_)sgd->decay};              \
        return s;                                                                                 \
    }                                                                                             \
    WEFT_I_MATH weft_i_adamw_##suffix_ weft_i_adamw_in_##suffix_(const weft_i_adamw *adamw)       \
    {                                                                                             \
        weft_i_adamw_##suffix_ s = {                                                              \
            (T_)adamw->shrink,      (T_)adamw->beta1,   (T_)(1 - adamw->beta1), (T_)adamw->beta2, \
            (T_)(1 - adamw->beta2), (T_)adamw->epsilon, (T_)adamw->rate,        (T_)adamw->root}; \
        return s;                                                                                 \
    }                                                                                             \
    WEFT_I_MATH void weft_i_sgd_step_##suffix_(T_ *param, T_ grad, weft_i_sgd_##suffix_ s)        \
    {                                                                                             \
        *param -= s.rate * (grad + s.decay * *param);                                             \
    }                                                                                             \
    WEFT_I_MATH void weft_i_momentum_step_##suffix_(T_ *param, T_ *velocity, T_ grad,             \
                                                    weft_i_sgd_##suffix_ s)                       \
    {                                                                                             \
        *velocity = s.momentum * *velocity + (grad + s.decay * *param);                           \
        *param -= s.rate * *velocity;                                                             \
    }                                                                                             \
    WEFT_I_MATH void weft_i_adamw_step_##suffix_(T_ *param, T_ *mean, T_ *square, T_ grad,        \
                                                 weft_i_adamw_##suffix_ s)                        \
    {                                                                                             \
        *mean = s.keep * *mean + s.take * grad;                                                   \
        *square = s.keep2 * *square + s.take2 * (grad * grad);                                    \
        *param = s.shrink * *param - s.rate * (*mean / (sqrt_(*square) / s.root + s.epsilon));    \
    }
#ifdef __CUDACC__
WEFT_I_UPDATE_STEPS(f32, float, sqrtf)
WEFT_I_UPDATE_STEPS(f64, double, sqrt)
#else
WEFT_I_UPDATE_STEPS(f32, float, __builtin_sqrtf)
WEFT_I_UPDATE_STEPS(f64, double, __builtin_sqrt)
#endif

#endif
