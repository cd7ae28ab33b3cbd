/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring: the shared memory through which one rank sends to one other.  It has one writer and one
 * reader, and no lock.
 *
 * Slots.  The slots carry everything in order.  The sender fills slot n, then stores its
 * number into it (release); the receiver waits for that number (acquire), reads, and counts the
 * slot as taken (release); the sender fills a slot again once it is taken (acquire).  A short
 * message lies in its slot: up to 48 bytes are one cache line, from core to core in one hop.  A
 * longer one lies in the room behind the ring, in pieces, a slot each, which is free again when
 * its slot is taken.
 *
 * Ready to send (RTS).  Where ranks can read each other's memory, a large message stays where it
 * is: its slot says where, and the receiver copies it from there, by itself if it has mapped that
 * memory. Whether the memory may be read is the state of the RTS: the receiver changes READY to
 * TAKING, copies a part, and changes it back, or to DONE after the last one.  A sender that gives
 * up changes READY to WITHDRAWN; between threads it waits while a part is being copied, between
 * processes it need not, because then the receiver finds its TAKING gone and does not count the
 * part.
 */
#ifndef WEFT_COLL_P2P_RING_H
#define WEFT_COLL_P2P_RING_H

#include "base/os/assert.h"
#include "base/share/segment.h"
#include "base/share/signal.h"

enum {
    WEFT_I_RING_SLOTS = 32,
    WEFT_I_RING_RTS_MAX = 8,
    WEFT_I_RING_SHORT = 112,         /* bytes that lie in a slot */
    WEFT_I_RING_ROOM = 32 << 10,     /* at least: so much is sent before anybody receives */
    WEFT_I_RING_ROOMS = 2 << 20,     /* all of a rank's, if that leaves each enough ... */
    WEFT_I_RING_ROOM_MAX = 128 << 10 /* ... and not more than a core's own cache likes */
};

typedef enum weft_i_ring_slot_kind {
    WEFT_I_RING_SLOT_SHORT,
    WEFT_I_RING_SLOT_FIRST, /* piece of a message in the room */
    WEFT_I_RING_SLOT_NEXT,  /* any other piece of it */
    WEFT_I_RING_SLOT_RTS
} weft_i_ring_slot_kind;

/* Of a message that does not lie in its slot. */
typedef struct weft_i_ring_piece {
    uint64_t bytes; /* of the whole message */
    uint32_t at, length;
    /* Of an RTS: */
    uint64_t address;   /* in the sender's memory */
    weft_i_key segment; /* of symmetric memory; 0: ordinary */
    uint64_t offset;    /* in the segment */
    uint32_t rts;
} weft_i_ring_piece;

typedef struct weft_i_ring_slot {
    /* Number of the slot, from 1; above it the digest of dtype and count. */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t number;
    int32_t tag;
    uint16_t kind;
    uint16_t length; /* of a short message */
    union {
        unsigned char text[WEFT_I_RING_SHORT];
        weft_i_ring_piece piece;
    };
} weft_i_ring_slot;

typedef enum weft_i_rts_state {
    WEFT_I_RTS_NONE,
    WEFT_I_RTS_READY,
    WEFT_I_RTS_TAKING,
    WEFT_I_RTS_DONE,
    WEFT_I_RTS_WITHDRAWN
} weft_i_rts_state;

typedef struct weft_i_rts {
    _Alignas(WEFT_I_LINE) _Atomic uint32_t state;
} weft_i_rts;

typedef struct weft_i_ring {
    weft_i_ring_slot slots[WEFT_I_RING_SLOTS];
    _Alignas(WEFT_I_LINE) _Atomic uint32_t taken; /* slots; written by the receiver alone */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t
        refused; /* 1 + bytes the receiver expected instead; 0: none refused */
    weft_i_rts rts[WEFT_I_RING_RTS_MAX];
    _Alignas(WEFT_I_LINE) char room[];
} weft_i_ring;

_Static_assert(sizeof(weft_i_ring_slot) == WEFT_I_LINE, "a slot is a pair of cache lines");

/* Bytes of the room in each ring of a group of `size` ranks: the more ranks, the less. */
static inline size_t weft_i_ring_room(int size)
{
    WEFT_ASSERT(size > 0);
    size_t room = WEFT_I_RING_ROOM_MAX;
    while (room > WEFT_I_RING_ROOM && room * (size_t)size > WEFT_I_RING_ROOMS)
        room /= 2;
    return room;
}

static inline size_t weft_i_ring_bytes(int size)
{
    return sizeof(weft_i_ring) + weft_i_ring_room(size);
}

/* ---- the sender ---- */

