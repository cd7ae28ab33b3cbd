/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting and giving up.  A rank arrives by writing epoch and digest into the pad of every rank, and goes
 * on when it finds the arrival of all, of that epoch or a later one, in its own.  An equal epoch
 * with another digest means that the ranks called different things.
 *
 * A wait ends at its deadline, when another rank has given up (the poison word), or when the host
 * says that a rank will not come (the verdict word).  The first thread of a rank to give up writes
 * the record and poisons all pads.  From then on every kernel on these pads returns at once,
 * without touching data, until the host has reset them all.
 */
#ifndef WEFT_CUDA_KERNELS_MEET_H
#define WEFT_CUDA_KERNELS_MEET_H

#include "device.h"
#include "layout.h"

enum {
    WEFT_K_LOOK_ROUNDS = 32, /* polls between looks at the poison word and the clock */
    WEFT_K_LOOK_NS = 16000,  /* between looks at the verdict, which lies in host memory */
    WEFT_K_LONG_NS = 50000   /* a wait worth telling */
};

/* How far rank `rank`'s memory is from rank 0's. */
WEFT_K int64_t weft_k_shift(uint64_t step, const int64_t *shifts, int rank)
{
    return shifts ? shifts[rank] : (int64_t)((uint64_t)rank * step);
}

WEFT_K char *weft_k_pad(const weft_k_group *g, int rank)
{
    return g->pads + weft_k_shift(g->stride, g->shifts, rank);
}

WEFT_K uint64_t *weft_k_poison_word(const weft_k_group *g, int rank)
{
    return (uint64_t *)(void *)weft_k_pad(g, rank);
}

/* The line of a block, or of a channel, in a rank's pad. */
WEFT_K char *weft_k_line(const weft_k_group *g, int rank, uint64_t at, uint64_t line)
{
    uint64_t bytes = WEFT_K_WORDS + WEFT_K_ARRIVAL * (uint64_t)g->size;
    bytes = (bytes + WEFT_K_LINE - 1) / WEFT_K_LINE * WEFT_K_LINE;
    return weft_k_pad(g, rank) + at + line * bytes;
}

WEFT_K uint64_t *weft_k_arrival(char *line, int source)
{
    return (uint64_t *)(void *)(line + WEFT_K_WORDS + WEFT_K_ARRIVAL * (uint64_t)source);
}

/* A meeting under way. */
typedef struct weft_k_meeting {
    const weft_k_call *call;
    uint64_t at, line; /* which lines, which of them */
    uint32_t epoch, digest;
    uint32_t what, channel;
    const weft_k_message *message; /* of WEFT_K_MESSAGE: the one under way */
} weft_k_meeting;

/* A wait under way, and why it ended if it did. */
typedef struct weft_k_patience {
    uint64_t began, looked, theirs;
    uint32_t rounds, told;
    int32_t why, peer;
} weft_k_patience;

WEFT_K uint64_t *weft_k_signature_of(const weft_k_group *g, int rank)
{
    return (uint64_t *)(void *)(weft_k_pad(g, rank) + WEFT_K_SIGNATURE_AT);
}

/* Both calls of a mismatch.  The signature of the peer may come a little after its arrival,
 * whose digest it has too, and word by word. */
WEFT_K void weft_k_show_calls(const weft_k_meeting *m, const weft_k_patience *p)
{
    weft_k_record *record = m->call->group.record;
    const uint64_t *signature = weft_k_signature_of(&m->call->group, p->peer);
    uint64_t word[WEFT_K_SIGNATURE_WORDS] = {0, 0, 0};
    WEFT_K_NO_UNROLL
    for (int i = 0; i < 10000; i++) {
        for (int k = 0; k < WEFT_K_SIGNATURE_WORDS; k++)
            word[k] = weft_k_load(signature + k); /* pairs with the stores in weft_k_next_meeting */
        if (word[0] >> 32 == WEFT_K_SIGNATURE_SEAL(word[1], word[2]) &&
            (p->why != WEFT_K_MISMATCH || (uint32_t)word[0] == (uint32_t)p->theirs))
            break;
        weft_k_poll();
    }
    for (int k = 0; k < WEFT_K_SIGNATURE_WORDS; k++) {
        weft_k_store(&record->my_signature[k], m->call->signature[k]);
        weft_k_store(&record->their_signature[k], word[k]);
    }
}

