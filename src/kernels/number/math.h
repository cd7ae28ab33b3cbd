/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, log, tanh, erf, erfc, sin and cos without branches, so that compilers make vectors of loops
 * over them.  They consist of sums, products, divisions and operations on bits only, in a fixed
 * order: the same argument gives the same bits on every machine, in every vector length.  A product
 * and a sum are rounded once together only where the text says so (weft_i_fma_f32); a processor
 * without that instruction computes the same bits in f64.  A NaN result is the positive quiet one
 * without payload.
 *
 * exp, log, tanh, erf, sin and cos are off by at most 2 units in the last place for every argument,
 * erfc by at most 8 (test_math.c).  sin and cos have two forms: weft_i_sin_f32 is right up to
 * WEFT_I_SIN_REACH_F32 in magnitude and vectorises, weft_i_sin_any_f32 takes every argument.  Both
 * give the same bits within reach, so a loop may look for arguments out of reach first.
 *
 * The kernels of GPUs are compiled from this text too; there sin and cos of large arguments come
 * from math_angle.h.
 *
 * The polynomials are minimax ones (Remez), rounded; their errors are given where they are defined.
 */
#ifndef WEFT_KERNELS_MATH_H
#define WEFT_KERNELS_MATH_H

#include "kernels/number/small.h"

#include <stdint.h>

#ifdef __CUDACC__
#define WEFT_I_MATH                   static __device__ __forceinline__
#define WEFT_I_FABS(suffix_, x_)      fabs##suffix_(x_)
#define WEFT_I_COPYSIGN(suffix_, ...) copysign##suffix_(__VA_ARGS__)
#define WEFT_I_ISINF(x_)              isinf(x_)
#define WEFT_I_NAN_F32                weft_i_f32_from_bits(0x7fc00000)
#define WEFT_I_NAN_F64                weft_i_f64_from_bits(0x7ff8000000000000)
#define WEFT_I_INF_F32                weft_i_f32_from_bits(0x7f800000)
#define WEFT_I_INF_F64                weft_i_f64_from_bits(0x7ff0000000000000)
#else
#include "kernels/number/convert.h"
#define WEFT_I_MATH                   static inline
#define WEFT_I_FABS(suffix_, x_)      __builtin_fabs##suffix_(x_)
#define WEFT_I_COPYSIGN(suffix_, ...) __builtin_copysign##suffix_(__VA_ARGS__)
#define WEFT_I_ISINF(x_)              __builtin_isinf(x_)
#define WEFT_I_NAN_F32                __builtin_nanf("")
#define WEFT_I_NAN_F64                __builtin_nan("")
#define WEFT_I_INF_F32                __builtin_inff()
#define WEFT_I_INF_F64                __builtin_inf()
/* With the magnitude of `x`, not NaN.  Reduces by pi/2 with integers; `*high` + `*low` is the rest.
 * Returns the quadrant. */
uint64_t weft_i_reduce_angle(double x, double *high, double *low);
#endif

WEFT_I_MATH uint64_t weft_i_f64_bits(double x)
{
    union {
        double f;
        uint64_t u;
    } pun;
    pun.f = x;
    return pun.u;
}

WEFT_I_MATH double weft_i_f64_from_bits(uint64_t u)
{
    union {
        uint64_t u;
        double f;
    } pun;
    pun.u = u;
    return pun.f;
}

/*
 * a b + c rounded once, by f64, where the product is exact.  The sum is rounded to odd, away from
 * the even neighbour if it is not exact: then rounding to f32 sees on which side the rest lies.
 */
WEFT_I_MATH float weft_i_fma_wide_f32(float a, float b, float c)
{
    double product = (double)a * (double)b, sum = product + c, part = sum - product;
    double rest = (product - (sum - part)) + (c - part);
    uint64_t bits = weft_i_f64_bits(sum), even = ~bits & 1;
    uint64_t up = (rest > 0) & even, down = (rest < 0) & even, negative = bits >> 63;
    uint64_t away = negative ? down : up, back = negative ? up : down;
    return (float)weft_i_f64_from_bits(bits + away - back);
}

/* Processors of x86-64 before 2013 have no such instruction. */
WEFT_I_MATH float weft_i_fma_f32(float a, float b, float c)
{
#ifdef __CUDACC__
    return fmaf(a, b, c);
#elif defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return weft_i_fma_wide_f32(a, b, c);
#endif
}

/* The smaller and the larger one; b if a is NaN.  One instruction each; written with a comparison,
 * gcc makes branches of it on Arm64 and computes both sides of them. */
#if defined(__CUDACC__)
#define WEFT_I_LEAST(suffix_, a_, b_) fmin##suffix_(a_, b_)
#define WEFT_I_MOST(suffix_, a_, b_)  fmax##suffix_(a_, b_)
#elif defined(__aarch64__)
#define WEFT_I_LEAST(suffix_, a_, b_) __builtin_fmin##suffix_(a_, b_)
#define WEFT_I_MOST(suffix_, a_, b_)  __builtin_fmax##suffix_(a_, b_)
#else
#define WEFT_I_LEAST(suffix_, a_, b_) ((a_) < (b_) ? (a_) : (b_))
#define WEFT_I_MOST(suffix_, a_, b_)  ((a_) > (b_) ? (a_) : (b_))
#endif

/* `a` if `when` is 1, `b` if it is 0, by their bits.  Of several choices in a row between floats
 * gcc makes branches, since one comparison says something about the next, and then no vectors. */
WEFT_I_MATH float weft_i_choose_f32(uint32_t when, float a, float b)
{
    uint32_t mask = 0 - when;
    return weft_i_f32_from_bits((weft_i_f32_bits(a) & mask) | (weft_i_f32_bits(b) & ~mask));
}

WEFT_I_MATH double weft_i_choose_f64(uint64_t when, double a, double b)
{
    uint64_t mask = 0 - when;
    return weft_i_f64_from_bits((weft_i_f64_bits(a) & mask) | (weft_i_f64_bits(b) & ~mask));
}

/* b if the lowest bit of `which` is set, else a; with its sign flipped if the next bit is. */
WEFT_I_MATH double weft_i_quadrant(uint64_t which, double a, double b)
{
    uint64_t mask = 0 - (which & 1);
    uint64_t bits = (weft_i_f64_bits(b) & mask) | (weft_i_f64_bits(a) & ~mask);
    return weft_i_f64_from_bits(bits ^ (which & 2) << 62);
}

#ifdef __CUDACC__
#include "kernels/number/math_angle.h"
#endif
#include "kernels/number/math_f32.h"
#include "kernels/number/math_f64.h"

#endif
