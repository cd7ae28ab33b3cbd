/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce by packets in blocks of one warp and at most 32 registers a thread, which find room
 * beside a matrix product where wider blocks wait for its end.  Such a block does the work of a wide
 * one: it goes through the `width` threads that packet.h would have, so units lie in the same slots
 * and a rank may take either.  All units are sent before the first is waited for.
 *
 * Sums alone: a division would take too many registers.  For the same reason a wait keeps little:
 * what it found is read again when it gives up, and each long wait is noted in the record.
 */
#ifndef WEFT_CUDA_KERNELS_NARROW_H
#define WEFT_CUDA_KERNELS_NARROW_H

#include "packet.h"

/* In ticks of 1024 ns; `end` is 0, or why and for which rank the wait ended. */
typedef struct weft_k_brief {
    uint32_t began, rounds, end;
} weft_k_brief;
enum { WEFT_K_TICK = 10, WEFT_K_WHY = 16 };

/* A look around, as weft_k_must_stop_packet. */
WEFT_K int weft_k_brief_stop(const weft_k_meeting *m, weft_k_brief *b, int peer)
{
    const weft_k_group *g = &m->call->group;
    weft_k_poll();
    if (++b->rounds % WEFT_K_LOOK_ROUNDS)
        return 0;
    uint32_t now = (uint32_t)(weft_k_clock() >> WEFT_K_TICK) | 1, why = WEFT_K_FINE;
    b->began = b->began ? b->began : now;
    if (now - b->began > WEFT_K_LONG_NS >> WEFT_K_TICK) {
        weft_k_store(&g->record->waiting, (uint64_t)(peer + 1));
        weft_k_rest();
    }
    uint64_t seen = weft_k_load(weft_k_arrival(weft_k_line(g, g->rank, m->at, m->line), peer));
    if ((uint32_t)(seen >> 32) == m->epoch && (uint32_t)seen != m->digest)
        why = WEFT_K_MISMATCH;
    if (m->call->limit_ns && now - b->began > m->call->limit_ns >> WEFT_K_TICK)
        why = WEFT_K_TIMEOUT;
    if (weft_k_load(g->verdict)) /* pairs with the host's store */
        why = WEFT_K_VERDICT;
    if (weft_k_load(weft_k_poison_word(g, g->rank))) /* pairs with the store in weft_k_give_up */
        why = WEFT_K_POISONED;
    if (why)
        b->end = why << WEFT_K_WHY | (uint32_t)peer;
    return why != WEFT_K_FINE;
}

/* Ends the waits of this thread, and the meeting if one of them had no end. */
WEFT_K void weft_k_brief_end(const weft_k_meeting *m, const weft_k_brief *b)
{
    const weft_k_group *g = &m->call->group;
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    if (b->began)
        weft_k_store(&g->record->waiting, 0);
    if (!b->end)
        return;
    uint64_t word = 0, now = weft_k_clock();
    p.why = (int32_t)(b->end >> WEFT_K_WHY);
    p.peer = (int32_t)(b->end & ((1u << WEFT_K_WHY) - 1));
    if (b->began)
        p.began =
            now - ((uint64_t)(((uint32_t)(now >> WEFT_K_TICK) | 1) - b->began) << WEFT_K_TICK);
    if (p.why == WEFT_K_POISONED)
        word = weft_k_load(weft_k_poison_word(g, g->rank));
    else if (p.why == WEFT_K_VERDICT)
        word = weft_k_load(g->verdict);
    else if (p.why == WEFT_K_MISMATCH)
        p.theirs =
            (uint32_t)weft_k_load(weft_k_arrival(weft_k_line(g, g->rank, m->at, m->line), p.peer));
    if (word) {
        p.peer = (int32_t)(uint32_t)word - 1;
        p.theirs = word >> 32;
    }
    weft_k_give_up(m, &p);
}

/* Byte of the operand at which packet `i` of this block lies, two to a unit; see packet.h. */
WEFT_K uint32_t weft_k_narrow_at(const weft_k_call *c, uint32_t i)
{
    uint32_t turn = i / 2 / c->width, thread = i / 2 % c->width;
    return 8 * ((turn * weft_k_blocks() + weft_k_block()) * c->width + thread) + 4 * (i & 1);
}

