/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions that read the peers' memory: one-shot (every rank folds everything), two-shot
 * (every rank folds a slice and stores it to all) and reduce_scatter.  Work is dealt out in units of
 * 16 bytes, and unit u belongs to the same block on every rank, so that a block need only meet the
 * blocks of its own number.  A unit is folded in rank order, by whichever rank.
 */
#ifndef WEFT_CUDA_KERNELS_REDUCE_H
#define WEFT_CUDA_KERNELS_REDUCE_H

#include "meet.h"
#include "sums.h"

/* Enters a collective: looks at the poison word and meets all.  `release`: something was written
 * for the peers already. */
WEFT_K int weft_k_enter(const weft_k_meeting *m, int release)
{
    if (!weft_k_sync_all(!weft_k_is_poisoned(m)))
        return 0;
    return weft_k_meet(m, release);
}

/* Leaves it: when all have arrived here nobody reads or writes anybody's operands any more. */
WEFT_K void weft_k_leave(weft_k_meeting *m)
{
    m->epoch++;
    weft_k_sync(); /* what this block's threads read and wrote comes before the arrivals */
    if (weft_k_meet(m, 1))
        weft_k_set_epoch(m);
}

/* PREMUL_SUM: every rank's factor travels beside its arrival, in one of two words by turns: a rank
 * that is ahead by a call must not change what others still multiply with. */
WEFT_K uint64_t *weft_k_factor_word(const weft_k_meeting *m, int owner, int source)
{
    char *line = weft_k_line(&m->call->group, owner, m->at, m->line);
    return weft_k_arrival(line, source) + 1 + (m->epoch & 1);
}

WEFT_K void weft_k_tell_factor(const weft_k_meeting *m)
{
    const weft_k_group *g = &m->call->group;
    for (int r = (int)weft_k_thread(); r < g->size; r += (int)weft_k_threads())
        weft_k_store(weft_k_factor_word(m, r, g->rank), weft_k_double_bits(m->call->factor));
}

WEFT_K double weft_k_factor_of(const weft_k_meeting *m, int source)
{
    return weft_k_double(weft_k_load(weft_k_factor_word(m, m->call->group.rank, source)));
}

/* Where a result goes: `copies` places, `step` bytes apart, beginning with number `first`. */
typedef struct weft_k_sink {
    char *to;
    uint64_t step;
    int copies, first;
} weft_k_sink;

/*
 * How a loop over units of 16 bytes is shaped: the units that a thread loads before it uses one,
 * and whether these lie a block's width apart (a block then takes tile after tile) or a grid's.
 * `streamed`: stores do not stay in the caches.  What is best was measured (docs/gpu.md); the
 * benchmark compares others with it (tests/cuda/variants.cu).
 */
typedef struct weft_k_shape {
    int width, tiled, streamed;
} weft_k_shape;

/* The thread's units: `at`, those `next` apart of the first lot, and lots that are `step` apart. */
typedef struct weft_k_deal {
    uint64_t at, next, step;
} weft_k_deal;

/* Among `blocks` blocks, of which this is number `block`. */
WEFT_K weft_k_deal weft_k_deal_out(const weft_k_shape shape, uint64_t block, uint64_t blocks)
{
    uint64_t threads = weft_k_threads(), width = (uint64_t)shape.width;
    weft_k_deal deal;
    deal.at = block * threads * (shape.tiled ? width : 1) + weft_k_thread();
    deal.next = shape.tiled ? threads : blocks * threads;
    deal.step = blocks * threads * width;
    return deal;
}

/* A range of units that this rank folds: units `first` to `first + units` less one, of which the
 * last may be cut at `bytes`.  Row by row, as reduce_scatter's second layout has them, or as one.
 */
typedef struct weft_k_range {
    const char *from;
    uint64_t from_step, first, units, bytes, row_bytes, pitch;
    uint32_t block, blocks; /* among which the units are dealt out */
} weft_k_range;

WEFT_K uint64_t weft_k_place(const weft_k_range *range, uint64_t at)
{
    return range->row_bytes ? at / range->row_bytes * range->pitch + at % range->row_bytes : at;
}

/* Folds one element of every rank, of which `from` is rank 0's: any dtype, any op. */
WEFT_K uint64_t weft_k_fold_element(const weft_k_meeting *m, const char *from, uint64_t from_step,
                                    const int64_t *shifts)
{
    const weft_k_call *c = m->call;
    const int ranks = c->group.size, dtype = c->dtype, op = c->op;
    const int weighted = op == WEFT_K_PREMUL_SUM;
    uint32_t size = weft_k_size_of(dtype);
    uint64_t sum = weft_k_get(from, size);
    if (ranks == 1 && !weighted)
        return sum;
    sum = weft_k_fold_first(dtype, op, sum, weighted ? weft_k_factor_of(m, 0) : 1);
    WEFT_K_NO_UNROLL
    for (int r = 1; r < ranks; r++)
        sum = weft_k_fold_next(dtype, op, sum,
                               weft_k_get(from + weft_k_shift(from_step, shifts, r), size),
                               weighted ? weft_k_factor_of(m, r) : 1);
    return weft_k_fold_last(dtype, op, sum, ranks);
}

