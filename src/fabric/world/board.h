/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's board: the shared lines through which its members meet.  Each member owns one row and
 * is its only writer (but for the pass word, see signal.h): an arrival word, a bell to wake it, and
 * two notes it shows to the others by turns.  The same once more, apart, for making the group's
 * lane: that may be wanted by some while others are at a barrier (see exchange.c).
 */
#ifndef WEFT_FABRIC_BOARD_H
#define WEFT_FABRIC_BOARD_H

#include "base/share/segment.h"
#include "base/share/signal.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_I_NOTE_BYTES = 960,
    WEFT_I_LANE_NOTE_BYTES = 256,
    WEFT_I_LABEL_BYTES = 256,
    WEFT_I_GIVEN_CALLS = 8,
    WEFT_I_BOARD_RANKS = 4096
};

/* What a member that waits for long called, so that those who wait for it elsewhere find out that
 * neither will come; see quarrel.h. */
typedef struct weft_i_stuck {
    _Atomic uint64_t where; /* 0: nowhere.  Release by the member, acquire by the others */
    /* Text, written before `where`.  Relaxed: whoever reads it looks at `where` once more. */
    _Atomic uint64_t call[WEFT_I_LABEL_BYTES / sizeof(uint64_t)];
    _Atomic uint32_t quit[3]; /* by place: the last meeting that it came to and gave up; relaxed:
                                 read by itself */
    _Atomic uint32_t heard;   /* 1: it was told of the group's quarrel; relaxed: read by itself */
} weft_i_stuck;

/* Which collectives a member has given to its device, for those who wait for it on the lane; see
 * given.h. */
typedef struct weft_i_given {
    _Atomic uint64_t calls; /* so many.  Release by the member, acquire by the others */
    /* How many entries of the lane came before the last of them; WEFT_I_GIVEN_UNSURE: not known.
     * Relaxed: written before `calls`. */
    _Atomic uint64_t entries;
    /* What was called, by turns: relaxed, written before `calls`. */
    _Atomic uint64_t what[WEFT_I_GIVEN_CALLS], count[WEFT_I_GIVEN_CALLS];
} weft_i_given;

/* A member's part in agreements, see group_agree.c.  Two of everything, by parity of the round. */
typedef struct weft_i_vote {
    _Atomic uint32_t round; /* the last one it has come to; release, acquire by the others */
    _Atomic uint32_t bell;
    uint64_t flags[2]; /* its own; written before `round` */
    /* What the round shall come to, if the board says that this member decided it: */
    uint64_t decided[2];
    int32_t status[2];
    unsigned char lost[2][WEFT_I_BOARD_RANKS / 8]; /* a bit for each member */
} weft_i_vote;

typedef struct weft_i_board_row {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t arrival; /* exchanges; see signal.h */
    _Atomic uint32_t left; /* 1: the member has destroyed the group.  Release, acquire in waits */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t pass;
    _Alignas(WEFT_I_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t
        given_up; /* monitored barriers that it did not see succeed (fabric/group/monitor.c) */
    _Atomic uint64_t gave_up; /* when it last took an arrival back; see weft_i_stamp */
    /* Calls that it has given to its device and that need all members (symm/sentry.h).  Release by the
     * member, acquire by whoever finds that it has left. */
    _Atomic uint64_t enqueued;
    _Atomic uint32_t fetches; /* 1 + the member whose memory it waits for, or did last; relaxed:
                                  for messages only */
    _Alignas(WEFT_I_LINE) unsigned char note[2][WEFT_I_NOTE_BYTES]; /* by parity of the epoch */
    char op[32]; /* name of its exchange, written before it arrives */
    /* Where the lane is made: */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t lane_arrival;
    _Alignas(WEFT_I_LINE) _Atomic uint64_t lane_pass;
    _Alignas(WEFT_I_LINE) _Atomic uint32_t lane_bell;
    _Atomic uint64_t lane_gave_up;
    /* Why it is creating the lane now; see weft_i_group_lane_need.  Release by the member, acquire by
     * the others. */
    _Atomic uint64_t lane_need;
    _Alignas(WEFT_I_LINE) unsigned char lane_note[2][WEFT_I_LANE_NOTE_BYTES];
    _Alignas(WEFT_I_LINE) weft_i_stuck stuck;
    _Alignas(WEFT_I_LINE) weft_i_given given;
    _Alignas(WEFT_I_LINE) weft_i_vote vote;
} weft_i_board_row;

typedef struct weft_i_board {
    _Alignas(WEFT_I_LINE) _Atomic uint32_t
        revoked;               /* 1 + rank that revoked the group; release, acquire in waits */
    _Atomic int32_t failure;   /* why, if something went wrong; else 0.  Relaxed: stored before
                                  `revoked` */
    _Atomic uint32_t recalled; /* 1 + rank that called weft_group_revoke: ends what was made from
                                  the group as well.  Release, acquire in waits */
    _Atomic uint64_t agreed;   /* the last agreement that was decided, and above it, 1 + by whom; by
                                  compare and exchange (acq_rel), acquire by whoever waits */
    uint32_t ranks;
    uint32_t times; /* how often a group was made of this list before; written before it is offered
                     */
    weft_i_key key; /* the group's identity */
    /* Two calls that are not one, told to all: 0: none, 1: being written, 2: there.  Acquire and
     * release by whoever writes it; read after `revoked`. */
    _Atomic uint32_t quarrel;
    char quarrel_text[2 * WEFT_I_LABEL_BYTES + 128];
    _Alignas(WEFT_I_LINE) weft_i_board_row row[];
} weft_i_board;

static inline size_t weft_i_board_bytes(int ranks)
{
    return sizeof(weft_i_board) + (size_t)ranks * sizeof(weft_i_board_row);
}

#endif
