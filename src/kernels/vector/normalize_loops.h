/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops over one row, as `normalize_float` and `normalize_double`; included by vector_loops.h
 * after math.h and reduce_loops.h, in whose order they sum.  A row goes through them two to four
 * times, from the second time on out of the cache.
 */
#include "kernels/vector/normalize_table.h"
#include "kernels/vector/vector_step.h"

/* What the steps of SUMS_LOOP are for: vectors and single elements, with the same text. */
#define BOTH_STEPS(step_, type_) step_(many, v_##type_, type_) step_(one, type_, type_)
#define TAKE(v_, name_, from_) \
    v_ name_;                  \
    memcpy(&name_, from_, sizeof name_);

/* Rows of at most so many bytes are asked for; 0 in compiled graphs, which ask by themselves. */
#ifndef WEFT_I_ASK_MOST
#define WEFT_I_ASK_MOST (32 << 10)
#endif

/*
 * Asks for a third of the row that lies behind this one, most likely the next: while this one is
 * computed, memory would be idle.  The processor's own prefetching ends with the page, often the
 * row.  As many lines as the first cache can wait for are best asked for at a time.
 */
static inline void ask_for_third(const void *row, size_t bytes, int third)
{
    enum { LINE = 64, MOST = WEFT_I_ASK_MOST };
    uintptr_t begin = (uintptr_t)row + bytes + bytes / 3 * (size_t)third, end = begin + bytes / 3;
    if (bytes <= MOST)
        for (uintptr_t at = begin; at < end; at += LINE)
            __builtin_prefetch((const void *)at);
}

/*
 * The largest element, or NaN if there is one.  Integers find it: the largest float is
 * the largest integer if the bits of negative ones, but for the sign, are flipped; and a comparison
 * of integers takes a fourth of the time until the next can begin.
 */
static inline float largest_float(const float *x, size_t n)
{
    int32_t most = INT32_MIN, magnitude = 0;
    WEFT_I_VECTOR_LOOP
    for (size_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)weft_i_f32_bits(x[i]), bare = bits & 0x7fffffff;
        int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
        most = key > most ? key : most;
        magnitude = bare > magnitude ? bare : magnitude;
    }
    most ^= (most >> 31) & 0x7fffffff;
    return weft_i_f32_from_bits(magnitude <= 0x7f800000 ? (uint32_t)most : (uint32_t)magnitude);
}

static inline double largest_double(const double *x, size_t n)
{
    return run_max_double(n, x);
}

/* Exponentials of differences from the largest element.  If that is finite, none is above 0 or NaN,
 * and a shorter form of the same bits will do. */
