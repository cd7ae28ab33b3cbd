/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expressions of kernels/vector/pointwise.def on groups of one type; included once per type by
 * expressions.h, which defines T, U, F, M, NAME, GROUP and IS_FLOAT.  What is short is written out
 * for all elements of a group, what is long is a function that is called for each: LONG_NAME where
 * that is defined already, else one of its own.
 */
#define SHORT1(name_, expression_)        \
    case WEFT_K_##name_:                  \
        WEFT_K_UNROLL                     \
        for (int j = 0; j < GROUP; j++) { \
            T a = x[j];                   \
            x[j] = (T)(expression_);      \
        }                                 \
        break;
#define SHORT2(name_, expression_)        \
    case WEFT_K_##name_:                  \
        WEFT_K_UNROLL                     \
        for (int j = 0; j < GROUP; j++) { \
            T a = x[j], b = y[j];         \
            x[j] = (T)(expression_);      \
        }                                 \
        break;
#define TRUTH(name_, expression_)                         \
    case WEFT_K_##name_:                                  \
        WEFT_K_UNROLL                                     \
        for (int j = 0; j < GROUP; j++) {                 \
            T a = x[j], b = y[j];                         \
            truth |= (uint32_t)((expression_) != 0) << j; \
        }                                                 \
        break;

#if IS_FLOAT
#ifndef LONG_NAME
#define LONG(name_, expression_) \
    case WEFT_K_##name_:         \
        return expression_;
#define UNARY(name_, float_, integer_)
#define UNARY_F(name_, float_)           LONG(name_, float_)
#define UNARY_ANGLE(name_, float_, any_) LONG(name_, any_)
#define BINARY(name_, float_, integer_)
#define BINARY_F(name_, float_) LONG(name_, float_)
#define COMPARE(name_, any_)
#define LOGICAL1(name_, bool_)
#define LOGICAL2(name_, bool_)
WEFT_K_OUT T NAME(weft_k_long)(int op, T a, T b)
{
    switch (op) {
#include "kernels/vector/pointwise.def"
    default:
        return b;
    }
}
#undef LONG
#define LONG_NAME NAME(weft_k_long)
#endif
#define UNARY(name_, float_, integer_) SHORT1(name_, float_)
#define UNARY_F(name_, float_)
#define UNARY_ANGLE(name_, float_, any_)
#define BINARY(name_, float_, integer_) SHORT2(name_, float_)
#define BINARY_F(name_, float_)
#define LOGICAL1(name_, bool_)
#define LOGICAL2(name_, bool_)
#define OTHERS                      \
    WEFT_K_UNROLL                   \
    for (int j = 0; j < GROUP; j++) \
    x[j] = LONG_NAME(op, x[j], y[j])
#else
#define UNARY(name_, float_, integer_) SHORT1(name_, integer_)
#define UNARY_F(name_, float_)
#define UNARY_ANGLE(name_, float_, any_)
#define BINARY(name_, float_, integer_) SHORT2(name_, integer_)
#define BINARY_F(name_, float_)
#define LOGICAL1(name_, bool_) SHORT1(name_, bool_)
#define LOGICAL2(name_, bool_) SHORT2(name_, bool_)
#define OTHERS                 break
#endif
#define COMPARE(name_, any_) TRUTH(name_, any_)

/* x = expression of x and y; of comparisons, a bit for each element is returned. */
WEFT_K uint32_t NAME(weft_k_apply)(int op, T *x, const T *y)
{
    uint32_t truth = 0;
    switch (op) {
#include "kernels/vector/pointwise.def"
    case WEFT_K_COPY:
        break;
    default:
        OTHERS;
    }
    return truth;
}
#undef OTHERS
#undef LONG_NAME
#undef SHORT1
#undef SHORT2
#undef TRUTH
