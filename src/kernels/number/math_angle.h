/* SPDX-License-Identifier: Apache-2.0 */
/* Angles that are too large for the reductions in math.h, by integers of 128 bits.  Compiled once
 * for the CPU (math.c) and into the kernels of GPUs. */
#ifndef WEFT_KERNELS_MATH_ANGLE_H
#define WEFT_KERNELS_MATH_ANGLE_H

#include "kernels/number/math.h"

#ifdef __CUDACC__
#define WEFT_I_ANGLE_TABLE static __device__ const
#define WEFT_I_ANGLE       static __device__ __forceinline__
#define WEFT_I_ANGLE_OUT   static __device__ __noinline__
#else
#define WEFT_I_ANGLE_TABLE static const
#define WEFT_I_ANGLE       static inline
#define WEFT_I_ANGLE_OUT
#endif

/* 2 / pi, the first 64 bits behind the point first; enough for the largest f64. */
WEFT_I_ANGLE_TABLE uint64_t weft_i_two_over_pi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};

#ifdef __CUDACC__
typedef unsigned __int128 weft_i_u128;
typedef __int128 weft_i_i128;
#else
__extension__ typedef unsigned __int128 weft_i_u128;
__extension__ typedef __int128 weft_i_i128;
#endif

/* 64 bits of 2 / pi from bit `at` behind the point on. */
WEFT_I_ANGLE uint64_t weft_i_bits_from(int at)
{
    int word = at / 64, shift = at % 64;
    return shift ? weft_i_two_over_pi[word] << shift | weft_i_two_over_pi[word + 1] >> (64 - shift)
                 : weft_i_two_over_pi[word];
}

/*
 * x = m 2^e as quarters of a turn, x * 2 / pi: the lowest two bits before the point are returned,
 * `fraction` gets the 128 behind it.  Bits of 2 / pi that m 2^e moves further up make whole turns,
 * and those after the 192 taken here are too small.
 */
WEFT_I_ANGLE uint64_t weft_i_quarters(uint64_t m, int e, weft_i_u128 *fraction)
{
    int at = e > 2 ? e - 2 : 0, down = e > 2 ? 0 : 2 - e;
    weft_i_u128 last = (weft_i_u128)m * weft_i_bits_from(at + 128),
                middle = (weft_i_u128)m * weft_i_bits_from(at + 64) + (last >> 64);
    weft_i_u128 first = (weft_i_u128)m * weft_i_bits_from(at) + (middle >> 64);
    uint64_t word[4] = {(uint64_t)last, (uint64_t)middle, (uint64_t)first, (uint64_t)(first >> 64)};
    for (int i = 0; i < 3 && down; i++) /* at most 35 bits */
        word[i] = word[i] >> down | word[i + 1] << (64 - down);
    *fraction = ((weft_i_u128)word[2] << 64 | word[1]) << 2 | word[0] >> 62;
    return word[2] >> 62;
}

/* The upper 128 bits of the product. */
WEFT_I_ANGLE weft_i_u128 weft_i_multiply_high(weft_i_u128 a, weft_i_u128 b)
{
    uint64_t a1 = (uint64_t)(a >> 64), a0 = (uint64_t)a, b1 = (uint64_t)(b >> 64), b0 = (uint64_t)b;
    weft_i_u128 left = (weft_i_u128)a1 * b0, right = (weft_i_u128)a0 * b1,
                low = (weft_i_u128)a0 * b0;
    weft_i_u128 carry = ((weft_i_u128)(uint64_t)left + (uint64_t)right + (low >> 64)) >> 64;
    return (weft_i_u128)a1 * b1 + (left >> 64) + (right >> 64) + carry;
}

WEFT_I_ANGLE_OUT uint64_t weft_i_reduce_angle(double x, double *high, double *low)
{
    const weft_i_u128 half_pi =
        (weft_i_u128)0xc90fdaa22168c234 << 64 | 0xc4c6628b80dc1cd1; /* 2^127 */
    uint64_t bits = weft_i_f64_bits(x), m = (bits & 0xfffffffffffff) | 1ull << 52;
    weft_i_u128 fraction;
    uint64_t quadrant = weft_i_quarters(m, (int)(bits >> 52 & 0x7ff) - 1075, &fraction);
    double sign = 1;
    if (fraction >> 127) { /* the nearest quarter is the next one */
        quadrant++;
        fraction = -fraction;
        sign = -1;
    }
    int zeros = 0; /* no f64 comes nearer to a quarter than 2^-62 */
    for (; zeros < 100 && !(fraction >> 127); zeros++)
        fraction <<= 1;
    weft_i_u128 rest = weft_i_multiply_high(fraction, half_pi);
    double upper = (double)rest, lower = (double)(weft_i_i128)(rest - (weft_i_u128)upper);
    double unit = weft_i_f64_from_bits((uint64_t)(1023 - 127 - zeros) << 52);
    if (bits >> 63) {
        quadrant = 0 - quadrant;
        sign = -sign;
    }
    *high = upper * unit * sign;
    *low = lower * unit * sign;
    return quadrant;
}

#endif
