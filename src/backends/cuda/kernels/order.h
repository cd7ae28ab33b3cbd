/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions in the order of kernels/vector/reduce.h, which makes their bits those of the CPU: blocks of
 * 512 elements in 16 lanes, lanes pairwise, blocks pairwise.  The tree of blocks is the same
 * whether it grows as blocks come or level by level, where the last of an odd number moves up as it
 * is.  So a block of threads reduces up to 32 blocks of elements to a node of the tree, and the
 * nodes of a result, if there are several, are reduced by another kernel.
 *
 *     unit   a block of elements: `span` units make a node of one result, 32 / span results a task
 *     lane   the elements i of a unit with i % 16 == lane; a thread takes some (unit, lane)
 */
#ifndef WEFT_CUDA_KERNELS_ORDER_H
#define WEFT_CUDA_KERNELS_ORDER_H

#include "expressions.h"
#include "sums.h"

/* As WEFT_I_REDUCE_SUM and so on; src/backends/cuda/tensor/reduce.c compares them. */
enum { WEFT_K_REDUCE_SUM, WEFT_K_REDUCE_PROD, WEFT_K_REDUCE_MAX, WEFT_K_REDUCE_MIN };

/* Lanes of a task; a row has one more than it needs, so that threads meet different banks. */
enum { WEFT_K_PITCH = WEFT_K_UNITS + 1 };
typedef struct weft_k_lanes {
    uint64_t value[WEFT_K_LANES * WEFT_K_PITCH];
    uint64_t place[WEFT_K_LANES * WEFT_K_PITCH];
} weft_k_lanes;

/* The unit and lane that number t of a task is: neighbouring threads read neighbouring memory. */
WEFT_K void weft_k_lane_of(int columns, unsigned t, unsigned *unit, unsigned *lane)
{
    *unit = columns ? t % WEFT_K_UNITS : t / WEFT_K_LANES;
    *lane = columns ? t / WEFT_K_UNITS : t % WEFT_K_LANES;
}

WEFT_K int64_t weft_k_offset(int ndim, const uint64_t *dim, const int64_t *stride, uint64_t i)
{
    int64_t at = 0;
    if (ndim == 1)
        return (int64_t)i * stride[0];
    WEFT_K_NO_UNROLL
    for (int d = ndim - 1; d >= 0; d--) {
        uint64_t next = i / dim[d];
        at += (int64_t)(i - next * dim[d]) * stride[d];
        i = next;
    }
    return at;
}

#define WEFT_K_COMBINE_FLOATS           \
    switch (which) {                    \
    case WEFT_K_REDUCE_SUM:             \
        return a + b;                   \
    case WEFT_K_REDUCE_PROD:            \
        return a * b;                   \
    case WEFT_K_REDUCE_MAX:             \
        return a != a || a > b ? a : b; \
    default:                            \
        return a != a || a < b ? a : b; \
    }

WEFT_K float weft_k_combine_f32(int which, float a, float b){WEFT_K_COMBINE_FLOATS}

WEFT_K double weft_k_combine_f64(int which, double a, double b){WEFT_K_COMBINE_FLOATS}

WEFT_K uint64_t weft_k_combine_i64(int which, int is_unsigned, uint64_t a, uint64_t b)
{
    int above = is_unsigned ? a > b : (int64_t)a > (int64_t)b;
    switch (which) {
    case WEFT_K_REDUCE_SUM:
        return a + b;
    case WEFT_K_REDUCE_PROD:
        return a * b;
    case WEFT_K_REDUCE_MAX:
        return above ? a : b;
    default:
        return above ? b : a;
    }
}

/* Accumulators are bits; `compute` is a constant where speed counts. */
WEFT_K uint64_t weft_k_combine(const weft_k_reduce *c, int compute, uint64_t a, uint64_t b)
{
    if (compute == WEFT_K_F32)
        return weft_k_bits(
            weft_k_combine_f32(c->which, weft_k_float((uint32_t)a), weft_k_float((uint32_t)b)));
    if (compute == WEFT_K_F64)
        return weft_k_double_bits(weft_k_combine_f64(c->which, weft_k_double(a), weft_k_double(b)));
    return weft_k_combine_i64(c->which, c->biggest_unsigned, a, b);
}

