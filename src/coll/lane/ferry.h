/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ferry: what a lane has towards members on other hosts, instead of shared memory.  Bytes go there as
 * moves: a rank says what it sends to whom and what it receives from whom, and runs all of that at
 * once.  Moves between two members happen in the order in which both list them.
 *
 * A move is cut into pieces, a DATA message each.  A rank sends a member at most WEFT_I_FERRY_WINDOW
 * pieces that this one has not taken yet, so that a slow member keeps a few pieces and no more.  What
 * a member has taken it tells with its own pieces, or by a message of its own when half the window is
 * used up.
 *
 * What a rank sends may go with its arrival at the entry, before the others are known to have come.  It
 * bears the number of the try to enter; of one that was given up it is dropped.
 *
 * A piece is copied to where it belongs by the thread that drives the transport; if no wait is for it yet, it
 * is kept.
 */
#ifndef WEFT_COLL_FERRY_H
#define WEFT_COLL_FERRY_H

#include "coll/lane/call.h"
#include "fabric/group/hosts.h"
#include "kernels/fold/fold_hosts.h"

enum {
    WEFT_I_FERRY_PIECE = 56 << 10, /* bytes; every transport's segment has that much */
    WEFT_I_FERRY_WINDOW = 8
};

typedef struct weft_i_ferry_move {
    int member; /* on another host */
    bool sends;
    char *data;
    size_t bytes;
    size_t at; /* done so far; 0 at first */
} weft_i_ferry_move;

typedef struct weft_i_ferry_piece weft_i_ferry_piece; /* one that came early */

/* One member on another host. */
typedef struct weft_i_ferry_partner {
    uint32_t sent, acked;       /* pieces to it; those that it is known to have taken */
    uint32_t taken, told;       /* pieces of it; those that it was told of */
    uint32_t attempt;           /* its try to enter that has succeeded */
    uint32_t in_turn, out_turn; /* the last look at the moves that found one of it unfinished */
    weft_i_ferry_piece *first, *last; /* kept, in their order */
} weft_i_ferry_partner;

typedef struct weft_i_ferry {
    weft_group *group; /* which holds the lane */
    weft_i_ferry_partner *partner;
    weft_i_ferry_move *moves; /* room for all that one step may have */
    int room_moves;
    /* Guarded by the lock of the transport: */
    weft_i_ferry_move *running; /* those under way; NULL: none */
    int count;
    uint32_t turn;
    weft_status broken; /* what came makes no sense, or could not be kept */
    int breaker;

    uint32_t attempts; /* this rank's tries to enter */
    int prepared;      /* moves that were begun before the entry, for the first run after it */
    weft_i_list *list; /* of parts that members of this host exchange */
    weft_i_fold_hosts order; /* of sums; dtype and reduction are those of the call */
    int *firsts;             /* of it */
    int *ranks;              /* the members by host */
    const void **sources;    /* of a fold, in that order */
    double *factors;
    char *room[2]; /* scratch of the call */
    size_t room_bytes[2];
    unsigned char *notes;  /* what all have shown at the entry */
    weft_i_runner *run;    /* a call of the members of this host */
    weft_i_lane_head head; /* this rank's own; nobody else reads it */
} weft_i_ferry;

/* For the next moves, of which there are at most the members times two and the hosts. */
static inline void weft_i_ferry_add(weft_i_ferry *ferry, int *count, weft_i_ferry_move move)
{
    WEFT_ASSERT(*count < ferry->room_moves);
    if (move.bytes)
        ferry->moves[(*count)++] = move;
}

/* Sends what there is room for of the first `count` of ferry->moves, which are run after the entry. */
void weft_i_ferry_send_early(weft_i_coll *coll, int count);

/* Runs the first `count` of ferry->moves.  A failure ends the group. */
weft_status weft_i_ferry_run(weft_i_coll *coll, int count);

/* Scratch `which` for a call, before its entry: WEFT_ERR_NO_MEMORY then has no effect. */
weft_status weft_i_ferry_make_room(weft_i_coll *coll, int which, size_t bytes);

/* As weft_i_coll_fold, of lane->sources in the order between hosts. */
void weft_i_ferry_fold(weft_i_coll *coll, int outputs, size_t count);

#endif
