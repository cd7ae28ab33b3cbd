/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box: the shared memory through which one rank sends to one other.  It has one writer and one
 * reader, and no lock.
 *
 * Sheets.  A ring of sheets carries everything in order.  The sender fills sheet n, then stores its
 * number into it (release); the receiver waits for that number (acquire), reads, and counts the
 * sheet as taken (release); the sender fills a sheet again once it is taken (acquire).  A short
 * message lies in its sheet: up to 48 bytes are one cache line, from core to core in one hop.  A
 * longer one lies in the room behind the ring, in pieces, a sheet each, which is free again when
 * its sheet is taken.
 *
 * Offers.  Where ranks can read each other's memory, a large message stays where it is: its sheet
 * says where, and the receiver copies it from there, by itself if it has mapped that memory.
 * Whether the memory may be read is the state of the offer: the receiver changes OFFERED to TAKING,
 * copies a part, and changes it back, or to DONE after the last one.  A sender that gives up
 * changes OFFERED to WITHDRAWN; between threads it waits while a part is being copied, between
 * processes it need not, because then the receiver finds its TAKING gone and does not count the
 * part.
 */
#ifndef WEFT_COLL_BOX_H
#define WEFT_COLL_BOX_H

#include "base/segment.h"
#include "base/signal.h"

enum {
    WEFT_I_BOX_SHEETS = 32,
    WEFT_I_BOX_OFFERS = 8,
    WEFT_I_BOX_SHORT = 112,         /* bytes that lie in a sheet */
    WEFT_I_BOX_ROOM = 32 << 10,     /* at least: so much is sent before anybody receives */
    WEFT_I_BOX_ROOMS = 1 << 20,     /* all of a rank's, if that leaves each enough ... */
    WEFT_I_BOX_ROOM_MAX = 128 << 10 /* ... and not more than a core's own cache likes */
};

typedef enum weft_i_sheet_kind {
    WEFT_I_SHEET_SHORT,
    WEFT_I_SHEET_FIRST, /* piece of a message in the room */
    WEFT_I_SHEET_NEXT,  /* any other piece of it */
    WEFT_I_SHEET_OFFER
} weft_i_sheet_kind;

/* Of a message that does not lie in its sheet. */
typedef struct weft_i_sheet_piece {
    uint64_t bytes; /* of the whole message */
    uint32_t at, length;
    /* Offers: */
    uint64_t address;   /* in the sender's memory */
    weft_i_key segment; /* of symmetric memory; 0: ordinary */
    uint64_t offset;    /* in the segment */
    uint32_t offer;
} weft_i_sheet_piece;

typedef struct weft_i_sheet {
    /* Number of the sheet, from 1; above it the digest of dtype and count. */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t number;
    int32_t tag;
    uint16_t kind;
    uint16_t length; /* of a short message */
    union {
        unsigned char text[WEFT_I_BOX_SHORT];
        weft_i_sheet_piece piece;
    };
} weft_i_sheet;

typedef enum weft_i_offer_state {
    WEFT_I_OFFER_NONE,
    WEFT_I_OFFERED,
    WEFT_I_OFFER_TAKING,
    WEFT_I_OFFER_DONE,
    WEFT_I_OFFER_WITHDRAWN
} weft_i_offer_state;

typedef struct weft_i_offer {
    _Alignas(WEFT_I_LINE) _Atomic uint32_t state;
} weft_i_offer;

typedef struct weft_i_box {
    weft_i_sheet sheets[WEFT_I_BOX_SHEETS];
    _Alignas(WEFT_I_LINE) _Atomic uint32_t taken; /* sheets; written by the receiver alone */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t
        refused; /* 1 + bytes the receiver expected instead; 0: none refused */
    weft_i_offer offers[WEFT_I_BOX_OFFERS];
    _Alignas(WEFT_I_LINE) char room[];
} weft_i_box;

_Static_assert(sizeof(weft_i_sheet) == WEFT_I_LINE, "a sheet is a pair of cache lines");

/* Bytes of the room in each box of a group of `size` ranks: the more ranks, the less. */
static inline size_t weft_i_box_room(int size)
{
    size_t room = WEFT_I_BOX_ROOM_MAX;
    while (room > WEFT_I_BOX_ROOM && room * (size_t)size > WEFT_I_BOX_ROOMS)
        room /= 2;
    return room;
}