WEFT_K uint64_t weft_k_identity(const weft_k_reduce *c, int compute)
{
    int which = c->which;
    if (which <= WEFT_K_REDUCE_PROD) {
        uint64_t one = compute == WEFT_K_F32   ? 0x3f800000u
                       : compute == WEFT_K_F64 ? 0x3ff0000000000000u
                                               : 1;
        return which == WEFT_K_REDUCE_SUM ? 0 : one;
    }
    if (compute == WEFT_K_F32)
        return which == WEFT_K_REDUCE_MAX ? 0xff800000u : 0x7f800000u;
    if (compute == WEFT_K_F64)
        return which == WEFT_K_REDUCE_MAX ? 0xfff0000000000000u : 0x7ff0000000000000u;
    if (c->biggest_unsigned)
        return which == WEFT_K_REDUCE_MAX ? 0 : ~(uint64_t)0;
    return which == WEFT_K_REDUCE_MAX ? 0x8000000000000000u : 0x7fffffffffffffffu;
}

/* Whether `a` is larger (MAX) or smaller (MIN) than b; NaN is both. */
WEFT_K int weft_k_beats(const weft_k_reduce *c, int compute, uint64_t a, uint64_t b)
{
    int largest = c->which == WEFT_K_REDUCE_MAX;
    if (compute == WEFT_K_I64) {
        int above = c->biggest_unsigned ? a > b : (int64_t)a > (int64_t)b;
        int below = c->biggest_unsigned ? a < b : (int64_t)a < (int64_t)b;
        return largest ? above : below;
    }
    double x = compute == WEFT_K_F64 ? weft_k_double(a) : weft_k_float((uint32_t)a);
    double y = compute == WEFT_K_F64 ? weft_k_double(b) : weft_k_float((uint32_t)b);
    return (largest ? x > y : x < y) || (x != x && y == y);
}

/* The better one of two, the first of equals. */
WEFT_K void weft_k_better(const weft_k_reduce *c, int compute, uint64_t *value, uint64_t *place,
                          uint64_t other, uint64_t at)
{
    if (weft_k_beats(c, compute, other, *value) ||
        (at < *place && !weft_k_beats(c, compute, *value, other))) {
        *value = other;
        *place = at;
    }
}

/* An element in the compute type. */
WEFT_K uint64_t weft_k_element(const weft_k_reduce *c, int compute, const char *p)
{
    uint64_t bits = weft_k_get(p, weft_k_size_of(c->in));
    if (compute == WEFT_K_I64)
        return c->truth ? weft_k_convert_out(WEFT_K_BOOL, c->in, bits) : weft_k_extend(c->in, bits);
    if (c->in == compute)
        return bits;
    if (compute == WEFT_K_F32 && c->in == WEFT_K_BF16)
        return bits << 16;
    return compute == WEFT_K_F32 ? weft_k_bits(weft_k_widen(c->in, bits))
                                 : weft_k_convert_out(WEFT_K_F64, c->in, bits);
}

/* One lane of a unit, element by element.  The loads of the common case, a lane of 32 elements at
 * one distance, come in fours before they are used. */
WEFT_K void weft_k_take_lane(const weft_k_reduce *c, int compute, int index, const char *from,
                             uint64_t first, uint64_t end, uint64_t *value, uint64_t *place)
{
    uint64_t i = first, acc = weft_k_identity(c, compute), at = ~(uint64_t)0;
    if (c->reduced == 1 && !index) {
        int64_t step = WEFT_K_LANES * c->reduced_in[0];
        const char *p = from + (int64_t)i * c->reduced_in[0];
        WEFT_K_NO_UNROLL
        for (; i + 3 * WEFT_K_LANES < end; i += 4 * WEFT_K_LANES, p += 4 * step) {
            uint64_t x[4];
            WEFT_K_UNROLL
            for (int j = 0; j < 4; j++)
                x[j] = weft_k_element(c, compute, p + j * step);
            WEFT_K_UNROLL
            for (int j = 0; j < 4; j++)
                acc = weft_k_combine(c, compute, acc, x[j]);
        }
    }
    WEFT_K_NO_UNROLL
    for (; i < end; i += WEFT_K_LANES) {
        uint64_t x = weft_k_element(
            c, compute, from + weft_k_offset(c->reduced, c->reduced_dim, c->reduced_in, i));
        if (index)
            weft_k_better(c, compute, &acc, &at, x, i);
        else
            acc = weft_k_combine(c, compute, acc, x);
    }
    *value = acc;
    *place = at;
}

