/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floats of 16 and 8 bits.  They are handled by integer arithmetic without branches, so that
 * compilers vectorise loops over these inline functions; all of them round to nearest, ties to
 * even.  The kernels of GPUs are compiled from this text too, so that all devices agree on every
 * bit.
 */
#ifndef WEFT_KERNELS_SMALL_H
#define WEFT_KERNELS_SMALL_H

#include <stdint.h>

#ifdef __CUDACC__
#define WEFT_I_SMALL static __device__ __forceinline__
#else
#define WEFT_I_SMALL static inline
#endif

WEFT_I_SMALL uint32_t weft_i_f32_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } pun;
    pun.f = x;
    return pun.u;
}

WEFT_I_SMALL float weft_i_f32_from_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } pun;
    pun.u = u;
    return pun.f;
}

/* `a` if the condition holds, else `b`, without a branch that could keep a loop from being
 * vectorised. */
WEFT_I_SMALL uint32_t weft_i_small_choose(int condition, uint32_t a, uint32_t b)
{
    uint32_t mask = 0 - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/*
 * Rounds the f32 magnitude `u` to a float with `mantissa` bits and exponent bias `bias`; the result
 * has no sign and may lie above the largest number of the format.  Below the smallest normal,
 * adding `magic`, whose unit in the last place is the format's smallest step, makes the hardware
 * round.  Magnitudes are compared as signed numbers, which all vector units can.
 */
WEFT_I_SMALL uint32_t weft_i_round_bits(uint32_t u, int mantissa, int bias)
{
    int shift = 23 - mantissa;
    uint32_t smallest_normal = (uint32_t)(128 - bias) << 23;
    uint32_t magic = (uint32_t)(127 + 24 - bias - mantissa) << 23;
    uint32_t half = (1u << (shift - 1)) - 1 + (u >> shift & 1);
    uint32_t normal = (u - smallest_normal + (1u << 23) + half) >> shift;
    uint32_t tiny = weft_i_f32_bits(weft_i_f32_from_bits(u) + weft_i_f32_from_bits(magic)) - magic;
    return weft_i_small_choose((int32_t)u < (int32_t)smallest_normal, tiny, normal);
}

/* The f32 bits of a small float's magnitude, infinities and NaN aside; the subtraction normalises
 * subnormals. */
WEFT_I_SMALL uint32_t weft_i_widen_bits(uint32_t magnitude, int mantissa, int bias)
{
    uint32_t moved = magnitude << (23 - mantissa);
    uint32_t smallest_normal = (uint32_t)(128 - bias) << 23;
    uint32_t normal = moved + smallest_normal - (1u << 23);
    uint32_t tiny = weft_i_f32_bits(weft_i_f32_from_bits(moved + smallest_normal) -
                                    weft_i_f32_from_bits(smallest_normal));
    return weft_i_small_choose((int32_t)magnitude < 1 << mantissa, tiny, normal);
}

WEFT_I_SMALL uint16_t weft_i_f32_to_f16(float x)
{
    uint32_t u = weft_i_f32_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    uint32_t r = weft_i_round_bits(magnitude, 10, 15);
    r = weft_i_small_choose((int32_t)r > 0x7c00, 0x7c00, r);
    r = weft_i_small_choose((int32_t)magnitude > 0x7f800000, 0x7e00, r);
    return (uint16_t)(sign | r);
}

WEFT_I_SMALL float weft_i_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    uint32_t r = weft_i_widen_bits(magnitude, 10, 15);
    r = weft_i_small_choose((int32_t)magnitude >= 0x7c00, 0x7f800000 | (magnitude & 0x3ff) << 13,
                            r);
    return weft_i_f32_from_bits(sign | r);
}

WEFT_I_SMALL uint16_t weft_i_f32_to_bf16(float x)
{
    uint32_t u = weft_i_f32_bits(x);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)weft_i_small_choose((int32_t)(u & 0x7fffffff) > 0x7f800000,
                                         (u >> 16 & 0x8000) | 0x7fc0, r);
}

WEFT_I_SMALL float weft_i_bf16_to_f32(uint16_t h)
{
    return weft_i_f32_from_bits((uint32_t)h << 16);
}

/* No infinities: what rounds beyond 448 is NaN. */
WEFT_I_SMALL uint8_t weft_i_f32_to_f8e4m3(float x)
{
    uint32_t u = weft_i_f32_bits(x), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
    uint32_t r = weft_i_round_bits(magnitude, 3, 7);
    return (uint8_t)(sign | weft_i_small_choose((int32_t)r > 0x7e, 0x7f, r));
}

WEFT_I_SMALL float weft_i_f8e4m3_to_f32(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24, magnitude = b & 0x7f;
    uint32_t r =
        weft_i_small_choose(magnitude == 0x7f, 0x7fc00000, weft_i_widen_bits(magnitude, 3, 7));
    return weft_i_f32_from_bits(sign | r);
}

WEFT_I_SMALL uint8_t weft_i_f32_to_f8e5m2(float x)
{
    uint32_t u = weft_i_f32_bits(x), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
    uint32_t r = weft_i_round_bits(magnitude, 2, 15);
    r = weft_i_small_choose((int32_t)r > 0x7c, 0x7c, r);
    r = weft_i_small_choose((int32_t)magnitude > 0x7f800000, 0x7e, r);
    return (uint8_t)(sign | r);
}

WEFT_I_SMALL float weft_i_f8e5m2_to_f32(uint8_t b)
{
    return weft_i_f16_to_f32((uint16_t)(b << 8));
}

/*
 * Rounds to odd: cuts towards zero and sets the last bit if anything was cut.  Rounding the result
 * to a float of at most 22 bits of mantissa then gives what rounding the double once would have
 * given.
 */
WEFT_I_SMALL float weft_i_f64_to_f32_odd(double x)
{
    float nearest = (float)x;
    double back = nearest, magnitude = x < 0 ? -x : x;
    uint32_t u = weft_i_f32_bits(nearest);
    u -= (back < 0 ? -back : back) > magnitude;
    u |= back != x && x == x;
    return weft_i_f32_from_bits(u);
}

#endif
