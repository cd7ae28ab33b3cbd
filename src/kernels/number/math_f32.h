/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of math.h in f32; include that. */

/* Adding it rounds to a whole number, which is then in the lowest bits: 1.5 * 2^23. */
#define WEFT_I_ROUND_F32 0x1.8p23f
/* The same in f64, where f32 angles are reduced. */
#define WEFT_I_ROUND_F64 0x1.8p52

#define WEFT_I_SIN_REACH_F32 0x1p27f

/* The coefficients of exp, and 1 / ln 2; exp_avx512.h has them too. */
#define WEFT_I_EXP_F32_2   0.49999993294f
#define WEFT_I_EXP_F32_3   0.16666520813f
#define WEFT_I_EXP_F32_4   0.041668422049f
#define WEFT_I_EXP_F32_5   0.0083687098783f
#define WEFT_I_EXP_F32_6   0.0013812910265f
#define WEFT_I_LN2_HIGH    0x1.62e4p-1f
#define WEFT_I_LN2_LOW     0x1.7f7d1cp-20f
#define WEFT_I_PER_LN2_F32 0x1.715476p0f

/* e^r for |r| <= ln 2 / 2: 1 + r (1 + r q(r)), off by 2^-28. */
WEFT_I_MATH float weft_i_exp_rest_f32(float r)
{
    float r2 = r * r;
    float low = weft_i_fma_f32(WEFT_I_EXP_F32_3, r, WEFT_I_EXP_F32_2);
    float high = weft_i_fma_f32(WEFT_I_EXP_F32_5, r, WEFT_I_EXP_F32_4);
    float q = weft_i_fma_f32(r2, weft_i_fma_f32(r2, WEFT_I_EXP_F32_6, high), low);
    return weft_i_fma_f32(r, weft_i_fma_f32(r, q, 1), 1);
}

/* x - k ln 2, of which ln 2 is two numbers. */
WEFT_I_MATH float weft_i_less_ln2_f32(float x, float k)
{
    return weft_i_fma_f32(k, -WEFT_I_LN2_LOW, weft_i_fma_f32(k, -WEFT_I_LN2_HIGH, x));
}

/*
 * The power of two is multiplied in two steps: first 2^(k + 32), then 2^-32 if x is negative, else
 * the other way round.  So results below the normal ones round once and others overflow.  Integers
 * cut x off at 105, as in weft_i_gelu_f32.
 */
WEFT_I_MATH float weft_i_exp_f32(float x)
{
    const float round = WEFT_I_ROUND_F32 + (127 - 32);
    uint32_t bits = weft_i_f32_bits(x), sign = bits & 0x80000000;
    int32_t magnitude = (int32_t)(bits & 0x7fffffff), most = 0x42d20000; /* 105 */
    float a = weft_i_f32_from_bits((uint32_t)(magnitude < most ? magnitude : most) | sign);
    float rounded = weft_i_fma_f32(a, WEFT_I_PER_LN2_F32, round), k = rounded - round;
    float power = weft_i_exp_rest_f32(weft_i_less_ln2_f32(a, k));
    uint32_t first = (weft_i_f32_bits(rounded) << 23) + (sign >> 2); /* 2^64 more */
    uint32_t second = 0x4f800000 - (sign >> 2);                      /* 2^32, or 2^-32 */
    float y = power * weft_i_f32_from_bits(first) * weft_i_f32_from_bits(second);
    return magnitude <= 0x7f800000 ? y : WEFT_I_NAN_F32;
}

/* The same for x <= 0, not NaN, in fewer steps. */
WEFT_I_MATH float weft_i_exp_below_f32(float x)
{
    const float round = WEFT_I_ROUND_F32 + (127 + 32);
    x = WEFT_I_MOST(f, x, -105);
    float rounded = weft_i_fma_f32(x, 0x1.715476p0f, round), k = rounded - round;
    float power = weft_i_exp_rest_f32(weft_i_less_ln2_f32(x, k));
    return power * weft_i_f32_from_bits(weft_i_f32_bits(rounded) << 23) * 0x1p-32f;
}

/*
 * x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); with s = f / (2 + f),
 * log(1 + f) = 2 s + s R(s^2), put together so that f, the largest part, is added last.
 */
