/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the dtypes that count, f32, bf16 and f16, whole words at a time.  `dtype` is a constant
 * wherever these are called, so nothing is decided at run time.
 */
#ifndef WEFT_CUDA_KERNELS_SUMS_H
#define WEFT_CUDA_KERNELS_SUMS_H

#include "number.h"

/* Accumulators of up to 16 bytes. */
typedef struct weft_k_sums {
    float x[8];
} weft_k_sums;

WEFT_K float weft_k_low(int dtype, uint32_t word)
{
    return dtype == WEFT_K_F32    ? weft_k_float(word)
           : dtype == WEFT_K_BF16 ? weft_k_float(word << 16)
                                  : weft_k_low_f16(word);
}

WEFT_K float weft_k_high(int dtype, uint32_t word)
{
    return dtype == WEFT_K_BF16 ? weft_k_float(word & 0xffff0000u) : weft_k_high_f16(word);
}

WEFT_K void weft_k_sums_first(int dtype, weft_k_sums *s, int at, uint32_t word)
{
    if (dtype == WEFT_K_F32) {
        s->x[at] = weft_k_float(word);
    } else {
        s->x[2 * at] = weft_k_low(dtype, word);
        s->x[2 * at + 1] = weft_k_high(dtype, word);
    }
}

WEFT_K void weft_k_sums_next(int dtype, weft_k_sums *s, int at, uint32_t word)
{
    if (dtype == WEFT_K_F32) {
        s->x[at] += weft_k_float(word);
    } else {
        s->x[2 * at] += weft_k_low(dtype, word);
        s->x[2 * at + 1] += weft_k_high(dtype, word);
    }
}

/* A NaN that a sum gave becomes the one that all devices give; `nan` has the dtype's bits. */
WEFT_K uint32_t weft_k_plain_nan(uint32_t word, float low, float high, uint32_t nan)
{
    if (low != low)
        word = (word & 0xffff0000u) | nan;
    if (high != high)
        word = (word & 0xffffu) | nan << 16;
    return word;
}

WEFT_K uint32_t weft_k_sums_last(int dtype, const weft_k_sums *s, int at, int divisor)
{
    if (dtype == WEFT_K_F32) {
        float x = divisor ? s->x[at] / (float)divisor : s->x[at];
        return x != x ? 0x7fc00000u : weft_k_bits(x);
    }
    float low = s->x[2 * at], high = s->x[2 * at + 1];
    if (divisor) {
        low /= (float)divisor;
        high /= (float)divisor;
    }
    return dtype == WEFT_K_BF16 ? weft_k_plain_nan(weft_k_pack_bf16(low, high), low, high, 0x7fc0)
                                : weft_k_plain_nan(weft_k_pack_f16(low, high), low, high, 0x7e00);
}

#endif
