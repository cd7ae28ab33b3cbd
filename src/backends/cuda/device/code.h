/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are compiled by NVRTC while the program runs: CUDA's table of tensor/object/code.h. */
#ifndef WEFT_CUDA_CODE_H
#define WEFT_CUDA_CODE_H

#include "tensor/object/code.h"

extern const weft_i_code weft_i_cuda_code;

#endif
