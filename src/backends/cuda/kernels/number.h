/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of any dtype, one at a time: loading, storing, folding, converting.  An element is its
 * bits in 64; an accumulator is the bits of what it is accumulated in: f64 for f64, f32 for all
 * other floats, the integer extended by its sign.  The results have the bits of
 * tests/fold_reference.h and weft_i_convert.
 */
#ifndef WEFT_CUDA_KERNELS_NUMBER_H
#define WEFT_CUDA_KERNELS_NUMBER_H

#include "device.h"
#include "kernels/number/small.h"

/* As weft_dtype and weft_i_fold_op; tests/cuda/model_kernels.c compares them. */
enum {
    WEFT_K_F64,
    WEFT_K_F32,
    WEFT_K_F16,
    WEFT_K_BF16,
    WEFT_K_F8E4M3,
    WEFT_K_F8E5M2,
    WEFT_K_I8,
    WEFT_K_I16,
    WEFT_K_I32,
    WEFT_K_I64,
    WEFT_K_U8,
    WEFT_K_U16,
    WEFT_K_U32,
    WEFT_K_U64,
    WEFT_K_BOOL
};
enum {
    WEFT_K_SUM,
    WEFT_K_AVG,
    WEFT_K_PRODUCT,
    WEFT_K_MIN,
    WEFT_K_MAX,
    WEFT_K_BAND,
    WEFT_K_BOR,
    WEFT_K_BXOR,
    WEFT_K_PREMUL_SUM
};

WEFT_K uint32_t weft_k_size_of(int dtype)
{
    switch (dtype) {
    case WEFT_K_F64:
    case WEFT_K_I64:
    case WEFT_K_U64:
        return 8;
    case WEFT_K_F32:
    case WEFT_K_I32:
    case WEFT_K_U32:
        return 4;
    case WEFT_K_F16:
    case WEFT_K_BF16:
    case WEFT_K_I16:
    case WEFT_K_U16:
        return 2;
    default:
        return 1;
    }
}

WEFT_K int weft_k_is_float(int dtype)
{
    return dtype <= WEFT_K_F8E5M2;
}

WEFT_K int weft_k_is_signed(int dtype)
{
    return dtype >= WEFT_K_I8 && dtype <= WEFT_K_I64;
}

/* The bits of an element of `size` bytes at a multiple of its size. */
WEFT_K uint64_t weft_k_get(const void *from, uint32_t size)
{
    switch (size) {
    case 8:
        return *(const uint64_t *)from;
    case 4:
        return *(const uint32_t *)from;
    case 2:
        return *(const uint16_t *)from;
    default:
        return *(const uint8_t *)from;
    }
}

WEFT_K void weft_k_put(void *to, uint32_t size, uint64_t bits)
{
    switch (size) {
    case 8:
        *(uint64_t *)to = bits;
        break;
    case 4:
        *(uint32_t *)to = (uint32_t)bits;
        break;
    case 2:
        *(uint16_t *)to = (uint16_t)bits;
        break;
    default:
        *(uint8_t *)to = (uint8_t)bits;
    }
}

/* An integer's bits extended to 64 by its sign. */
WEFT_K uint64_t weft_k_extend(int dtype, uint64_t bits)
{
    int above = 64 - 8 * (int)weft_k_size_of(dtype);
    bits <<= above;
    return weft_k_is_signed(dtype) ? (uint64_t)((int64_t)bits >> above) : bits >> above;
}

/* f32 of a float that is not f64. */
WEFT_K float weft_k_widen(int dtype, uint64_t bits)
{
    switch (dtype) {
    case WEFT_K_F32:
        return weft_k_float((uint32_t)bits);
    case WEFT_K_F16:
        return weft_i_f16_to_f32((uint16_t)bits);
    case WEFT_K_BF16:
        return weft_i_bf16_to_f32((uint16_t)bits);
    case WEFT_K_F8E4M3:
        return weft_i_f8e4m3_to_f32((uint8_t)bits);
    default:
        return weft_i_f8e5m2_to_f32((uint8_t)bits);
    }
}