static inline weft_i_ring_slot *weft_i_ring_slot_at(weft_i_ring *ring, uint32_t before)
{
    return &ring->slots[before % WEFT_I_RING_SLOTS];
}

/* How many slots the receiver has taken. */
static inline uint32_t weft_i_ring_taken(weft_i_ring *ring)
{
    /* Pairs with the release in weft_i_ring_take: it has read what we overwrite now. */
    return atomic_load_explicit(&ring->taken, memory_order_acquire);
}

/* Shows the slot after `before` others; it is filled in. */
static inline void weft_i_ring_show(weft_i_ring *ring, uint32_t before, uint32_t digest)
{
    /* Pairs with the acquire in weft_i_ring_look. */
    atomic_store_explicit(&weft_i_ring_slot_at(ring, before)->number,
                          (uint64_t)digest << 32 | (uint32_t)(before + 1), memory_order_release);
}

/* Before the slot that tells of it is shown. */
static inline void weft_i_ring_rts(weft_i_ring *ring, uint32_t rts)
{
    WEFT_ASSERT(rts < WEFT_I_RING_RTS_MAX);
    /* Relaxed: ordered by the release of the slot in weft_i_ring_show. */
    atomic_store_explicit(&ring->rts[rts].state, WEFT_I_RTS_READY, memory_order_relaxed);
}

static inline bool weft_i_ring_is_done(weft_i_ring *ring, uint32_t rts)
{
    WEFT_ASSERT(rts < WEFT_I_RING_RTS_MAX);
    /* Pairs with the release in weft_i_ring_give_back: nobody reads the memory any more. */
    return atomic_load_explicit(&ring->rts[rts].state, memory_order_acquire) == WEFT_I_RTS_DONE;
}

/* Takes an RTS back; false while the receiver copies, unless by force. */
static inline bool weft_i_ring_withdraw(weft_i_ring *ring, uint32_t rts, bool force)
{
    WEFT_ASSERT(rts < WEFT_I_RING_RTS_MAX);
    uint32_t was = WEFT_I_RTS_READY;
    /* Pairs with the release in weft_i_ring_give_back: nobody reads the memory any more. */
    if (atomic_compare_exchange_strong_explicit(&ring->rts[rts].state, &was, WEFT_I_RTS_WITHDRAWN,
                                                memory_order_acquire, memory_order_acquire))
        return true;
    if (was != WEFT_I_RTS_TAKING)
        return true;
    /* Pairs with the exchange in weft_i_ring_give_back, which fails then. */
    return force && atomic_compare_exchange_strong_explicit(
                        &ring->rts[rts].state, &was, WEFT_I_RTS_WITHDRAWN, memory_order_acquire,
                        memory_order_acquire);
}

/* ---- the receiver ---- */

/* The slot after `taken` others, or NULL if it has not come. */
static inline const weft_i_ring_slot *weft_i_ring_look(weft_i_ring *ring, uint32_t taken,
                                                       uint32_t *digest)
{
    const weft_i_ring_slot *slot = weft_i_ring_slot_at(ring, taken);
    /* Pairs with the release in weft_i_ring_show. */
    uint64_t number = atomic_load_explicit(&slot->number, memory_order_acquire);
    *digest = (uint32_t)(number >> 32);
    return (uint32_t)number == taken + 1 ? slot : NULL;
}

static inline void weft_i_ring_take(weft_i_ring *ring, uint32_t taken)
{
    /* Pairs with the acquire in weft_i_ring_taken. */
    atomic_store_explicit(&ring->taken, taken, memory_order_release);
}

/* May the memory of the RTS be read now? */
static inline bool weft_i_ring_claim(weft_i_ring *ring, uint32_t rts)
{
    WEFT_ASSERT(rts < WEFT_I_RING_RTS_MAX);
    uint32_t was = WEFT_I_RTS_READY;
    /* Relaxed: what the memory holds was seen with the slot.  Acquire would pair with nothing. */
    return atomic_compare_exchange_strong_explicit(&ring->rts[rts].state, &was, WEFT_I_RTS_TAKING,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* After reading a part, or the last one; false if the sender has withdrawn its RTS meanwhile. */
static inline bool weft_i_ring_give_back(weft_i_ring *ring, uint32_t rts, bool done)
{
    WEFT_ASSERT(rts < WEFT_I_RING_RTS_MAX);
    uint32_t was = WEFT_I_RTS_TAKING;
    /* Pairs with the acquire in weft_i_ring_is_done and weft_i_ring_withdraw. */
    return atomic_compare_exchange_strong_explicit(&ring->rts[rts].state, &was,
                                                   done ? WEFT_I_RTS_DONE : WEFT_I_RTS_READY,
                                                   memory_order_release, memory_order_relaxed);
}

#endif
