/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving parts from rank to rank: broadcast, gather, all_gather, scatter and all_to_all.  They
 * differ in who gives and who takes, and in whether an operand is one part or one for each rank;
 * all that is in the facts of the kind.  Small parts are shown at the entry.  Large ones are pulled
 * from symmetric inputs or pushed into symmetric outputs; ordinary ones are copied by CMA, or go
 * through the bounce buffer piece by piece.
 */
#include "base/assert.h"
#include "coll/enter.h"
#include "coll/pipeline.h"

enum { PIECE_LEAST = 16 << 10 };

typedef struct moving {
    size_t part;                  /* bytes from one rank to another */
    size_t in_stride, out_stride; /* from part to part of an operand; 0: there is one */
    int givers, first_giver;      /* counted round from the first: ourselves, or the root */
    int takers, first_taker;
    bool gives, takes; /* this rank, something to or from others */
    size_t piece;      /* bytes of a part in a chunk of the pipeline */
} moving;

/*
 * Bytes of a piece where one rank copies in what others copy out at the same time: several pieces
 * even of a short part, so that they do work at the same time.
 */
static size_t piece_for(const weft_i_lane *lane, size_t part, size_t most)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        return most; /* there are too few cores, and a sync costs more than a copy */
    size_t quarter = (part / 4 + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
    size_t least = weft_i_coll_min(PIECE_LEAST, most);
    return weft_i_coll_min(quarter > least ? quarter : least, most);
}

static moving moving_of(const weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    int me = lane->me, root = coll->ask.root;
    bool from_root = weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT);
    bool to_root = weft_i_kind_is(coll->ask.kind, WEFT_I_TO_ROOT);
    bool has_parts = weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS);
    size_t part = coll->ask.count * coll->ask.item;
    size_t most = has_parts ? WEFT_I_CHUNK / (size_t)lane->size : WEFT_I_CHUNK;
    return (moving){.part = part,
                    .in_stride = has_parts ? part : 0,
                    .out_stride = weft_i_kind_is(coll->ask.kind, WEFT_I_PLACES_PARTS) ? part : 0,
                    .givers = from_root ? 1 : lane->size,
                    .first_giver = from_root ? root : me,
                    .takers = to_root ? 1 : lane->size,
                    .first_taker = to_root ? root : me,
                    .gives = from_root ? me == root : !to_root || me != root,
                    .takes = !to_root || me == root,
                    .piece = from_root ? piece_for(lane, part, most) : most};
}

static int rank_at(const weft_i_coll *coll, int first, int i)
{
    int rank = first + i;
    WEFT_ASSERT(first >= 0 && first < coll->lane->size && i >= 0 && i < coll->lane->size);
    return rank < coll->lane->size ? rank : rank - coll->lane->size;
}

/* This rank's own part, or piece of it from byte `at` on. */
static void put_own(const weft_i_coll *coll, const moving *m, size_t at, size_t bytes)
{
    size_t me = (size_t)coll->lane->me;
    weft_i_coll_put_own(coll, coll->ask.out + me * m->out_stride + at,
                        coll->ask.in + me * m->in_stride + at, bytes);
}

/* Takes this rank's part of what the givers have shown. */
static weft_status take_shown(weft_i_coll *coll, const moving *m)
{
    for (int i = 0; m->takes && i < m->givers; i++) {
        int rank = rank_at(coll, m->first_giver, i);
        char *to = coll->ask.out + (size_t)rank * m->out_stride;
        if (rank == coll->lane->me)
            put_own(coll, m, 0, m->part);
        else if (m->in_stride)
            weft_i_coll_put(to, weft_i_eager_of(coll, rank) + (size_t)coll->lane->me * m->in_stride,
                            m->part);
        else
            WEFT_TRY(weft_i_eager_take(coll, rank, to));
    }
    return WEFT_OK;
}

/* Whoever only gives goes on.  Whoever takes waits for those who give. */
static weft_status move_shown(weft_i_coll *coll)
{
    moving m = moving_of(coll);
    int whom = !m.takes                          ? WEFT_I_FOR_NOBODY
               : m.givers == coll->lane->size    ? WEFT_I_FOR_ALL
               : m.first_giver == coll->lane->me ? WEFT_I_FOR_NOBODY
                                                 : m.first_giver;
    WEFT_TRY(weft_i_enter_eager(coll, m.gives, whom));
    return take_shown(coll, &m);
}

/* Every taker copies its part from where the givers have it. */
static weft_status pull(weft_i_coll *coll, const moving *m, const weft_i_locations *locations)
{
    size_t at = (size_t)coll->lane->me * m->in_stride;
    for (int i = 0; m->takes && i < m->givers; i++) {
        int rank = rank_at(coll, m->first_giver, i);
        WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, at,
                                   coll->ask.out + (size_t)rank * m->out_stride, m->part));
    }
    return weft_i_coll_sync(coll);
}

/* Every giver copies its parts to where the takers want them. */
static weft_status push(weft_i_coll *coll, const moving *m, const weft_i_locations *locations)
{
    size_t at = (size_t)coll->lane->me * m->out_stride;
    WEFT_ASSERT(m->gives || m->takers == 1);
    for (int i = 0; i < m->takers; i++) {
        int rank = rank_at(coll, m->first_taker, i);
        weft_i_coll_deliver(coll, locations, rank, at, coll->ask.in + (size_t)rank * m->in_stride,
                            m->part);
    }
    return weft_i_coll_sync(coll);
}

/* ---- pieces through the bounce buffer ---- */

static size_t piece_bytes(const moving *m, size_t k)
{
    WEFT_ASSERT(k * m->piece < m->part);
    return weft_i_coll_min(m->part - k * m->piece, m->piece);
}

