/* SPDX-License-Identifier: Apache-2.0 */
/* The packing and rounding that products of bf16 by AVX-512 and by AMX share. */
#ifndef WEFT_KERNELS_BF16_X86_H
#define WEFT_KERNELS_BF16_X86_H

#include "kernels/product/bf16.h"

void weft_i_bf16_pack_lines(uint16_t *tile, const weft_i_bf16_lines *from);
void weft_i_bf16_pack_pairs(uint16_t *tile, const weft_i_bf16_lines *from);
void weft_i_bf16_round(uint16_t *out, int64_t row_stride, const float *sums, int64_t rows);

#endif