/* The same for `bytes` bytes (at most a unit). */
WEFT_K void weft_k_fold_elements(const weft_k_meeting *m, const weft_k_range *range,
                                 weft_k_sink sink, uint64_t at, uint64_t bytes)
{
    uint32_t size = weft_k_size_of(m->call->dtype);
    WEFT_K_NO_UNROLL
    for (uint64_t end = at + bytes; at < end; at += size) {
        uint64_t sum =
            weft_k_fold_element(m, range->from + weft_k_place(range, at), range->from_step, 0);
        for (int k = 0; k < sink.copies; k++)
            weft_k_put(sink.to + (uint64_t)k * sink.step + at, size, sum);
    }
}

/* Sums the unit of all ranks that was loaded to `x`. */
WEFT_K weft_k_vector weft_k_sum_vectors(const int dtype, const int ranks, const weft_k_vector *x,
                                        int divisor)
{
    weft_k_sums s;
    weft_k_vector sum;
    WEFT_K_UNROLL
    for (int r = 0; r < ranks; r++)
        WEFT_K_UNROLL
    for (int i = 0; i < 4; i++) {
        if (r == 0)
            weft_k_sums_first(dtype, &s, i, x[r].word[i]);
        else
            weft_k_sums_next(dtype, &s, i, x[r].word[i]);
    }
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        sum.word[i] = weft_k_sums_last(dtype, &s, i, divisor);
    return sum;
}

/* The same for any number of ranks, loading on the way. */
WEFT_K weft_k_vector weft_k_sum_any(const int dtype, int ranks, const char *from,
                                    uint64_t from_step, int divisor)
{
    weft_k_sums s;
    weft_k_vector x = weft_k_load16(from);
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        weft_k_sums_first(dtype, &s, i, x.word[i]);
    WEFT_K_UNROLL_TWO
    for (int r = 1; r < ranks; r++) {
        x = weft_k_load16(from + (uint64_t)r * from_step);
        WEFT_K_UNROLL
        for (int i = 0; i < 4; i++)
            weft_k_sums_next(dtype, &s, i, x.word[i]);
    }
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        x.word[i] = weft_k_sums_last(dtype, &s, i, divisor);
    return x;
}

WEFT_K void weft_k_pour(weft_k_sink sink, uint64_t at, weft_k_vector x, const int streamed)
{
    int p = sink.first;
    for (int k = 0; k < sink.copies; k++) {
        char *to = sink.to + (uint64_t)p * sink.step + at;
        if (streamed)
            weft_k_stream16(to, x);
        else
            weft_k_store16(to, x);
        p = p + 1 < sink.copies ? p + 1 : 0;
    }
}

/* Sums whole units from deal->at on, `width` at a time, all loads before the first use. */
WEFT_K void weft_k_sum_units(const weft_k_range *range, weft_k_sink sink, weft_k_deal *deal,
                             uint64_t end, const int dtype, const int ranks,
                             const weft_k_shape shape, int divisor)
{
    uint64_t next = deal->next, ahead = (uint64_t)(shape.width - 1) * next, u = deal->at;
    WEFT_K_NO_UNROLL
    for (; u + ahead < end; u += deal->step) {
        weft_k_vector x[4][8];
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            const char *from = range->from + weft_k_place(range, 16 * (u + (uint64_t)j * next));
            WEFT_K_UNROLL
            for (int r = 0; r < ranks; r++)
                x[j][r] = weft_k_load16(from + (uint64_t)r * range->from_step);
        }
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++)
            weft_k_pour(sink, 16 * (u + (uint64_t)j * next),
                        weft_k_sum_vectors(dtype, ranks, x[j], divisor), shape.streamed);
    }
    deal->at = u;
}

/* One unit, whole or cut. */
WEFT_K void weft_k_fold_unit(const weft_k_meeting *m, const weft_k_range *range, weft_k_sink sink,
                             uint64_t u, const int dtype)
{
    uint64_t left = range->bytes - 16 * u;
    int size = m->call->group.size, divisor = m->call->op == WEFT_K_AVG ? size : 0;
    if (dtype >= 0 && left >= 16)
        weft_k_pour(sink, 16 * u,
                    weft_k_sum_any(dtype, size, range->from + weft_k_place(range, 16 * u),
                                   range->from_step, divisor),
                    0);
    else
        weft_k_fold_elements(m, range, sink, 16 * u, left < 16 ? left : 16);
}

