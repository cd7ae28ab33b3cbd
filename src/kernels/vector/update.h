/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an optimizer over adjacent elements, in f32 or f64; the same bits on every machine.
 */
#ifndef WEFT_KERNELS_UPDATE_H
#define WEFT_KERNELS_UPDATE_H

#include "kernels/vector/update_step.h"
#include "weft/dtype.h"

#include <stddef.h>

/* `velocity` is NULL without momentum. */
void weft_i_update_sgd(weft_dtype compute, void *param, void *velocity, const void *grad, size_t n,
                       const weft_i_sgd *sgd);
void weft_i_update_adamw(weft_dtype compute, void *param, void *mean, void *square,
                         const void *grad, size_t n, const weft_i_adamw *adamw);

#endif
