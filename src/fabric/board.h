/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's board: the shared lines through which its members meet.  Each member owns one row and
 * is its only writer (but for the pass word, see signal.h): an arrival word, a bell to wake it, and
 * two notes it shows to the others by turns.
 */
#ifndef WEFT_FABRIC_BOARD_H
#define WEFT_FABRIC_BOARD_H

#include "base/segment.h"
#include "base/signal.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_NOTE_BYTES = 960 };

typedef struct weft_i_board_row {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t arrival; /* exchanges; see signal.h */
    _Atomic uint32_t left; /* 1: the member has destroyed the group.  Release, acquire in waits */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t pass;
    _Alignas(WEFT_I_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t given_up; /* monitored barriers that it did not see succeed (coll/monitor.c) */
    _Alignas(WEFT_I_LINE) unsigned char note[2][WEFT_I_NOTE_BYTES]; /* by parity of the epoch */
} weft_i_board_row;

typedef struct weft_i_board {
    _Alignas(WEFT_I_LINE) _Atomic uint32_t
        revoked;             /* 1 + rank that revoked the group; release, acquire in waits */
    _Atomic int32_t failure; /* why, if something went wrong; else 0.  Relaxed: stored before
                                `revoked` */
    uint32_t ranks;
    uint32_t times; /* how often a group was made of this list before; written before it is offered
                     */
    weft_i_key key; /* the group's identity */
    _Alignas(WEFT_I_LINE) weft_i_board_row row[];
} weft_i_board;

static inline size_t weft_i_board_bytes(int ranks)
{
    return sizeof(weft_i_board) + (size_t)ranks * sizeof(weft_i_board_row);
}

#endif