/*
 * The channel of messages between the pad's owner and `peer`, on a lane.  The peer writes all words
 * but the two counts: an arrival for each slot, how many pieces it has taken of what the owner sent,
 * and the signatures of what it sends and receives.
 */
enum {
    WEFT_K_P2P_TAKEN = WEFT_K_P2P_SLOTS,
    WEFT_K_P2P_SENT, /* pieces that the owner has sent and received, ever */
    WEFT_K_P2P_RECEIVED,
    WEFT_K_P2P_SENDS = 8, /* signatures */
    WEFT_K_P2P_RECEIVES = WEFT_K_P2P_SENDS + WEFT_K_SIGNATURE_WORDS
};

WEFT_K uint64_t *weft_k_p2p_channel(const weft_k_group *g, int owner, int peer, uint64_t lane)
{
    return (uint64_t *)(void *)(weft_k_pad(g, owner) + g->p2p_channels_at +
                                ((uint32_t)peer * g->p2p_lanes + lane) * WEFT_K_P2P_CHANNEL);
}

/* Shows the peer of a message what this rank calls. */
WEFT_K void weft_k_show_message(const weft_k_meeting *m)
{
    const weft_k_message *x = m->message;
    uint64_t *signature =
        weft_k_p2p_channel(&m->call->group, x->peer, m->call->group.rank, m->line) +
        (x->sends ? WEFT_K_P2P_SENDS : WEFT_K_P2P_RECEIVES);
    weft_k_store(signature,
                 WEFT_K_SIGNATURE_SEAL(x->signature[0], x->signature[1]) << 32 | x->digest);
    weft_k_store(signature + 1, x->signature[0]);
    weft_k_store(signature + 2, x->signature[1]); /* pairs with the loads in weft_k_show_messages */
}

/* What this rank does; and of messages that differ, what their other end does, whose signature may
 * come a little later. */
WEFT_K void weft_k_show_messages(const weft_k_meeting *m, const weft_k_patience *p)
{
    const weft_k_message *x = m->message;
    weft_k_record *record = m->call->group.record;
    for (int k = 0; k < 2; k++)
        weft_k_store(&record->my_signature[k + 1], x->signature[k]);
    if (p->why == WEFT_K_MISMATCH)
        weft_k_show_message(m);
    else if (p->why != WEFT_K_POISONED || p->peer != x->peer)
        return;
    const uint64_t *signature =
        weft_k_p2p_channel(&m->call->group, m->call->group.rank, x->peer, m->line) +
        (x->sends ? WEFT_K_P2P_RECEIVES : WEFT_K_P2P_SENDS);
    WEFT_K_NO_UNROLL
    for (int i = 0; i < 1000; i++) {
        uint64_t seal = weft_k_load(signature), what = weft_k_load(signature + 1),
                 count =
                     weft_k_load(signature + 2); /* pairs with the stores in weft_k_show_message */
        weft_k_store(&record->their_signature[1], what);
        weft_k_store(&record->their_signature[2], count);
        if (what && seal >> 32 == WEFT_K_SIGNATURE_SEAL(what, count))
            break;
        weft_k_poll();
    }
}