/* Entry `into` of the lanes takes in entry `from`. */
WEFT_K void weft_k_join(const weft_k_reduce *c, int compute, int index, uint64_t *value,
                        uint64_t *place, uint64_t into, uint64_t from)
{
    if (index)
        weft_k_better(c, compute, &value[into], &place[into], value[from], place[from]);
    else
        value[into] = weft_k_combine(c, compute, value[into], value[from]);
}

/* Lanes to units, units to nodes: node k of the task is at entry k * span. */
WEFT_K void weft_k_join_lanes(const weft_k_reduce *c, int compute, int index, uint64_t blocks_left,
                              weft_k_lanes *s)
{
    WEFT_K_NO_UNROLL
    for (unsigned half = WEFT_K_LANES / 2; half; half /= 2) {
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < half * WEFT_K_UNITS; t += weft_k_threads()) {
            unsigned unit = t % WEFT_K_UNITS, lane = t / WEFT_K_UNITS;
            weft_k_join(c, compute, index, s->value, s->place, lane * WEFT_K_PITCH + unit,
                        (lane + half) * WEFT_K_PITCH + unit);
        }
    }
    WEFT_K_NO_UNROLL
    for (unsigned width = 1; width < c->span; width *= 2) {
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS; t += weft_k_threads()) {
            unsigned block = t % c->span;
            if (block % (2 * width) == 0 && block + width < blocks_left)
                weft_k_join(c, compute, index, s->value, s->place, t, t + width);
        }
    }
    weft_k_sync();
}

/* A result leaves in its own dtype. */
WEFT_K void weft_k_leave_result(const weft_k_reduce *c, int compute, int index, uint64_t result,
                                uint64_t value, uint64_t place)
{
    char *to = c->to + weft_k_offset(c->kept, c->kept_dim, c->kept_out, result);
    if (index) {
        weft_k_put(to, 8, place);
        return;
    }
    if (c->mean && compute == WEFT_K_F32)
        value = weft_k_bits(weft_k_float((uint32_t)value) / (float)(int64_t)c->count);
    else if (c->mean)
        value = weft_k_double_bits(weft_k_double(value) / (double)(int64_t)c->count);
    if (c->truth)
        value = value != 0;
    if (compute == WEFT_K_F32)
        value = weft_k_narrow(c->out, weft_k_float((uint32_t)value));
    weft_k_put(to, weft_k_size_of(c->out), value);
}

WEFT_K void weft_k_run_reduce(const weft_k_reduce *c, int compute, int index)
{
    WEFT_K_SHARED(weft_k_lanes, s);
    uint64_t per_task = WEFT_K_UNITS / c->span;
    uint64_t tasks = (c->results + per_task - 1) / per_task * c->node_count;
    WEFT_K_NO_UNROLL
    for (uint64_t task = weft_k_block(); task < tasks; task += weft_k_blocks()) {
        uint64_t group = task / c->node_count, node = task - group * c->node_count;
        uint64_t first_block = node * c->span,
                 blocks = (c->count + WEFT_K_BLOCK - 1) / WEFT_K_BLOCK;
        WEFT_K_NO_UNROLL
        for (unsigned t = weft_k_thread(); t < WEFT_K_UNITS * WEFT_K_LANES; t += weft_k_threads()) {
            unsigned unit, lane;
            weft_k_lane_of(c->columns, t, &unit, &lane);
            uint64_t result = group * per_task + unit / c->span;
            uint64_t start = (first_block + unit % c->span) * WEFT_K_BLOCK;
            uint64_t end = start + WEFT_K_BLOCK < c->count ? start + WEFT_K_BLOCK : c->count;
            if (result >= c->results)
                end = 0;
            const char *from =
                c->from + (end ? weft_k_offset(c->kept, c->kept_dim, c->kept_in, result) : 0);
            unsigned entry = lane * WEFT_K_PITCH + unit;
            weft_k_take_lane(c, compute, index, from, start + lane, end, &s->value[entry],
                             &s->place[entry]);
        }
        weft_k_join_lanes(c, compute, index, blocks - first_block, s);
        for (unsigned k = weft_k_thread(); k < per_task; k += weft_k_threads()) {
            uint64_t result = group * per_task + k;
            if (result >= c->results)
                continue;
            if (c->node_count == 1) {
                weft_k_leave_result(c, compute, index, result, s->value[k * c->span],
                                    s->place[k * c->span]);
                continue;
            }
            c->nodes[result * c->node_count + node] = s->value[k * c->span];
            if (index)
                c->places[result * c->node_count + node] = s->place[k * c->span];
        }
        weft_k_sync();
    }
}