WEFT_I_MATH float weft_i_log_f32(float x)
{
    float scaled = x < 0x1p-126f ? x * 0x1p25f : x;
    float k0 = x < 0x1p-126f ? -25 : 0;
    uint32_t bits = weft_i_f32_bits(scaled) + (0x3f800000 - 0x3f3504f3);
    float k = k0 + (float)((int32_t)(bits >> 23) - 127);
    float f = weft_i_f32_from_bits((bits & 0x7fffff) + 0x3f3504f3) - 1;
    float s = f / (2 + f), z = s * s, half_square = 0.5f * f * f;
    float r =
        z * ((0.66666665645f + 0.4000033547f * z) + z * z * (0.28537283627f + 0.23582735821f * z));
    float y =
        k * 0x1.62e4p-1f - ((half_square - (s * (half_square + r) + k * 0x1.7f7d1cp-20f)) - f);
    y = weft_i_choose_f32(x == 0, -WEFT_I_INF_F32, y);
    y = weft_i_choose_f32(x == WEFT_I_INF_F32, x, y);
    return x >= 0 ? y : WEFT_I_NAN_F32;
}

/*
 * |x| = k ln 2 / 2 + y, and with t = tanh(y) and p = 2^k
 *
 *     tanh |x| = ((p - 1) + (p + 1) t) / ((p + 1) + (p - 1) t).
 *
 * t is a polynomial, off by 2^-24.6.  k is 0 up to 0.29, where the quotient is t itself.  For
 * greater k a part of the result is taken out of the quotient, so that its error counts less: m /
 * 2, with m = 1 where k = 1 and m = 2 above.  Off by 1.47 units in the last place at most.
 */
WEFT_I_MATH float weft_i_tanh_f32(float x)
{
    const float round = WEFT_I_ROUND_F32 + 127;
    uint32_t bits = weft_i_f32_bits(x), sign = bits & 0x80000000;
    int32_t magnitude = (int32_t)(bits & 0x7fffffff), most = 0x41200000; /* 10 */
    float a = weft_i_f32_from_bits((uint32_t)(magnitude < most ? magnitude : most));
    float rounded = weft_i_fma_f32(a, 0x1.715476p1f, -0.35f) + round, k = rounded - round;
    float y = weft_i_fma_f32(k, -0x1.7f7d1cp-21f, weft_i_fma_f32(k, -0x1.62e4p-2f, a)), z = y * y;
    float q = weft_i_fma_f32(z, weft_i_fma_f32(z, -0.05123028283f, 0.1332452269f), -0.3333329094f);
    float t = weft_i_fma_f32(y * z, q, y);
    float p = weft_i_f32_from_bits(weft_i_f32_bits(rounded) << 23);
    float m = WEFT_I_LEAST(f, k, 2), c = 0.5f * m, cm = c * m;
    float quotient = weft_i_fma_f32((2 + m) - cm, t, -cm) / weft_i_fma_f32(p - 1, t, p + 1);
    float result = weft_i_f32_from_bits(weft_i_f32_bits(c + quotient) | sign);
    return magnitude <= 0x7f800000 ? result : WEFT_I_NAN_F32;
}

/* e^(a^2) erfc(a) of a >= 0: p(u) / (1 + 2 a) with u = (a - 2) / (a + 2), off by 2^-26. */
WEFT_I_MATH float weft_i_erfc_scaled_f32(float a)
{
    float inverse = 1 / ((a + 2) * (1 + 2 * a));
    float u = (a - 2) * (1 + 2 * a) * inverse, u2 = u * u;
    float even =
        1.2769783918f +
        u2 * (-0.16603135417f +
              u2 * (-0.054205186689f +
                    u2 * (0.0086388469471f + u2 * (-0.001255461379f + u2 * 2.9496005329e-5f))));
    float odd = -0.0927638893f +
                u2 * (0.1640529574f +
                      u2 * (-0.0080430728687f + u2 * (0.0012689801475f + u2 * -0.0003602539091f)));
    return (even + u * odd) * ((a + 2) * inverse);
}

/* e^(-a^2) for 0 <= a < 10.24.  The square is rounded, and what it lacks is added to the rest: its
 * error, a^2 times as large, would be the result's. */
WEFT_I_MATH float weft_i_exp_square_f32(float a)
{
    const float round = WEFT_I_ROUND_F32 + (127 + 32);
    float square = a * a, lacks = weft_i_fma_f32(a, a, -square);
    float rounded = weft_i_fma_f32(square, -0x1.715476p0f, round), k = rounded - round;
    float power = weft_i_exp_rest_f32(weft_i_less_ln2_f32(-square, k) - lacks);
    return power * weft_i_f32_from_bits(weft_i_f32_bits(rounded) << 23) * 0x1p-32f;
}

WEFT_I_MATH float weft_i_erfc_positive_f32(float a)
{
    a = WEFT_I_LEAST(f, a, 10.2f);
    return weft_i_exp_square_f32(a) * weft_i_erfc_scaled_f32(a);
}

WEFT_I_MATH float weft_i_erfc_f32(float x)
{
    float y = weft_i_erfc_positive_f32(WEFT_I_FABS(f, x));
    y = x < 0 ? 2 - y : y;
    return x == x ? y : WEFT_I_NAN_F32;
}

