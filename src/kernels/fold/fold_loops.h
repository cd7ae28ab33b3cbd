/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops themselves.  Included once by each fold_<instruction set>.c, which is compiled for that
 * set and defines TABLE, NAME and TWICE_MOST; compilers make vectors of the loops.
 * Elements may lie at any address.
 */
#include "kernels/fold/fold_table.h"
#include "kernels/number/convert.h"

#include <string.h>

#define ANY_ADDRESS __attribute__((aligned(1), may_alias))
typedef double f64;
typedef float f32;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef f64 any_f64 ANY_ADDRESS;
typedef f32 any_f32 ANY_ADDRESS;
typedef u8 any_u8 ANY_ADDRESS;
typedef u16 any_u16 ANY_ADDRESS;
typedef u32 any_u32 ANY_ADDRESS;
typedef u64 any_u64 ANY_ADDRESS;
typedef i8 any_i8 ANY_ADDRESS;
typedef i16 any_i16 ANY_ADDRESS;
typedef i32 any_i32 ANY_ADDRESS;
typedef i64 any_i64 ANY_ADDRESS;

/* ---- two elements ---- */

/* Processors differ in the sign and payload of a NaN that they make or pass on; results do not. */
#define PLAIN(type_, x_) (x_)
#define CANON(type_, x_) ((x_) == (x_) ? (x_) : (type_)__builtin_nanf(""))

#define FLOAT_PAIRS(type_)                                         \
    static inline type_ SUM_##type_(type_ a, type_ b)              \
    {                                                              \
        return a + b;                                              \
    }                                                              \
    static inline type_ PRODUCT_##type_(type_ a, type_ b)          \
    {                                                              \
        return a * b;                                              \
    }                                                              \
    static inline type_ MIN_##type_(type_ a, type_ b)              \
    {                                                              \
        type_ less = a < b ? a : b; /* b, if one of them is NaN */ \
        return a == a ? less : a;                                  \
    }                                                              \
    static inline type_ MAX_##type_(type_ a, type_ b)              \
    {                                                              \
        type_ more = a > b ? a : b;                                \
        return a == a ? more : a;                                  \
    }
FLOAT_PAIRS(f32)
FLOAT_PAIRS(f64)

/* Signed sums and products have the bits of the unsigned ones.  `wide_` keeps u16 * u16 from
 * overflowing int. */
#define UNSIGNED_PAIRS(type_, wide_)                      \
    static inline type_ SUM_##type_(type_ a, type_ b)     \
    {                                                     \
        return (type_)(a + b);                            \
    }                                                     \
    static inline type_ PRODUCT_##type_(type_ a, type_ b) \
    {                                                     \
        return (type_)((wide_)a * b);                     \
    }                                                     \
    static inline type_ BAND_##type_(type_ a, type_ b)    \
    {                                                     \
        return a & b;                                     \
    }                                                     \
    static inline type_ BOR_##type_(type_ a, type_ b)     \
    {                                                     \
        return a | b;                                     \
    }                                                     \
    static inline type_ BXOR_##type_(type_ a, type_ b)    \
    {                                                     \
        return a ^ b;                                     \
    }
UNSIGNED_PAIRS(u8, u32)
UNSIGNED_PAIRS(u16, u32)
UNSIGNED_PAIRS(u32, u32)
UNSIGNED_PAIRS(u64, u64)

#define ORDER_PAIRS(type_)                            \
    static inline type_ MIN_##type_(type_ a, type_ b) \
    {                                                 \
        return a < b ? a : b;                         \
    }                                                 \
    static inline type_ MAX_##type_(type_ a, type_ b) \
    {                                                 \
        return a > b ? a : b;                         \
    }
ORDER_PAIRS(u8)
ORDER_PAIRS(u16)
ORDER_PAIRS(u32)
ORDER_PAIRS(u64)
ORDER_PAIRS(i8)
ORDER_PAIRS(i16)
ORDER_PAIRS(i32)
ORDER_PAIRS(i64)

/* ---- passes ---- */