WEFT_K uint64_t weft_k_narrow(int dtype, float x)
{
    switch (dtype) {
    case WEFT_K_F32:
        return weft_k_bits(x);
    case WEFT_K_F16:
        return weft_i_f32_to_f16(x);
    case WEFT_K_BF16:
        return weft_i_f32_to_bf16(x);
    case WEFT_K_F8E4M3:
        return weft_i_f32_to_f8e4m3(x);
    default:
        return weft_i_f32_to_f8e5m2(x);
    }
}

/* Two floats as a word of bf16 or f16: what weft_k_narrow gives, by the hardware's conversion, which
 * has a NaN of its own. */
WEFT_K uint32_t weft_k_narrow_pair(int bf16, float low, float high)
{
    uint32_t word = bf16 ? weft_k_pack_bf16(low, high) : weft_k_pack_f16(low, high);
    uint32_t nan = bf16 ? 0x7fc0 : 0x7e00;
    if (low != low)
        word = (word & 0xffff0000u) | nan | (weft_k_bits(low) >> 16 & 0x8000u);
    if (high != high)
        word = (word & 0xffffu) | nan << 16 | (weft_k_bits(high) & 0x80000000u);
    return word;
}

/* The accumulator of one element; `factor` is for PREMUL_SUM. */
WEFT_K uint64_t weft_k_fold_first(int dtype, int op, uint64_t bits, double factor)
{
    if (dtype == WEFT_K_F64)
        return op == WEFT_K_PREMUL_SUM ? weft_k_double_bits(weft_k_double(bits) * factor) : bits;
    if (weft_k_is_float(dtype)) {
        float x = weft_k_widen(dtype, bits);
        return weft_k_bits(op == WEFT_K_PREMUL_SUM ? x * (float)factor : x);
    }
    return dtype == WEFT_K_BOOL ? bits != 0 : weft_k_extend(dtype, bits);
}

#define WEFT_K_FOLD_FLOATS(type_, nan_)              \
    switch (op) {                                    \
    case WEFT_K_PRODUCT:                             \
        r = a * b;                                   \
        break;                                       \
    case WEFT_K_MIN:                                 \
        r = a != a || b != b ? nan_ : a < b ? a : b; \
        break;                                       \
    case WEFT_K_MAX:                                 \
        r = a != a || b != b ? nan_ : a > b ? a : b; \
        break;                                       \
    default:                                         \
        r = a + b;                                   \
    }

WEFT_K double weft_k_fold_f64(int op, double a, double b)
{
    double r;
    WEFT_K_FOLD_FLOATS(double, weft_k_double(0x7ff8000000000000u))
    return r;
}

WEFT_K float weft_k_fold_f32(int op, float a, float b)
{
    float r;
    WEFT_K_FOLD_FLOATS(float, weft_k_float(0x7fc00000u))
    return r;
}

