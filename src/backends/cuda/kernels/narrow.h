/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce by packets in blocks of one warp and at most 32 registers a thread, which find room
 * beside a matrix product where wider blocks wait for its end.  Such a block does the work of a wide
 * one: it goes through the `width` threads that packet.h would have, so units lie in the same slots
 * and a rank may take either.  All units are sent before the first is waited for.
 *
 * A product leaves a multiprocessor room for few such warps.  There are no others to hide how far
 * memory is, about 2 us then, so a thread has much under way at once.  Of the operand that is all it
 * will need: asynchronous copies to shared memory take no registers.  Of what others send it is a lot
 * of pairs of units, each of them 16 bytes of the operand.  What is not a whole number of pairs, or
 * not aligned, goes by packets, one after the other.  Shared memory also has what would not fit the
 * registers; a product leaves about 6 KiB of it (docs/gpu.md).
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

/*
 * A row is what a wide block takes at a time: `width` units, which are pairs.  Where row `turn` of
 * this block begins in the operand, and how many pairs are before it in the slots, is computed anew
 * wherever it is needed.
 */
WEFT_K uint32_t weft_k_row_at(const weft_k_call *c, uint32_t turn)
{
    return 8 * (weft_k_here(turn) * weft_k_blocks() + weft_k_block()) * c->width;
}

WEFT_K uint32_t weft_k_row_first(const weft_k_call *c, uint32_t turn)
{
    return weft_k_here(turn) * (c->width / 2);
}

WEFT_K uint32_t weft_k_pair_bytes(const weft_k_call *c, const int dtype)
{
    return (uint32_t)c->count * (dtype == WEFT_K_F32 ? 4 : 2);
}

/* How many pairs there are in it; 0: it is behind the last. */
WEFT_K uint32_t weft_k_row_pairs(const weft_k_call *c, const int dtype, uint32_t turn)
{
    const uint32_t at = weft_k_row_at(c, turn), bytes = weft_k_pair_bytes(c, dtype);
    const uint32_t left = at < bytes ? (bytes - at) / 16 : 0;
    return left < c->width / 2 ? left : c->width / 2;
}

/*
 * Begins to bring a row to the block's shared memory.  Such a copy takes no register, so all of the
 * row is under way at once.  A thread uses what it fetched itself, and nobody waits for another.
 */
WEFT_K void weft_k_fetch_row(const weft_k_call *c, const int dtype, uint32_t turn,
                             weft_k_vector *kept)
{
    const uint32_t count = weft_k_row_pairs(c, dtype, turn);
    const char *from = c->in + weft_k_row_at(c, turn);
    WEFT_K_NO_UNROLL
    for (uint32_t q = weft_k_thread(); q < count; q += weft_k_warp())
        weft_k_fetch16(kept + q, from + 16 * q);
}

