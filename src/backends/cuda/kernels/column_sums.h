/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the rows of a packed matrix, in the order of order.h.  Neighbouring results are
 * neighbours in memory, so a thread takes 16 bytes of them at a time:
 *
 *     unit    512 rows; a task is one unit of 256 bytes of neighbouring results
 *     thread  one lane of the unit, the rows i with i % 16 == lane, and 16 bytes of each
 *
 * `dtype` is a constant wherever these are called.
 */
#ifndef WEFT_CUDA_KERNELS_COLUMN_SUMS_H
#define WEFT_CUDA_KERNELS_COLUMN_SUMS_H

#include "order.h"

enum { WEFT_K_ROWS_AHEAD = 8 }; /* loads of a thread before the first is used */

/* By element of a thread's 16 bytes, lane and thread: neighbours meet different banks. */
typedef struct weft_k_column_room {
    float sum[8][WEFT_K_LANES * WEFT_K_ACROSS];
} weft_k_column_room;

WEFT_K int weft_k_across(const int dtype)
{
    return dtype == WEFT_K_F32 ? 4 : 8;
}

/* One lane: every 16th row from `row` on, before `end`. */
WEFT_K void weft_k_sum_rows(const weft_k_reduce *c, const int dtype, const char *from, uint64_t row,
                            uint64_t end, weft_k_sums *s)
{
    int64_t step = WEFT_K_LANES * c->reduced_in[0];
    const char *p = from + (int64_t)row * c->reduced_in[0];
    WEFT_K_UNROLL
    for (int i = 0; i < weft_k_across(dtype); i++)
        s->x[i] = 0;
    WEFT_K_NO_UNROLL
    for (; row + (WEFT_K_ROWS_AHEAD - 1) * WEFT_K_LANES < end;
         row += WEFT_K_ROWS_AHEAD * WEFT_K_LANES, p += WEFT_K_ROWS_AHEAD * step) {
        weft_k_vector v[WEFT_K_ROWS_AHEAD];
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_ROWS_AHEAD; j++)
            v[j] = weft_k_load16(p + j * step);
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_ROWS_AHEAD; j++) {
            WEFT_K_UNROLL
            for (int i = 0; i < 4; i++)
                weft_k_sums_next(dtype, s, i, v[j].word[i]);
        }
    }
    WEFT_K_NO_UNROLL
    for (; row < end; row += WEFT_K_LANES, p += step) {
        weft_k_vector v = weft_k_load16(p);
        WEFT_K_UNROLL
        for (int i = 0; i < 4; i++)
            weft_k_sums_next(dtype, s, i, v.word[i]);
    }
}

/* The lanes of one result, pairwise as weft_k_join_lanes has it. */
WEFT_K float weft_k_join_column(const weft_k_column_room *room, unsigned element, unsigned at)
{
    float x[WEFT_K_LANES];
    WEFT_K_UNROLL
    for (int lane = 0; lane < WEFT_K_LANES; lane++)
        x[lane] = room->sum[element][lane * WEFT_K_ACROSS + at];
    WEFT_K_UNROLL
    for (int level = 3; level >= 0; level--) { /* bounds are constants, so x stays in registers */
        WEFT_K_UNROLL
        for (int lane = 0; lane < WEFT_K_LANES / 2; lane++)
            if (lane < 1 << level)
                x[lane] += x[lane + (1 << level)];
    }
    return x[0];
}

/* Whole units of 16 bytes, at multiples of 16; node k of a result is its unit k. */
WEFT_K void weft_k_run_column_sums(const weft_k_reduce *c, const int dtype)
{
    WEFT_K_SHARED(weft_k_column_room, room);
    const unsigned per = (unsigned)weft_k_across(dtype);
    uint64_t words = c->results / per, groups = (words + WEFT_K_ACROSS - 1) / WEFT_K_ACROSS;
    WEFT_K_NO_UNROLL
    for (uint64_t task = weft_k_block(); task < groups * c->node_count; task += weft_k_blocks()) {
        uint64_t node = task / groups, first = (task - node * groups) * WEFT_K_ACROSS;
        uint64_t start = node * WEFT_K_BLOCK, end = start + WEFT_K_BLOCK;
        end = end < c->count ? end : c->count;
        for (unsigned t = weft_k_thread(); t < WEFT_K_LANES * WEFT_K_ACROSS;
             t += weft_k_threads()) {
            uint64_t word = first + t % WEFT_K_ACROSS;
            weft_k_sums s;
            weft_k_sum_rows(c, dtype, c->from + 16 * word, start + t / WEFT_K_ACROSS,
                            word < words ? end : 0, &s);
            WEFT_K_UNROLL
            for (int i = 0; i < weft_k_across(dtype); i++)
                room->sum[i][t] = s.x[i];
        }
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < per * WEFT_K_ACROSS; t += weft_k_threads()) {
            unsigned element = t / WEFT_K_ACROSS, at = t % WEFT_K_ACROSS;
            uint64_t result = (first + at) * per + element;
            uint64_t sum = weft_k_bits(weft_k_join_column(room, element, at));
            if (result >= c->results)
                continue;
            if (c->node_count == 1)
                weft_k_leave_result(c, WEFT_K_F32, 0, result, sum, 0);
            else
                c->nodes[result * c->node_count + node] = sum;
        }
        weft_k_sync();
    }
}

#endif