#define INPUT(k_, inputs_) (k_ < inputs_ ? in[k_ < inputs_ ? k_ : 0] : in[0])
#define PASS(name_, type_, inputs_, done_, value_, second_)                              \
    static void name_(void *to_, void *twin_, const void *const *in, size_t n,           \
                      const double *factors)                                             \
    {                                                                                    \
        any_##type_ *to = to_, *twin = twin_;                                            \
        const any_##type_ *x0 = in[0], *x1 = INPUT(1, inputs_), *x2 = INPUT(2, inputs_), \
                          *x3 = INPUT(3, inputs_), *x4 = INPUT(4, inputs_),              \
                          *x5 = INPUT(5, inputs_), *x6 = INPUT(6, inputs_),              \
                          *x7 = INPUT(7, inputs_);                                       \
        type_ f0 = (type_)1, f1 = f0, f2 = f0;                                           \
        if (factors) {                                                                   \
            f0 = (type_)factors[0];                                                      \
            f1 = (type_)factors[inputs_ > 1 ? 1 : 0];                                    \
            f2 = (type_)factors[inputs_ > 2 ? 2 : 0];                                    \
        }                                                                                \
        (void)x1, (void)x2, (void)x3, (void)x4, (void)x5, (void)x6, (void)x7;            \
        (void)f0, (void)f1, (void)f2, (void)twin;                                        \
        WEFT_I_VECTOR_LOOP                                                               \
        for (size_t i = 0; i < n; i++) {                                                 \
            type_ r = (type_)(value_);                                                   \
            r = done_(type_, r);                                                         \
            to[i] = r;                                                                   \
            second_;                                                                     \
        }                                                                                \
    }
