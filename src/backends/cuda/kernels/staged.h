/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of operands that are not symmetric memory: they go through the stage, piece by piece.
 * Every block has a place of its own there, in each of the two halves.  In a round it fills its
 * place in the half of the meeting's epoch, meets the same blocks of all ranks, and takes from
 * their places.
 *
 * One meeting a round is enough: a block that is about to fill a half again has heard from the same
 * blocks of all ranks in between, so the round in which they read it is over.  Were places shared
 * by blocks, a call with another grid could fill what a slower rank still reads.
 *
 * A place has one part, or one for each rank where every rank gets something else.  A block writes
 * only what it has read itself in that round, so results may lie where operands did.
 */
#ifndef WEFT_CUDA_KERNELS_STAGED_H
#define WEFT_CUDA_KERNELS_STAGED_H

#include "move.h"

/* What is left from byte `at` of a part on, this block's of a round. */
WEFT_K uint64_t weft_k_mine(const weft_k_call *c, uint64_t at)
{
    uint64_t bytes = c->count * weft_k_size_of(c->dtype);
    return at >= bytes ? 0 : bytes - at < c->each ? bytes - at : c->each;
}

/* Is there a round?  The first always is: ranks that have nothing to give meet all the same. */
WEFT_K int weft_k_has_round(const weft_k_call *c, uint64_t at)
{
    uint64_t begun = at - c->each * weft_k_block();
    return begun == 0 || begun < c->count * weft_k_size_of(c->dtype);
}

/* Where this block's place lies in a pad, in the half of an epoch. */
WEFT_K uint64_t weft_k_place_at(const weft_k_call *c, uint32_t epoch)
{
    return c->group.stage_at + (epoch & 1) * c->group.stage_bytes + c->place * weft_k_block();
}

WEFT_K void weft_k_copy_in_block(const weft_k_call *c, char *to, const char *from, uint64_t bytes)
{
    const weft_k_shape shape = {4, 0, 0};
    weft_k_sink sink = {to, 0, 1, 0};
    weft_k_spread(sink, from, bytes, weft_k_size_of(c->dtype), weft_k_deal_out(shape, 0, 1), shape);
}

/* Fills this rank's place and meets the others; 0: give up. */
WEFT_K int weft_k_fill_place(const weft_k_meeting *m, uint64_t at)
{
    const weft_k_call *c = m->call;
    char *to = weft_k_pad(&c->group, c->group.rank) + weft_k_place_at(c, m->epoch);
    WEFT_K_NO_UNROLL
    for (int k = 0; k < c->fills; k++)
        weft_k_copy_in_block(c, to + (uint64_t)k * c->room, c->in + (uint64_t)k * c->in_step + at,
                             weft_k_mine(c, at));
    if (c->op == WEFT_K_PREMUL_SUM)
        weft_k_tell_factor(m);
    weft_k_sync();
    return weft_k_enter(m, 1);
}

/* On to the next round, once all threads of the block are through with this one. */
WEFT_K uint64_t weft_k_end_round(weft_k_meeting *m, uint64_t at)
{
    weft_k_set_epoch(m);
    weft_k_sync();
    m->epoch++;
    uint64_t each = m->call->each; /* 0 where there is nothing: one round */
    return at + (each ? each : 1) * weft_k_blocks();
}

WEFT_K uint64_t weft_k_first_round(const weft_k_call *c)
{
    return c->each * weft_k_block();
}

/* `bytes` bytes of all ranks from `from` of their pads on, dealt out to the threads of the block. */
WEFT_K weft_k_range weft_k_block_range(const weft_k_call *c, uint64_t from, uint64_t bytes)
{
    weft_k_range range = {c->group.pads + from, c->group.stride, 0, 0, bytes, 0, 0, 0, 0};
    range.blocks = 1;
    return range;
}

/* Reductions that everybody folds by itself: all_reduce, reduce_scatter and reduce. */
WEFT_K void weft_k_run_staged(const weft_k_call *c, const int dtype, const int ranks)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    WEFT_K_NO_UNROLL
    for (uint64_t at = weft_k_first_round(c); weft_k_has_round(c, at);
         at = weft_k_end_round(&m, at)) {
        if (!weft_k_fill_place(&m, at))
            return;
        if (c->out) {
            weft_k_range range = weft_k_block_range(
                c, weft_k_place_at(c, m.epoch) + (uint32_t)c->takes * c->room, weft_k_mine(c, at));
            range.units = weft_k_units_of(range.bytes);
            weft_k_sink sink = {c->out + at, 0, 1, 0};
            weft_k_fold_range(&m, &range, sink, dtype, ranks);
        }
    }
}

/*
 * all_reduce in two steps: every rank folds its slice of a place and stores it to all ranks' places
 * in the other half, from where they take it after a second meeting.  That half is free: at the
 * first meeting everybody is through with the round before.
 */
WEFT_K void weft_k_run_staged_two(const weft_k_call *c, const int dtype, const int ranks)
{
    weft_k_begin();
    const weft_k_group *g = &c->group;
    weft_k_meeting m = weft_k_next_meeting(c);
    WEFT_K_NO_UNROLL
    for (uint64_t at = weft_k_first_round(c); weft_k_has_round(c, at);
         at = weft_k_end_round(&m, at)) {
        if (!weft_k_fill_place(&m, at))
            return;
        weft_k_range range = weft_k_block_range(c, weft_k_place_at(c, m.epoch), weft_k_mine(c, at));
        uint32_t units = (uint32_t)weft_k_units_of(range.bytes);
        uint32_t slice = (units + (uint32_t)g->size - 1) / (uint32_t)g->size;
        uint32_t first = slice * (uint32_t)g->rank;
        first = first < units ? first : units;
        range.first = first;
        range.units = units - first < slice ? units - first : slice;
        weft_k_sink sink = {g->pads + weft_k_place_at(c, m.epoch + 1), g->stride, g->size, g->rank};
        weft_k_fold_range(&m, &range, sink, dtype, ranks);
        m.epoch++;
        weft_k_sync(); /* what this block's threads stored comes before the arrivals */
        if (!weft_k_meet(&m, 1))
            return;
        weft_k_copy_in_block(c, c->out + at, weft_k_pad(g, g->rank) + weft_k_place_at(c, m.epoch),
                             weft_k_mine(c, at));
    }
}

/* What only moves: all_gather, gather, all_to_all, scatter and broadcast. */
WEFT_K void weft_k_run_staged_move(const weft_k_call *c)
{
    weft_k_begin();
    const weft_k_group *g = &c->group;
    weft_k_meeting m = weft_k_next_meeting(c);
    WEFT_K_NO_UNROLL
    for (uint64_t at = weft_k_first_round(c); weft_k_has_round(c, at);
         at = weft_k_end_round(&m, at)) {
        if (!weft_k_fill_place(&m, at))
            return;
        uint64_t from = weft_k_place_at(c, m.epoch) + (uint32_t)c->takes * c->room;
        int p = c->first;
        WEFT_K_NO_UNROLL
        for (int k = 0; k < c->peers; k++) {
            weft_k_copy_in_block(c, c->out + (uint64_t)p * c->to_step + at, weft_k_pad(g, p) + from,
                                 weft_k_mine(c, at));
            p = p + 1 < g->size ? p + 1 : 0;
        }
    }
}

#endif
