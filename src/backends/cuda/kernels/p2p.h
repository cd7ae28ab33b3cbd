/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from one rank to another.  A message is cut among lanes, a block each; a lane moves its
 * part in pieces through slots in the receiver's pad.  The sender fills a slot when the receiver has
 * taken what was there, and tells by the slot's arrival: the number of the piece, and the digest of
 * the message.  So a message that fits the slots does not wait for its receiver.
 *
 * Between two ranks messages are taken in the order in which they are sent.  Which lanes a message
 * has follows from its bytes, so both ends agree; lane 0 has a piece of every message, so it finds
 * those that differ.  Pieces are counted in the channel of the lane, and never by the host: a
 * captured send can be replayed.
 */
#ifndef WEFT_CUDA_KERNELS_P2P_H
#define WEFT_CUDA_KERNELS_P2P_H

#include "staged.h"

WEFT_K char *weft_k_slot(const weft_k_group *g, int owner, int source, uint64_t lane,
                         uint32_t piece)
{
    uint64_t slot =
        ((uint32_t)source * g->p2p_lanes + lane) * WEFT_K_P2P_SLOTS + piece % WEFT_K_P2P_SLOTS;
    return weft_k_pad(g, owner) + g->p2p_slots_at + slot * WEFT_K_P2P_PIECE;
}

/* The bytes of a message that its lane moves, from `*at` on. */
WEFT_K uint64_t weft_k_lane_bytes(const weft_k_message *x, uint64_t lane, uint64_t *at)
{
    uint64_t each = ((x->bytes + x->lanes - 1) / x->lanes + 15) / 16 * 16;
    *at = each * lane < x->bytes ? each * lane : x->bytes;
    return x->bytes - *at < each ? x->bytes - *at : each;
}

/* Waits until a word's upper half has come to `count`, and if `sealed` compares its digest; 0: it
 * will not. */
WEFT_K int weft_k_await_count(const weft_k_meeting *m, const uint64_t *word, uint32_t count,
                              int sealed)
{
    int peer = m->message->peer;
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    uint64_t seen = weft_k_load_acquire(word); /* pairs with the release of who counts there */
    while ((int32_t)((uint32_t)(seen >> 32) - count) < 0 && !weft_k_must_stop(m, &p, peer))
        seen = weft_k_load_acquire(word); /* likewise */
    weft_k_waited(m, &p);
    if (!p.why && sealed && (uint32_t)seen != m->digest) {
        p.why = WEFT_K_MISMATCH;
        p.peer = peer;
        p.theirs = (uint32_t)seen;
    }
    if (p.why)
        weft_k_give_up(m, &p);
    return !p.why;
}

/* All threads wait while the first looks. */
WEFT_K int weft_k_block_awaits(const weft_k_meeting *m, const uint64_t *word, uint32_t count,
                               int sealed)
{
    return weft_k_sync_all(weft_k_thread() != 0 || weft_k_await_count(m, word, count, sealed));
}

WEFT_K void weft_k_copy_piece(const weft_k_message *x, char *to, const char *from, uint64_t bytes)
{
    const weft_k_shape shape = {4, 0, 0};
    weft_k_sink sink = {to, 0, 1, 0};
    weft_k_spread(sink, from, bytes, weft_k_size_of(x->dtype), weft_k_deal_out(shape, 0, 1), shape);
}

/* This block's part of a message, piece by piece; 0: give up. */
WEFT_K int weft_k_carry(weft_k_meeting *m)
{
    const weft_k_message *x = m->message;
    const weft_k_group *g = &m->call->group;
    uint64_t *mine = weft_k_p2p_channel(g, g->rank, x->peer, m->line);
    uint64_t *theirs = weft_k_p2p_channel(g, x->peer, g->rank, m->line);
    uint64_t *count = mine + (x->sends ? WEFT_K_P2P_SENT : WEFT_K_P2P_RECEIVED);
    uint32_t piece = (uint32_t)weft_k_load(count); /* of this rank's last kernel, or message */
    uint64_t at, left = weft_k_lane_bytes(x, m->line, &at);
    if (x->sends && weft_k_thread() == 0)
        weft_k_show_message(m);
    for (int go = left != 0 || m->line == 0; go; go = left != 0) {
        uint64_t bytes = left < WEFT_K_P2P_PIECE ? left : WEFT_K_P2P_PIECE;
        uint32_t slot = piece % WEFT_K_P2P_SLOTS;
        m->epoch = piece + 1;
        if (x->sends) {
            /* Pairs with the release of the receiver, below. */
            if (!weft_k_block_awaits(m, mine + WEFT_K_P2P_TAKEN, piece + 1 - WEFT_K_P2P_SLOTS, 0))
                return 0;
            weft_k_copy_piece(x, weft_k_slot(g, x->peer, g->rank, m->line, piece), x->data + at,
                              bytes);
        } else {
            /* Pairs with the release of the sender, below. */
            if (!weft_k_block_awaits(m, mine + slot, piece + 1, 1))
                return 0;
            weft_k_copy_piece(x, x->data + at, weft_k_slot(g, g->rank, x->peer, m->line, piece),
                              bytes);
        }
        weft_k_sync(); /* what the threads copied comes before the word */
        piece++;
        if (weft_k_thread() == 0)
            weft_k_store_release(theirs + (x->sends ? slot : WEFT_K_P2P_TAKEN),
                                 (uint64_t)piece << 32 | x->digest);
        at += bytes;
        left -= bytes;
    }
    if (weft_k_thread() == 0)
        weft_k_store(count, piece);
    weft_k_sync(); /* the next message of the route counts on */
    return 1;
}

/* Blocks are dealt out to routes, and the blocks of a route to its lanes. */
WEFT_K void weft_k_run_p2p(const weft_k_call *c, const weft_k_message *messages, uint32_t count,
                           uint32_t lanes)
{
    weft_k_begin();
    WEFT_K_ASSUME(c->group.shifts == 0); /* as in weft_k_next_meeting */
    uint32_t route = weft_k_block() / lanes, lane = weft_k_block() % lanes;
    weft_k_meeting m = {c, 0, lane, 0, 0, WEFT_K_MESSAGE, 0, messages};
    if (!weft_k_sync_all(!weft_k_is_poisoned(&m)))
        return;
    WEFT_K_NO_UNROLL
    for (uint32_t i = 0; i < count; i++) {
        m.message = messages + i;
        m.digest = m.message->digest;
        if (m.message->route == route && lane < m.message->lanes && !weft_k_carry(&m))
            return;
    }
}

#endif