#define PASSES(op_, type_, done_)                                           \
    PASS(op_##_##type_##_2, type_, 2, done_, op_##_##type_(x0[i], x1[i]), ) \
    PASS(op_##_##type_##_3, type_, 3, done_, op_##_##type_(op_##_##type_(x0[i], x1[i]), x2[i]), )

/* Sums are what most folds are: they have wider passes, and some that store the result twice. */
#define SUM_OF_2 x0[i] + x1[i]
#define SUM_OF_3 SUM_OF_2 + x2[i]
#define SUM_OF_4 SUM_OF_3 + x3[i]
#define SUM_OF_8 SUM_OF_4 + x4[i] + x5[i] + x6[i] + x7[i]
#define SUM_PASSES(type_, done_)                                        \
    PASS(SUM_##type_##_2, type_, 2, done_, SUM_OF_2, )                  \
    PASS(SUM_##type_##_3, type_, 3, done_, SUM_OF_3, )                  \
    PASS(SUM_##type_##_4, type_, 4, done_, SUM_OF_4, )                  \
    PASS(SUM_##type_##_8, type_, 8, done_, SUM_OF_8, )                  \
    PASS(SUM_##type_##_2_twice, type_, 2, done_, SUM_OF_2, twin[i] = r) \
    PASS(SUM_##type_##_3_twice, type_, 3, done_, SUM_OF_3, twin[i] = r) \
    PASS(SUM_##type_##_4_twice, type_, 4, done_, SUM_OF_4, twin[i] = r) \
    PASS(SUM_##type_##_8_twice, type_, 8, done_, SUM_OF_8, twin[i] = r)

#define FLOAT_PASSES(type_)                                                 \
    SUM_PASSES(type_, CANON)                                                \
    PASSES(PRODUCT, type_, CANON)                                           \
    PASSES(MIN, type_, CANON)                                               \
    PASSES(MAX, type_, CANON)                                               \
    PASS(PREMUL_SUM_##type_##_1, type_, 1, CANON, f0 *x0[i], )              \
    PASS(PREMUL_SUM_##type_##_2, type_, 2, CANON, f0 *x0[i] + f1 * x1[i], ) \
    PASS(PREMUL_SUM_##type_##_3, type_, 3, CANON, f0 *x0[i] + f1 * x1[i] + f2 * x2[i], )
FLOAT_PASSES(f32)
FLOAT_PASSES(f64)

#define UNSIGNED_PASSES(type_)    \
    SUM_PASSES(type_, PLAIN)      \
    PASSES(PRODUCT, type_, PLAIN) \
    PASSES(MIN, type_, PLAIN)     \
    PASSES(MAX, type_, PLAIN)     \
    PASSES(BAND, type_, PLAIN)    \
    PASSES(BOR, type_, PLAIN)     \
    PASSES(BXOR, type_, PLAIN)
UNSIGNED_PASSES(u8)
UNSIGNED_PASSES(u16)
UNSIGNED_PASSES(u32)
UNSIGNED_PASSES(u64)

#define SIGNED_PASSES(type_)  \
    PASSES(MIN, type_, PLAIN) \
    PASSES(MAX, type_, PLAIN)
SIGNED_PASSES(i8)
SIGNED_PASSES(i16)
SIGNED_PASSES(i32)
SIGNED_PASSES(i64)

/* ---- averages ---- */

/* To divide by a power of two is to multiply by its inverse, bit by bit, and that is faster. */
#define DIVIDE_FLOAT(type_)                                \
    static void divide_##type_(void *x_, size_t n, int by) \
    {                                                      \
        any_##type_ *x = x_;                               \
        type_ divisor = (type_)by, inverse = 1 / divisor;  \
        if (by & (by - 1)) {                               \
            WEFT_I_VECTOR_LOOP                             \
            for (size_t i = 0; i < n; i++)                 \
                x[i] /= divisor;                           \
            return;                                        \
        }                                                  \
        WEFT_I_VECTOR_LOOP                                 \
        for (size_t i = 0; i < n; i++)                     \
            x[i] *= inverse;                               \
    }
DIVIDE_FLOAT(f64)
DIVIDE_FLOAT(f32)

/* Integers are divided as floats wide enough for the cut quotient to be exact. */
#define DIVIDE(type_, as_)                                 \
    static void divide_##type_(void *x_, size_t n, int by) \
    {                                                      \
        any_##type_ *x = x_;                               \
        as_ divisor = (as_)by;                             \
        WEFT_I_VECTOR_LOOP                                 \
        for (size_t i = 0; i < n; i++)                     \
            x[i] = (type_)((as_)x[i] / divisor);           \
    }
DIVIDE(i8, f32)
DIVIDE(i16, f32)
DIVIDE(i32, f64)
DIVIDE(i64, i64)
DIVIDE(u8, f32)
DIVIDE(u16, f32)
DIVIDE(u32, f64)
DIVIDE(u64, u64)

#include "kernels/fold/fold_small.h"
#if defined(__AVX2__)
#include "kernels/fold/fold_stream.h"
#endif

/* ---- the table ---- */

#define USE(op_, type_)                                                                            \
    {                                                                                              \
        .once = { [WEFT_I_FOLD_OF_2] = op_##_##type_##_2, [WEFT_I_FOLD_OF_3] = op_##_##type_##_3 } \
    }
#define USE_SUM(type_)                                  \
    {                                                   \
        .once = {[WEFT_I_FOLD_OF_2] = SUM_##type_##_2,  \
                 [WEFT_I_FOLD_OF_3] = SUM_##type_##_3,  \
                 [WEFT_I_FOLD_OF_4] = SUM_##type_##_4,  \
                 [WEFT_I_FOLD_OF_8] = SUM_##type_##_8}, \
        .twice = {                                      \
            [WEFT_I_FOLD_OF_2] = SUM_##type_##_2_twice, \
            [WEFT_I_FOLD_OF_3] = SUM_##type_##_3_twice, \
            [WEFT_I_FOLD_OF_4] = SUM_##type_##_4_twice, \
            [WEFT_I_FOLD_OF_8] = SUM_##type_##_8_twice  \
        }                                               \
    }
#define USE_PREMUL(type_)                                \
    {                                                    \
        .once = {                                        \
            [WEFT_I_FOLD_OF_1] = PREMUL_SUM_##type_##_1, \
            [WEFT_I_FOLD_OF_2] = PREMUL_SUM_##type_##_2, \
            [WEFT_I_FOLD_OF_3] = PREMUL_SUM_##type_##_3  \
        }                                                \
    }
#define USE_SMALL(name_)                          \
    {                                             \
        .once = {                                 \
            [WEFT_I_FOLD_OF_2] = SUM_##name_##_2, \
            [WEFT_I_FOLD_OF_3] = SUM_##name_##_3, \
            [WEFT_I_FOLD_OF_4] = SUM_##name_##_4, \
            [WEFT_I_FOLD_OF_8] = SUM_##name_##_8  \
        }                                         \
    }
#define SUMS                                                                               \
    [WEFT_F64] = USE_SUM(f64), [WEFT_F32] = USE_SUM(f32), [WEFT_I8] = USE_SUM(u8),         \
    [WEFT_U8] = USE_SUM(u8), [WEFT_I16] = USE_SUM(u16), [WEFT_U16] = USE_SUM(u16),         \
    [WEFT_I32] = USE_SUM(u32), [WEFT_U32] = USE_SUM(u32), [WEFT_I64] = USE_SUM(u64),       \
    [WEFT_U64] = USE_SUM(u64), [WEFT_F16] = USE_SMALL(f16), [WEFT_BF16] = USE_SMALL(bf16), \
    [WEFT_F8E4M3] = USE_SMALL(f8e4m3), [WEFT_F8E5M2] = USE_SMALL(f8e5m2)
#define BY_BITS(op_)                                                                    \
    [WEFT_I8] = USE(op_, u8), [WEFT_U8] = USE(op_, u8), [WEFT_I16] = USE(op_, u16),     \
    [WEFT_U16] = USE(op_, u16), [WEFT_I32] = USE(op_, u32), [WEFT_U32] = USE(op_, u32), \
    [WEFT_I64] = USE(op_, u64), [WEFT_U64] = USE(op_, u64)
#define BY_ORDER(op_)                                                                   \
    [WEFT_F64] = USE(op_, f64), [WEFT_F32] = USE(op_, f32), [WEFT_I8] = USE(op_, i8),   \
    [WEFT_U8] = USE(op_, u8), [WEFT_I16] = USE(op_, i16), [WEFT_U16] = USE(op_, u16),   \
    [WEFT_I32] = USE(op_, i32), [WEFT_U32] = USE(op_, u32), [WEFT_I64] = USE(op_, i64), \
    [WEFT_U64] = USE(op_, u64)

const weft_i_fold_table TABLE = {
    .name = NAME,
    .twice_most = TWICE_MOST,
    .passes =
        {
            [WEFT_I_FOLD_SUM] = {SUMS, [WEFT_BOOL] = USE(BOR, u8)},
            [WEFT_I_FOLD_AVG] = {SUMS, [WEFT_BOOL] = USE(BAND, u8)},
            [WEFT_I_FOLD_PRODUCT] = {[WEFT_F64] = USE(PRODUCT, f64),
                                     [WEFT_F32] = USE(PRODUCT, f32),
                                     BY_BITS(PRODUCT),
                                     [WEFT_BOOL] = USE(BAND, u8)},
            [WEFT_I_FOLD_MIN] = {BY_ORDER(MIN), [WEFT_BOOL] = USE(BAND, u8)},
            [WEFT_I_FOLD_MAX] = {BY_ORDER(MAX), [WEFT_BOOL] = USE(BOR, u8)},
            [WEFT_I_FOLD_BAND] = {BY_BITS(BAND), [WEFT_BOOL] = USE(BAND, u8)},
            [WEFT_I_FOLD_BOR] = {BY_BITS(BOR), [WEFT_BOOL] = USE(BOR, u8)},
            [WEFT_I_FOLD_BXOR] = {BY_BITS(BXOR), [WEFT_BOOL] = USE(BXOR, u8)},
            [WEFT_I_FOLD_PREMUL_SUM] = {[WEFT_F64] = USE_PREMUL(f64), [WEFT_F32] = USE_PREMUL(f32)},
        },
    .divide = {[WEFT_F64] = divide_f64,
               [WEFT_F32] = divide_f32,
               [WEFT_I8] = divide_i8,
               [WEFT_I16] = divide_i16,
               [WEFT_I32] = divide_i32,
               [WEFT_I64] = divide_i64,
               [WEFT_U8] = divide_u8,
               [WEFT_U16] = divide_u16,
               [WEFT_U32] = divide_u32,
               [WEFT_U64] = divide_u64},
#if defined(__AVX2__)
    .stream = stream,
    .drain = drain,
#endif
    .widen = {[WEFT_F16] = widen_f16,
              [WEFT_BF16] = widen_bf16,
              [WEFT_F8E4M3] = widen_f8e4m3,
              [WEFT_F8E5M2] = widen_f8e5m2},
    .round = {[WEFT_F16] = round_f16,
              [WEFT_BF16] = round_bf16,
              [WEFT_F8E4M3] = round_f8e4m3,
              [WEFT_F8E5M2] = round_f8e5m2},
};
