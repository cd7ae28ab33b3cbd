/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fold by definition: one element after the other, small floats decoded and rounded by
 * arithmetic on doubles, which holds them exactly.  Shares no code with the fast folds.
 */
#ifndef WEFT_TESTS_FOLD_REFERENCE_H
#define WEFT_TESTS_FOLD_REFERENCE_H

#include "base/share/dtype.h"
#include "kernels/fold/fold.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A small float: value = (1 + fraction / 2^mantissa) * 2^(exponent - bias). */
struct reference_format {
    int mantissa, bias, bits;
    bool infinite; /* the last exponent means infinity and NaN; else only all ones is NaN */
    double largest;
    unsigned nan;
};

static struct reference_format reference_format_of(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_F16:
        return (struct reference_format){10, 15, 16, true, 65504, 0x7e00};
    case WEFT_BF16:
        return (struct reference_format){7, 127, 16, true, 0x1.fep127, 0x7fc0};
    case WEFT_F8E4M3:
        return (struct reference_format){3, 7, 8, false, 448, 0x7f};
    default:
        return (struct reference_format){2, 15, 8, true, 57344, 0x7e};
    }
}

/* 2 to that power, which is a normal number: ldexp took a tenth of the time
 * of test_coll_matrix. */
static double reference_power(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static double reference_decode(struct reference_format f, unsigned bits)
{
    unsigned all = 1u << (f.bits - 1), magnitude = bits & (all - 1);
    unsigned exponent = magnitude >> f.mantissa, last = (all - 1) >> f.mantissa;
    double fraction = magnitude & ((1u << f.mantissa) - 1), value;
    if (f.infinite && exponent == last)
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (!f.infinite && magnitude == all - 1)
        value = (double)NAN;
    else if (exponent == 0)
        value = fraction * reference_power(1 - f.bias - f.mantissa);
    else
        value =
            (fraction + (1u << f.mantissa)) * reference_power((int)exponent - f.bias - f.mantissa);
    return bits & all ? -value : value;
}

/* The nearest of the format's numbers, ties to even; beyond the largest infinity, or NaN. */
static unsigned reference_encode(struct reference_format f, double x)
{
    unsigned sign = signbit(x) ? 1u << (f.bits - 1) : 0;
    if (isnan(x))
        return f.nan;
    double magnitude = fabs(x);
    int exponent = magnitude > 0 && !isinf(x) ? ilogb(magnitude) : 1 - f.bias;
    if (exponent < 1 - f.bias)
        exponent = 1 - f.bias;
    double steps = isinf(x) ? magnitude : rint(magnitude * reference_power(f.mantissa - exponent));
    if (steps * reference_power(exponent - f.mantissa) > f.largest)
        return sign | (f.infinite ? ((1u << (f.bits - 1)) - 1) >> f.mantissa << f.mantissa : f.nan);
    /* A carry out of the fraction goes into the exponent, as it should. */
    return sign | (((unsigned)(exponent + f.bias - 1) << f.mantissa) + (unsigned)steps);
}

static double reference_load_float(weft_dtype dtype, const char *at)
{
    uint16_t bits16 = 0;
    uint8_t bits8 = 0;
    float f32;
    double f64;
    switch (dtype) {
    case WEFT_F64:
        memcpy(&f64, at, 8);
        return f64;
    case WEFT_F32:
        memcpy(&f32, at, 4);
        return (double)f32;
    case WEFT_F16:
    case WEFT_BF16:
        memcpy(&bits16, at, 2);
        return reference_decode(reference_format_of(dtype), bits16);
    default:
        memcpy(&bits8, at, 1);
        return reference_decode(reference_format_of(dtype), bits8);
    }
}

static void reference_store_float(weft_dtype dtype, char *at, double x)
{
    const uint64_t nan64 = UINT64_C(0x7ff8) << 48;
    const uint32_t nan32 = UINT32_C(0x7fc0) << 16;
    float narrow = (float)x;
    if (dtype == WEFT_F64) {
        memcpy(at, isnan(x) ? (const void *)&nan64 : (const void *)&x, 8);
    } else if (dtype == WEFT_F32) {
        memcpy(at, isnan(x) ? (const void *)&nan32 : (const void *)&narrow, 4);
    } else {
        unsigned bits = reference_encode(reference_format_of(dtype), x);
        uint16_t bits16 = (uint16_t)bits;
        uint8_t bits8 = (uint8_t)bits;
        memcpy(at, weft_dtype_size(dtype) == 2 ? (const void *)&bits16 : (const void *)&bits8,
               weft_dtype_size(dtype));
    }
}

/* One step in f64 or, for all other floats, f32: a double that holds two of them rounds once more
 * on its way to f32 and still gives the nearest (53 >= 2 * 24 + 2). */
static double reference_step(weft_dtype dtype, double x)
{
    return dtype == WEFT_F64 ? x : (double)(float)x;
}

static double reference_combine_floats(weft_dtype dtype, weft_i_fold_op op, double a, double b)
{
    switch (op) {
    case WEFT_I_FOLD_PRODUCT:
        return reference_step(dtype, a * b);
    case WEFT_I_FOLD_MIN:
        return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
    case WEFT_I_FOLD_MAX:
        return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
    default:
        return reference_step(dtype, a + b);
    }
}

static double reference_weighted(weft_dtype dtype, weft_i_fold_op op, double x,
                                 const double *factors, int i)
{
    return op == WEFT_I_FOLD_PREMUL_SUM
               ? reference_step(dtype, x * reference_step(dtype, factors[i]))
               : x;
}

static void reference_fold_float(weft_dtype dtype, weft_i_fold_op op, char *to,
                                 const void *const *in, int inputs, size_t at,
                                 const double *factors)
{
    double sum = reference_weighted(
        dtype, op, reference_load_float(dtype, (const char *)in[0] + at), factors, 0);
    for (int k = 1; k < inputs; k++)
        sum = reference_combine_floats(
            dtype, op, sum,
            reference_weighted(dtype, op, reference_load_float(dtype, (const char *)in[k] + at),
                               factors, k));
    if (op == WEFT_I_FOLD_AVG)
        sum = reference_step(dtype, sum / inputs);
    reference_store_float(dtype, to, sum);
}

/* The low bits that the dtype holds, extended to 64 by its sign. */
static uint64_t reference_wrap(weft_dtype dtype, uint64_t x)
{
    int above = 64 - 8 * (int)weft_dtype_size(dtype);
    x <<= above;
    return weft_i_dtype_kind_of(dtype) == WEFT_I_KIND_SIGNED ? (uint64_t)((int64_t)x >> above)
                                                             : x >> above;
}

static uint64_t reference_load_integer(weft_dtype dtype, const char *at)
{
    size_t size = weft_dtype_size(dtype);
    uint64_t x = 0;
    for (size_t i = 0; i < size; i++) {
        size_t place = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? i : size - 1 - i;
        x |= (uint64_t)(uint8_t)at[i] << 8 * place;
    }
    return reference_wrap(dtype, x);
}

static void reference_store_integer(weft_dtype dtype, char *at, uint64_t x)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < size; i++) {
        size_t place = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? i : size - 1 - i;
        at[i] = (char)(uint8_t)(x >> 8 * place);
    }
}

