/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop per pair of native types (those C computes with); the small floats go through f32 in
 * blocks that stay in the first cache, rounding to odd on the way where f32 cannot hold the value.
 */
#include "kernels/number/convert.h"

#include <string.h>

enum { BLOCK = 512 };

/* The native types: dtype, C type, how a value becomes one: PLAIN, WHOLE (with its range), TRUTH.
 */
#define NATIVE(X_, ...)                                        \
    X_(F64, double, PLAIN, 0, 0, __VA_ARGS__)                  \
    X_(F32, float, PLAIN, 0, 0, __VA_ARGS__)                   \
    X_(I8, int8_t, WHOLE, INT8_MIN, INT8_MAX, __VA_ARGS__)     \
    X_(I16, int16_t, WHOLE, INT16_MIN, INT16_MAX, __VA_ARGS__) \
    X_(I32, int32_t, WHOLE, INT32_MIN, INT32_MAX, __VA_ARGS__) \
    X_(I64, int64_t, WHOLE, INT64_MIN, INT64_MAX, __VA_ARGS__) \
    X_(U8, uint8_t, WHOLE, 0, UINT8_MAX, __VA_ARGS__)          \
    X_(U16, uint16_t, WHOLE, 0, UINT16_MAX, __VA_ARGS__)       \
    X_(U32, uint32_t, WHOLE, 0, UINT32_MAX, __VA_ARGS__)       \
    X_(U64, uint64_t, WHOLE, 0, UINT64_MAX, __VA_ARGS__)       \
    X_(BOOL, uint8_t, TRUTH, 0, 1, __VA_ARGS__)

#define PLAIN(type_, low_, high_, x_) ((type_)(x_))
#define TRUTH(type_, low_, high_, x_) ((type_)((x_) != 0))
#define WHOLE(type_, low_, high_, x_) ((type_)(x_))
/* Out of range is undefined in C; here it saturates.  Rounding of the bounds up to a power of two
 * does no harm. */
#define SATURATE(type_, low_, high_, from_, x_) \
    ((x_) != (x_)             ? (type_)0        \
     : (x_) <= (from_)(low_)  ? (type_)(low_)   \
     : (x_) >= (from_)(high_) ? (type_)(high_)  \
                              : (type_)(x_))

typedef void convert_fn(void *out, const void *in, size_t n);

/* From integers. */
#define FROM_INTEGER(to_, to_type_, how_, low_, high_, from_, type_)      \
    static void to_##_from_##from_(void *out_, const void *in_, size_t n) \
    {                                                                     \
        to_type_ *out = out_;                                             \
        const type_ *in = in_;                                            \
        WEFT_I_VECTOR_LOOP                                                \
        for (size_t i = 0; i < n; i++)                                    \
            out[i] = how_(to_type_, low_, high_, in[i]);                  \
    }
NATIVE(FROM_INTEGER, I8, int8_t)
NATIVE(FROM_INTEGER, I16, int16_t)
NATIVE(FROM_INTEGER, I32, int32_t)
NATIVE(FROM_INTEGER, I64, int64_t)
NATIVE(FROM_INTEGER, U8, uint8_t)
NATIVE(FROM_INTEGER, U16, uint16_t)
NATIVE(FROM_INTEGER, U32, uint32_t)
NATIVE(FROM_INTEGER, U64, uint64_t)

/* From floats: only WHOLE differs. */
#undef WHOLE
#define WHOLE(type_, low_, high_, x_) SATURATE(type_, low_, high_, float, x_)
NATIVE(FROM_INTEGER, F32, float)
#undef WHOLE
#define WHOLE(type_, low_, high_, x_) SATURATE(type_, low_, high_, double, x_)
NATIVE(FROM_INTEGER, F64, double)

/* A bool is a byte of 0 or 1. */
#define ROW(to_, to_type_, how_, low_, high_, ...)                                             \
    [WEFT_##to_] = {                                                                           \
        [WEFT_F64] = to_##_from_F64, [WEFT_F32] = to_##_from_F32, [WEFT_I8] = to_##_from_I8,   \
        [WEFT_I16] = to_##_from_I16, [WEFT_I32] = to_##_from_I32, [WEFT_I64] = to_##_from_I64, \
        [WEFT_U8] = to_##_from_U8,   [WEFT_U16] = to_##_from_U16, [WEFT_U32] = to_##_from_U32, \
        [WEFT_U64] = to_##_from_U64, [WEFT_BOOL] = to_##_from_U8},
static convert_fn *const native[WEFT_DTYPE_COUNT][WEFT_DTYPE_COUNT] = {NATIVE(ROW, )};

#define SMALL(name_, type_)                                           \
    static void name_##_to_f32(void *out_, const void *in_, size_t n) \
    {                                                                 \
        float *out = out_;                                            \
        const type_ *in = in_;                                        \
        WEFT_I_VECTOR_LOOP                                            \
        for (size_t i = 0; i < n; i++)                                \
            out[i] = weft_i_##name_##_to_f32(in[i]);                  \
    }                                                                 \
    static void f32_to_##name_(void *out_, const void *in_, size_t n) \
    {                                                                 \
        type_ *out = out_;                                            \
        const float *in = in_;                                        \
        WEFT_I_VECTOR_LOOP                                            \
        for (size_t i = 0; i < n; i++)                                \
            out[i] = weft_i_f32_to_##name_(in[i]);                    \
    }
SMALL(f16, uint16_t)
SMALL(bf16, uint16_t)
SMALL(f8e4m3, uint8_t)
SMALL(f8e5m2, uint8_t)

static const struct {
    convert_fn *to_f32, *from_f32;
} small[WEFT_DTYPE_COUNT] = {
    [WEFT_F16] = {f16_to_f32, f32_to_f16},
    [WEFT_BF16] = {bf16_to_f32, f32_to_bf16},
    [WEFT_F8E4M3] = {f8e4m3_to_f32, f32_to_f8e4m3},
    [WEFT_F8E5M2] = {f8e5m2_to_f32, f32_to_f8e5m2},
};

static void f64_to_f32_odd(float *out, const double *in, size_t n)
{
    WEFT_I_VECTOR_LOOP
    for (size_t i = 0; i < n; i++)
        out[i] = weft_i_f64_to_f32_odd(in[i]);
}

/* One block through f32.  Native types other than f32 pass through f64, which holds more than f32
 * does. */
static void through_f32(weft_dtype to, void *out, weft_dtype from, const void *in, size_t n)
{
    float middle[BLOCK];
    double wide[BLOCK];
    if (small[from].to_f32) {
        small[from].to_f32(middle, in, n);
    } else {
        native[WEFT_F64][from](wide, in, n);
        f64_to_f32_odd(middle, wide, n);
    }
    if (small[to].from_f32)
        small[to].from_f32(out, middle, n);
    else
        native[to][WEFT_F32](out, middle, n);
}

void weft_i_convert(weft_dtype to, void *out, weft_dtype from, const void *in, size_t n)
{
    size_t size_to = weft_dtype_size(to), size_from = weft_dtype_size(from);
    if (to == from)
        memcpy(out, in, n * size_to);
    else if (native[to][from])
        native[to][from](out, in, n);
    else if (to == WEFT_F32)
        small[from].to_f32(out, in, n);
    else if (from == WEFT_F32)
        small[to].from_f32(out, in, n);
    else
        for (size_t i = 0; i < n; i += BLOCK)
            through_f32(to, (char *)out + i * size_to, from, (const char *)in + i * size_from,
                        n - i < BLOCK ? n - i : BLOCK);
}
