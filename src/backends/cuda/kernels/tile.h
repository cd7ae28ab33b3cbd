/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction of tiles: 2-d pieces of larger tensors, with any strides.  The root of a tile folds it
 * straight from the memory of all ranks; a rank without one only meets the others.
 */
#ifndef WEFT_CUDA_KERNELS_TILE_H
#define WEFT_CUDA_KERNELS_TILE_H

#include "reduce.h"

/* Element by element: any dtype, operation and strides. */
WEFT_K void weft_k_fold_tile(const weft_k_meeting *m, const weft_k_tile *t)
{
    uint32_t size = weft_k_size_of(t->call.dtype);
    uint64_t count = t->length[0] * t->length[1];
    uint64_t step = (uint64_t)weft_k_blocks() * weft_k_threads();
    WEFT_K_NO_UNROLL
    for (uint64_t i = (uint64_t)weft_k_block() * weft_k_threads() + weft_k_thread(); i < count;
         i += step) {
        uint64_t row = i / t->length[1], column = i % t->length[1];
        const char *from = t->call.from + row * t->from_stride[0] + column * t->from_stride[1];
        weft_k_put(t->call.out + row * t->out_stride[0] + column * t->out_stride[1], size,
                   weft_k_fold_element(m, from, t->call.from_step, t->call.from_shifts));
    }
}

WEFT_K weft_k_vector weft_k_sum_of_tile(const weft_k_tile *t, const int dtype, const char *from,
                                        int divisor)
{
    const weft_k_call *c = &t->call;
    weft_k_sums s;
    weft_k_vector x = weft_k_load16(from);
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        weft_k_sums_first(dtype, &s, i, x.word[i]);
    WEFT_K_UNROLL_TWO
    for (int r = 1; r < c->group.size; r++) {
        x = weft_k_load16(from + weft_k_shift(c->from_step, c->from_shifts, r));
        WEFT_K_UNROLL
        for (int i = 0; i < 4; i++)
            weft_k_sums_next(dtype, &s, i, x.word[i]);
    }
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        x.word[i] = weft_k_sums_last(dtype, &s, i, divisor);
    return x;
}

/* By units of 16 bytes: sums of a compiled dtype in rows that follow each other, all of it at
 * multiples of 16. */
WEFT_K void weft_k_sum_tile(const weft_k_tile *t, const int dtype)
{
    int divisor = t->call.op == WEFT_K_AVG ? t->call.group.size : 0;
    uint64_t units = t->length[1] * weft_k_size_of(dtype) / 16, count = t->length[0] * units;
    uint64_t step = (uint64_t)weft_k_blocks() * weft_k_threads();
    WEFT_K_NO_UNROLL
    for (uint64_t i = (uint64_t)weft_k_block() * weft_k_threads() + weft_k_thread(); i < count;
         i += step) {
        uint64_t row = i / units, at = 16 * (i % units);
        weft_k_store16(
            t->call.out + row * t->out_stride[0] + at,
            weft_k_sum_of_tile(t, dtype, t->call.from + row * t->from_stride[0] + at, divisor));
    }
}

WEFT_K void weft_k_run_tile(const weft_k_tile *t, const int dtype)
{
    weft_k_begin();
    const weft_k_call *c = &t->call;
    weft_k_meeting m = weft_k_next_meeting(c);
    if (c->op == WEFT_K_PREMUL_SUM) {
        weft_k_tell_factor(&m);
        weft_k_sync();
    }
    if (!weft_k_enter(&m, c->op == WEFT_K_PREMUL_SUM))
        return;
    if (dtype >= 0)
        weft_k_sum_tile(t, dtype);
    else
        weft_k_fold_tile(&m, t);
    weft_k_leave(&m);
}

#endif
