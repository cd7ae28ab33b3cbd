/* SPDX-License-Identifier: Apache-2.0 */
/* Products of floats of 8 bits with scales, for programs that build quantised layers. */
#ifndef WEFT_CUDA_MATMUL_H
#define WEFT_CUDA_MATMUL_H

#include "tensor/object/tensor.h"

/*
 * out = (a * scale_a) (b * scale_b) for a [m, k] and b [k, n] of 8 bits; out is packed f32, bf16 or
 * f16.  A scale is f32: one for all, or one for each row of a, each column of b.  It is done in one
 * go on compute capability 9.0 where both are of one kind, a lies by rows, b by columns and all
 * sizes are multiples of 16; else by way of bf16, which holds the operands exactly.
 */
weft_status weft_i_cuda_multiply_scaled(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                        weft_tensor *scale_a, weft_tensor *scale_b);

#endif
