/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of math.h in f64; include that. */

#define WEFT_I_SIN_REACH_F64 0x1p19

/* e^(r + rest) for |r| <= ln 2 / 2 and a tiny rest. */
WEFT_I_MATH double weft_i_exp_rest_f64(double r, double rest)
{
    double r2 = r * r, r4 = r2 * r2;
    double q01 = 0.50000000000000105895 + 0.16666666666666409617 * r;
    double q23 = 0.041666666666530414302 + 0.0083333333334963404801 * r;
    double q45 = 0.0013888888943579156623 + 0.00019841269502754176379 * r;
    double q67 = 0.000024801493138841996719 + 2.7557589532058734798e-6 * r;
    double q89 = 2.7630237532024147986e-7 + 2.4999138822106326631e-8 * r;
    double q = (q01 + r2 * q23) + r4 * ((q45 + r2 * q67) + r4 * q89);
    return 1 + (r + (rest + r2 * q));
}

/* exp(high + low), where low is a rest of high; q is off by 2^-58. */
WEFT_I_MATH double weft_i_exp_parts_f64(double high, double low)
{
    high = WEFT_I_LEAST(, high, 710.0); /* NaN too */
    high = WEFT_I_MOST(, high, -750.0);
    double rounded = high * 0x1.71547652b82fep+0 + WEFT_I_ROUND_F64, k = rounded - WEFT_I_ROUND_F64;
    double r_high = high - k * 0x1.62e42feep-1, r_low = k * 0x1.a39ef35793c76p-33 - low;
    double r = r_high - r_low, rest = (r_high - r) - r_low;
    double power = weft_i_exp_rest_f64(r, rest);
    double half = k * 0.5 + WEFT_I_ROUND_F64;
    uint64_t first = weft_i_f64_bits(half), second = weft_i_f64_bits(rounded) - first;
    return power * weft_i_f64_from_bits((first + 1023) << 52) *
           weft_i_f64_from_bits((second + 1023) << 52);
}

WEFT_I_MATH double weft_i_exp_f64(double x)
{
    double y = weft_i_exp_parts_f64(x, 0);
    return x == x ? y : WEFT_I_NAN_F64;
}

/* As weft_i_exp_below_f32. */
WEFT_I_MATH double weft_i_exp_below_f64(double x)
{
    x = WEFT_I_MOST(, x, -750.0);
    double rounded = x * 0x1.71547652b82fep+0 + WEFT_I_ROUND_F64, k = rounded - WEFT_I_ROUND_F64;
    double r_high = x - k * 0x1.62e42feep-1, r_low = k * 0x1.a39ef35793c76p-33;
    double r = r_high - r_low, rest = (r_high - r) - r_low;
    double power = weft_i_exp_rest_f64(r, rest);
    return power * weft_i_f64_from_bits((weft_i_f64_bits(rounded) + (1023 + 128)) << 52) * 0x1p-128;
}

/* As weft_i_log_f32; R is off by 2^-58.  The exponent becomes a number by being put below the ones
 * of 2^52, because few vector units convert 64-bit integers. */
WEFT_I_MATH double weft_i_log_f64(double x)
{
    double scaled = x < 0x1p-1022 ? x * 0x1p54 : x;
    double k0 = x < 0x1p-1022 ? -54 : 0;
    uint64_t bits = weft_i_f64_bits(scaled) + (0x3ff0000000000000 - 0x3fe6a09e00000000);
    double k = k0 + (weft_i_f64_from_bits(bits >> 52 | 0x4330000000000000) - (0x1p52 + 1023));
    double f = weft_i_f64_from_bits((bits & 0xfffffffffffff) + 0x3fe6a09e00000000) - 1;
    double s = f / (2 + f), z = s * s, z2 = z * z, half_square = 0.5 * f * f;
    double r01 = 0.66666666666667096608 + 0.39999999999518649435 * z;
    double r23 = 0.28571428729607364656 + 0.22222199052922956941 * z;
    double r45 = 0.18183573713223643129 + 0.15313104748997189314 * z;
    double r = z * (r01 + z2 * (r23 + z2 * (r45 + z2 * 0.14811149415124163072)));
    double y = k * 0x1.62e42feep-1 -
               ((half_square - (s * (half_square + r) + k * 0x1.a39ef35793c76p-33)) - f);
    uint64_t magnitude = weft_i_f64_bits(x) << 1 >> 1; /* SSE2 makes no masks of f64 comparisons */
    y = weft_i_choose_f64((magnitude - 1) >> 63, -WEFT_I_INF_F64, y);
    y = weft_i_choose_f64((magnitude - 0x7ff0000000000000) >> 63, y, x); /* infinity */
    return x >= 0 ? y : WEFT_I_NAN_F64;
}

