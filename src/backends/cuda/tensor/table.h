/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA under tensors: the device's table, and what is entered into it from elsewhere. */
#ifndef WEFT_CUDA_TABLE_H
#define WEFT_CUDA_TABLE_H

#include "backends/cuda/device/device.h"
#include "tensor/object/stream.h"
#include "weft/tensor.h"

extern const weft_i_device weft_i_device_cuda;

/* Adds the column of the rows that make and move elements (move.c).  Other files' columns are added
 * from table.c as well, so that a static link finds them. */
void weft_i_cuda_add_columns(void);

/* An entry of the table that computes (matmul.c): see tensor/object/device.h. */
weft_status weft_i_cuda_multiply_part(weft_tensor *out, weft_tensor *a, weft_tensor *b,
                                      weft_tensor *scale_a, weft_tensor *scale_b,
                                      const weft_tensor *c, double factor);

#endif
