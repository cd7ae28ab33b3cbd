/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between hosts.  A call enters by one meeting of all members, where each shows its
 * signature, its factor and an operand of at most WEFT_I_HOSTS_SHOWN bytes.  After that all members
 * do the same steps: exchanges inside a host, which are calls of the group of its members, and moves
 * between hosts (coll/lane/ferry.h).
 *
 * Member i of a host is rail i where all hosts have that many; its counterpart on another host has
 * the same number there.  The partner of member i on a smaller host is its member i modulo their
 * number.
 */
#ifndef WEFT_COLL_HOSTS_H
#define WEFT_COLL_HOSTS_H

#include "coll/lane/ferry.h"
#include "coll/lane/list.h"

/* ---- running: hosts.c ---- */

/* Runs a checked call of a group that spans hosts; `run` runs those of the members of one host, and
 * `usual` such a call where all are on one. */
weft_status weft_i_hosts_run(weft_i_coll *coll, weft_i_runner *run, weft_i_runner *usual);

/* As weft_i_kind_run, of calls between hosts. */
void weft_i_hosts_kind_run(weft_i_coll_kind kind, weft_i_runner *runner);

/* ---- the entry: hosts_enter.c ---- */

/* What a member shows when it enters. */
typedef struct weft_i_hosts_card {
    weft_i_signature signature;
    double factor;
    uint64_t attempt; /* number of its tries to enter */
    unsigned char data[WEFT_I_LANE_NOTE_BYTES - sizeof(weft_i_signature) - 2 * sizeof(double)];
} weft_i_hosts_card;

enum { WEFT_I_HOSTS_SHOWN = sizeof(((weft_i_hosts_card *)0)->data) };

_Static_assert(sizeof(weft_i_hosts_card) == WEFT_I_LANE_NOTE_BYTES, "a card is a note");

/* Meets all members; reads everybody's factor into lane->factors. */
weft_status weft_i_hosts_enter(weft_i_coll *coll, const void *data, size_t bytes);

/* The same with the first `moves` of the ferry's, which send as they arrive: ferry->prepared says so to
 * whoever runs them. */
weft_status weft_i_hosts_enter_moving(weft_i_coll *coll, int moves);

/* What `rank` has shown there. */
static inline const void *weft_i_hosts_shown(const weft_i_coll *coll, int rank)
{
    const weft_i_hosts_card *cards = (const void *)coll->lane->ferry->notes;
    return cards[rank].data;
}

/* ---- inside a host: hosts_near.c ---- */

/*
 * An exchange: begins, says what this rank gives to which member of its host and takes from which,
 * and runs.  Nothing goes to itself.
 */
void weft_i_hosts_near_begin(const weft_i_coll *coll);
void weft_i_hosts_near_give(const weft_i_coll *coll, int index, const void *data, size_t bytes);
void weft_i_hosts_near_take(const weft_i_coll *coll, int index, void *data, size_t bytes);
weft_status weft_i_hosts_near_exchange(weft_i_coll *coll);

/* `bytes` of each member to `out`, those of member i at i * `bytes`; small ones take a single meeting. */
weft_status weft_i_hosts_near_gather(weft_i_coll *coll, const void *in, char *out, size_t bytes);

/* From member `root` of this host to the others. */
weft_status weft_i_hosts_near_broadcast(weft_i_coll *coll, int root, char *data, size_t bytes);

/* ---- moving: hosts_move.c ---- */

/* Everybody's `bytes`, those of rank r to `out` + r * `stride`, where this rank's own are already. */
weft_status weft_i_hosts_all_gather(weft_i_coll *coll, char *out, size_t stride, size_t bytes);

/* Everybody's table of splits, as after weft_i_lane_read_splits. */
weft_status weft_i_hosts_read_splits(weft_i_coll *coll);

/* What this rank gives to another one, `in` and `bytes`, and takes from it, `out` and `out_bytes`: in `room`,
 * or elsewhere. */
typedef weft_i_list_item *weft_i_hosts_part(weft_i_coll *coll, int rank, weft_i_list_item *room);
/* All ranks exchange such parts. */
weft_status weft_i_hosts_exchange(weft_i_coll *coll, weft_i_hosts_part *part);

weft_i_runner weft_i_hosts_broadcast, weft_i_hosts_gather, weft_i_hosts_scatter,
    weft_i_hosts_gather_all, weft_i_hosts_all_to_all, weft_i_hosts_barrier;

/* ---- reductions: hosts_reduce.c ---- */

/* A reduction of `count` elements at `in` of everybody. */
typedef struct weft_i_hosts_sum {
    const char *in;
    char *out; /* where the result is wanted */
    size_t count;
    weft_dtype dtype;
    weft_i_fold_op op;
    int root; /* the only rank that wants it; -1: all do */
} weft_i_hosts_sum;

/* Scratch that such reductions need, whatever their size. */
size_t weft_i_hosts_sum_room(const weft_i_coll *coll);

weft_status weft_i_hosts_fold(weft_i_coll *coll, const weft_i_hosts_sum *sum);

/* Folds what all have shown at the entry, from byte `at` on, to the call's output. */
void weft_i_hosts_fold_shown(weft_i_coll *coll, size_t at);

weft_i_runner weft_i_hosts_all_reduce, weft_i_hosts_reduce;

/* ---- sums of parts: hosts_scatter.c ---- */

/* A reduction of a part for each rank: `count` elements at `in` + rank * `stride` bytes of everybody. */
typedef struct weft_i_hosts_parts {
    const char *in;
    size_t stride;
    char *out; /* this rank's */
    size_t count;
    weft_dtype dtype;
    weft_i_fold_op op;
} weft_i_hosts_parts;

/* Scratch that such reductions need, whatever their size. */
size_t weft_i_hosts_parts_room(const weft_i_coll *coll);

weft_status weft_i_hosts_fold_parts(weft_i_coll *coll, const weft_i_hosts_parts *parts);

weft_i_runner weft_i_hosts_reduce_scatter;

/* ---- lists: hosts_list.c ---- */

weft_i_runner weft_i_hosts_list_all_reduce, weft_i_hosts_list_all_gather,
    weft_i_hosts_list_reduce_scatter;

#endif
