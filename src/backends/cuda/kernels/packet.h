/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce by packets: 4 bytes of data and 4 of flag, stored as one word, so that a rank which sees
 * the flag has the data.  Every rank pushes its data into the pad of each and folds what it finds
 * in its own: one hop, and no wait at the end.  The flag comes from epoch and digest.
 *
 * Two turns suffice: a rank that starts the call after next has heard from all in the next one, so
 * all had ended this one and have read what it is about to overwrite.
 */
#ifndef WEFT_CUDA_KERNELS_PACKET_H
#define WEFT_CUDA_KERNELS_PACKET_H

#include "meet.h"
#include "sums.h"

WEFT_K uint32_t weft_k_flag(const weft_k_meeting *m)
{
    uint32_t flag = m->epoch + m->digest * 0x9e3779b1u;
    return flag ? flag : 1; /* 0 is in memory that nobody wrote */
}

/* Where the packets of `source` for this block lie in the pad of `owner`. */
WEFT_K uint64_t *weft_k_packets(const weft_k_meeting *m, int owner, int source)
{
    const weft_k_group *g = &m->call->group;
    uint64_t turn = m->epoch & 1, block = turn * g->lines + m->line;
    uint64_t units = (block * (uint32_t)g->size + (uint32_t)source) * g->packet_units;
    return (uint64_t *)(void *)(weft_k_pad(g, owner) + g->packets_at) + 2 * units;
}

WEFT_K void weft_k_send(const weft_k_meeting *m, uint32_t flag, uint64_t slot, uint64_t data)
{
    const weft_k_group *g = &m->call->group;
    uint64_t high = (uint64_t)flag << 32;
    int r = g->rank;
    WEFT_K_NO_UNROLL
    for (int k = 1; k < g->size; k++) {
        r = r + 1 < g->size ? r + 1 : 0;
        /* Pairs with the loads in weft_k_receive. */
        weft_k_store_pair(weft_k_packets(m, r, g->rank) + 2 * slot, (uint32_t)data | high,
                          data >> 32 | high);
    }
}

WEFT_K int weft_k_is_packet(uint64_t a, uint64_t b, uint32_t flag)
{
    return (uint32_t)(a >> 32) == flag && (uint32_t)(b >> 32) == flag;
}

/* Did `peer` call something else?  Its arrival says so, its packets only look foreign. */
WEFT_K int weft_k_is_mismatch(const weft_k_meeting *m, weft_k_patience *p, int peer)
{
    const weft_k_group *g = &m->call->group;
    uint64_t seen = weft_k_load(weft_k_arrival(weft_k_line(g, g->rank, m->at, m->line), peer));
    if ((uint32_t)(seen >> 32) != m->epoch || (uint32_t)seen == m->digest)
        return 0;
    p->why = WEFT_K_MISMATCH;
    p->peer = peer;
    p->theirs = (uint32_t)seen;
    return 1;
}

WEFT_K int weft_k_must_stop_packet(const weft_k_meeting *m, weft_k_patience *p, int peer)
{
    weft_k_poll();
    return ++p->rounds % WEFT_K_LOOK_ROUNDS == 0 &&
           (weft_k_look_around(m, p, peer) || weft_k_is_mismatch(m, p, peer));
}

/* Waits for one unit of `peer`; 0 if it will not come. */
WEFT_K int weft_k_receive(const weft_k_meeting *m, weft_k_patience *p, uint32_t flag, uint64_t slot,
                          int peer, uint64_t *data)
{
    const uint64_t *from = weft_k_packets(m, m->call->group.rank, peer) + 2 * slot;
    uint64_t a, b;
    for (;;) {
        weft_k_load_pair(from, &a, &b); /* pairs with the store in weft_k_send */
        if (weft_k_is_packet(a, b, flag))
            break;
        if (weft_k_must_stop_packet(m, p, peer))
            return 0;
    }
    *data = (uint32_t)a | b << 32;
    return 1;
}

/* Up to 8 bytes of plain memory, of which `bytes` are there. */
WEFT_K uint64_t weft_k_get8(const char *from, uint64_t bytes)
{
    if (bytes >= 8 && (uintptr_t)from % 8 == 0)
        return *(const uint64_t *)(const void *)from;
    uint64_t data = 0;
    for (uint32_t i = 0; i < 8 && i < bytes; i++)
        data |= (uint64_t) * (const uint8_t *)(from + i) << 8 * i;
    return data;
}

WEFT_K void weft_k_put8(char *to, uint64_t bytes, uint64_t data)
{
    if (bytes >= 8 && (uintptr_t)to % 8 == 0) {
        *(uint64_t *)(void *)to = data;
        return;
    }
    for (uint32_t i = 0; i < 8 && i < bytes; i++)
        *(uint8_t *)(to + i) = (uint8_t)(data >> 8 * i);
}