#define SOFTMAX_LOOPS(type_, exp_, exp_below_, log_)                                     \
    static type_ softmax_start_##type_(type_ *out, const type_ *x, size_t n, type_ *sum) \
    {                                                                                    \
        ask_for_third(x, n * sizeof *x, 0);                                              \
        type_ largest = largest_##type_(x, n);                                           \
        ask_for_third(x, n * sizeof *x, 1);                                              \
        if (__builtin_isfinite(largest)) {                                               \
            VECTOR_LOOP_OF(type_, exp_below_(x[i] - largest))                            \
        } else {                                                                         \
            WEFT_I_VECTOR_LOOP                                                           \
            for (size_t i = 0; i < n; i++)                                               \
                out[i] = exp_(x[i] - largest);                                           \
        }                                                                                \
        ask_for_third(x, n * sizeof *x, 2);                                              \
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

/* y is the result: (grad - sum(grad y)) y, and grad - e^y sum(grad). */
#define DOT_STEP(step_, v_, type_)                                                          \
    static inline void step_##_dot_##type_(const struct pair_##type_ *s, size_t i, v_ *sum) \
    {                                                                                       \
        TAKE(v_, a, s->a + i)                                                               \
        TAKE(v_, b, s->b + i)                                                               \
        sum[0] += a * b;                                                                    \
    }
#define SOFTMAX_GRAD_LOOPS(type_, exp_)                                                           \
    struct pair_##type_ {                                                                         \
        const type_ *a, *b;                                                                       \
    };                                                                                            \
    BOTH_STEPS(DOT_STEP, type_)                                                                   \
    SUMS_LOOP(dot, type_, struct pair_##type_, 1)                                                 \
    static void softmax_grad_##type_(void *out_, const void *grad_, const void *y_, size_t n)     \
    {                                                                                             \
        type_ *out = out_, sum;                                                                   \
        const type_ *grad = grad_, *y = y_;                                                       \
        run_dot_##type_(&(struct pair_##type_){grad, y}, n, &sum);                                \
        WEFT_I_VECTOR_LOOP                                                                        \
        for (size_t i = 0; i < n; i++)                                                            \
            out[i] = (grad[i] - sum) * y[i];                                                      \
    }                                                                                             \
    static void log_softmax_grad_##type_(void *out_, const void *grad_, const void *y_, size_t n) \
    {                                                                                             \
        type_ *out = out_;                                                                        \
        const type_ *grad = grad_, *y = y_;                                                       \
        type_ sum = run_sum_##type_(n, grad);                                                     \
        VECTOR_LOOP_OF(type_, grad[i] - exp_(y[i]) * sum)                                         \
    }

/*
 * Mean and deviation of a row: its elements are normalised by ((x - mean) - rest) * factor.  The
 * rest is the mean of the differences from the rounded mean: so rows far from zero lose no digits
 * although all sums are in the row's own type.
 */
#define MOMENTS_STEP(step_, v_, type_)                                                             \
    static inline void step_##_moments_##type_(const struct centred_##type_ *s, size_t i, v_ *sum) \
    {                                                                                              \
        TAKE(v_, x, s->x + i)                                                                      \
        x -= s->mean;                                                                              \
        sum[0] += x;                                                                               \
        sum[1] += x * x;                                                                           \
    }
#define LAYER_LOOPS(type_)                                                                  \
    struct centred_##type_ {                                                                \
        const type_ *x;                                                                     \
        type_ mean;                                                                         \
    };                                                                                      \
    struct moments_##type_ {                                                                \
        type_ mean, rest, factor;                                                           \
    };                                                                                      \
    BOTH_STEPS(MOMENTS_STEP, type_)                                                         \
    SUMS_LOOP(moments, type_, struct centred_##type_, 2)                                    \
    static struct moments_##type_ measure_##type_(const type_ *x, size_t n, double epsilon) \
    {                                                                                       \
        ask_for_third(x, n * sizeof *x, 0);                                                 \
        type_ mean = run_sum_##type_(n, x) / (type_)n, sum[2];                              \
        ask_for_third(x, n * sizeof *x, 1);                                                 \
        run_moments_##type_(&(struct centred_##type_){x, mean}, n, sum);                    \
        ask_for_third(x, n * sizeof *x, 2);                                                 \
        type_ rest = sum[0] / (type_)n;                                                     \
        double variance = ((double)sum[1] - (double)sum[0] * rest) / (double)n;             \
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

/*
 * y is the normalised row and g its gradient, after the weight: out = factor * (g - mean(g) - y *
 * mean(g * y)).  The step that adds up the two means does the gradients of weight and bias too.
 */
#define LAYER_GRAD_STEP(step_, v_, type_)                                                        \
    static inline void step_##_slopes_##type_(const struct slopes_##type_ *s, size_t i, v_ *sum) \
    {                                                                                            \
        TAKE(v_, g, s->grad + i)                                                                 \
        TAKE(v_, y, s->x + i)                                                                    \
        y = ((y - s->m.mean) - s->m.rest) * s->m.factor;                                         \
        if (s->weight_grad) {                                                                    \
            TAKE(v_, total, s->weight_grad + i)                                                  \
            total += g * y;                                                                      \
            memcpy(s->weight_grad + i, &total, sizeof total);                                    \
        }                                                                                        \
        if (s->bias_grad) {                                                                      \
            TAKE(v_, total, s->bias_grad + i)                                                    \
            total += g;                                                                          \
            memcpy(s->bias_grad + i, &total, sizeof total);                                      \
        }                                                                                        \
        if (s->weight) {                                                                         \
            TAKE(v_, weight, s->weight + i)                                                      \
            g *= weight;                                                                         \
        }                                                                                        \
        sum[0] += g;                                                                             \
        sum[1] += g * y;                                                                         \
    }
#define LAYER_GRAD_LOOPS(type_)                                                                  \
    struct slopes_##type_ {                                                                      \
        const type_ *grad, *x, *weight;                                                          \
        type_ *weight_grad, *bias_grad; /* NULL if not wanted, like the weight */                \
        struct moments_##type_ m;                                                                \
    };                                                                                           \
    BOTH_STEPS(LAYER_GRAD_STEP, type_)                                                           \
    SUMS_LOOP(slopes, type_, struct slopes_##type_, 2)                                           \
    static void layer_grad_##type_(void *out_, const void *grad_, const void *x_, size_t n,      \
                                   const void *weight_, double epsilon, void *weight_grad,       \
                                   void *bias_grad)                                              \
    {                                                                                            \
        type_ *out = out_, sum[2];                                                               \
        const type_ *grad = grad_, *x = x_, *weight = weight_;                                   \
        ask_for_third(grad, n * sizeof *grad, 0);                                                \
        struct moments_##type_ m = measure_##type_(x, n, epsilon);                               \
        ask_for_third(grad, n * sizeof *grad, 1);                                                \
        run_slopes_##type_(&(struct slopes_##type_){grad, x, weight, weight_grad, bias_grad, m}, \
                           n, sum);                                                              \
        ask_for_third(grad, n * sizeof *grad, 2);                                                \
        type_ mean = sum[0] / (type_)n, slope = sum[1] / (type_)n;                               \
        if (weight) {                                                                            \
            WEFT_I_VECTOR_LOOP                                                                   \
            for (size_t i = 0; i < n; i++) {                                                     \
                type_ y = ((x[i] - m.mean) - m.rest) * m.factor;                                 \
                out[i] = m.factor * ((grad[i] * weight[i] - mean) - y * slope);                  \
            }                                                                                    \
            return;                                                                              \
        }                                                                                        \
        WEFT_I_VECTOR_LOOP                                                                       \
        for (size_t i = 0; i < n; i++) {                                                         \
            type_ y = ((x[i] - m.mean) - m.rest) * m.factor;                                     \
            out[i] = m.factor * ((grad[i] - mean) - y * slope);                                  \
        }                                                                                        \
    }

#define NORMALIZE_LOOPS(type_, exp_, exp_below_, log_)                       \
    SOFTMAX_LOOPS(type_, exp_, exp_below_, log_)                             \
    SOFTMAX_GRAD_LOOPS(type_, exp_)                                          \
    LAYER_LOOPS(type_)                                                       \
    LAYER_GRAD_LOOPS(type_)                                                  \
    static const weft_i_normalize_loops normalize_##type_ = {                \
        softmax_##type_,          log_softmax_##type_, softmax_grad_##type_, \
        log_softmax_grad_##type_, layer_##type_,       layer_grad_##type_};
NORMALIZE_LOOPS(float, weft_i_exp_f32, weft_i_exp_below_f32, weft_i_log_f32)
NORMALIZE_LOOPS(double, weft_i_exp_f64, weft_i_exp_below_f64, weft_i_log_f64)
