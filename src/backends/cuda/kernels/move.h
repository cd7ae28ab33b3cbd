/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that only move bytes: all_gather, all_to_all, broadcast.  Where a part comes from and
 * where it goes is linear in the peer, whoever pushes or pulls, so one kernel serves them all: the
 * part of peer p is `count` bytes from `from + p * from_step` to `to + p * to_step`.
 */
#ifndef WEFT_CUDA_KERNELS_MOVE_H
#define WEFT_CUDA_KERNELS_MOVE_H

#include "reduce.h"

/*
 * Copies units `u`, `u + step` and so on of `bytes` bytes: words of 16 bytes where both ends are at
 * a multiple of that, else elements of `size` bytes, at multiples of which they lie.
 */
WEFT_K void weft_k_copy_units(char *to, const char *from, uint64_t bytes, uint32_t size, uint64_t u,
                              uint64_t step)
{
    uint64_t whole = bytes / 16;
    if ((((uintptr_t)to | (uintptr_t)from) & 15) == 0) {
        WEFT_K_NO_UNROLL
        for (; u + 3 * step < whole; u += 4 * step) {
            weft_k_vector x[4];
            WEFT_K_UNROLL
            for (int j = 0; j < 4; j++)
                x[j] = weft_k_load16(from + 16 * (u + (uint64_t)j * step));
            WEFT_K_UNROLL
            for (int j = 0; j < 4; j++)
                weft_k_store16(to + 16 * (u + (uint64_t)j * step), x[j]);
        }
        for (; u < whole; u += step)
            weft_k_store16(to + 16 * u, weft_k_load16(from + 16 * u));
    }
    for (; 16 * u < bytes; u += step)
        for (uint64_t at = 16 * u; at < 16 * u + 16 && at < bytes; at += size)
            weft_k_put(to + at, size, weft_k_get(from + at, size));
}

/* Copies this block's share of one part. */
WEFT_K void weft_k_copy_part(char *to, const char *from, uint64_t bytes)
{
    weft_k_copy_units(to, from, bytes, 1, weft_k_first_unit(), weft_k_unit_step());
}

WEFT_K void weft_k_run_move(const weft_k_call *c)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (!weft_k_enter(&m, 0))
        return;
    int p = c->first;
    WEFT_K_NO_UNROLL
    for (int k = 0; k < c->peers; k++) {
        weft_k_copy_part(c->to + (uint64_t)p * c->to_step, c->from + (uint64_t)p * c->from_step,
                         c->count);
        p = p + 1 < c->group.size ? p + 1 : 0;
    }
    weft_k_leave(&m);
}

#endif
