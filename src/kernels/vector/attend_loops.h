/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of attend_table.h, as `attend_float` and `attend_double`; included by vector_loops.h
 * after normalize_loops.h, whose largest element and dot product they use.
 */
#include "kernels/vector/attend_table.h"

/* Shares of less than 2^-80 of the largest one are nothing: no sum of f32 sees them, but products of
 * numbers that small leave the normal range, and each of those costs a processor a hundred times as much.  f64
 * is as far from the end of its range. */
#define ATTEND_LEAST_float  0x1p-80f
#define ATTEND_LEAST_double 0x1p-900

/* Where the largest is finite, no difference is above 0 or NaN, unless it was rounded: then the
 * longer exponential is right too. */
#define ATTEND_LOOPS(type_, exp_)                                                                \
    static inline type_ attend_share_##type_(type_ x)                                            \
    {                                                                                            \
        type_ share = exp_(x);                                                                   \
        return share < ATTEND_LEAST_##type_ ? 0 : share;                                         \
    }                                                                                            \
    static double attend_largest_##type_(const void *x, size_t n)                                \
    {                                                                                            \
        return n ? (double)largest_##type_(x, n) : -(double)WEFT_I_INF_F32;                      \
    }                                                                                            \
    static double attend_grow_##type_(void *x_, size_t n, double most_)                          \
    {                                                                                            \
        type_ *out = x_, most = (type_)most_;                                                    \
        const type_ *x = x_;                                                                     \
        VECTOR_LOOP_OF(type_, attend_share_##type_(x[i] - most))                                 \
        return (double)run_sum_##type_(n, x);                                                    \
    }                                                                                            \
    static void attend_fade_##type_(void *out_, size_t n, double factor_, const void *x_)        \
    {                                                                                            \
        type_ *out = out_, factor = (type_)factor_;                                              \
        const type_ *x = x_;                                                                     \
        WEFT_I_VECTOR_LOOP                                                                       \
        for (size_t i = 0; i < n; i++)                                                           \
            out[i] = out[i] * factor + x[i];                                                     \
    }                                                                                            \
    static void attend_slope_##type_(void *out_, const void *p_, size_t n, double mean_)         \
    {                                                                                            \
        type_ *out = out_, mean = (type_)mean_;                                                  \
        const type_ *p = p_;                                                                     \
        WEFT_I_VECTOR_LOOP                                                                       \
        for (size_t i = 0; i < n; i++)                                                           \
            out[i] = p[i] * (out[i] - mean);                                                     \
    }                                                                                            \
    static double attend_dot_##type_(const void *a, const void *b, size_t n)                     \
    {                                                                                            \
        type_ sum;                                                                               \
        run_dot_##type_(&(struct pair_##type_){a, b}, n, &sum);                                  \
        return (double)sum;                                                                      \
    }                                                                                            \
    static const weft_i_attend_loops attend_##type_ = {attend_largest_##type_,                   \
                                                       attend_grow_##type_, attend_fade_##type_, \
                                                       attend_slope_##type_, attend_dot_##type_};
ATTEND_LOOPS(float, weft_i_exp_f32)
ATTEND_LOOPS(double, weft_i_exp_f64)
