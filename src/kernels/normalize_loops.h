/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops over one row, as `normalize_float` and `normalize_double`; included by vector_loops.h
 * after math.h and reduce_loops.h, in whose order they sum.
 */
#include "kernels/normalize_table.h"

#define SOFTMAX_LOOPS(type_, exp_, log_)                                                 \
    static type_ softmax_start_##type_(type_ *out, const type_ *x, size_t n, type_ *sum) \
    {                                                                                    \
        type_ largest = run_max_##type_(n, x);                                           \
        WEFT_I_VECTOR_LOOP                                                               \
        for (size_t i = 0; i < n; i++)                                                   \
            out[i] = exp_(x[i] - largest);                                               \
        *sum = run_sum_##type_(n, out);                                                  \
        return largest;                                                                  \
    }                                                                                    \
    static void softmax_##type_(void *out_, const void *x, size_t n)                     \
    {                                                                                    \
        type_ *out = out_, sum;                                                          \
        softmax_start_##type_(out, x, n, &sum);                                          \
        type_ factor = 1 / sum;                                                          \
        WEFT_I_VECTOR_LOOP                                                               \
        for (size_t i = 0; i < n; i++)                                                   \
            out[i] *= factor;                                                            \
    }                                                                                    \
    static void log_softmax_##type_(void *out_, const void *x_, size_t n)                \
    {                                                                                    \
        type_ *out = out_, sum;                                                          \
        const type_ *x = x_;                                                             \
        type_ largest = softmax_start_##type_(out, x, n, &sum), shift = log_(sum);       \
        WEFT_I_VECTOR_LOOP                                                               \
        for (size_t i = 0; i < n; i++)                                                   \
            out[i] = (x[i] - largest) - shift;                                           \
    }

/*
 * Mean and deviation of a row: its elements are normalised by ((x - mean) - rest) * factor.  The
 * rest is the mean of the differences from the rounded mean: so rows far from zero lose no digits
 * although all sums are in the row's own type.
 */
#define LAYER_LOOPS(type_)                                                                  \
    struct moments_##type_ {                                                                \
        type_ mean, rest, factor;                                                           \
    };                                                                                      \
    static struct moments_##type_ measure_##type_(const type_ *x, size_t n, double epsilon) \
    {                                                                                       \
        type_ mean = run_sum_##type_(n, x) / (type_)n, sum, squares;                        \
        moments_##type_(n, x, mean, &sum, &squares);                                        \
        type_ rest = sum / (type_)n;                                                        \
        double variance = ((double)squares - (double)sum * rest) / (double)n;               \
        return (struct moments_##type_){mean, rest, (type_)(1 / sqrt(variance + epsilon))}; \
    }                                                                                       \
    static void layer_##type_(void *out_, const void *x_, size_t n, const void *weight_,    \
                              const void *bias_, double epsilon)                            \
    {                                                                                       \
        type_ *out = out_;                                                                  \
        const type_ *x = x_, *weight = weight_, *bias = bias_;                              \
        struct moments_##type_ m = measure_##type_(x, n, epsilon);                          \
        if (weight && bias) {                                                               \
            WEFT_I_VECTOR_LOOP                                                              \
            for (size_t i = 0; i < n; i++)                                                  \
                out[i] = ((x[i] - m.mean) - m.rest) * m.factor * weight[i] + bias[i];       \
            return;                                                                         \
        }                                                                                   \
        WEFT_I_VECTOR_LOOP                                                                  \
        for (size_t i = 0; i < n; i++)                                                      \
            out[i] = ((x[i] - m.mean) - m.rest) * m.factor;                                 \
        for (size_t i = 0; i < n && weight; i++)                                            \
            out[i] *= weight[i];                                                            \
        for (size_t i = 0; i < n && bias; i++)                                              \
            out[i] += bias[i];                                                              \
    }

/* y is the normalised row and g its gradient, after the weight: out = factor * (g - mean(g) - y *
 * mean(g * y)).  `out` holds the terms of the means first. */
#define LAYER_GRAD_LOOPS(type_)                                                             \
    static void layer_grad_##type_(void *out_, const void *grad_, const void *x_, size_t n, \
                                   const void *weight_, double epsilon, void *weight_grad_, \
                                   void *bias_grad_)                                        \
    {                                                                                       \
        type_ *out = out_, *weight_grad = weight_grad_, *bias_grad = bias_grad_;            \
        const type_ *grad = grad_, *x = x_, *weight = weight_;                              \
        struct moments_##type_ m = measure_##type_(x, n, epsilon);                          \
        for (size_t i = 0; i < n && weight_grad; i++)                                       \
            weight_grad[i] += grad[i] * (((x[i] - m.mean) - m.rest) * m.factor);            \
        for (size_t i = 0; i < n && bias_grad; i++)                                         \
            bias_grad[i] += grad[i];                                                        \
        for (size_t i = 0; i < n; i++)                                                      \
            out[i] = weight ? grad[i] * weight[i] : grad[i];                                \
        type_ mean = run_sum_##type_(n, out) / (type_)n;                                    \
        for (size_t i = 0; i < n; i++)                                                      \
            out[i] *= ((x[i] - m.mean) - m.rest) * m.factor;                                \
        type_ slope = run_sum_##type_(n, out) / (type_)n;                                   \
        for (size_t i = 0; i < n; i++) {                                                    \
            type_ y = ((x[i] - m.mean) - m.rest) * m.factor;                                \
            type_ g = weight ? grad[i] * weight[i] : grad[i];                               \
            out[i] = m.factor * ((g - mean) - y * slope);                                   \
        }                                                                                   \
    }

#define NORMALIZE_LOOPS(type_, exp_, log_)                                                         \
    SOFTMAX_LOOPS(type_, exp_, log_)                                                               \
    LAYER_LOOPS(type_)                                                                             \
    LAYER_GRAD_LOOPS(type_)                                                                        \
    static const weft_i_normalize_loops normalize_##type_ = {softmax_##type_, log_softmax_##type_, \
                                                             layer_##type_, layer_grad_##type_};
NORMALIZE_LOOPS(float, weft_i_exp_f32, weft_i_log_f32)
NORMALIZE_LOOPS(double, weft_i_exp_f64, weft_i_log_f64)
