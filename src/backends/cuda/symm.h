/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA under symmetric memory: the table of symm/backend.h. */
#ifndef WEFT_CUDA_SYMM_H
#define WEFT_CUDA_SYMM_H

#include "symm/backend.h"

extern const weft_i_device_memory weft_i_cuda_device_memory;

#endif
