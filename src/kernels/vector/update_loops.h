/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers over adjacent elements, as the table `update`; included by vector_loops.h. */
#include "kernels/vector/update_table.h"

#define LOOPS(type_, suffix_)                                                                \
    static void sgd_##suffix_(type_ *param, type_ *velocity, const type_ *grad, size_t n,    \
                              const weft_i_sgd *sgd)                                         \
    {                                                                                        \
        weft_i_sgd_##suffix_ s = weft_i_sgd_in_##suffix_(sgd);                               \
        if (!velocity) {                                                                     \
            WEFT_I_VECTOR_LOOP                                                               \
            for (size_t i = 0; i < n; i++)                                                   \
                weft_i_sgd_step_##suffix_(&param[i], grad[i], s);                            \
            return;                                                                          \
        }                                                                                    \
        if (sgd->first)                                                                      \
            for (size_t i = 0; i < n; i++)                                                   \
                velocity[i] = 0;                                                             \
        WEFT_I_VECTOR_LOOP                                                                   \
        for (size_t i = 0; i < n; i++)                                                       \
            weft_i_momentum_step_##suffix_(&param[i], &velocity[i], grad[i], s);             \
    }                                                                                        \
    static void adamw_##suffix_(type_ *param, type_ *mean, type_ *square, const type_ *grad, \
                                size_t n, const weft_i_adamw *adamw)                         \
    {                                                                                        \
        weft_i_adamw_##suffix_ s = weft_i_adamw_in_##suffix_(adamw);                         \
        WEFT_I_VECTOR_LOOP                                                                   \
        for (size_t i = 0; i < n; i++)                                                       \
            weft_i_adamw_step_##suffix_(&param[i], &mean[i], &square[i], grad[i], s);        \
    }
LOOPS(float, f32)
LOOPS(double, f64)
#undef LOOPS

static const weft_i_update_loops update = {sgd_f32, sgd_f64, adamw_f32, adamw_f64};
