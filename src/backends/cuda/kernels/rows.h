/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that are normalised as a whole: softmax, log_softmax, layer_norm and their gradients, with the
 * sums of kernels/vector/normalize_loops.h in the same order.  A block of threads works on 32 / span rows
 * at a time; rows longer than 32 blocks of elements are summed in several turns.  What the CPU
 * keeps in a buffer is computed again where it is needed, which gives the same bits.
 */
#ifndef WEFT_CUDA_KERNELS_ROWS_H
#define WEFT_CUDA_KERNELS_ROWS_H

#include "order.h"

/* What is summed: the row, its exponentials, differences from the mean and their squares, the
 * gradient (after the weight), its product with the normalised row, and with the row itself. */
enum {
    WEFT_K_SUM_X,
    WEFT_K_MAX_X,
    WEFT_K_SUM_EXP,
    WEFT_K_SUM_DIFFERENCE,
    WEFT_K_SUM_SQUARE,
    WEFT_K_SUM_GRAD,
    WEFT_K_SUM_SLOPE,
    WEFT_K_SUM_PRODUCT
};

enum { WEFT_K_BLOCK_ROWS = 64 }; /* of the gradients of weight and bias */

WEFT_K int64_t weft_k_row_offset(const weft_k_rows *c, const int64_t *stride, uint64_t row)
{
    return weft_k_offset(c->kept, c->kept_dim, stride, row);
}

#define T        float
#define NAME(x_) x_##_f32
#define EXP      weft_i_exp_f32
#define LOG      weft_i_log_f32
#define COMPUTE  WEFT_K_F32
#include "rows_type.h"
#undef T
#undef NAME
#undef EXP
#undef LOG
#undef COMPUTE
#define T        double
#define NAME(x_) x_##_f64
#define EXP      weft_i_exp_f64
#define LOG      weft_i_log_f64
#define COMPUTE  WEFT_K_F64
#include "rows_type.h"
#undef T
#undef NAME
#undef EXP
#undef LOG
#undef COMPUTE

/* Blocks of 64 rows of the gradients of weight and bias, then their totals in f64. */
WEFT_K void weft_k_run_layer_columns(const weft_k_columns *c)
{
    for (uint64_t t = weft_k_grid_first(); t < c->blocks * c->length; t += weft_k_grid_step()) {
        uint64_t block = t / c->length, column = t - block * c->length;
        if (c->compute == WEFT_K_F64)
            weft_k_layer_column_f64(c, block, column);
        else
            weft_k_layer_column_f32(c, block, column);
    }
}

WEFT_K void weft_k_leave_total(const weft_k_columns *c, char *to, const char *parts,
                               uint64_t column)
{
    double total = 0;
    uint32_t size = weft_k_size_of(c->dtype);
    for (uint64_t b = 0; b < c->blocks; b++) {
        uint64_t at = b * c->length + column;
        total += c->compute == WEFT_K_F64 ? ((const double *)(const void *)parts)[at]
                                          : (double)((const float *)(const void *)parts)[at];
    }
    weft_k_put(to + column * size, size,
               weft_k_convert_out(c->dtype, WEFT_K_F64, weft_k_double_bits(total)));
}

WEFT_K void weft_k_run_layer_totals(const weft_k_columns *c)
{
    for (uint64_t t = weft_k_grid_first(); t < c->length; t += weft_k_grid_step()) {
        if (c->weight)
            weft_k_leave_total(c, c->weight, c->weight_parts, t);
        if (c->bias)
            weft_k_leave_total(c, c->bias, c->bias_parts, t);
    }
}

#endif
