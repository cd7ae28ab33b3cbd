/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that only move bytes: all_gather, all_to_all, broadcast.  Where a part comes from and
 * where it goes is linear in the peer, whether a rank pushes or pulls, so one kernel serves them all: the
 * part of peer p is `count` bytes from `from + p * from_step` to `to + p * to_step`.
 */
#ifndef WEFT_CUDA_KERNELS_MOVE_H
#define WEFT_CUDA_KERNELS_MOVE_H

#include "reduce.h"

/* Elements of `size` bytes from unit `u` on, of which `bytes` may cut the last. */
WEFT_K void weft_k_copy_unit(char *to, const char *from, uint64_t bytes, uint32_t size, uint64_t u)
{
    for (uint64_t at = 16 * u; at < 16 * u + 16 && at < bytes; at += size)
        weft_k_put(to + at, size, weft_k_get(from + at, size));
}

/*
 * Copies `bytes` bytes to all places of the sink, which it reads once: words of 16 bytes where all
 * ends are at a multiple of that, else elements of `size` bytes, at multiples of which they lie.
 */
WEFT_K void weft_k_spread(weft_k_sink sink, const char *from, uint64_t bytes, uint32_t size,
                          weft_k_deal deal, const weft_k_shape shape)
{
    uint64_t whole = bytes / 16, ahead = (uint64_t)(shape.width - 1) * deal.next;
    uint64_t units = weft_k_units_of(bytes);
    int aligned = (((uintptr_t)sink.to | (uintptr_t)from | sink.step) & 15) == 0;
    if (aligned) {
        WEFT_K_NO_UNROLL
        for (; deal.at + ahead < whole; deal.at += deal.step) {
            weft_k_vector x[8];
            WEFT_K_UNROLL
            for (int j = 0; j < shape.width; j++)
                x[j] = weft_k_load16(from + 16 * (deal.at + (uint64_t)j * deal.next));
            WEFT_K_UNROLL
            for (int j = 0; j < shape.width; j++)
                weft_k_pour(sink, 16 * (deal.at + (uint64_t)j * deal.next), x[j], shape.streamed);
        }
    }
    /* What is left of a lot: without tiles its units follow as those of any lot do. */
    const int lot = shape.tiled ? shape.width : 1;
    WEFT_K_NO_UNROLL
    for (; deal.at < units; deal.at += shape.tiled ? deal.step : deal.next) {
        WEFT_K_NO_UNROLL
        for (int j = 0; j < lot; j++) {
            uint64_t u = deal.at + (uint64_t)j * deal.next;
            if (u >= units)
                break;
            if (aligned && u < whole)
                weft_k_pour(sink, 16 * u, weft_k_load16(from + 16 * u), shape.streamed);
            else
                for (int k = 0; k < sink.copies; k++)
                    weft_k_copy_unit(sink.to + (uint64_t)k * sink.step, from, bytes, size, u);
        }
    }
}

/* A part that goes to all alike is read once; others go peer by peer, beginning with `first`. */
WEFT_K void weft_k_run_move_shaped(const weft_k_call *c, const weft_k_shape shape)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (!weft_k_enter(&m, 0))
        return;
    weft_k_deal deal = weft_k_deal_out(shape, weft_k_block(), weft_k_blocks());
    int once = c->from_step == 0 && c->peers == c->group.size, p = c->first;
    WEFT_K_NO_UNROLL
    for (int k = 0; k < (once ? 1 : c->peers); k++) {
        weft_k_sink sink = {c->to + (once ? 0 : (uint64_t)p * c->to_step), c->to_step, 1, 0};
        if (once) {
            sink.copies = c->peers;
            sink.first = c->first;
        }
        weft_k_spread(sink, c->from + (uint64_t)p * c->from_step, c->count, 1, deal, shape);
        p = p + 1 < c->group.size ? p + 1 : 0;
    }
    weft_k_leave(&m);
}

/* The shapes that were fastest on an H200: docs/gpu.md.  A part that is written to all places has
 * few loads under way: its stores are as many times more. */
WEFT_K void weft_k_run_move(const weft_k_call *c)
{
    const weft_k_shape parts = {4, 0, 0}, pair = {2, 0, 0}, many = {1, 0, 0};
    if (c->from_step != 0 || c->peers != c->group.size)
        weft_k_run_move_shaped(c, parts);
    else if (c->peers == 2)
        weft_k_run_move_shaped(c, pair);
    else
        weft_k_run_move_shaped(c, many);
}

#endif