/* Copies piece k of every part of the input, but for my own, into my chunk. */
static void put_piece(weft_i_coll *coll, const void *arg, size_t k)
{
    const moving *m = arg;
    size_t bytes = piece_bytes(m, k), first = k * m->piece;
    char *chunk = weft_i_lane_chunk(coll->lane, coll->lane->me, k);
    WEFT_ASSERT(m->gives && bytes * (m->in_stride ? (size_t)coll->lane->size : 1) <= WEFT_I_CHUNK);
    if (!m->in_stride)
        memcpy(chunk, coll->ask.in + first, bytes);
    for (int part = 0; m->in_stride && part < coll->lane->size; part++)
        if (part != coll->lane->me)
            memcpy(chunk + (size_t)part * bytes, coll->ask.in + (size_t)part * m->in_stride + first,
                   bytes);
}

static void take_piece(weft_i_coll *coll, const void *arg, size_t k)
{
    const moving *m = arg;
    size_t bytes = piece_bytes(m, k), first = k * m->piece;
    size_t mine = m->in_stride ? (size_t)coll->lane->me * bytes : 0;
    for (int i = 0; i < m->givers; i++) {
        int rank = rank_at(coll, m->first_giver, i);
        if (rank == coll->lane->me)
            put_own(coll, m, first, bytes);
        else
            memcpy(coll->ask.out + (size_t)rank * m->out_stride + first,
                   weft_i_lane_chunk(coll->lane, rank, k) + mine, bytes);
    }
}

static weft_status pipeline(weft_i_coll *coll, const moving *m)
{
    weft_i_pipeline line = {.pieces = weft_i_pipeline_pieces(m->part, m->piece),
                            .put = m->gives ? put_piece : NULL,
                            .take = m->takes ? take_piece : NULL,
                            .arg = m};
    return weft_i_pipeline_run(coll, &line);
}

/* ---- the collectives ---- */

static weft_status enter(weft_i_coll *coll, moving *m, weft_i_locations *locations)
{
    *m = moving_of(coll);
    return weft_i_enter_located(coll, locations, m->part,
                                m->gives ? WEFT_I_GIVES : WEFT_I_GIVES_NOTHING);
}

/*
 * Where all can touch the data: others take all but the last slice from the root, who meanwhile
 * gives that one to each of them: everybody copies the same number of bytes.
 */
static weft_status broadcast_copies(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    weft_i_span last = weft_i_coll_slice(coll->ask.in_bytes, lane->size, lane->size - 1, 1);
    if (lane->me != coll->ask.root)
        WEFT_TRY(weft_i_coll_fetch(coll, locations, coll->ask.root, 0, coll->ask.out, last.first));
    for (int i = 1; i < lane->size && lane->me == coll->ask.root; i++)
        weft_i_coll_deliver(coll, locations, rank_at(coll, lane->me, i), last.first,
                            coll->ask.in + last.first, last.count);
    return weft_i_coll_sync(coll);
}

weft_status weft_i_coll_broadcast(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return move_shown(coll);
    weft_i_locations locations;
    moving m;
    WEFT_TRY(enter(coll, &m, &locations));
    if (locations.all_shown)
        return take_shown(coll, &m);
    if (locations.all_in)
        return broadcast_copies(coll, &locations);
    return locations.cma ? pull(coll, &m, &locations) : pipeline(coll, &m);
}

/* From all to all: all_gather and all_to_all. */
static weft_status move_all(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return move_shown(coll);
    weft_i_locations locations;
    moving m;
    WEFT_TRY(enter(coll, &m, &locations));
    if (locations.all_shown)
        return take_shown(coll, &m);
    if (weft_i_locations_push(&locations, m.part))
        return push(coll, &m, &locations);
    return locations.all_in || locations.cma ? pull(coll, &m, &locations) : pipeline(coll, &m);
}

weft_status weft_i_coll_all_gather(weft_i_coll *coll)
{
    return move_all(coll);
}

weft_status weft_i_coll_all_to_all(weft_i_coll *coll)
{
    bool splits = coll->ask.in_splits || coll->list;
    return splits ? weft_i_coll_all_to_all_splits(coll) : move_all(coll);
}

weft_status weft_i_coll_gather(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return move_shown(coll);
    weft_i_locations locations;
    moving m;
    WEFT_TRY(enter(coll, &m, &locations));
    /* Others touch the root's output if theirs lie there too, or in the memory of all inputs. */
    weft_i_registration *common = locations.all_out  ? locations.out
                                  : locations.all_in ? locations.in
                                                     : NULL;
    weft_i_locations root = {.out = common};
    if (locations.all_shown)
        return take_shown(coll, &m);
    if (weft_i_touch_out(coll, common, coll->ask.root))
        return push(coll, &m, &root);
    return locations.all_in || locations.cma ? pull(coll, &m, &locations) : pipeline(coll, &m);
}

weft_status weft_i_coll_scatter(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return move_shown(coll);
    weft_i_locations locations;
    moving m;
    WEFT_TRY(enter(coll, &m, &locations));
    /* Others touch the root's input if theirs lie there too, or in the memory of all outputs. */
    weft_i_registration *common = locations.all_in    ? locations.in
                                  : locations.all_out ? locations.out
                                                      : NULL;
    weft_i_locations root = {.in = common,
                             .all_in = weft_i_touch_in(coll, common, coll->ask.root) != NULL};
    if (locations.all_shown)
        return take_shown(coll, &m);
    return root.all_in || locations.cma ? pull(coll, &m, &root) : pipeline(coll, &m);
}