WEFT_K void weft_k_give_up(const weft_k_meeting *m, const weft_k_patience *p)
{
    const weft_k_group *g = &m->call->group;
    uint64_t *poison = weft_k_poison_word(g, g->rank);
    if (!weft_k_swap(poison + 1, 0, 1))
        return; /* another thread of this rank was first */
    weft_k_record *record = g->record;
    weft_k_store(&record->what, m->what);
    weft_k_store(&record->peer, (uint64_t)p->peer);
    weft_k_store(&record->channel, m->channel);
    weft_k_store(&record->epoch, m->epoch);
    weft_k_store(&record->mine, m->digest);
    weft_k_store(&record->theirs, p->theirs);
    weft_k_store(&record->waited_ns, p->began ? weft_k_clock() - p->began : 0);
    if (m->what == WEFT_K_COLLECTIVE)
        weft_k_show_calls(m, p);
    if (m->what == WEFT_K_MESSAGE)
        weft_k_show_messages(m, p);
    weft_k_store_release(&record->why, (uint64_t)p->why); /* pairs with the host's look */
    if (p->why == WEFT_K_POISONED)
        return; /* everybody knows */
    WEFT_K_NO_UNROLL
    for (int r = 0; r < g->size; r++) /* pairs with the load in weft_k_look_for_poison */
        weft_k_store(
            weft_k_poison_word(g, r),
            WEFT_K_POISON(p->why, p->why == WEFT_K_VERDICT ? p->theirs : 0, p->peer, g->rank));
}

/* Has somebody given up? */
WEFT_K int weft_k_look_for_poison(const weft_k_meeting *m, weft_k_patience *p)
{
    const weft_k_group *g = &m->call->group;
    uint64_t poison = weft_k_load(weft_k_poison_word(g, g->rank));
    if (poison == 0)
        return 0;
    p->why = WEFT_K_POISONED;
    p->peer = (int32_t)(uint32_t)poison - 1;
    p->theirs = poison >> 32;
    return 1;
}

/* At the start of a kernel: if somebody has, this rank's record says so as well. */
WEFT_K int weft_k_is_poisoned(const weft_k_meeting *m)
{
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    if (!weft_k_look_for_poison(m, &p))
        return 0;
    weft_k_give_up(m, &p);
    return 1;
}

/* A look around, once in a while: must this wait for `peer` end? */
WEFT_K int weft_k_look_around(const weft_k_meeting *m, weft_k_patience *p, int peer)
{
    const weft_k_group *g = &m->call->group;
    if (weft_k_look_for_poison(m, p))
        return 1;
    uint64_t now = weft_k_clock();
    if (p->began == 0)
        p->began = p->looked = now;
    if (m->call->limit_ns && now - p->began > m->call->limit_ns) {
        p->why = WEFT_K_TIMEOUT;
        p->peer = peer;
        return 1;
    }
    if (now - p->looked < WEFT_K_LOOK_NS)
        return 0;
    p->looked = now;
    uint64_t verdict = weft_k_load(g->verdict); /* pairs with the host's store */
    if (verdict) {
        p->why = WEFT_K_VERDICT;
        p->peer = (int32_t)(uint32_t)verdict - 1;
        p->theirs = verdict >> 32;
        return 1;
    }
    if (now - p->began > WEFT_K_LONG_NS) {
        /* Again and again: a thread whose wait ends says that there is none. */
        weft_k_store(&g->record->waiting, (uint64_t)(peer + 1));
        p->told = 1;
        weft_k_rest();
    }
    return 0;
}

WEFT_K int weft_k_must_stop(const weft_k_meeting *m, weft_k_patience *p, int peer)
{
    weft_k_poll();
    return ++p->rounds % WEFT_K_LOOK_ROUNDS == 0 && weft_k_look_around(m, p, peer);
}

WEFT_K void weft_k_waited(const weft_k_meeting *m, const weft_k_patience *p)
{
    if (p->told)
        weft_k_store(&m->call->group.record->waiting, 0);
}

/*
 * Arrivals are released and acquired at the scope of the device if all ranks run there.  What the
 * block's other threads read and wrote comes before the release by the block's barrier, and after
 * the acquire by the next one, so data of all threads is ordered by one thread's pair.  Poison,
 * verdict and record stay at system scope: the host is their partner.
 */