/* Below 0.625 x + x z P(z) / Q(z), z = x^2; above 1 - 2 / (e^2x + 1); one division for both. */
WEFT_I_MATH double weft_i_tanh_f64(double x)
{
    double a = WEFT_I_FABS(, x), z = a * a;
    double p =
        (-9.64399179425052238628E-1 * z - 9.92877231001918586564E1) * z - 1.61468768441708447952E3;
    double q = ((z + 1.12811678491632931402E2) * z + 2.23548839060100448583E3) * z +
               4.84406305325125486048E3;
    double e = weft_i_exp_parts_f64(2 * a, 0) + 1;
    double above = a < 0.625 ? a * (z * p) : -2, below = a < 0.625 ? q : e;
    double y = WEFT_I_COPYSIGN(, (a < 0.625 ? a : 1) + above / below, x);
    return x == x ? y : WEFT_I_NAN_F64;
}

/* As weft_i_erfc_scaled_f32, with u = (a - 3.5) / (a + 3.5); p is off by 2^-56. */
WEFT_I_MATH double weft_i_erfc_scaled_f64(double a)
{
    double inverse = 1 / ((a + 3.5) * (1 + 2 * a));
    double u = (a - 3.5) * (1 + 2 * a) * inverse, u2 = u * u, u4 = u2 * u2;
    double e0 = 1.2423492448711543728 + u2 * -0.010555596332215845122;
    double e1 = -0.1150895981603414231 + u2 * -0.048823325824263360782;
    double e2 = -0.004215019954103676796 + u2 * 0.00056438476738423736529;
    double e3 = -0.000042783898150051955116 + u2 * 2.3334549102722080712e-6;
    double e4 = -5.4492866380489549628e-8 + u2 * 4.79885072893233549e-9;
    double e5 = -8.3746368178328902079e-9 + u2 * 2.7206059048254598192e-9;
    double o0 = -0.14000918013761927684 + u2 * 0.0975190951532411423;
    double o1 = 0.087983153825483677007 + u2 * 0.019099330932500408826;
    double o2 = -0.00030226779114506502 + u2 * -0.00012151286931086604723;
    double o3 = 0.000024262383104879309487 + u2 * -3.8173478119472276944e-6;
    double o4 = 6.0387092042199924873e-7 + u2 * -9.5629046061146038435e-8;
    double even = e0 + u4 * (e1 + u4 * (e2 + u4 * (e3 + u4 * (e4 + u4 * e5))));
    double odd = o0 + u4 * (o1 + u4 * (o2 + u4 * (o3 + u4 * (o4 + u4 * 1.118601065462392678e-8))));
    return (even + u * odd) * ((a + 3.5) * inverse);
}

/*
 * e^(-factor a^2) for a >= 0 and a factor that is a power of two.  The square is the exact one of
 * a's upper bits and a small rest: its error, a^2 times as large, would be the result's.
 */
WEFT_I_MATH double weft_i_exp_square_f64(double a, double factor)
{
    double upper = weft_i_f64_from_bits(weft_i_f64_bits(a) & 0xffffffff00000000);
    return weft_i_exp_parts_f64(upper * upper * -factor, (upper - a) * (upper + a) * factor);
}

WEFT_I_MATH double weft_i_erfc_positive_f64(double a)
{
    a = WEFT_I_LEAST(, a, 27.3);
    return weft_i_exp_square_f64(a, 1) * weft_i_erfc_scaled_f64(a);
}

WEFT_I_MATH double weft_i_erfc_f64(double x)
{
    double y = weft_i_erfc_positive_f64(WEFT_I_FABS(, x));
    y = x < 0 ? 2 - y : y;
    return x == x ? y : WEFT_I_NAN_F64;
}

/* Below 1 a polynomial for erf(x) / x - 1, off by 2^-57. */
WEFT_I_MATH double weft_i_erf_f64(double x)
{
    double a = WEFT_I_FABS(, x), z = a * a, z2 = z * z, z4 = z2 * z2;
    double p01 = 0.12837916709551256679 + -0.37612638903183546628 * z;
    double p23 = 0.11283791670945253232 + -0.026866170643276218303 * z;
    double p45 = 0.0052239776074234678405 + -0.00085483259896967580333 * z;
    double p67 = 0.00012055295320494294236 + -0.000014924744663335489733 * z;
    double p89 = 1.6447517677871873706e-6 + -1.6209175911748695663e-7 * z;
    double pab = 1.372297626592450327e-8 + -7.8011888740977515657e-10 * z;
    double p = (p01 + z2 * p23) + z4 * ((p45 + z2 * p67) + z4 * (p89 + z2 * pab));
    double small = a + a * p, large = 1 - weft_i_erfc_positive_f64(a);
    double y = WEFT_I_COPYSIGN(, a < 1 ? small : large, x);
    return x == x ? y : WEFT_I_NAN_F64;
}

