/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed rows of f32, bf16 or f16 that fit the registers of a block: each element is read once and
 * written once.  The sums are those of order.h, in the same order:
 *
 *     unit    512 elements, the work of 8 threads; a row has `span` of them, one after the other
 *     thread  lanes 2 t and 2 t + 1 of its unit: 32 pairs of neighbours, 16 elements apart
 *
 * The lanes of a unit are joined by shuffles.  Then every warp joins all units of the block, one a
 * thread, which costs one barrier a sum.  All threads of a block take part in every sum, also those
 * without elements.  `dtype` is a constant wherever these are called.
 */
#ifndef WEFT_CUDA_KERNELS_HELD_H
#define WEFT_CUDA_KERNELS_HELD_H

#include "order.h"

enum { WEFT_K_PAIRS = 32 };

/* By turns: a thread that writes a turn again has passed the barrier of the next one, and by then
 * all threads had read what the turn held. */
typedef struct weft_k_held_room {
    float unit[2][2][WEFT_K_UNITS];
    float rest[WEFT_K_UNITS], factor[WEFT_K_UNITS]; /* of layer_norm, by row */
} weft_k_held_room;

/* The place of a thread in its block. */
typedef struct weft_k_seat {
    weft_k_held_room *room;
    unsigned units, span; /* units of the block; of a row */
    unsigned unit, lane;  /* lane: the first of the two */
    unsigned turn;
    uint64_t blocks; /* of elements, in a row or from this node on */
} weft_k_seat;

typedef struct weft_k_held {
    float low[WEFT_K_PAIRS], high[WEFT_K_PAIRS];
    unsigned count; /* pairs that are there */
} weft_k_held;

WEFT_K weft_k_seat weft_k_take_seat(weft_k_held_room *room, uint32_t span, uint64_t blocks)
{
    unsigned thread = weft_k_thread(), per_unit = WEFT_K_LANES / 2;
    weft_k_seat seat = {
        room,  weft_k_threads() / per_unit, span, thread / per_unit, 2 * (thread % per_unit), 0,
        blocks};
    return seat;
}

/* How many of a thread's pairs lie before the end of `length` elements, from `start` on. */
WEFT_K unsigned weft_k_pairs_left(uint64_t start, uint64_t length)
{
    if (start >= length)
        return 0;
    uint64_t left = (length - start + WEFT_K_LANES - 1) / WEFT_K_LANES;
    return left < WEFT_K_PAIRS ? (unsigned)left : WEFT_K_PAIRS;
}

WEFT_K void weft_k_hold_pairs(const int dtype, const char *from, weft_k_held *h)
{
    const uint32_t step = WEFT_K_LANES * (dtype == WEFT_K_F32 ? 4 : 2);
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++) {
        uint64_t bits = 0;
        if (j < h->count)
            bits = dtype == WEFT_K_F32 ? *(const uint64_t *)(const void *)(from + j * step)
                                       : *(const uint32_t *)(const void *)(from + j * step);
        h->low[j] = weft_k_low(dtype, (uint32_t)bits);
        h->high[j] = dtype == WEFT_K_F32 ? weft_k_float((uint32_t)(bits >> 32))
                                         : weft_k_high(dtype, (uint32_t)bits);
    }
}

WEFT_K void weft_k_leave_pair(const int dtype, char *to, float low, float high)
{
    if (dtype == WEFT_K_F32)
        *(uint64_t *)(void *)to = weft_k_bits(low) | (uint64_t)weft_k_bits(high) << 32;
    else
        *(uint32_t *)(void *)to = weft_k_narrow_pair(dtype == WEFT_K_BF16, low, high);
}

WEFT_K float weft_k_held_take(const int most, float a, float b)
{
    return most ? (a != a || a > b ? a : b) : a + b;
}

/* The two lanes of every thread to the sum of its unit, in the unit's first thread. */
WEFT_K float weft_k_join_pairs(const int most, float low, float high)
{
    WEFT_K_UNROLL
    for (unsigned half = WEFT_K_LANES / 4; half; half /= 2) {
        unsigned other = weft_k_thread() % WEFT_K_WARP ^ half;
        low = weft_k_held_take(most, low, weft_k_shuffle(low, other));
        high = weft_k_held_take(most, high, weft_k_shuffle(high, other));
    }
    return weft_k_held_take(most, low, high);
}

