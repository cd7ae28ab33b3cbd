/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels element by element: over loops, and copies of strided elements. */
#ifndef WEFT_CUDA_POINTWISE_H
#define WEFT_CUDA_POINTWISE_H

#include "backends/cuda/device/launch.h"

/* Element-wise kernels over a loop; `what` has everything but tasks, dimensions and operands. */
weft_status weft_i_cuda_launch_loop(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                    const weft_k_pointwise *what, weft_i_loop loop);
/* Tasks, dimensions and operands alone, of `group` elements a task; false: there are no elements. */
bool weft_i_cuda_lay_out(weft_k_pointwise *c, weft_i_loop loop, uint64_t group);
/* Operand 0 of the loop becomes operand 1, converted; the memory of the two does not overlap. */
weft_status weft_i_cuda_copy_loop(weft_i_cuda_stream *stream, weft_i_loop loop, weft_dtype to,
                                  weft_dtype from);

/* Strided elements on the device, with a change of dtype. */
weft_status weft_i_cuda_convert(weft_i_cuda_stream *stream, const weft_k_copy *copy);

#endif
