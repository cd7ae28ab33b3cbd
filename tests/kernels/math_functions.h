/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of kernels/number/math.h, what they stand for in a wider type, and how far off they may
 * be. */
#ifndef WEFT_TESTS_MATH_FUNCTIONS_H
#define WEFT_TESTS_MATH_FUNCTIONS_H

#include "kernels/number/math.h"
#include "kernels/vector/vector.h"

#include <math.h>

typedef long double wide;

/* gelu stays near the functions it is made of; where it ends in subnormals digits are lost. */
static wide gelu(wide x)
{
    return x * erfcl(-x / sqrtl(2)) / 2;
}

static double gelu_of_f32(double x)
{
    return x < -1e3 ? -0.0 : x * erfc(-x / sqrt(2)) / 2;
}

static const struct function {
    const char *name;
    int kernel; /* -1: none */
    float (*f32)(float);
    double (*f64)(double);
    double (*of_f32)(double);
    wide (*of_f64)(wide);
    double ulp;
} functions[] = {
    {"exp", WEFT_I_POINTWISE_exp, weft_i_exp_f32, weft_i_exp_f64, exp, expl, 1},
    {"log", WEFT_I_POINTWISE_log, weft_i_log_f32, weft_i_log_f64, log, logl, 1},
    {"tanh", WEFT_I_POINTWISE_tanh, weft_i_tanh_f32, weft_i_tanh_f64, tanh, tanhl, 1.5},
    {"erf", WEFT_I_POINTWISE_erf, weft_i_erf_f32, weft_i_erf_f64, erf, erfl, 1.5},
    {"erfc", -1, weft_i_erfc_f32, weft_i_erfc_f64, erfc, erfcl, 8},
    {"sin", WEFT_I_POINTWISE_sin, weft_i_sin_any_f32, weft_i_sin_any_f64, sin, sinl, 1},
    {"cos", WEFT_I_POINTWISE_cos, weft_i_cos_any_f32, weft_i_cos_any_f64, cos, cosl, 1},
    {"gelu", WEFT_I_POINTWISE_gelu, weft_i_gelu_f32, weft_i_gelu_f64, gelu_of_f32, gelu, 20},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/*
 * How far `got` is from `expected`, in units in the last place of a type with `digits` binary
 * digits and the smallest exponent `lowest`; infinity counts as the power of two after the largest.
 */
static inline double distance(double got, wide expected, int digits, int lowest, int highest)
{
    int exponent;
    if (expected != expected || got != got)
        return expected != expected && got != got ? 0 : INFINITY;
    if (fabsl(expected) >= ldexpl(1, highest))
        expected = copysignl(ldexpl(1, highest), expected);
    wide value = isinf(got) ? copysignl(ldexpl(1, highest), got) : got;
    frexpl(expected, &exponent);
    if (expected == 0 || exponent < lowest)
        exponent = lowest;
    return (double)ldexpl(fabsl(value - expected), digits - exponent);
}

/* The same for f32, in f64: the sweep calls it often. */
static inline double distance_f32(float got, double expected)
{
    int exponent;
    if (expected != expected || got != got)
        return expected != expected && got != got ? 0 : INFINITY;
    if (fabs(expected) > 0x1p128)
        expected = copysign(0x1p128, expected);
    double value = isinf(got) ? copysign(0x1p128, got) : got;
    frexp(expected, &exponent);
    if (fabs(expected) < 0x1p-126)
        exponent = -125;
    return ldexp(fabs(value - expected), 24 - exponent);
}

#endif
