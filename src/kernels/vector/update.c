/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers, by the loops for this processor. */
#include "kernels/vector/update.h"

#include "kernels/vector/vector.h"

void weft_i_update_sgd(weft_dtype compute, void *param, void *velocity, const void *grad, size_t n,
                       const weft_i_sgd *sgd)
{
    const weft_i_update_loops *loops = weft_i_vector()->update;
    if (compute == WEFT_F64)
        loops->sgd_f64(param, velocity, grad, n, sgd);
    else
        loops->sgd_f32(param, velocity, grad, n, sgd);
}

void weft_i_update_adamw(weft_dtype compute, void *param, void *mean, void *square,
                         const void *grad, size_t n, const weft_i_adamw *adamw)
{
    const weft_i_update_loops *loops = weft_i_vector()->update;
    if (compute == WEFT_F64)
        loops->adamw_f64(param, mean, square, grad, n, adamw);
    else
        loops->adamw_f32(param, mean, square, grad, n, adamw);
}
