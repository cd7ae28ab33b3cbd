/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of pointwise.def for every compute type, as the table `pointwise`; included by
 * vector_loops.h. */
#include "kernels/number/math.h"
#include "kernels/vector/pointwise.h"

#include <math.h>

/* base^exponent modulo 2^64; a negative exponent cuts the fraction to 0 unless the base is 1 or -1.
 */
static uint64_t power(uint64_t base, uint64_t exponent, bool negative)
{
    if (negative)
        return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? UINT64_MAX : 1) : 0;
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        result *= exponent & 1 ? base : 1;
    return result;
}

/* Bytes that are asked for at a time, and from how many on: less is in a cache, or soon there. */
enum { ASKED = 512, ASK_FROM = 256 << 10 };
#define ONE_COPY __attribute__((noinline)) /* gcc makes one for whole pieces beside it */

static inline void ask_for_piece(const void *from)
{
    enum { LINE = 64 };
    for (int at = 0; at < ASKED; at += LINE)
        __builtin_prefetch((const char *)from + at);
}

/* The compute types: suffix, C type, wrapping type, whether float. */
#define NEGATIVE(a_) ((a_) < (T)1 && (a_) != (T)0)

#define IS_FLOAT 1
#define T        float
#define F(f_)    f_##f
#define M(f_)    weft_i_##f_##_f32
#define REACH    WEFT_I_SIN_REACH_F32
#define NAME(x_) x_##_F32
#include "kernels/vector/pointwise_type.h"
#undef T
#undef F
#undef M
#undef REACH
#undef NAME
#define T        double
#define F(f_)    f_
#define M(f_)    weft_i_##f_##_f64
#define REACH    WEFT_I_SIN_REACH_F64
#define NAME(x_) x_##_F64
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#undef IS_FLOAT

#define IS_FLOAT 0
#define U        uint32_t
#define T        int8_t
#define NAME(x_) x_##_I8
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        int16_t
#define NAME(x_) x_##_I16
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        int32_t
#define NAME(x_) x_##_I32
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        uint8_t
#define NAME(x_) x_##_U8
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        uint16_t
#define NAME(x_) x_##_U16
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        uint32_t
#define NAME(x_) x_##_U32
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#undef U
#define U        uint64_t
#define T        int64_t
#define NAME(x_) x_##_I64
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME
#define T        uint64_t
#define NAME(x_) x_##_U64
#include "kernels/vector/pointwise_type.h"
#undef T
#undef NAME

/* Bytes of 0 and 1. */
#define LOGICAL_LOOP(name_, bool_)                                        \
    static void name_##_BOOL(size_t n, void *out_, const void *const *in) \
    {                                                                     \
        uint8_t *out = out_;                                              \
        const uint8_t *x = in[0], *y = in[1];                             \
        WEFT_I_VECTOR_LOOP                                                \
        for (size_t i = 0; i < n; i++) {                                  \
            uint8_t a = x[i], b = y[i];                                   \
            (void)b;                                                      \
            out[i] = (uint8_t)(bool_);                                    \
        }                                                                 \
    }
#define UNARY(name_, float_, integer_)
#define UNARY_F(name_, float_)
#define UNARY_ANGLE(name_, float_, any_)
#define BINARY(name_, float_, integer_)
#define BINARY_F(name_, float_)
#define COMPARE(name_, any_)
#define LOGICAL1(name_, bool_) LOGICAL_LOOP(name_, bool_)
#define LOGICAL2(name_, bool_) LOGICAL_LOOP(name_, bool_)
#include "kernels/vector/pointwise.def"

/* A choice between bare bits. */
#define WHERE_LOOP(type_)                                                  \
    static void where_##type_(size_t n, void *out_, const void *const *in) \
    {                                                                      \
        type_ *out = out_;                                                 \
        const uint8_t *condition = in[0];                                  \
        const type_ *a = in[1], *b = in[2];                                \
        WEFT_I_VECTOR_LOOP                                                 \
        for (size_t i = 0; i < n; i++)                                     \
            out[i] = condition[i] ? a[i] : b[i];                           \
    }
WHERE_LOOP(uint8_t)
WHERE_LOOP(uint16_t)
WHERE_LOOP(uint32_t)
WHERE_LOOP(uint64_t)

#if defined(__AVX512F__)
#include "kernels/number/exp_avx512.h"
#define exp_F32 exp_by_scale /* in the table */
#endif

#define FLOATS(name_) [WEFT_F64] = name_##_F64, [WEFT_F32] = name_##_F32
#define INTEGERS(name_)                                                         \
    [WEFT_I8] = name_##_I8, [WEFT_I16] = name_##_I16, [WEFT_I32] = name_##_I32, \
    [WEFT_I64] = name_##_I64, [WEFT_U8] = name_##_U8, [WEFT_U16] = name_##_U16, \
    [WEFT_U32] = name_##_U32, [WEFT_U64] = name_##_U64
#define ROW(name_, ...)                  [WEFT_I_POINTWISE_##name_] = {__VA_ARGS__},
#define UNARY(name_, float_, integer_)   ROW(name_, FLOATS(name_), INTEGERS(name_))
#define UNARY_ANGLE(name_, float_, any_) ROW(name_, FLOATS(name_))
#define UNARY_F(name_, float_)           ROW(name_, FLOATS(name_))
#define BINARY(name_, float_, integer_)  ROW(name_, FLOATS(name_), INTEGERS(name_))
#define BINARY_F(name_, float_)          ROW(name_, FLOATS(name_))
#define COMPARE(name_, any_)             ROW(name_, FLOATS(name_), INTEGERS(name_))
#define LOGICAL1(name_, bool_)           ROW(name_, [WEFT_BOOL] = name_##_BOOL)
#define LOGICAL2(name_, bool_)           ROW(name_, [WEFT_BOOL] = name_##_BOOL)
static weft_i_pointwise_kernel *const pointwise[WEFT_I_POINTWISE_COUNT][WEFT_DTYPE_COUNT] = {
#include "kernels/vector/pointwise.def"
    ROW(where, [WEFT_F64] = where_uint64_t, [WEFT_F32] = where_uint32_t,
        [WEFT_F16] = where_uint16_t, [WEFT_BF16] = where_uint16_t, [WEFT_F8E4M3] = where_uint8_t,
        [WEFT_F8E5M2] = where_uint8_t, [WEFT_I8] = where_uint8_t, [WEFT_I16] = where_uint16_t,
        [WEFT_I32] = where_uint32_t, [WEFT_I64] = where_uint64_t, [WEFT_U8] = where_uint8_t,
        [WEFT_U16] = where_uint16_t, [WEFT_U32] = where_uint32_t, [WEFT_U64] = where_uint64_t,
        [WEFT_BOOL] = where_uint8_t)};
#undef exp_F32
