/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce by packets in blocks of one warp and at most 32 registers a thread, which find room
 * beside a matrix product where wider blocks wait for its end.  Such a block does the work of a wide
 * one: it goes through the `width` threads that packet.h would have, so units lie in the same slots
 * and a rank may take either.  All units are sent before the first is waited for.
 *
 * A product leaves a multiprocessor room for one such warp.  There are no others to hide how far
 * memory is, about 2 us then, so a thread has several units under way: a lot of pairs of units, each
 * of them 16 bytes of the operand.  What is not a whole number of pairs, or not aligned, goes by
 * packets, one after the other.  What would not fit the registers is kept in shared memory, of which
 * a product leaves little.
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
    const int rank = (int)weft_k_here((uint32_t)g->rank);
    uint64_t seen = weft_k_load(weft_k_arrival(weft_k_line(g, rank, m->at, m->line), peer));
    if ((uint32_t)(seen >> 32) == m->epoch && (uint32_t)seen != m->digest)
        why = WEFT_K_MISMATCH;
    if (m->call->limit_ns && now - b->began > m->call->limit_ns >> WEFT_K_TICK)
        why = WEFT_K_TIMEOUT;
    if (weft_k_load(g->verdict)) /* pairs with the host's store */
        why = WEFT_K_VERDICT;
    if (weft_k_load(weft_k_poison_word(g, rank))) /* pairs with the store in weft_k_give_up */
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

/* ---- operands of whole pairs ---- */

/* What a wide block takes at a time: `width` units, which are pairs.  The operand's byte where pair 0
 * of this block's lies, and how many pairs are before it in the slots. */
typedef struct weft_k_row {
    uint32_t at, first;
} weft_k_row;

WEFT_K uint32_t weft_k_pair_bytes(const weft_k_call *c, const int dtype)
{
    return (uint32_t)c->count * (dtype == WEFT_K_F32 ? 4 : 2);
}

/* How many pairs there are in it. */
WEFT_K uint32_t weft_k_row_pairs(const weft_k_call *c, const int dtype, weft_k_row row)
{
    uint32_t left = (weft_k_pair_bytes(c, dtype) - row.at) / 16;
    return left < c->width / 2 ? left : c->width / 2;
}

WEFT_K weft_k_row weft_k_first_row(const weft_k_call *c)
{
    weft_k_row row = {8 * weft_k_block() * c->width, 0};
    return row;
}

WEFT_K weft_k_row weft_k_next_row(const weft_k_call *c, weft_k_row row)
{
    row.at += 8 * weft_k_blocks() * c->width;
    row.first += c->width / 2;
    return row;
}

/* Sends pair q of a row of `count`, and those a warp further, `lot` in all. */
WEFT_K void weft_k_send_lot(const weft_k_meeting *m, uint32_t flag, weft_k_row row, uint32_t count,
                            uint32_t q, const uint32_t lot)
{
    const weft_k_call *c = m->call;
    const char *from = c->in + (row.at + 16 * q);
    weft_k_vector x[4];
    WEFT_K_UNROLL
    for (uint32_t j = 0; j < lot; j++)
        if (q + j * weft_k_warp() < count)
            x[j] = weft_k_load16_kept(from + 16 * j * weft_k_warp());
    WEFT_K_NO_UNROLL
    for (int r = 0; r < c->group.size; r++) {
        if (r == c->group.rank)
            continue;
        const int rank = (int)weft_k_here((uint32_t)c->group.rank);
        uint64_t *to = weft_k_packets(m, r, rank) + 4 * (row.first + q);
        WEFT_K_UNROLL
        for (uint32_t j = 0; j < lot; j++)
            if (q + j * weft_k_warp() < count) {
                uint64_t *pair = to + 4 * j * weft_k_warp();
                /* Pair with the loads of who receives, here and in packet.h. */
                weft_k_store_halves(pair, x[j].word[0], x[j].word[1], flag);
                weft_k_store_halves(pair + 2, x[j].word[2], x[j].word[3], flag);
            }
    }
}

/* Is it something else than packets with that flag? */
WEFT_K uint32_t weft_k_is_foreign(weft_k_vector unit, uint32_t flag)
{
    return (unit.word[1] ^ flag) | (unit.word[3] ^ flag);
}