/* The same as weft_k_fold_range, in a shape. */
WEFT_K void weft_k_fold_shaped(const weft_k_meeting *m, const weft_k_range *range, weft_k_sink sink,
                               const int dtype, const int ranks, const weft_k_shape shape)
{
    int size = m->call->group.size, divisor = m->call->op == WEFT_K_AVG ? size : 0;
    uint64_t end = range->first + range->units, whole = range->bytes / 16;
    weft_k_deal deal = weft_k_deal_out(shape, range->block, range->blocks);
    deal.at += range->first;
    whole = whole < end ? whole : end;
    if (ranks)
        weft_k_sum_units(range, sink, &deal, whole, dtype, ranks, shape, divisor);
    WEFT_K_NO_UNROLL
    for (; deal.at < end; deal.at += deal.step) {
        WEFT_K_NO_UNROLL
        for (int j = 0; j < shape.width; j++)
            if (deal.at + (uint64_t)j * deal.next < end)
                weft_k_fold_unit(m, range, sink, deal.at + (uint64_t)j * deal.next, dtype);
    }
}

/*
 * Folds this block's units of the range.  `dtype` and `ranks` are those of a sum that is compiled;
 * `ranks` 0 is any number of them, `dtype` below 0 any dtype and operation.
 */
WEFT_K void weft_k_fold_range(const weft_k_meeting *m, const weft_k_range *range, weft_k_sink sink,
                              const int dtype, const int ranks)
{
    const weft_k_shape shape = {ranks == 2 ? 2 : 1, 0, 0};
    weft_k_fold_shaped(m, range, sink, dtype, ranks, shape);
}

WEFT_K uint64_t weft_k_units_of(uint64_t bytes)
{
    return (bytes + 15) / 16;
}

/* Units `first` on of the operand, dealt out to all blocks. */
WEFT_K weft_k_range weft_k_whole_range(const weft_k_call *c, uint64_t first, uint64_t units,
                                       uint64_t bytes)
{
    weft_k_range range = {c->from, c->from_step, first, units, bytes, 0, 0, 0, 0};
    range.block = weft_k_block();
    range.blocks = weft_k_blocks();
    return range;
}

/* Everybody reads everything; the result goes to this rank's `out`. */
WEFT_K void weft_k_run_one_shot(const weft_k_call *c, const int dtype, const int ranks)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (c->op == WEFT_K_PREMUL_SUM) {
        weft_k_tell_factor(&m);
        weft_k_sync();
    }
    if (!weft_k_enter(&m, c->op == WEFT_K_PREMUL_SUM))
        return;
    uint64_t bytes = c->count * weft_k_size_of(c->dtype);
    weft_k_range range = weft_k_whole_range(c, 0, weft_k_units_of(bytes), bytes);
    weft_k_sink sink = {c->out, 0, 1, 0};
    weft_k_fold_range(&m, &range, sink, dtype, ranks);
    weft_k_leave(&m);
}

/* This rank's slice of the units of an operand. */
WEFT_K weft_k_range weft_k_slice_range(const weft_k_call *c)
{
    uint64_t bytes = c->count * weft_k_size_of(c->dtype), units = weft_k_units_of(bytes);
    uint64_t slice = (units + (uint32_t)c->group.size - 1) / (uint32_t)c->group.size;
    uint64_t first = slice * (uint32_t)c->group.rank;
    first = first < units ? first : units;
    uint64_t left = units - first;
    return weft_k_whole_range(c, first, left < slice ? left : slice, bytes);
}

/* Everybody reads its slice of everything and stores the result to all, in place or not. */
WEFT_K void weft_k_run_two_shot_shaped(const weft_k_call *c, const int dtype, const int ranks,
                                       const weft_k_shape shape)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (c->op == WEFT_K_PREMUL_SUM) {
        weft_k_tell_factor(&m);
        weft_k_sync();
    }
    if (!weft_k_enter(&m, c->op == WEFT_K_PREMUL_SUM))
        return;
    weft_k_range range = weft_k_slice_range(c);
    weft_k_sink sink = {c->to, c->to_step, c->group.size, c->group.rank};
    weft_k_fold_shaped(&m, &range, sink, dtype, ranks, shape);
    weft_k_leave(&m);
}

WEFT_K void weft_k_run_two_shot(const weft_k_call *c, const int dtype, const int ranks)
{
    const weft_k_shape shape = {ranks == 2 ? 2 : 1, 0, 0};
    weft_k_run_two_shot_shaped(c, dtype, ranks, shape);
}

/* `from` is this rank's part of rank 0's operand; `count` elements of it are the result. */
WEFT_K void weft_k_run_reduce_scatter(const weft_k_call *c, const int dtype, const int ranks)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (c->op == WEFT_K_PREMUL_SUM) {
        weft_k_tell_factor(&m);
        weft_k_sync();
    }
    if (!weft_k_enter(&m, c->op == WEFT_K_PREMUL_SUM))
        return;
    uint64_t bytes = c->count * weft_k_size_of(c->dtype);
    weft_k_range range = weft_k_whole_range(c, 0, weft_k_units_of(bytes), bytes);
    if (c->rows > 1) {
        range.row_bytes = bytes / c->rows;
        range.pitch = c->pitch;
    }
    weft_k_sink sink = {c->out, 0, 1, 0};
    weft_k_fold_range(&m, &range, sink, dtype, ranks);
    weft_k_leave(&m);
}

#endif
