/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and layer normalisation of one row. */
#include "kernels/normalize.h"

#include <math.h>

#define ROWS(type_, exp_)                                                                  \
    static void softmax_##type_(int which, type_ *x, size_t n)                             \
    {                                                                                      \
        type_ largest = -(type_)INFINITY;                                                  \
        double sum = 0;                                                                    \
        for (size_t i = 0; i < n; i++)                                                     \
            largest = x[i] > largest ? x[i] : largest;                                     \
        for (size_t i = 0; i < n; i++) {                                                   \
            x[i] -= largest;                                                               \
            sum += exp_(x[i]);                                                             \
        }                                                                                  \
        type_ shift = (type_)log(sum), factor = (type_)(1 / sum);                          \
        for (size_t i = 0; i < n; i++)                                                     \
            x[i] = which == WEFT_I_NORMALIZE_SOFTMAX ? exp_(x[i]) * factor : x[i] - shift; \
    }                                                                                      \
    static void layer_##type_(type_ *x, size_t n, const type_ *weight, const type_ *bias,  \
                              double epsilon)                                              \
    {                                                                                      \
        double sum = 0, squares = 0;                                                       \
        for (size_t i = 0; i < n; i++)                                                     \
            sum += x[i];                                                                   \
        double mean = sum / (double)n;                                                     \
        for (size_t i = 0; i < n; i++)                                                     \
            squares += (x[i] - mean) * (x[i] - mean);                                      \
        double factor = 1 / sqrt(squares / (double)n + epsilon);                           \
        for (size_t i = 0; i < n; i++) {                                                   \
            double y = (x[i] - mean) * factor;                                             \
            y = weight ? y * weight[i] : y;                                                \
            x[i] = (type_)(bias ? y + bias[i] : y);                                        \
        }                                                                                  \
    }
ROWS(float, expf)
ROWS(double, exp)

void weft_i_normalize_softmax(int which, weft_dtype compute, void *row, size_t n)
{
    if (compute == WEFT_F64)
        softmax_double(which, row, n);
    else
        softmax_float(which, row, n);
}

void weft_i_normalize_layer(weft_dtype compute, void *row, size_t n, const void *weight,
                            const void *bias, double epsilon)
{
    if (compute == WEFT_F64)
        layer_double(row, n, weight, bias, epsilon);
    else
        layer_float(row, n, weight, bias, epsilon);
}