/* Below 1 a polynomial for erf(x) / x - 1, off by 2^-29. */
WEFT_I_MATH float weft_i_erf_f32(float x)
{
    float a = WEFT_I_FABS(f, x), z = a * a, z2 = z * z;
    float p = (0.12837916591f + -0.3761262714f * z) +
              z2 * ((0.11283600212f + -0.026854445582f * z) +
                    z2 * ((0.0051895364619f + -0.00080208456984f * z) + z2 * 7.8891191575e-5f));
    float small = a + a * p, large = 1 - weft_i_erfc_positive_f32(a);
    float y = WEFT_I_COPYSIGN(f, a < 1 ? small : large, x);
    return x == x ? y : WEFT_I_NAN_F32;
}

/* Phi(-b) e^(b^2 / 2) for 0 <= b <= 14.5 is 2^30 numerator / denominator, off by 2^-26.  All
 * terms are positive: no digits are lost. */
WEFT_I_MATH float weft_i_gelu_numerator_f32(float b)
{
    float b2 = b * b, low = weft_i_fma_f32(0.6443245f, b, 0.73850507f);
    float high = weft_i_fma_f32(0.059139792f, b, 0.26819947f);
    return weft_i_fma_f32(b2, weft_i_fma_f32(b2, 0.0059354836f, high), low);
}

WEFT_I_MATH float weft_i_gelu_denominator_f32(float b)
{
    float b2 = b * b, low = weft_i_fma_f32(0x1p30f * 2.4671328f, b, 0x1p30f * 1.4770101f);
    float middle = weft_i_fma_f32(0x1p30f * 0.68692714f, b, 0x1p30f * 1.766377f);
    float high = weft_i_fma_f32(0x1p30f * 0.014877873f, b, 0x1p30f * 0.14825118f);
    return weft_i_fma_f32(b2, weft_i_fma_f32(b2, high, middle), low);
}

/*
 * 2^30 e^(-b^2 / 2), times `*above` / `*below`, for 0 <= b < 14.7.  It is 2^k e^(-r / 2), and
 * e^(-r / 2) = (1 - t) / (1 + t) with t = tanh(r / 4), a fraction, off by 2^-29.  The square is
 * rounded, and what it lacks is added to r.
 */
WEFT_I_MATH float weft_i_gelu_power_f32(float b, float *above, float *below)
{
    const float round = WEFT_I_ROUND_F32 + 127 + 30;
    float square = b * b, lacks = weft_i_fma_f32(b, b, -square);
    float rounded = weft_i_fma_f32(square, -0x1.715476p-1f, round), k = rounded - round;
    float r = weft_i_fma_f32(k, 0x1.7f7d1cp-19f, weft_i_fma_f32(k, 0x1.62e4p0f, square) + lacks);
    float z = r * r, even = weft_i_fma_f32(0.024993065f, z, 1);
    float slope = weft_i_fma_f32(0.0010399413f, z, 0.25f);
    *above = weft_i_fma_f32(-slope, r, even);
    *below = weft_i_fma_f32(slope, r, even);
    return weft_i_f32_from_bits(weft_i_f32_bits(rounded) << 23);
}

/*
 * a Phi(a) = max(a, 0) - b Phi(-b) with b = |a|: Phi(-b) keeps all digits where 1 + erf would
 * cancel.  All fractions share one division.  The numbers are 2^30 too large until they are
 * divided, so that only the quotient is below the normal ones.
 *
 * Integers choose and compare: of several comparisons of one float in a row a compiler may make
 * branches, since one says something about the next, and then no vectors.
 */
WEFT_I_MATH float weft_i_gelu_f32(float a)
{
    uint32_t bits = weft_i_f32_bits(a), sign = bits & 0x80000000;
    int32_t magnitude = (int32_t)(bits & 0x7fffffff), most = 0x41680000; /* 14.5 */
    float b = weft_i_f32_from_bits((uint32_t)(magnitude < most ? magnitude : most)), above, below;
    float power = weft_i_gelu_power_f32(b, &above, &below);
    float tail = (b * power) * (weft_i_gelu_numerator_f32(b) * above) /
                 (weft_i_gelu_denominator_f32(b) * below);
    float positive = weft_i_f32_from_bits((bits & ((bits >> 31) - 1)) | sign); /* or -0 */
    return magnitude <= 0x7f800000 ? positive - tail : WEFT_I_NAN_F32;
}

