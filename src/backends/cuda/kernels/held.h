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

/* Bits: of f32 in both words, of bf16 and f16 the pair in the first. */
typedef struct weft_k_held {
    uint32_t low[WEFT_K_PAIRS], high[WEFT_K_PAIRS];
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

WEFT_K float weft_k_held_low(const int dtype, const weft_k_held *h, unsigned j)
{
    return weft_k_low(dtype, h->low[j]);
}

WEFT_K float weft_k_held_high(const int dtype, const weft_k_held *h, unsigned j)
{
    return dtype == WEFT_K_F32 ? weft_k_float(h->high[j]) : weft_k_high(dtype, h->low[j]);
}

/* With `full`, all of a thread's pairs are there, or it may read others in their place. */
WEFT_K void weft_k_hold_pairs(const int dtype, const int full, const char *from, weft_k_held *h)
{
    const uint32_t step = WEFT_K_LANES * (dtype == WEFT_K_F32 ? 4 : 2);
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++) {
        uint64_t bits = 0;
        if (full || j < h->count)
            bits = dtype == WEFT_K_F32 ? *(const uint64_t *)(const void *)(from + j * step)
                                       : *(const uint32_t *)(const void *)(from + j * step);
        h->low[j] = (uint32_t)bits;
        h->high[j] = (uint32_t)(bits >> 32);
    }
}

/* Pairs j to j + 3 of a row's results.  A NaN is rare: whether there is one is asked once. */
enum { WEFT_K_LEAVE = 4 };
WEFT_K void weft_k_leave_pairs(const int dtype, char *to, unsigned j, unsigned count,
                               const float *low, const float *high)
{
    const uint32_t step = WEFT_K_LANES * (dtype == WEFT_K_F32 ? 4 : 2);
    uint32_t word[WEFT_K_LEAVE];
    int nan = 0;
    WEFT_K_UNROLL
    for (unsigned k = 0; k < WEFT_K_LEAVE; k++) {
        word[k] = dtype == WEFT_K_BF16  ? weft_k_pack_bf16(low[k], high[k])
                  : dtype == WEFT_K_F16 ? weft_k_pack_f16(low[k], high[k])
                                        : weft_k_bits(low[k]);
        nan |= low[k] != low[k] || high[k] != high[k];
    }
    if (dtype != WEFT_K_F32 && nan) {
        WEFT_K_UNROLL
        for (unsigned k = 0; k < WEFT_K_LEAVE; k++)
            word[k] = weft_k_narrow_pair(dtype == WEFT_K_BF16, low[k], high[k]);
    }
    WEFT_K_UNROLL
    for (unsigned k = 0; k < WEFT_K_LEAVE; k++)
        if (j + k < count) {
            if (dtype == WEFT_K_F32)
                *(uint64_t *)(void *)(to + (j + k) * step) =
                    word[k] | (uint64_t)weft_k_bits(high[k]) << 32;
            else
                *(uint32_t *)(void *)(to + (j + k) * step) = word[k];
        }
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

/* Where largest elements are zeros, their order decides which sign the largest has.  The logarithm
 * shows it; exponentials do not. */
WEFT_K float weft_k_held_largest(const int dtype, const int full, const int is_log, weft_k_seat *s,
                                 const weft_k_held *h)
{
    float low = -WEFT_I_INF_F32, high = low;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (full || j < h->count) {
            float a = weft_k_held_low(dtype, h, j), b = weft_k_held_high(dtype, h, j);
            low = is_log ? weft_k_held_take(1, low, a) : weft_k_most(low, a);
            high = is_log ? weft_k_held_take(1, high, b) : weft_k_most(high, b);
        }
    return weft_k_held_sum(s, 1, low, high);
}

/* Exponentials in the place of the elements, and their sums; log_softmax keeps the differences.
 * Where the largest is finite, no difference is above 0 or NaN.  Else they are NaN, or -inf. */
WEFT_K void weft_k_held_exp(const int dtype, const int full, const int is_log, const int finite,
                            float largest, weft_k_held *h, float *sums)
{
    float low = 0, high = 0;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (full || j < h->count) {
            float a = weft_k_held_low(dtype, h, j) - largest;
            float b = weft_k_held_high(dtype, h, j) - largest;
            float e = finite ? weft_i_exp_below_f32(a) : a != a ? a : 0;
            float f = finite ? weft_i_exp_below_f32(b) : b != b ? b : 0;
            low += e;
            high += f;
            h->low[j] = weft_k_bits(is_log ? a : e);
            h->high[j] = weft_k_bits(is_log ? b : f);
        }
    sums[0] = low;
    sums[1] = high;
}

WEFT_K void weft_k_held_softmax(const int dtype, const int full, const int is_log, weft_k_seat *s,
                                weft_k_held *h, char *to)
{
    float largest = weft_k_held_largest(dtype, full, is_log, s, h), sums[2];
    if ((weft_k_bits(largest) & 0x7f800000) != 0x7f800000)
        weft_k_held_exp(dtype, full, is_log, 1, largest, h, sums);
    else
        weft_k_held_exp(dtype, full, is_log, 0, largest, h, sums);
    float sum = weft_k_held_sum(s, 0, sums[0], sums[1]);
    sum = is_log ? weft_i_log_f32(sum) : 1 / sum;
    if (full && h->count == 0)
        return;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j += WEFT_K_LEAVE) {
        float low[WEFT_K_LEAVE], high[WEFT_K_LEAVE];
        WEFT_K_UNROLL
        for (unsigned k = 0; k < WEFT_K_LEAVE; k++) {
            float a = weft_k_float(h->low[j + k]), b = weft_k_float(h->high[j + k]);
            low[k] = is_log ? a - sum : a * sum;
            high[k] = is_log ? b - sum : b * sum;
        }
        weft_k_leave_pairs(dtype, to, j, full ? WEFT_K_PAIRS : h->count, low, high);
    }
}