static uint64_t reference_combine_integers(bool is_signed, weft_i_fold_op op, uint64_t a,
                                           uint64_t b)
{
    bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case WEFT_I_FOLD_PRODUCT:
        return a * b;
    case WEFT_I_FOLD_MIN:
        return less ? a : b;
    case WEFT_I_FOLD_MAX:
        return less ? b : a;
    case WEFT_I_FOLD_BAND:
        return a & b;
    case WEFT_I_FOLD_BOR:
        return a | b;
    case WEFT_I_FOLD_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static void reference_fold_integer(weft_dtype dtype, weft_i_fold_op op, char *to,
                                   const void *const *in, int inputs, size_t at)
{
    bool is_signed = weft_i_dtype_kind_of(dtype) == WEFT_I_KIND_SIGNED;
    uint64_t sum = reference_load_integer(dtype, (const char *)in[0] + at);
    for (int k = 1; k < inputs; k++)
        sum = reference_combine_integers(is_signed, op, sum,
                                         reference_load_integer(dtype, (const char *)in[k] + at));
    if (op == WEFT_I_FOLD_AVG) {
        sum = reference_wrap(dtype, sum);
        sum = is_signed ? (uint64_t)((int64_t)sum / inputs) : sum / (uint64_t)inputs;
    }
    reference_store_integer(dtype, to, sum);
}

/* How many are true decides everything. */
static void reference_fold_bool(weft_i_fold_op op, char *to, const void *const *in, int inputs,
                                size_t at)
{
    int truths = 0;
    for (int k = 0; k < inputs; k++)
        truths += ((const char *)in[k])[at] != 0;
    if (op == WEFT_I_FOLD_SUM || op == WEFT_I_FOLD_MAX || op == WEFT_I_FOLD_BOR)
        *to = truths > 0;
    else if (op == WEFT_I_FOLD_BXOR)
        *to = truths % 2 != 0;
    else
        *to = truths == inputs;
}

static void fold_reference(weft_dtype dtype, weft_i_fold_op op, void *const *out, int outputs,
                           const void *const *in, int inputs, size_t count, const double *factors)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        char result[8];
        size_t at = i * size;
        if (inputs == 1 && op != WEFT_I_FOLD_PREMUL_SUM)
            memcpy(result, (const char *)in[0] + at, size);
        else if (weft_i_dtype_is_float(dtype))
            reference_fold_float(dtype, op, result, in, inputs, at, factors);
        else if (dtype == WEFT_BOOL)
            reference_fold_bool(op, result, in, inputs, at);
        else
            reference_fold_integer(dtype, op, result, in, inputs, at);
        for (int k = 0; k < outputs; k++)
            memcpy((char *)out[k] + at, result, size);
    }
}