WEFT_K uint64_t weft_k_see_arrival(const weft_k_group *g, const uint64_t *word)
{
    /* pairs with the store in weft_k_arrive */
    return g->near ? weft_k_load_acquire_near(word) : weft_k_load_acquire(word);
}

/* Waits for the arrival of `peer`; 0 if it will not come. */
WEFT_K int weft_k_await(const weft_k_meeting *m, int peer)
{
    const weft_k_group *g = &m->call->group;
    const uint64_t *word = weft_k_arrival(weft_k_line(g, g->rank, m->at, m->line), peer);
    weft_k_patience p = {0, 0, 0, 0, 0, 0, 0};
    uint64_t seen = weft_k_see_arrival(g, word);
    while ((int32_t)((uint32_t)(seen >> 32) - m->epoch) < 0 && !weft_k_must_stop(m, &p, peer))
        seen = weft_k_see_arrival(g, word);
    weft_k_waited(m, &p);
    if (!p.why && (uint32_t)(seen >> 32) == m->epoch && (uint32_t)seen != m->digest) {
        p.why = WEFT_K_MISMATCH;
        p.peer = peer;
        p.theirs = (uint32_t)seen;
    }
    if (p.why)
        weft_k_give_up(m, &p);
    return !p.why;
}

/* Tells `peer`.  With release after stores that it is to see. */
WEFT_K void weft_k_arrive(const weft_k_meeting *m, int peer, int release)
{
    const weft_k_group *g = &m->call->group;
    uint64_t *word = weft_k_arrival(weft_k_line(g, peer, m->at, m->line), g->rank);
    uint64_t value = (uint64_t)m->epoch << 32 | m->digest;
    if (release && g->near)
        weft_k_store_release_near(word, value); /* pairs with the load in weft_k_see_arrival */
    else if (release)
        weft_k_store_release(word, value); /* likewise */
    else
        weft_k_store_entry(word, value);
}

/* All threads of a block meet the same blocks of all ranks; 0: give up, all threads alike. */
WEFT_K int weft_k_meet(const weft_k_meeting *m, int release)
{
    const weft_k_group *g = &m->call->group;
    int fine = 1;
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); r < g->size; r += (int)weft_k_threads())
        if (r != g->rank)
            weft_k_arrive(m, r, release);
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); r < g->size && fine; r += (int)weft_k_threads())
        fine = r == g->rank || weft_k_await(m, r);
    return weft_k_sync_all(fine);
}

/* The epoch that this block reached last. */
WEFT_K uint32_t weft_k_epoch(const weft_k_call *c, uint64_t at, uint64_t line)
{
    return (uint32_t)weft_k_load(
        (const uint64_t *)(const void *)weft_k_line(&c->group, c->group.rank, at, line));
}

/* Notes it for the next kernel of the stream, once all threads have read the last. */
WEFT_K void weft_k_set_epoch(const weft_k_meeting *m)
{
    const weft_k_group *g = &m->call->group;
    if (weft_k_thread() == 0)
        weft_k_store((uint64_t *)(void *)weft_k_line(g, g->rank, m->at, m->line), m->epoch);
}

/* The meeting of this block of a collective that comes next.  Every block shows the signature, so
 * that it is there when the block arrives. */
WEFT_K weft_k_meeting weft_k_next_meeting(const weft_k_call *c)
{
    WEFT_K_ASSUME(c->group.shifts == 0); /* sites have a stride: it saves registers */
    weft_k_meeting m = {c, WEFT_K_LINE, weft_k_block(), 0, c->digest, WEFT_K_COLLECTIVE, 0, 0};
    m.epoch = weft_k_epoch(c, m.at, m.line) + 1;
    if (weft_k_thread() < WEFT_K_SIGNATURE_WORDS) /* pairs with the loads in weft_k_show_calls */
        weft_k_store(weft_k_signature_of(&c->group, c->group.rank) + weft_k_thread(),
                     c->signature[weft_k_thread()]);
    return m;
}

#endif