WEFT_K weft_k_vector weft_k_data_of(weft_k_vector one, weft_k_vector two)
{
    weft_k_vector x = {{one.word[0], one.word[2], two.word[0], two.word[2]}};
    return x;
}

/* Waits for pair q of `peer`; 0 if it will not come. */
WEFT_K int weft_k_take_pair(const weft_k_meeting *m, weft_k_brief *b, uint32_t flag, weft_k_row row,
                            uint32_t q, int peer, weft_k_vector *x)
{
    const int rank = (int)weft_k_here((uint32_t)m->call->group.rank);
    const uint64_t *from = weft_k_packets(m, rank, peer) + 4 * (row.first + q);
    WEFT_K_NO_UNROLL
    for (;;) { /* pairs with the stores in weft_k_send_lot and weft_k_send */
        weft_k_vector one = weft_k_load_halves(from), two = weft_k_load_halves(from + 2);
        *x = weft_k_data_of(one, two);
        if ((weft_k_is_foreign(one, flag) | weft_k_is_foreign(two, flag)) == 0)
            return 1;
        if (weft_k_brief_stop(m, b, peer))
            return 0;
    }
}

/* Adds what this rank has to another's pair, and stores it: two ranks' order is the same to a sum. */
WEFT_K void weft_k_add_pair(const weft_k_call *c, const int dtype, uint32_t at, weft_k_vector x)
{
    at = weft_k_here(at);
    weft_k_vector mine = weft_k_load16_kept(c->in + at);
    WEFT_K_UNROLL
    for (int k = 0; k < 4; k++) {
        weft_k_sums s;
        weft_k_sums_first(dtype, &s, 0, mine.word[k]);
        weft_k_sums_next(dtype, &s, 0, x.word[k]);
        x.word[k] = weft_k_sums_last(dtype, &s, 0, 0);
    }
    weft_k_store16(c->out + at, x);
}

WEFT_K int weft_k_sum_pair_of_two(const weft_k_meeting *m, weft_k_brief *b, const int dtype,
                                  uint32_t flag, weft_k_row row, uint32_t q)
{
    weft_k_vector x;
    if (!weft_k_take_pair(m, b, flag, row, q, 1 - m->call->group.rank, &x))
        return 0;
    weft_k_add_pair(m->call, dtype, row.at + 16 * q, x);
    return 1;
}

/* Both pairs of a whole lot. */
WEFT_K int weft_k_sum_lot_of_two(const weft_k_meeting *m, weft_k_brief *b, const int dtype,
                                 uint32_t flag, weft_k_row row, uint32_t q)
{
    const int rank = (int)weft_k_here((uint32_t)m->call->group.rank);
    const uint64_t *from = weft_k_packets(m, rank, 1 - rank) + 4 * (row.first + q);
    weft_k_vector unit[4];
    WEFT_K_NO_UNROLL
    for (;;) { /* pairs with the stores in weft_k_send_lot and weft_k_send */
        unit[0] = weft_k_load_halves(from);
        unit[1] = weft_k_load_halves(from + 2);
        unit[2] = weft_k_load_halves(from + 4 * weft_k_warp());
        unit[3] = weft_k_load_halves(from + 4 * weft_k_warp() + 2);
        if ((weft_k_is_foreign(unit[0], flag) | weft_k_is_foreign(unit[1], flag) |
             weft_k_is_foreign(unit[2], flag) | weft_k_is_foreign(unit[3], flag)) == 0)
            break;
        if (weft_k_brief_stop(m, b + weft_k_here(0), 1 - rank))
            return 0;
    }
    weft_k_add_pair(m->call, dtype, row.at + 16 * q, weft_k_data_of(unit[0], unit[1]));
    weft_k_add_pair(m->call, dtype, row.at + 16 * (q + weft_k_warp()),
                    weft_k_data_of(unit[2], unit[3]));
    return 1;
}