/* ---- ranks on several hosts ---- */

/*
 * The order between hosts: the inputs of a host one after the other, then hosts by neighbours: with
 * 2^k and some more of them, so many of the first ones are joined in pairs that 2^k are left; then
 * all are, again and again.
 */
static double reference_join_hosts(weft_dtype dtype, weft_i_fold_op op, double *partial, int hosts)
{
    int whole = 1, extra;
    while (2 * whole <= hosts)
        whole *= 2;
    extra = hosts - whole;
    for (int i = 0; i < whole; i++)
        partial[i] = i < extra
                         ? reference_combine_floats(dtype, op, partial[2 * i], partial[2 * i + 1])
                         : partial[i + extra];
    for (; whole > 1; whole /= 2)
        for (int i = 0; i < whole / 2; i++)
            partial[i] = reference_combine_floats(dtype, op, partial[2 * i], partial[2 * i + 1]);
    return partial[0];
}

/* As fold_reference, of inputs that lie on `hosts` hosts, `sizes` of them on each. */
static inline void fold_reference_hosts(weft_dtype dtype, weft_i_fold_op op, void *out,
                                        const void *const *in, const int *sizes, int hosts,
                                        size_t count, const double *factors)
{
    enum { HOSTS = 64 };
    int inputs = 0;
    for (int h = 0; h < hosts; h++)
        inputs += sizes[h];
    if (!weft_i_dtype_is_float(dtype) || hosts < 2 || hosts > HOSTS) { /* in any order */
        fold_reference(dtype, op, &out, 1, in, inputs, count, factors);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = i * weft_dtype_size(dtype);
        double partial[HOSTS];
        for (int h = 0, k = 0; h < hosts; h++)
            for (int member = 0; member < sizes[h]; member++, k++) {
                double x = reference_weighted(
                    dtype, op, reference_load_float(dtype, (const char *)in[k] + at), factors, k);
                partial[h] = member ? reference_combine_floats(dtype, op, partial[h], x) : x;
            }
        double sum = reference_join_hosts(dtype, op, partial, hosts);
        if (op == WEFT_I_FOLD_AVG)
            sum = reference_step(dtype, sum / inputs);
        reference_store_float(dtype, (char *)out + at, sum);
    }
}

#endif