WEFT_I_MATH double weft_i_gelu_f64(double a)
{
    uint64_t bits = weft_i_f64_bits(a), sign = bits & 0x8000000000000000;
    double b = WEFT_I_FABS(, a);
    b = WEFT_I_LEAST(, b, 38.7);
    double tail =
        0.5 * weft_i_exp_square_f64(b, 0.5) * weft_i_erfc_scaled_f64(b * 0.70710678118654752440);
    double positive = weft_i_f64_from_bits((bits & ((bits >> 63) - 1)) | sign); /* or -0 */
    double y = positive - b * tail;
    return a == a ? y : WEFT_I_NAN_F64;
}

/* The slopes of gelu and of its approximation: Phi(x) + x phi(x), of the normal distribution; and
 * s + x s (1 - s) u', s the logistic function of u = sqrt(8 / pi) (x + 0.044715 x^3). */
WEFT_I_MATH double weft_i_gelu_slope_f64(double x)
{
    double below = 0.5 * (1 + weft_i_erf_f64(x * 0.70710678118654752440));
    return below + x * (0.39894228040143267794 * weft_i_exp_f64(-0.5 * x * x));
}

WEFT_I_MATH double weft_i_gelu_tanh_slope_f64(double x)
{
    const double k = 1.59576912160573071176, z = x * x;
    double u = k * (x + 0.044715 * x * z), e = weft_i_exp_f64(-WEFT_I_FABS(, u));
    double p = 1 / (1 + e), s = u < 0 ? e * p : p; /* s (1 - s) is e p^2 */
    return s + x * (e * p * p) * (k + 3 * 0.044715 * k * z);
}

/* The slope of x times the logistic function s: s (1 + x (1 - s)). */
WEFT_I_MATH double weft_i_silu_slope_f64(double x)
{
    double s = 1 / (1 + weft_i_exp_f64(-x));
    return s * (1 + x * (1 - s));
}

/* Sine of (high + low) + quadrant * pi/2, at most pi/4 in magnitude; off by 2^-58. */
WEFT_I_MATH double weft_i_sin_rest_f64(uint64_t quadrant, double high, double low)
{
    double z = high * high, z2 = z * z, half = 0.5 * z, one = 1 - half;
    double s12 = 0.008333333333322425687 + z * -0.00019841269829815102909;
    double s34 = 2.7557313693729040344e-6 + z * -2.5050758307634405934e-8;
    double s = s12 + z2 * (s34 + z2 * 1.5896802647063675753e-10), cube = z * high;
    double sine = high - ((z * (0.5 * low - cube * s) - low) - cube * -0.16666666666666632086);
    double c01 = 0.041666666666666592942 + z * -0.00138888888888730544;
    double c23 = 0.000024801587288847165071 + z * -2.7557314177141180336e-7;
    double c45 = 2.087570045066008852e-9 + z * -1.1358511973266248373e-11;
    double c = z * (c01 + z2 * (c23 + z2 * c45));
    double cosine = one + (((1 - one) - half) + (z * c - high * low));
    return weft_i_quadrant(quadrant, sine, cosine);
}

/* a + b as the nearest number and its error. */
WEFT_I_MATH double weft_i_sum_error(double a, double b, double *error)
{
    double sum = a + b, part = sum - a;
    *error = (a - (sum - part)) + (b - part);
    return sum;
}

/* pi/2 is three numbers, of which the products of the first two with k are exact. */
WEFT_I_MATH double weft_i_turn_f64(double x, uint64_t quadrant)
{
    double rounded = x * 0x1.45f306dc9c883p-1 + WEFT_I_ROUND_F64, k = rounded - WEFT_I_ROUND_F64;
    double error, low,
        high = weft_i_sum_error(x - k * 0x1.921fb544p+0, k * -0x1.0b4611a6p-34, &error);
    high = weft_i_sum_error(high, error - k * 0x1.3198a2e037073p-69, &low);
    double y = weft_i_sin_rest_f64(weft_i_f64_bits(rounded) + quadrant, high, low);
    y = x == 0 && !quadrant ? x : y; /* keeps the sign of zero */
    return x == x ? y : WEFT_I_NAN_F64;
}

WEFT_I_MATH double weft_i_turn_any_f64(double x, uint64_t quadrant)
{
    double high = 0, low = 0;
    if (!(WEFT_I_FABS(, x) >= WEFT_I_SIN_REACH_F64))
        return weft_i_turn_f64(x, quadrant);
    if (WEFT_I_ISINF(x))
        return WEFT_I_NAN_F64;
    quadrant += weft_i_reduce_angle(x, &high, &low);
    return weft_i_sin_rest_f64(quadrant, high, low);
}

WEFT_I_MATH double weft_i_sin_f64(double x)
{
    return weft_i_turn_f64(x, 0);
}

WEFT_I_MATH double weft_i_cos_f64(double x)
{
    return weft_i_turn_f64(x, 1);
}

WEFT_I_MATH double weft_i_sin_any_f64(double x)
{
    return weft_i_turn_any_f64(x, 0);
}

WEFT_I_MATH double weft_i_cos_any_f64(double x)
{
    return weft_i_turn_any_f64(x, 1);
}