/* The same of one pair of any number of ranks, in their order. */
WEFT_K int weft_k_sum_pair(const weft_k_meeting *m, weft_k_brief *b, weft_k_sums *sums,
                           const int dtype, uint32_t flag, weft_k_row row, uint32_t q)
{
    const weft_k_call *c = m->call;
    weft_k_vector x;
    WEFT_K_NO_UNROLL
    for (int r = 0; r < c->group.size; r++) {
        if (r == c->group.rank)
            x = weft_k_load16_kept(c->in + weft_k_here(row.at + 16 * q));
        else if (!weft_k_take_pair(m, b, flag, row, q, r, &x))
            return 0;
        weft_k_sums *s = sums + weft_k_here(0);
        WEFT_K_UNROLL
        for (int k = 0; k < 4; k++) {
            if (r == 0)
                weft_k_sums_first(dtype, s, k, x.word[k]);
            else
                weft_k_sums_next(dtype, s, k, x.word[k]);
        }
    }
    WEFT_K_UNROLL
    for (int k = 0; k < 4; k++)
        x.word[k] = weft_k_sums_last(dtype, sums + weft_k_here(0), k, 0);
    weft_k_store16(c->out + weft_k_here(row.at + 16 * q), x);
    return 1;
}

/* `two`: there are two ranks; `whole`: all lots are.  `b` and `sums`, which more ranks need, are kept
 * outside the thread's registers. */
WEFT_K void weft_k_run_pairs(const weft_k_call *c, const int dtype, const int two, const int whole,
                             weft_k_brief *b, weft_k_sums *sums)
{
    enum { LOT = 2 };
    weft_k_begin();
    weft_k_meeting m = weft_k_next_meeting(c);
    const uint32_t flag = weft_k_flag(&m);
    /* Pairs with the store in weft_k_give_up. */
    int fine = !weft_k_load(weft_k_poison_word(&c->group, c->group.rank));
    b->began = b->rounds = 0;
    b->end = fine ? 0 : WEFT_K_POISONED << WEFT_K_WHY;
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); fine && r < c->group.size; r += (int)weft_k_warp())
        if (r != c->group.rank)
            weft_k_arrive(&m, r, 0);
    WEFT_K_NO_UNROLL
    for (weft_k_row row = weft_k_first_row(c); fine && row.at < weft_k_pair_bytes(c, dtype);
         row = weft_k_next_row(c, row)) {
        const uint32_t count = weft_k_row_pairs(c, dtype, row);
        WEFT_K_NO_UNROLL
        for (uint32_t q = weft_k_thread(); q < count; q += LOT * weft_k_warp())
            weft_k_send_lot(&m, flag, row, whole ? ~0u : count, q, LOT);
    }
    WEFT_K_NO_UNROLL
    for (weft_k_row row = weft_k_first_row(c); fine && row.at < weft_k_pair_bytes(c, dtype);
         row = weft_k_next_row(c, row)) {
        const uint32_t count = weft_k_row_pairs(c, dtype, row);
        WEFT_K_NO_UNROLL
        for (uint32_t q = weft_k_thread(); fine && q < count;
             q += (whole ? LOT : 1) * weft_k_warp())
            fine = whole ? weft_k_sum_lot_of_two(&m, b, dtype, flag, row, q)
                   : two ? weft_k_sum_pair_of_two(&m, b, dtype, flag, row, q)
                         : weft_k_sum_pair(&m, b, sums, dtype, flag, row, q);
    }
    weft_k_brief_end(&m, b);
    if (weft_k_sync_all(fine))
        weft_k_set_epoch(&m);
}

typedef struct weft_k_kept_of_two {
    weft_k_brief brief[WEFT_K_THREADS_NARROW];
} weft_k_kept_of_two;

WEFT_K void weft_k_run_pairs_of_two(const weft_k_call *c, const int dtype, const int whole)
{
    WEFT_K_SHARED(weft_k_kept_of_two, kept);
    weft_k_run_pairs(c, dtype, 1, whole, &kept->brief[weft_k_thread()], 0);
}

typedef struct weft_k_kept_of_any {
    weft_k_brief brief[WEFT_K_THREADS_NARROW];
    weft_k_sums sums[WEFT_K_THREADS_NARROW];
} weft_k_kept_of_any;

WEFT_K void weft_k_run_pairs_of_any(const weft_k_call *c, const int dtype)
{
    WEFT_K_SHARED(weft_k_kept_of_any, kept);
    weft_k_run_pairs(c, dtype, 0, 0, &kept->brief[weft_k_thread()], &kept->sums[weft_k_thread()]);
}

#endif