/* The sum of one unit, ranks at once; 0 if one will not come. */
WEFT_K int weft_k_sum_unit(const weft_k_meeting *m, weft_k_patience *p, const int dtype,
                           const int ranks, uint32_t flag, uint64_t slot, uint64_t *data)
{
    const weft_k_group *g = &m->call->group;
    const uint64_t *from = weft_k_packets(m, g->rank, 0) + 2 * slot;
    uint64_t a[8], b[8];
    int missing;
    do {
        missing = -1;
        WEFT_K_UNROLL
        for (int r = 0; r < ranks; r++) /* pairs with the store in weft_k_send */
            if (r != g->rank)
                weft_k_load_pair(from + 2 * (uint64_t)r * g->packet_units, &a[r], &b[r]);
        WEFT_K_UNROLL
        for (int r = 0; r < ranks; r++)
            if (r != g->rank && !weft_k_is_packet(a[r], b[r], flag))
                missing = r;
        if (missing >= 0 && weft_k_must_stop_packet(m, p, missing))
            return 0;
    } while (missing >= 0);
    weft_k_sums s;
    WEFT_K_UNROLL
    for (int r = 0; r < ranks; r++) {
        uint32_t low = r == g->rank ? (uint32_t)*data : (uint32_t)a[r];
        uint32_t high = r == g->rank ? (uint32_t)(*data >> 32) : (uint32_t)b[r];
        if (r == 0) {
            weft_k_sums_first(dtype, &s, 0, low);
            weft_k_sums_first(dtype, &s, 1, high);
        } else {
            weft_k_sums_next(dtype, &s, 0, low);
            weft_k_sums_next(dtype, &s, 1, high);
        }
    }
    int divisor = m->call->op == WEFT_K_AVG ? ranks : 0;
    *data = weft_k_sums_last(dtype, &s, 0, divisor) |
            (uint64_t)weft_k_sums_last(dtype, &s, 1, divisor) << 32;
    return 1;
}

/* The same for any dtype, operation and number of ranks, one element after the other. */
WEFT_K int weft_k_fold_unit8(const weft_k_meeting *m, weft_k_patience *p, uint32_t flag,
                             uint64_t slot, uint64_t *data)
{
    const weft_k_group *g = &m->call->group;
    const int dtype = m->call->dtype, op = m->call->op;
    uint32_t size = weft_k_size_of(dtype), bits = 8 * size;
    uint64_t folded = 0, mask = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    if (g->size == 1)
        return 1; /* the operand as it is, bits of a NaN too: see weft_k_fold_element */
    for (uint32_t at = 0; at < 64; at += bits) {
        uint64_t sum = 0;
        for (int r = 0; r < g->size; r++) {
            uint64_t unit = *data;
            if (r != g->rank && !weft_k_receive(m, p, flag, slot, r, &unit))
                return 0;
            unit = unit >> at & mask;
            sum = r == 0 ? weft_k_fold_first(dtype, op, unit, 1)
                         : weft_k_fold_next(dtype, op, sum, unit, 1);
        }
        folded |= (weft_k_fold_last(dtype, op, sum, g->size) & mask) << at;
    }
    *data = folded;
    return 1;
}

/*
 * The body of all kernels of packets; `ranks` is 0 where dtype, operation and ranks are anything.
 * Every thread waits for its own units, so no thread waits for another before the end.  It sends all
 * of them before it waits for the first, so that several cost one hop; each has a place of its own.
 * The first is loaded before anything else, beside the words of the meeting.  One warp of a block
 * looks for poison: were it all of them, a thousand loads of one word would take 0.8 us on an H200.
 */
WEFT_K void weft_k_run_packets(const weft_k_call *c, const int dtype, const int ranks)
{
    weft_k_begin();
    uint64_t bytes = c->count * weft_k_size_of(c->dtype), slot = weft_k_thread();
    uint64_t start = 8 * ((uint64_t)weft_k_block() * weft_k_threads() + weft_k_thread());
    uint64_t step = 8 * (uint64_t)weft_k_blocks() * weft_k_threads();
    uint64_t first = start < bytes ? weft_k_get8(c->in + start, bytes - start) : 0;
    weft_k_meeting m = weft_k_next_meeting(c);
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    int fine = weft_k_sync_all(weft_k_thread() >= WEFT_K_WARP || !weft_k_look_for_poison(&m, &p));
    uint32_t flag = weft_k_flag(&m);
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); fine && r < c->group.size; r += (int)weft_k_threads())
        if (r != c->group.rank)
            weft_k_arrive(&m, r, 0);
    WEFT_K_NO_UNROLL
    for (uint64_t at = start; fine && at < bytes; at += step, slot += weft_k_threads())
        weft_k_send(&m, flag, slot, at == start ? first : weft_k_get8(c->in + at, bytes - at));
    slot = weft_k_thread();
    WEFT_K_NO_UNROLL
    for (uint64_t at = start; fine && at < bytes; at += step, slot += weft_k_threads()) {
        uint64_t data = at == start ? first : weft_k_get8(c->in + at, bytes - at);
        fine = ranks ? weft_k_sum_unit(&m, &p, dtype, ranks, flag, slot, &data)
                     : weft_k_fold_unit8(&m, &p, flag, slot, &data);
        if (fine)
            weft_k_put8(c->out + at, bytes - at, data);
    }
    weft_k_waited(&m, &p);
    if (p.why)
        weft_k_give_up(&m, &p);
    if (weft_k_sync_all(fine))
        weft_k_set_epoch(&m);
}

#endif