/* ---- layer_norm ---- */

/* Differences from the mean and their squares, summed at once; one thread of the row takes the
 * root, in f64 as the CPU does. */
WEFT_K void weft_k_held_spread(const weft_k_rows *c, const int dtype, const int full,
                               weft_k_seat *s, const weft_k_held *h, float mean)
{
    float low = 0, high = 0, low_square = 0, high_square = 0;
    unsigned row = s->unit / s->span;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (full || j < h->count) {
            float a = weft_k_held_low(dtype, h, j) - mean;
            float b = weft_k_held_high(dtype, h, j) - mean;
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

/* Results j to j + 3 of a thread, from its pairs; weight and bias begin where the thread does. */
WEFT_K void weft_k_held_scale(const int dtype, const weft_k_held *h, unsigned j, const float *by,
                              const float *weight, const float *bias, float *low, float *high)
{
    WEFT_K_UNROLL
    for (unsigned k = 0; k < WEFT_K_LEAVE; k++) {
        low[k] = ((weft_k_held_low(dtype, h, j + k) - by[0]) - by[1]) * by[2];
        high[k] = ((weft_k_held_high(dtype, h, j + k) - by[0]) - by[1]) * by[2];
        if (weight && j + k < h->count) {
            uint64_t pair = *(const uint64_t *)(const void *)(weight + WEFT_K_LANES * (j + k));
            low[k] *= weft_k_float((uint32_t)pair);
            high[k] *= weft_k_float((uint32_t)(pair >> 32));
        }
        if (bias && j + k < h->count) {
            uint64_t pair = *(const uint64_t *)(const void *)(bias + WEFT_K_LANES * (j + k));
            low[k] += weft_k_float((uint32_t)pair);
            high[k] += weft_k_float((uint32_t)(pair >> 32));
        }
    }
}

/* `at` is the place of the thread's first element in its row. */
WEFT_K void weft_k_held_layer(const weft_k_rows *c, const int dtype, const int full, weft_k_seat *s,
                              weft_k_held *h, char *to, uint64_t at)
{
    const float *weight = c->weight ? (const float *)(const void *)c->weight + at : 0;
    const float *bias = c->bias ? (const float *)(const void *)c->bias + at : 0;
    float low = 0, high = 0;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j++)
        if (full || j < h->count) {
            low += weft_k_held_low(dtype, h, j);
            high += weft_k_held_high(dtype, h, j);
        }
    float mean = weft_k_held_sum(s, 0, low, high) / (float)(int64_t)c->length;
    weft_k_held_spread(c, dtype, full, s, h, mean);
    float by[3] = {mean, s->room->rest[s->unit / s->span], s->room->factor[s->unit / s->span]};
    if (full && h->count == 0)
        return;
    h->count = full ? WEFT_K_PAIRS : h->count;
    WEFT_K_UNROLL
    for (unsigned j = 0; j < WEFT_K_PAIRS; j += WEFT_K_LEAVE) {
        float lows[WEFT_K_LEAVE], highs[WEFT_K_LEAVE];
        weft_k_held_scale(dtype, h, j, by, weight, bias, lows, highs);
        weft_k_leave_pairs(dtype, to, j, h->count, lows, highs);
    }
}

/* Rows of at most as many units as a block has: 8 threads each.  With `full`, rows are whole units;
 * a thread without elements computes with those of the first row, and leaves nothing. */
WEFT_K void weft_k_run_held_rows(const weft_k_rows *c, const int dtype, const int which,
                                 const int full, weft_k_held_room *room)
{
    const uint32_t size = dtype == WEFT_K_F32 ? 4 : 2;
    uint64_t blocks = (c->length + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK;
    weft_k_seat s = weft_k_take_seat(room, c->span, blocks);
    uint64_t per_task = s.units / c->span, at = s.unit % c->span * WEFT_K_BLOCK + s.lane;
    unsigned pairs = weft_k_pairs_left(at, c->length);
    WEFT_K_NO_UNROLL
    for (uint64_t first = weft_k_block() * per_task; first < c->rows;
         first += weft_k_blocks() * per_task) {
        uint64_t row = first + s.unit / c->span;
        weft_k_held h;
        h.count = row < c->rows ? pairs : 0;
        row = h.count ? row : 0;
        uint64_t place = h.count ? at : 0;
        weft_k_hold_pairs(dtype, full,
                          c->from + weft_k_row_offset(c, c->kept_in, row) + place * size, &h);
        char *to = c->to + weft_k_row_offset(c, c->kept_out, row) + place * size;
        if (which == WEFT_K_LAYER)
            weft_k_held_layer(c, dtype, full, &s, &h, to, place);
        else
            weft_k_held_softmax(dtype, full, which == WEFT_K_LOG_SOFTMAX, &s, &h, to);
    }
}

WEFT_K void weft_k_run_held(const weft_k_rows *c, const int dtype, const int layer)
{
    WEFT_K_SHARED(weft_k_held_room, room);
    if (!layer && c->which == WEFT_K_LOG_SOFTMAX)
        weft_k_run_held_rows(c, dtype, WEFT_K_LOG_SOFTMAX, 0, room);
    else if (c->length % WEFT_K_BLOCK == 0)
        weft_k_run_held_rows(c, dtype, layer ? WEFT_K_LAYER : WEFT_K_SOFTMAX, 1, room);
    else
        weft_k_run_held_rows(c, dtype, layer ? WEFT_K_LAYER : WEFT_K_SOFTMAX, 0, room);
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
            dtype, 0,
            c->from + at * size +
                (h.count ? weft_k_offset(c->kept, c->kept_dim, c->kept_in, result) : 0),
            &h);
        WEFT_K_UNROLL
        for (unsigned j = 0; j < WEFT_K_PAIRS; j++) {
            float a = weft_k_held_low(dtype, &h, j), b = weft_k_held_high(dtype, &h, j);
            low = j < h.count ? low + a : low;
            high = j < h.count ? high + b : high;
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