/* Up to 4 bytes of plain memory, of which `bytes` are there. */
WEFT_K uint32_t weft_k_get4(const char *from, uint32_t bytes)
{
    if (bytes >= 4 && (uintptr_t)from % 4 == 0)
        return *(const uint32_t *)(const void *)from;
    uint32_t data = 0;
    WEFT_K_NO_UNROLL
    for (uint32_t k = 0; k < 4 && k < bytes; k++)
        data |= (uint32_t) * (const uint8_t *)(from + k) << 8 * k;
    return data;
}

WEFT_K void weft_k_put4(char *to, uint32_t bytes, uint32_t data)
{
    if (bytes >= 4 && (uintptr_t)to % 4 == 0) {
        *(uint32_t *)(void *)to = data;
        return;
    }
    WEFT_K_NO_UNROLL
    for (uint32_t k = 0; k < 4 && k < bytes; k++)
        *(uint8_t *)(to + k) = (uint8_t)(data >> 8 * k);
}

WEFT_K void weft_k_narrow_send(const weft_k_meeting *m, uint32_t flag, uint32_t i, uint32_t data)
{
    const weft_k_group *g = &m->call->group;
    WEFT_K_NO_UNROLL
    for (int r = 0; r < g->size; r++)
        if (r != g->rank) /* pairs with the loads of who receives, here and in packet.h */
            weft_k_store_word(weft_k_packets(m, r, g->rank) + i, (uint64_t)flag << 32 | data);
}

/* The sum of one packet's data; 0 if a rank will not come. */
WEFT_K int weft_k_narrow_sum(const weft_k_meeting *m, weft_k_brief *b, const int dtype,
                             uint32_t flag, uint32_t i, uint32_t *data)
{
    const weft_k_group *g = &m->call->group;
    weft_k_sums s;
    WEFT_K_NO_UNROLL
    for (int r = 0; r < g->size; r++) {
        uint32_t word = *data;
        if (r != g->rank) {
            const uint64_t *from = weft_k_packets(m, g->rank, r) + i;
            uint64_t seen;
            /* Pairs with the stores in weft_k_narrow_send and weft_k_send. */
            while ((uint32_t)((seen = weft_k_load_word(from)) >> 32) != flag)
                if (weft_k_brief_stop(m, b, r))
                    return 0;
            word = (uint32_t)seen;
        }
        if (r == 0)
            weft_k_sums_first(dtype, &s, 0, word);
        else
            weft_k_sums_next(dtype, &s, 0, word);
    }
    *data = weft_k_sums_last(dtype, &s, 0, 0);
    return 1;
}

WEFT_K void weft_k_run_packets_narrow(const weft_k_call *c, const int dtype)
{
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    const uint32_t bytes = (uint32_t)c->count * (dtype == WEFT_K_F32 ? 4 : 2);
    const uint32_t flag = weft_k_flag(&m), round = weft_k_blocks() * c->width;
    const uint32_t packets = ((bytes + 7) / 8 + round - 1) / round * 2 * c->width; /* of a block */
    weft_k_brief b = {0, 0, 0};
    if (weft_k_load(weft_k_poison_word(&c->group, c->group.rank)))
        b.end = WEFT_K_POISONED << WEFT_K_WHY; /* pairs with the store in weft_k_give_up */
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); !b.end && r < c->group.size; r += (int)weft_k_threads())
        if (r != c->group.rank)
            weft_k_arrive(&m, r, 0);
    WEFT_K_NO_UNROLL
    for (uint32_t i = weft_k_thread(); !b.end && i < packets; i += weft_k_threads()) {
        uint32_t at = weft_k_narrow_at(c, i);
        if (at < (bytes + 7) / 8 * 8) /* both packets of a unit, also where it is cut */
            weft_k_narrow_send(&m, flag, i, at < bytes ? weft_k_get4(c->in + at, bytes - at) : 0);
    }
    WEFT_K_NO_UNROLL
    for (uint32_t i = weft_k_thread(); !b.end && i < packets; i += weft_k_threads()) {
        uint32_t at = weft_k_narrow_at(c, i);
        if (at >= bytes)
            continue;
        uint32_t data = weft_k_get4(c->in + at, bytes - at);
        if (weft_k_narrow_sum(&m, &b, dtype, flag, i, &data))
            weft_k_put4(c->out + at, bytes - at, data);
    }
    weft_k_brief_end(&m, &b);
    if (weft_k_sync_all(!b.end))
        weft_k_set_epoch(&m);
}

#endif