WEFT_K uint64_t weft_k_fold_integers(int is_signed, int op, uint64_t a, uint64_t b)
{
    int less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case WEFT_K_PRODUCT:
        return a * b;
    case WEFT_K_MIN:
        return less ? a : b;
    case WEFT_K_MAX:
        return less ? b : a;
    case WEFT_K_BAND:
        return a & b;
    case WEFT_K_BOR:
        return a | b;
    case WEFT_K_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* Of bytes that are 0 or 1. */
WEFT_K uint64_t weft_k_fold_bools(int op, uint64_t a, uint64_t b)
{
    if (op == WEFT_K_SUM || op == WEFT_K_MAX || op == WEFT_K_BOR)
        return a | b;
    return op == WEFT_K_BXOR ? a ^ b : a & b;
}

/* The next input, to the accumulator; in rank order. */
WEFT_K uint64_t weft_k_fold_next(int dtype, int op, uint64_t sum, uint64_t bits, double factor)
{
    uint64_t x = weft_k_fold_first(dtype, op, bits, factor);
    if (dtype == WEFT_K_F64)
        return weft_k_double_bits(weft_k_fold_f64(op, weft_k_double(sum), weft_k_double(x)));
    if (weft_k_is_float(dtype))
        return weft_k_bits(
            weft_k_fold_f32(op, weft_k_float((uint32_t)sum), weft_k_float((uint32_t)x)));
    if (dtype == WEFT_K_BOOL)
        return weft_k_fold_bools(op, sum, x);
    return weft_k_fold_integers(weft_k_is_signed(dtype), op, sum, x);
}

/* The element that the accumulator of `inputs` inputs becomes. */
WEFT_K uint64_t weft_k_fold_last(int dtype, int op, uint64_t sum, int inputs)
{
    int average = op == WEFT_K_AVG;
    if (dtype == WEFT_K_F64) {
        double x = weft_k_double(sum);
        x = average ? x / inputs : x;
        return x != x ? 0x7ff8000000000000u : weft_k_double_bits(x);
    }
    if (weft_k_is_float(dtype)) {
        float x = weft_k_float((uint32_t)sum);
        x = average ? x / (float)inputs : x;
        return weft_k_narrow(dtype, x != x ? weft_k_float(0x7fc00000u) : x);
    }
    if (!average || dtype == WEFT_K_BOOL)
        return sum;
    sum = weft_k_extend(dtype, sum);
    return weft_k_is_signed(dtype) ? (uint64_t)((int64_t)sum / inputs) : sum / (uint64_t)inputs;
}

/* A float as an integer: cut towards zero, saturating, NaN becomes 0. */
WEFT_K uint64_t weft_k_whole(int dtype, double x)
{
    int bits = 8 * (int)weft_k_size_of(dtype);
    if (x != x)
        return 0;
    if (weft_k_is_signed(dtype)) {
        int64_t high = (int64_t)(((uint64_t)1 << (bits - 1)) - 1), low = -high - 1;
        return x <= (double)low    ? (uint64_t)low
               : x >= (double)high ? (uint64_t)high
                                   : (uint64_t)(int64_t)x;
    }
    uint64_t most = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    return x <= 0 ? 0 : x >= (double)most ? most : (uint64_t)x;
}

WEFT_K int weft_k_is_small(int dtype)
{
    return dtype >= WEFT_K_F16 && dtype <= WEFT_K_F8E5M2;
}

/* A float as an element of another dtype; `x` holds it exactly. */
WEFT_K uint64_t weft_k_convert_float(int to, double x)
{
    if (to == WEFT_K_F64)
        return weft_k_double_bits(x);
    if (to == WEFT_K_F32)
        return weft_k_bits((float)x);
    if (weft_k_is_small(to))
        return weft_k_narrow(to, weft_i_f64_to_f32_odd(x));
    return to == WEFT_K_BOOL ? x != 0 : weft_k_whole(to, x);
}

WEFT_K uint64_t weft_k_convert_integer(int to, int is_signed, uint64_t x)
{
    if (!weft_k_is_float(to))
        return to == WEFT_K_BOOL ? x != 0 : x;
    if (to == WEFT_K_F32)
        return weft_k_bits(is_signed ? (float)(int64_t)x : (float)x);
    return weft_k_convert_float(to, is_signed ? (double)(int64_t)x : (double)x);
}

WEFT_K uint64_t weft_k_convert(int to, int from, uint64_t bits)
{
    if (from == WEFT_K_F64)
        return weft_k_convert_float(to, weft_k_double(bits));
    if (weft_k_is_small(from) && weft_k_is_small(to))
        return weft_k_narrow(to, weft_k_widen(from, bits));
    if (weft_k_is_float(from))
        return weft_k_convert_float(to, (double)weft_k_widen(from, bits));
    return weft_k_convert_integer(to, weft_k_is_signed(from), weft_k_extend(from, bits));
}

#endif