/* Sends the row that was fetched. */
WEFT_K void weft_k_send_row(const weft_k_meeting *m, const int dtype, uint32_t flag, uint32_t turn,
                            const weft_k_vector *kept)
{
    const weft_k_call *c = m->call;
    const uint32_t count = weft_k_row_pairs(c, dtype, turn);
    weft_k_fetched();
    WEFT_K_NO_UNROLL
    for (int r = 0; r < c->group.size; r++) {
        if (r == c->group.rank)
            continue;
        uint64_t *to = weft_k_packets(m, r, c->group.rank) + 4 * weft_k_row_first(c, turn);
        WEFT_K_NO_UNROLL
        for (uint32_t q = weft_k_thread(); q < count; q += weft_k_warp()) {
            weft_k_vector x = kept[q];
            /* Pair with the loads of who receives, here and in packet.h. */
            weft_k_store_halves(to + 4 * q, x.word[0], x.word[1], flag);
            weft_k_store_halves(to + 4 * q + 2, x.word[2], x.word[3], flag);
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
WEFT_K int weft_k_take_pair(const weft_k_meeting *m, weft_k_brief *b, uint32_t flag, uint32_t turn,
                            uint32_t q, int peer, weft_k_vector *x)
{
    const int rank = (int)weft_k_here((uint32_t)m->call->group.rank);
    const uint64_t *from =
        weft_k_packets(m, rank, peer) + 4 * (weft_k_row_first(m->call, turn) + q);
    WEFT_K_NO_UNROLL
    for (;;) { /* pairs with the stores in weft_k_send_row and weft_k_send */
        weft_k_vector one = weft_k_load_halves(from), two = weft_k_load_halves(from + 2);
        *x = weft_k_data_of(one, two);
        if ((weft_k_is_foreign(one, flag) | weft_k_is_foreign(two, flag)) == 0)
            return 1;
        if (weft_k_brief_stop(m, b, peer))
            return 0;
    }
}

/* Adds what this rank has to another's pair, and stores it: two ranks' order is the same to a sum. */
WEFT_K void weft_k_add_pair(const weft_k_call *c, const int dtype, uint32_t at, weft_k_vector mine,
                            weft_k_vector x)
{
    WEFT_K_UNROLL
    for (int k = 0; k < 4; k++) {
        weft_k_sums s;
        weft_k_sums_first(dtype, &s, 0, mine.word[k]);
        weft_k_sums_next(dtype, &s, 0, x.word[k]);
        x.word[k] = weft_k_sums_last(dtype, &s, 0, 0);
    }
    weft_k_store16(c->out + weft_k_here(at), x);
}

WEFT_K int weft_k_sum_pair_of_two(const weft_k_meeting *m, weft_k_brief *b, const int dtype,
                                  uint32_t flag, uint32_t turn, uint32_t q,
                                  const weft_k_vector *kept)
{
    weft_k_vector x;
    if (!weft_k_take_pair(m, b, flag, turn, q, 1 - m->call->group.rank, &x))
        return 0;
    weft_k_add_pair(m->call, dtype, weft_k_row_at(m->call, turn) + 16 * q, kept[q], x);
    return 1;
}

/* Both pairs of a whole lot. */
WEFT_K void weft_k_sum_lot_of_two(const weft_k_meeting *m, weft_k_brief *b, const int dtype,
                                  uint32_t flag, uint32_t turn, uint32_t q,
                                  const weft_k_vector *kept)
{
    const int rank = (int)weft_k_here((uint32_t)m->call->group.rank);
    const uint64_t *from =
        weft_k_packets(m, rank, 1 - rank) + 4 * (weft_k_row_first(m->call, turn) + q);
    weft_k_vector unit[4];
    WEFT_K_NO_UNROLL
    for (;;) { /* pairs with the stores in weft_k_send_row and weft_k_send */
        unit[0] = weft_k_load_halves(from);
        unit[1] = weft_k_load_halves(from + 2);
        unit[2] = weft_k_load_halves(from + 4 * weft_k_warp());
        unit[3] = weft_k_load_halves(from + 4 * weft_k_warp() + 2);
        if ((weft_k_is_foreign(unit[0], flag) | weft_k_is_foreign(unit[1], flag) |
             weft_k_is_foreign(unit[2], flag) | weft_k_is_foreign(unit[3], flag)) == 0)
            break;
        if (weft_k_brief_stop(m, b + weft_k_here(0),
                              1 - (int)weft_k_here((uint32_t)m->call->group.rank)))
            return;
    }
    weft_k_add_pair(m->call, dtype, weft_k_row_at(m->call, turn) + 16 * q, kept[q],
                    weft_k_data_of(unit[0], unit[1]));
    weft_k_add_pair(m->call, dtype, weft_k_row_at(m->call, turn) + 16 * (q + weft_k_warp()),
                    kept[q + weft_k_warp()], weft_k_data_of(unit[2], unit[3]));
}

/* The same of one pair of any number of ranks, in their order. */
WEFT_K int weft_k_sum_pair(const weft_k_meeting *m, weft_k_brief *b, weft_k_sums *sums,
                           const int dtype, uint32_t flag, uint32_t turn, uint32_t q,
                           const weft_k_vector *kept)
{
    const weft_k_call *c = m->call;
    weft_k_vector x;
    WEFT_K_NO_UNROLL
    for (int r = 0; r < c->group.size; r++) {
        if (r == c->group.rank)
            x = kept[q];
        else if (!weft_k_take_pair(m, b, flag, turn, q, r, &x))
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
    weft_k_store16(c->out + weft_k_here(weft_k_row_at(m->call, turn) + 16 * q), x);
    return 1;
}

/* Sends all rows.  The first was fetched beside the words of the meeting. */
WEFT_K void weft_k_send_rows(const weft_k_meeting *m, const int dtype, uint32_t flag,
                             weft_k_vector *kept)
{
    WEFT_K_NO_UNROLL
    for (uint32_t turn = 0; weft_k_row_pairs(m->call, dtype, turn); turn++) {
        if (turn)
            weft_k_fetch_row(m->call, dtype, turn, kept);
        weft_k_send_row(m, dtype, flag, turn, kept);
    }
}

/* `two`: there are two ranks; `whole`: all lots are.  The block's row, this thread's `b` and `sums`,
 * which more ranks need, are in shared memory. */
WEFT_K void weft_k_run_pairs(const weft_k_call *c, const int dtype, const int two, const int whole,
                             weft_k_vector *kept, weft_k_brief *b, weft_k_sums *sums)
{
    enum { LOT = 2 };
    weft_k_begin();
    weft_k_fetch_row(c, dtype, 0, kept);
    weft_k_meeting m = weft_k_next_meeting(c);
    const uint32_t flag = weft_k_flag(&m);
    /* Pairs with the store in weft_k_give_up. */
    const int fine = !weft_k_load(weft_k_poison_word(&c->group, c->group.rank));
    b->began = b->rounds = 0;
    b->end = fine ? 0 : WEFT_K_POISONED << WEFT_K_WHY;
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); fine && r < c->group.size; r += (int)weft_k_warp())
        if (r != c->group.rank)
            weft_k_arrive(&m, r, 0);
    weft_k_fetched(); /* also where nothing is sent: a block ends without copies under way */
    if (fine)
        weft_k_send_rows(&m, dtype, flag, kept);
    WEFT_K_NO_UNROLL
    for (uint32_t turn = 0; !b[weft_k_here(0)].end && weft_k_row_pairs(c, dtype, turn); turn++) {
        if (weft_k_row_pairs(c, dtype, 1)) { /* else the only one is there still */
            weft_k_fetch_row(c, dtype, turn, kept);
            weft_k_fetched();
        }
        WEFT_K_NO_UNROLL
        for (uint32_t q = weft_k_thread();
             !b[weft_k_here(0)].end && q < weft_k_row_pairs(c, dtype, turn);
             q += (whole ? LOT : 1) * weft_k_warp()) {
            if (whole)
                weft_k_sum_lot_of_two(&m, b, dtype, flag, turn, q, kept);
            else if (two)
                weft_k_sum_pair_of_two(&m, b, dtype, flag, turn, q, kept);
            else
                weft_k_sum_pair(&m, b, sums, dtype, flag, turn, q, kept);
        }
    }
    weft_k_brief_end(&m, b);
    if (weft_k_sync_all(!b[weft_k_here(0)].end))
        weft_k_set_epoch(&m);
}

typedef struct weft_k_kept_of_two {
    weft_k_vector row[WEFT_K_THREADS / 2];
    weft_k_brief brief[WEFT_K_THREADS_NARROW];
} weft_k_kept_of_two;

WEFT_K void weft_k_run_pairs_of_two(const weft_k_call *c, const int dtype, const int whole)
{
    WEFT_K_SHARED(weft_k_kept_of_two, kept);
    weft_k_run_pairs(c, dtype, 1, whole, kept->row, &kept->brief[weft_k_thread()], 0);
}

/* Wide blocks of more ranks have half as many threads; see kernels.def. */
typedef struct weft_k_kept_of_any {
    weft_k_vector row[WEFT_K_THREADS_HALF / 2];
    weft_k_brief brief[WEFT_K_THREADS_NARROW];
    weft_k_sums sums[WEFT_K_THREADS_NARROW];
} weft_k_kept_of_any;

WEFT_K void weft_k_run_pairs_of_any(const weft_k_call *c, const int dtype)
{
    WEFT_K_SHARED(weft_k_kept_of_any, kept);
    weft_k_run_pairs(c, dtype, 0, 0, kept->row, &kept->brief[weft_k_thread()],
                     &kept->sums[weft_k_thread()]);
}

#endif
