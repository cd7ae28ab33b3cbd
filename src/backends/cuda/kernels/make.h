/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers out of nothing: draws, which depend on the element's place in row-major order alone, and
 * counts; and products of matrices that cuBLASLt does not do. */
#ifndef WEFT_CUDA_KERNELS_MAKE_H
#define WEFT_CUDA_KERNELS_MAKE_H

#include "kernels/number/draw.h"
#include "order.h"

WEFT_K void weft_k_leave_made(const weft_k_make *c, uint64_t i, int from, uint64_t bits)
{
    weft_k_put(c->to + weft_k_offset(c->ndim, c->dim, c->stride, i), weft_k_size_of(c->dtype),
               c->dtype == from ? bits : weft_k_convert_out(c->dtype, from, bits));
}

/* Elements 2 k and 2 k + 1 come from one step of the counter. */
WEFT_K void weft_k_make_pair(const weft_k_make *c, uint64_t k)
{
    uint64_t word[2];
    double pair[2];
    weft_i_draw_words(c->seed, c->counter + k, word);
    if (c->kind == WEFT_K_NORMAL)
        weft_i_draw_normal(word, pair);
    WEFT_K_UNROLL
    for (int j = 0; j < 2; j++) {
        double x = c->kind == WEFT_K_NORMAL ? c->a + pair[j] * c->b
                                            : weft_i_draw_uniform(word[j], c->bits);
        if (c->kind == WEFT_K_UNIFORM && (c->a != 0 || c->b != 1))
            x = c->a + x * (c->b - c->a);
        int integer = c->kind == WEFT_K_INTEGERS;
        uint64_t bits = integer ? (uint64_t)weft_i_draw_integer(word[j], c->low, c->high)
                                : weft_k_double_bits(x);
        if (2 * k + (uint64_t)j < c->count)
            weft_k_leave_made(c, 2 * k + (uint64_t)j, integer ? WEFT_K_I64 : WEFT_K_F64, bits);
    }
}

WEFT_K void weft_k_run_make(const weft_k_make *c)
{
    if (c->kind == WEFT_K_ARANGE) {
        for (uint64_t i = weft_k_grid_first(); i < c->count; i += weft_k_grid_step())
            weft_k_leave_made(c, i, WEFT_K_F64,
                              weft_k_double_bits(c->a + (double)(int64_t)i * c->b));
        return;
    }
    for (uint64_t k = weft_k_grid_first(); k < (c->count + 1) / 2; k += weft_k_grid_step())
        weft_k_make_pair(c, k);
}

/* A product in the type of sums: f32, f64, or integers modulo 2^64. */
WEFT_K uint64_t weft_k_multiply_add(int dtype, uint64_t sum, uint64_t a, uint64_t b)
{
    if (dtype == WEFT_K_F64)
        return weft_k_double_bits(weft_k_double(sum) + weft_k_double(a) * weft_k_double(b));
    if (weft_k_is_float(dtype))
        return weft_k_bits(weft_k_float((uint32_t)sum) +
                           weft_k_widen(dtype, a) * weft_k_widen(dtype, b));
    return sum + weft_k_extend(dtype, a) * weft_k_extend(dtype, b);
}

WEFT_K void weft_k_run_multiply(const weft_k_multiply *c)
{
    uint64_t per = c->rows * c->columns;
    uint32_t size = weft_k_size_of(c->dtype);
    for (uint64_t t = weft_k_grid_first(); t < c->batches * per; t += weft_k_grid_step()) {
        int64_t batch = (int64_t)(t / per), row = (int64_t)(t % per / c->columns),
                column = (int64_t)(t % c->columns);
        const char *a = c->a + batch * c->a_stride[0] + row * c->a_stride[1];
        const char *b = c->b + batch * c->b_stride[0] + column * c->b_stride[2];
        uint64_t sum = 0; /* of any type */
        WEFT_K_NO_UNROLL
        for (uint64_t k = 0; k < c->inner; k++)
            sum = weft_k_multiply_add(c->dtype, sum,
                                      weft_k_get(a + (int64_t)k * c->a_stride[2], size),
                                      weft_k_get(b + (int64_t)k * c->b_stride[1], size));
        if (weft_k_is_small(c->dtype))
            sum = weft_k_narrow(c->dtype, weft_k_float((uint32_t)sum));
        weft_k_put(c->out + batch * c->out_stride[0] + row * c->out_stride[1] +
                       column * c->out_stride[2],
                   size, sum);
    }
}

#endif
