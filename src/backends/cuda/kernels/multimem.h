/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives by multicast: the switch adds what all ranks have at an address, and stores to all of
 * them.  `c->to` is the operand's multicast address, `c->from` rank 0's ordinary one with the step
 * to the next rank's.  Untested on hardware: scripts/gpu-check peers.
 *
 * The order of the additions is the switch's, so sums need not have the bits of the other
 * collectives.  In two shots every element is added once and all ranks get that; in one shot each
 * rank has the switch add anew, and two ranks may differ in the last bit.
 *
 * Work is dealt out in units of 16 bytes at multiples of 16, wherever the operand begins.  Its first
 * and last unit may be cut: there whole words go by multicast, and half words, or single bytes of a
 * gather, by the ranks' ordinary addresses.
 */
#ifndef WEFT_CUDA_KERNELS_MULTIMEM_H
#define WEFT_CUDA_KERNELS_MULTIMEM_H

#include "reduce.h"

WEFT_K weft_k_vector weft_k_multi_sum16(const int dtype, const void *from)
{
    return dtype == WEFT_K_F32    ? weft_k_multi_sum16_f32(from)
           : dtype == WEFT_K_BF16 ? weft_k_multi_sum16_bf16(from)
                                  : weft_k_multi_sum16_f16(from);
}

WEFT_K uint32_t weft_k_multi_sum4(const int dtype, const void *from)
{
    return dtype == WEFT_K_F32    ? weft_k_multi_sum4_f32(from)
           : dtype == WEFT_K_BF16 ? weft_k_multi_sum4_bf16(from)
                                  : weft_k_multi_sum4_f16(from);
}

/* An operand as units: the first begins `lead` bytes before it. */
typedef struct weft_k_multi {
    const weft_k_meeting *m;
    char *at; /* multicast address of the operand */
    uint64_t lead, bytes, units;
    uint64_t first, end; /* units of this rank */
} weft_k_multi;

WEFT_K weft_k_multi weft_k_multi_of(const weft_k_meeting *m, uint64_t bytes)
{
    weft_k_multi x = {m, m->call->to, 0, bytes, 0, 0, 0};
    x.lead = (uint64_t)(uintptr_t)x.at & 15;
    x.units = bytes ? weft_k_units_of(x.lead + bytes) : 0;
    x.end = x.units;
    return x;
}

/* Is all of unit `u` the operand's? */
WEFT_K int weft_k_multi_is_whole(const weft_k_multi *x, uint64_t u)
{
    return 16 * u >= x->lead && 16 * u + 16 <= x->lead + x->bytes;
}

/* The bytes of a cut unit: from place `*at` of the operand to the one that is returned. */
WEFT_K uint64_t weft_k_multi_cut(const weft_k_multi *x, uint64_t u, uint64_t *at)
{
    uint64_t end = 16 * u + 16 - x->lead;
    *at = 16 * u < x->lead ? 0 : 16 * u - x->lead;
    return end < x->bytes ? end : x->bytes;
}

/* Does a word of multicast begin at place `at`, with `end` not before its end? */
WEFT_K int weft_k_multi_has_word(const weft_k_multi *x, uint64_t at, uint64_t end)
{
    return ((uintptr_t)(x->at + at) & 3) == 0 && at + 4 <= end;
}

/* ---- sums ---- */

/* 16 bytes or a word to where the caller's memory lies as its elements do. */
WEFT_K void weft_k_put_words(char *to, weft_k_vector v, const int words)
{
    int by_word = ((uintptr_t)to & 3) == 0;
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++) {
        if (i < words && by_word)
            weft_k_put(to + 4 * i, 4, v.word[i]);
        else if (i < words) {
            weft_k_put(to + 4 * i, 2, v.word[i] & 0xffff);
            weft_k_put(to + 4 * i + 2, 2, v.word[i] >> 16);
        }
    }
}

/* The sum of a unit goes to all ranks, or to `out`, this rank's own. */
WEFT_K void weft_k_multi_leave(const weft_k_multi *x, uint64_t u, weft_k_vector sum, char *out)
{
    char *own = out + (16 * u - x->lead);
    if (!out)
        weft_k_multi_store16(x->at - x->lead + 16 * u, sum);
    else if (((uintptr_t)own & 15) == 0)
        weft_k_store16(own, sum);
    else
        weft_k_put_words(own, sum, 4);
}

/* Half a word, which has no multicast of its own: in rank order, from everybody's memory. */
WEFT_K uint64_t weft_k_multi_sum2(const weft_k_call *c, uint64_t at, const int dtype)
{
    weft_k_sums s;
    weft_k_sums_first(dtype, &s, 0, (uint32_t)weft_k_get(c->from + at, 2));
    WEFT_K_NO_UNROLL
    for (int r = 1; r < c->group.size; r++)
        weft_k_sums_next(dtype, &s, 0,
                         (uint32_t)weft_k_get(c->from + (uint64_t)r * c->from_step + at, 2));
    return weft_k_sums_last(dtype, &s, 0, 0) & 0xffff;
}