/* Sums `x` of all lanes, of which `count` have something, in the order of weft_k_join_lanes. */
WEFT_K weft_k_vector weft_k_sum_lanes(const weft_k_reduce *c, const int dtype, const int lanes,
                                      const weft_k_vector *x)
{
    weft_k_sums s[8];
    WEFT_K_UNROLL
    for (int r = 0; r < lanes; r++) {
        WEFT_K_UNROLL
        for (int i = 0; i < 4; i++)
            weft_k_sums_first(dtype, &s[r], i, (uint64_t)r < c->count ? x[r].word[i] : 0);
        WEFT_K_UNROLL
        for (int i = 0; i < (dtype == WEFT_K_F32 ? 4 : 8); i++)
            s[r].x[i] += 0; /* a lane begins with 0, which a negative zero does not survive */
    }
    WEFT_K_UNROLL
    for (int half = lanes / 2; half; half /= 2) {
        WEFT_K_UNROLL
        for (int r = 0; r < half; r++) {
            WEFT_K_UNROLL
            for (int i = 0; i < (dtype == WEFT_K_F32 ? 4 : 8); i++)
                s[r].x[i] += s[r + half].x[i];
        }
    }
    weft_k_vector sum;
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        sum.word[i] = weft_k_sums_last(dtype, &s[0], i, c->mean ? (int)c->count : 0);
    return sum;
}

/* Sums of few elements that lie far apart, as the partial results of ranks do: 16 bytes of
 * neighbouring results at a time, all loads of `width` such units before the first use. */
WEFT_K void weft_k_sum_few(const weft_k_reduce *c, const int dtype, const int lanes,
                           const int width)
{
    uint64_t units = c->results * weft_k_size_of(dtype) / 16;
    uint64_t threads = (uint64_t)weft_k_blocks() * weft_k_threads();
    uint64_t first = (uint64_t)weft_k_block() * weft_k_threads() + weft_k_thread();
    WEFT_K_NO_UNROLL
    for (uint64_t u = first; u < units; u += threads * (uint64_t)width) {
        weft_k_vector x[2][8];
        WEFT_K_UNROLL
        for (int j = 0; j < width; j++) {
            uint64_t at = u + (uint64_t)j * threads;
            WEFT_K_UNROLL
            for (int r = 0; r < lanes; r++)
                if (at < units && (uint64_t)r < c->count)
                    x[j][r] = weft_k_load16(c->from + r * c->reduced_in[0] + 16 * at);
        }
        WEFT_K_UNROLL
        for (int j = 0; j < width; j++) {
            uint64_t at = u + (uint64_t)j * threads;
            if (at < units)
                weft_k_store16(c->to + 16 * at, weft_k_sum_lanes(c, dtype, lanes, x[j]));
        }
    }
}

WEFT_K void weft_k_run_few(const weft_k_reduce *c, const int lanes)
{
    const int width = lanes == 2 ? 2 : 1;
    if (c->in == WEFT_K_BF16)
        weft_k_sum_few(c, WEFT_K_BF16, lanes, width);
    else if (c->in == WEFT_K_F16)
        weft_k_sum_few(c, WEFT_K_F16, lanes, width);
    else
        weft_k_sum_few(c, WEFT_K_F32, lanes, width);
}

/* The nodes of every result, level by level, where they are. */
WEFT_K void weft_k_run_reduce_nodes(const weft_k_reduce *c)
{
    int index = c->places != 0;
    WEFT_K_NO_UNROLL
    for (uint64_t result = weft_k_block(); result < c->results; result += weft_k_blocks()) {
        uint64_t *value = c->nodes + result * c->node_count;
        uint64_t *place = index ? c->places + result * c->node_count : value;
        WEFT_K_NO_UNROLL
        for (uint64_t width = 1; width < c->node_count; width *= 2) {
            for (uint64_t i = 2 * width * weft_k_thread(); i + width < c->node_count;
                 i += 2 * width * weft_k_threads())
                weft_k_join(c, c->compute, index, value, place, i, i + width);
            weft_k_sync();
        }
        if (weft_k_thread() == 0)
            weft_k_leave_result(c, c->compute, index, result, value[0], place[0]);
    }
}

#endif