/* Unit sums, which the block has in `units`, to the sum of this thread's row. */
WEFT_K float weft_k_join_units(const weft_k_seat *s, const int most, const float *units)
{
    unsigned at = weft_k_thread() % WEFT_K_WARP, block = at % s->span;
    float sum = at < s->units ? units[at] : 0;
    WEFT_K_NO_UNROLL
    for (unsigned width = 1; width < s->span; width *= 2) {
        float other = weft_k_shuffle(sum, (at + width) % WEFT_K_WARP);
        if (block % (2 * width) == 0 && block + width < s->blocks)
            sum = weft_k_held_take(most, sum, other);
    }
    return weft_k_shuffle(sum, s->unit / s->span * s->span);
}

/* The sum (the largest) of a row, of which every thread has its two lanes.  All threads call it. */
WEFT_K float weft_k_held_sum(weft_k_seat *s, const int most, float low, float high)
{
    float *units = s->room->unit[s->turn][0];
    float sum = weft_k_join_pairs(most, low, high);
    if (s->lane == 0)
        units[s->unit] = sum;
    weft_k_sync();
    s->turn ^= 1;
    return weft_k_join_units(s, most, units);
}

/* ---- softmax ---- */

WEFT_K float weft_k_held_largest(weft_k_seat *s, const weft_k_held *h)
{
    float low = -WEFT_I_INF_F32, high = low;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count) {
            low = weft_k_held_take(1, low, h->low[j]);
            high = weft_k_held_take(1, high, h->high[j]);
        }
    return weft_k_held_sum(s, 1, low, high);
}

/* log_softmax needs the row itself afterwards, softmax its exponentials. */
WEFT_K void weft_k_held_softmax(const weft_k_rows *c, const int dtype, weft_k_seat *s,
                                weft_k_held *h, char *to)
{
    const uint32_t step = WEFT_K_LANES * (dtype == WEFT_K_F32 ? 4 : 2);
    const int is_log = c->which == WEFT_K_LOG_SOFTMAX;
    float largest = weft_k_held_largest(s, h), low = 0, high = 0;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count) {
            float a = h->low[j] - largest, b = h->high[j] - largest;
            float e = weft_i_exp_f32(a), f = weft_i_exp_f32(b);
            low += e;
            high += f;
            h->low[j] = is_log ? a : e;
            h->high[j] = is_log ? b : f;
        }
    float sum = weft_k_held_sum(s, 0, low, high);
    sum = is_log ? weft_i_log_f32(sum) : 1 / sum;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count)
            weft_k_leave_pair(dtype, to + j * step, is_log ? h->low[j] - sum : h->low[j] * sum,
                              is_log ? h->high[j] - sum : h->high[j] * sum);
}

/* ---- layer_norm ---- */

/* Differences from the mean and their squares, summed at once; one thread of the row takes the
 * root, in f64 as the CPU does. */
WEFT_K void weft_k_held_spread(const weft_k_rows *c, weft_k_seat *s, const weft_k_held *h,
                               float mean)
{
    float low = 0, high = 0, low_square = 0, high_square = 0;
    unsigned row = s->unit / s->span;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count) {
            float a = h->low[j] - mean, b = h->high[j] - mean;
            low += a;
            high += b;
            low_square += a * a;
            high_square += b * b;
        }
    float(*units)[WEFT_K_UNITS] = s->room->unit[s->turn];
    float sum = weft_k_join_pairs(0, low, high);
    float square = weft_k_join_pairs(0, low_square, high_square);
    if (s->lane == 0) {
        units[0][s->unit] = sum;
        units[1][s->unit] = square;
    }
    weft_k_sync();
    s->turn ^= 1;
    sum = weft_k_join_units(s, 0, units[0]);
    square = weft_k_join_units(s, 0, units[1]);
    if (s->lane == 0 && s->unit % s->span == 0) {
        float rest = sum / (float)(int64_t)c->length;
        double variance =
            ((double)square - (double)sum * (double)rest) / (double)(int64_t)c->length;
        s->room->rest[row] = rest;
        s->room->factor[row] = (float)(1 / sqrt(variance + c->epsilon));
    }
    weft_k_sync();
}