WEFT_K void weft_k_multi_sum_cut(const weft_k_multi *x, uint64_t u, const int dtype, char *out)
{
    const weft_k_call *c = x->m->call;
    uint64_t at, end = weft_k_multi_cut(x, u, &at);
    WEFT_K_NO_UNROLL
    while (at < end) {
        if (weft_k_multi_has_word(x, at, end)) {
            weft_k_vector word = {{weft_k_multi_sum4(dtype, x->at + at), 0, 0, 0}};
            if (out)
                weft_k_put_words(out + at, word, 1);
            else
                weft_k_multi_store4(x->at + at, word.word[0]);
            at += 4;
            continue;
        }
        uint64_t sum = weft_k_multi_sum2(c, at, dtype);
        WEFT_K_NO_UNROLL
        for (int r = 0; r < (out ? 1 : c->group.size); r++)
            weft_k_put(out ? out + at
                           : (char *)(uintptr_t)c->from + (uint64_t)r * c->from_step + at,
                       2, sum);
        at += 2;
    }
}

/* This block's units of [x->first, x->end). */
WEFT_K void weft_k_multi_sum(const weft_k_multi *x, const int dtype, char *out)
{
    const weft_k_shape shape = {4, 0, 0};
    weft_k_deal deal = weft_k_deal_out(shape, weft_k_block(), weft_k_blocks());
    const char *base = x->at - x->lead;
    deal.at += x->first;
    WEFT_K_NO_UNROLL
    for (; deal.at < x->end; deal.at += deal.step) {
        weft_k_vector sum[4];
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            uint64_t u = deal.at + (uint64_t)j * deal.next;
            if (u < x->end && weft_k_multi_is_whole(x, u))
                sum[j] = weft_k_multi_sum16(dtype, base + 16 * u);
        }
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            uint64_t u = deal.at + (uint64_t)j * deal.next;
            if (u >= x->end)
                continue;
            if (weft_k_multi_is_whole(x, u))
                weft_k_multi_leave(x, u, sum[j], out);
            else
                weft_k_multi_sum_cut(x, u, dtype, out);
        }
    }
}

/* In two shots, in place: each rank has the switch add its slice, and stores it to all. */
WEFT_K void weft_k_run_multimem(const weft_k_call *c, const int dtype)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (!weft_k_enter(&m, 0))
        return;
    weft_k_multi x = weft_k_multi_of(&m, c->count * (dtype == WEFT_K_F32 ? 4 : 2));
    uint32_t size = (uint32_t)c->group.size, rank = (uint32_t)c->group.rank;
    uint64_t slice = (x.units + size - 1) / size;
    x.first = slice * rank < x.units ? slice * rank : x.units;
    x.end = x.units - x.first < slice ? x.units : x.first + slice;
    weft_k_multi_sum(&x, dtype, 0);
    weft_k_leave(&m);
}

/* In one shot: to `out`, on ranks that have one. */
WEFT_K void weft_k_run_multimem_one(const weft_k_call *c, const int dtype)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (!weft_k_enter(&m, 0))
        return;
    weft_k_multi x = weft_k_multi_of(&m, c->count * (dtype == WEFT_K_F32 ? 4 : 2));
    if (c->out)
        weft_k_multi_sum(&x, dtype, c->out);
    weft_k_leave(&m);
}

/* ---- all_gather ---- */

/* 4 bytes at any address. */
WEFT_K uint32_t weft_k_get_word(const char *from)
{
    if (((uintptr_t)from & 3) == 0)
        return (uint32_t)weft_k_get(from, 4);
    uint32_t word = 0;
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)weft_k_get(from + i, 1) << (8 * i);
    return word;
}

WEFT_K weft_k_vector weft_k_get_words(const char *from)
{
    weft_k_vector v;
    if (((uintptr_t)from & 15) == 0)
        return weft_k_load16(from);
    WEFT_K_UNROLL
    for (int i = 0; i < 4; i++)
        v.word[i] = weft_k_get_word(from + 4 * i);
    return v;
}

WEFT_K void weft_k_multi_spread_cut(const weft_k_multi *x, uint64_t u, const char *in)
{
    const weft_k_call *c = x->m->call;
    uint64_t at, end = weft_k_multi_cut(x, u, &at);
    WEFT_K_NO_UNROLL
    while (at < end) {
        if (weft_k_multi_has_word(x, at, end)) {
            weft_k_multi_store4(x->at + at, weft_k_get_word(in + at));
            at += 4;
            continue;
        }
        uint64_t byte = weft_k_get(in + at, 1);
        WEFT_K_NO_UNROLL
        for (int r = 0; r < c->group.size; r++)
            weft_k_put((char *)(uintptr_t)c->from + (uint64_t)r * c->from_step + at, 1, byte);
        at++;
    }
}

/* `count` bytes of `in` to everybody's output, at this rank's place. */
WEFT_K void weft_k_run_multimem_gather(const weft_k_call *c)
{
    const weft_k_shape shape = {4, 0, 0};
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    if (!weft_k_enter(&m, 0))
        return;
    weft_k_multi x = weft_k_multi_of(&m, c->count);
    weft_k_deal deal = weft_k_deal_out(shape, weft_k_block(), weft_k_blocks());
    WEFT_K_NO_UNROLL
    for (; deal.at < x.end; deal.at += deal.step) {
        weft_k_vector v[4];
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            uint64_t u = deal.at + (uint64_t)j * deal.next;
            if (u < x.end && weft_k_multi_is_whole(&x, u))
                v[j] = weft_k_get_words(c->in + (16 * u - x.lead));
        }
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            uint64_t u = deal.at + (uint64_t)j * deal.next;
            if (u >= x.end)
                continue;
            if (weft_k_multi_is_whole(&x, u))
                weft_k_multi_store16(x.at - x.lead + 16 * u, v[j]);
            else
                weft_k_multi_spread_cut(&x, u, c->in);
        }
    }
    weft_k_leave(&m);
}

#endif