static inline size_t weft_i_box_bytes(int size)
{
    return sizeof(weft_i_box) + weft_i_box_room(size);
}

/* ---- the sender ---- */

static inline weft_i_sheet *weft_i_box_sheet(weft_i_box *box, uint32_t before)
{
    return &box->sheets[before % WEFT_I_BOX_SHEETS];
}

/* How many sheets the receiver has taken. */
static inline uint32_t weft_i_box_taken(weft_i_box *box)
{
    /* Pairs with the release in weft_i_box_take: it has read what we overwrite now. */
    return atomic_load_explicit(&box->taken, memory_order_acquire);
}

/* Shows the sheet after `before` others; it is filled in. */
static inline void weft_i_box_show(weft_i_box *box, uint32_t before, uint32_t digest)
{
    /* Pairs with the acquire in weft_i_box_look. */
    atomic_store_explicit(&weft_i_box_sheet(box, before)->number,
                          (uint64_t)digest << 32 | (uint32_t)(before + 1), memory_order_release);
}

/* Before the sheet that tells of it is shown. */
static inline void weft_i_box_offer(weft_i_box *box, uint32_t offer)
{
    /* Relaxed: ordered by the release of the sheet in weft_i_box_show. */
    atomic_store_explicit(&box->offers[offer].state, WEFT_I_OFFERED, memory_order_relaxed);
}

static inline bool weft_i_box_is_done(weft_i_box *box, uint32_t offer)
{
    /* Pairs with the release in weft_i_box_give_back: nobody reads the memory any more. */
    return atomic_load_explicit(&box->offers[offer].state, memory_order_acquire) ==
           WEFT_I_OFFER_DONE;
}

/* Takes an offer back; false while the receiver copies, unless by force. */
static inline bool weft_i_box_withdraw(weft_i_box *box, uint32_t offer, bool force)
{
    uint32_t was = WEFT_I_OFFERED;
    /* Pairs with the release in weft_i_box_give_back: nobody reads the memory any more. */
    if (atomic_compare_exchange_strong_explicit(&box->offers[offer].state, &was,
                                                WEFT_I_OFFER_WITHDRAWN, memory_order_acquire,
                                                memory_order_acquire))
        return true;
    if (was != WEFT_I_OFFER_TAKING)
        return true;
    /* Pairs with the exchange in weft_i_box_give_back, which fails then. */
    return force && atomic_compare_exchange_strong_explicit(
                        &box->offers[offer].state, &was, WEFT_I_OFFER_WITHDRAWN,
                        memory_order_acquire, memory_order_acquire);
}

/* ---- the receiver ---- */

/* The sheet after `taken` others, or NULL if it has not come. */
static inline const weft_i_sheet *weft_i_box_look(weft_i_box *box, uint32_t taken, uint32_t *digest)
{
    const weft_i_sheet *sheet = weft_i_box_sheet(box, taken);
    /* Pairs with the release in weft_i_box_show. */
    uint64_t number = atomic_load_explicit(&sheet->number, memory_order_acquire);
    *digest = (uint32_t)(number >> 32);
    return (uint32_t)number == taken + 1 ? sheet : NULL;
}

static inline void weft_i_box_take(weft_i_box *box, uint32_t taken)
{
    /* Pairs with the acquire in weft_i_box_taken. */
    atomic_store_explicit(&box->taken, taken, memory_order_release);
}

/* May the offered memory be read now? */
static inline bool weft_i_box_claim(weft_i_box *box, uint32_t offer)
{
    uint32_t was = WEFT_I_OFFERED;
    /* Relaxed: what the memory holds was seen with the sheet.  Acquire would pair with nothing. */
    return atomic_compare_exchange_strong_explicit(&box->offers[offer].state, &was,
                                                   WEFT_I_OFFER_TAKING, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* After reading a part, or the last one; false if the sender has withdrawn its offer meanwhile. */
static inline bool weft_i_box_give_back(weft_i_box *box, uint32_t offer, bool done)
{
    uint32_t was = WEFT_I_OFFER_TAKING;
    /* Pairs with the acquire in weft_i_box_is_done and weft_i_box_withdraw. */
    return atomic_compare_exchange_strong_explicit(&box->offers[offer].state, &was,
                                                   done ? WEFT_I_OFFER_DONE : WEFT_I_OFFERED,
                                                   memory_order_release, memory_order_relaxed);
}

#endif