/* `at` is the place of the thread's first element in its row. */
WEFT_K void weft_k_held_layer(const weft_k_rows *c, const int dtype, weft_k_seat *s,
                              const weft_k_held *h, char *to, uint64_t at)
{
    const uint32_t step = WEFT_K_LANES * (dtype == WEFT_K_F32 ? 4 : 2);
    const float *weight = (const float *)(const void *)c->weight;
    const float *bias = (const float *)(const void *)c->bias;
    float low = 0, high = 0;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count) {
            low += h->low[j];
            high += h->high[j];
        }
    float mean = weft_k_held_sum(s, 0, low, high) / (float)(int64_t)c->length;
    weft_k_held_spread(c, s, h, mean);
    float rest = s->room->rest[s->unit / s->span], factor = s->room->factor[s->unit / s->span];
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (j < h->count) {
            uint64_t i = at + WEFT_K_LANES * j;
            float a = ((h->low[j] - mean) - rest) * factor;
            float b = ((h->high[j] - mean) - rest) * factor;
            if (weight) {
                a *= weight[i];
                b *= weight[i + 1];
            }
            if (bias) {
                a += bias[i];
                b += bias[i + 1];
            }
            weft_k_leave_pair(dtype, to + j * step, a, b);
        }
}

/* Rows of at most as many units as a block has: 8 threads each. */
WEFT_K void weft_k_run_held(const weft_k_rows *c, const int dtype, const int layer)
{
    WEFT_K_SHARED(weft_k_held_room, room);
    const uint32_t size = dtype == WEFT_K_F32 ? 4 : 2;
    uint64_t blocks = (c->length + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK;
    weft_k_seat s = weft_k_take_seat(room, c->span, blocks);
    uint64_t per_task = s.units / c->span, at = s.unit % c->span * WEFT_K_BLOCK + s.lane;
    uint64_t tasks = (c->rows + per_task - 1) / per_task;
    WEFT_K_NO_UNROLL
    for (uint64_t task = weft_k_block(); task < tasks; task += weft_k_blocks()) {
        uint64_t row = task * per_task + s.unit / c->span;
        weft_k_held h;
        h.count = row < c->rows ? weft_k_pairs_left(at, c->length) : 0;
        row = h.count ? row : 0;
        weft_k_hold_pairs(dtype, c->from + weft_k_row_offset(c, c->kept_in, row) + at * size, &h);
        char *to = c->to + weft_k_row_offset(c, c->kept_out, row) + at * size;
        if (layer)
            weft_k_held_layer(c, dtype, &s, &h, to, at);
        else
            weft_k_held_softmax(c, dtype, &s, &h, to);
    }
}

/* ---- sums ---- */

/* Nodes of the sums of packed elements, as weft_k_run_reduce makes them. */
WEFT_K void weft_k_run_held_sums(const weft_k_reduce *c, const int dtype)
{
    WEFT_K_SHARED(weft_k_held_room, room);
    const uint32_t size = dtype == WEFT_K_F32 ? 4 : 2;
    weft_k_seat s = weft_k_take_seat(room, c->span, 0);
    uint64_t per_task = s.units / c->span, blocks = (c->count + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK;
    uint64_t tasks = (c->results + per_task - 1) / per_task * c->node_count;
    WEFT_K_NO_UNROLL
    for (uint64_t task = weft_k_block(); task < tasks; task += weft_k_blocks()) {
        uint64_t group = task / c->node_count, node = task - group * c->node_count;
        uint64_t result = group * per_task + s.unit / c->span, first = node * c->span;
        uint64_t at = (first + s.unit % c->span) * WEFT_K_BLOCK + s.lane;
        weft_k_held h;
        float low = 0, high = 0;
        s.blocks = blocks - first;
        h.count = result < c->results ? weft_k_pairs_left(at, c->count) : 0;
        if (h.count == 0)
            at = 0;
        weft_k_hold_pairs(
            dtype,
            c->from + at * size +
                (h.count ? weft_k_offset(c->kept, c->kept_dim, c->kept_in, result) : 0),
            &h);
        WEFT_K_UNROLL
        for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
            if (j < h.count) {
                low += h.low[j];
                high += h.high[j];
            }
        uint64_t sum = weft_k_bits(weft_k_held_sum(&s, 0, low, high));
        if (s.lane != 0 || s.unit % c->span != 0 || result >= c->results)
            continue;
        if (c->node_count == 1)
            weft_k_leave_result(c, WEFT_K_F32, 0, result, sum, 0);
        else
            c->nodes[result * c->node_count + node] = sum;
    }
}

#endif