/* The numerator less b phi(0) times the denominator. */
WEFT_I_MATH float weft_i_gelu_slope_numerator_f32(float b)
{
    float b2 = b * b, low = weft_i_fma_f32(0.0550827225f, b, 0.73850507f);
    float middle = weft_i_fma_f32(-0.645542676f, b, -0.716044115f);
    float high = weft_i_fma_f32(-0.0591436638f, b, -0.268108796f);
    high = weft_i_fma_f32(b2, -0.00593541258f, high);
    return weft_i_fma_f32(b2, weft_i_fma_f32(b2, high, middle), low);
}

/* The slopes of gelu and of its approximation: Phi(x) + x phi(x), of the normal distribution; and
 * s + x s (1 - s) u', s the logistic function of u = sqrt(8 / pi) (x + 0.044715 x^3).  The first is
 * t = Phi(-b) - b phi(b) with b = |x|, or 1 - t where x is not negative. */
WEFT_I_MATH float weft_i_gelu_slope_f32(float x)
{
    uint32_t bits = weft_i_f32_bits(x), sign = bits & 0x80000000;
    int32_t magnitude = (int32_t)(bits & 0x7fffffff), most = 0x416a0000; /* 14.625: t is 0 */
    float b = weft_i_f32_from_bits((uint32_t)(magnitude < most ? magnitude : most)), above, below;
    float power = weft_i_gelu_power_f32(b, &above, &below);
    float t = power * (weft_i_gelu_slope_numerator_f32(b) * above) /
              (weft_i_gelu_denominator_f32(b) * below);
    float start = weft_i_f32_from_bits(0x3f800000 & ((bits >> 31) - 1)); /* 1, or 0 */
    float y = start + weft_i_f32_from_bits(weft_i_f32_bits(t) ^ sign ^ 0x80000000);
    return magnitude <= 0x7f800000 ? y : WEFT_I_NAN_F32;
}

WEFT_I_MATH float weft_i_gelu_tanh_slope_f32(float x)
{
    const float k = 1.59576912160573071176f, z = x * x;
    float u = k * (x + 0.044715f * x * z), e = weft_i_exp_f32(-WEFT_I_FABS(f, u));
    float p = 1 / (1 + e), s = u < 0 ? e * p : p; /* s (1 - s) is e p^2 */
    return s + x * (e * p * p) * (k + 3 * 0.044715f * k * z);
}

/* The slope of x times the logistic function s: s (1 + x (1 - s)). */
WEFT_I_MATH float weft_i_silu_slope_f32(float x)
{
    float s = 1 / (1 + weft_i_exp_f32(-x));
    return s * (1 + x * (1 - s));
}

/* Sine of r + quadrant * pi/2, |r| <= pi/4; in f64, so that f32 rounds once.  Off by 2^-28. */
WEFT_I_MATH float weft_i_sin_rest_f32(uint64_t quadrant, double r)
{
    double z = r * r;
    double s = r * (1 + z * (-0.16666654939464910192 +
                             z * (0.0083321777751118975669 + z * -0.00019517241030291033849)));
    double c = 1 + z * (-0.5 + z * (0.04166664569884290844 + z * (-0.0013887316651313109273 +
                                                                  z * 0.000024433172579320677867)));
    return (float)weft_i_quadrant(quadrant, s, c);
}

/* pi/2 is two numbers, of which the product of the first with k is exact. */
WEFT_I_MATH float weft_i_turn_f32(float x, uint64_t quadrant)
{
    double wide = x, rounded = wide * 0x1.45f306dc9c883p-1 + WEFT_I_ROUND_F64;
    double k = rounded - WEFT_I_ROUND_F64;
    double r = (wide - k * 0x1.921fb5p+0) - k * 0x1.110b4611a6263p-26;
    float y = weft_i_sin_rest_f32(weft_i_f64_bits(rounded) + quadrant, r);
    return x == x ? y : WEFT_I_NAN_F32;
}

WEFT_I_MATH float weft_i_turn_any_f32(float x, uint64_t quadrant)
{
    double high = 0, low = 0;
    if (!(WEFT_I_FABS(f, x) >= WEFT_I_SIN_REACH_F32))
        return weft_i_turn_f32(x, quadrant);
    if (WEFT_I_ISINF(x))
        return WEFT_I_NAN_F32;
    quadrant += weft_i_reduce_angle(x, &high, &low);
    return weft_i_sin_rest_f32(quadrant, high);
}

WEFT_I_MATH float weft_i_sin_f32(float x)
{
    return weft_i_turn_f32(x, 0);
}

WEFT_I_MATH float weft_i_cos_f32(float x)
{
    return weft_i_turn_f32(x, 1);
}

WEFT_I_MATH float weft_i_sin_any_f32(float x)
{
    return weft_i_turn_any_f32(x, 0);
}

WEFT_I_MATH float weft_i_cos_any_f32(float x)
{
    return weft_i_turn_any_f32(x, 1);
}
