/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving parts from rank to rank: broadcast, gather, all_gather, scatter and all_to_all.  They
 * differ in which ranks give and which take, and in whether an operand is one part or one for each rank;
 * all that is in the facts of the kind.  Small parts are shown at the entry.  Large ones are pulled
 * from symmetric inputs or pushed into symmetric outputs.  Ordinary ones are copied by CMA, or go
 * through bounce buffers: piece by piece with syncs, or in fifos where every rank has a core.
 */
#include "coll/host/algorithms.h"
#include "coll/lane/enter.h"
#include "coll/lane/pipeline.h"
#include "kernels/walk/far_copy.h"

enum { PIECE_LEAST = 16 << 10 };

/* In line: what a small call does not ask is not worked out for it. */
#define IN_LINE __attribute__((always_inline)) static inline

typedef struct moving {
    bool from_root, to_root;      /* it goes one way; else from all to all */
    bool gives, takes;            /* this rank; `gives` is of others' parts */
    size_t part;                  /* bytes from one rank to another */
    size_t in_stride, out_stride; /* from part to part of an operand; 0: there is one */
    int givers, first_giver;      /* counted round from the first: ourselves, or the root */
    int takers, first_taker;
} moving;

IN_LINE moving moving_of(const weft_i_coll *coll)
{
    int me = coll->lane->me, size = coll->lane->size, root = coll->ask.root;
    uint32_t facts = weft_i_kinds[weft_i_kinds[coll->ask.kind].as].facts;
    bool from_root = facts & WEFT_I_FROM_ROOT, to_root = facts & WEFT_I_TO_ROOT;
    bool kept = from_root && !(facts & WEFT_I_HAS_PARTS); /* the root of a broadcast has it all */
    size_t part = coll->ask.count * coll->ask.item;
    return (moving){.from_root = from_root,
                    .to_root = to_root,
                    .gives = from_root ? me == root : !to_root || me != root,
                    .takes = to_root ? me == root : !kept || me != root,
                    .part = part,
                    .in_stride = facts & WEFT_I_HAS_PARTS ? part : 0,
                    .out_stride = facts & WEFT_I_PLACES_PARTS ? part : 0,
                    .givers = from_root ? 1 : size,
                    .first_giver = from_root ? root : me,
                    .takers = to_root ? 1 : size,
                    .first_taker = to_root ? root : me};
}

static int rank_at(const weft_i_coll *coll, int first, int i)
{
    int rank = first + i;
    return rank < coll->lane->size ? rank : rank - coll->lane->size;
}

/* This rank's own part, or `bytes` of it from byte `at` on. */
static void put_own(const weft_i_coll *coll, const moving *m, size_t at, size_t bytes)
{
    size_t me = (size_t)coll->lane->me;
    weft_i_coll_put_own(coll, coll->ask.out + me * m->out_stride + at,
                        coll->ask.in + me * m->in_stride + at, bytes);
}

/* ---- shown at the entry ---- */

static weft_status take_shown(weft_i_coll *coll)
{
    moving m = moving_of(coll);
    for (int i = 0; i < m.givers; i++) {
        int rank = rank_at(coll, m.first_giver, i);
        char *to = coll->ask.out + (size_t)rank * m.out_stride;
        if (rank == coll->lane->me)
            put_own(coll, &m, 0, m.part);
        else if (m.in_stride)
            weft_i_coll_put(to, weft_i_eager_of(coll, rank) + (size_t)coll->lane->me * m.in_stride,
                            m.part);
        else
            WEFT_TRY(weft_i_eager_take(coll, rank, to));
    }
    return WEFT_OK;
}

/* Whoever takes nothing from others goes on.  Whoever does waits for those who give. */
static weft_status move_shown(weft_i_coll *coll)
{
    moving m = moving_of(coll);
    bool alone = m.from_root ? m.gives : !m.takes;
    int whom = alone ? WEFT_I_FOR_NOBODY : m.from_root ? m.first_giver : WEFT_I_FOR_ALL;
    WEFT_TRY(weft_i_enter_eager(coll, m.gives, whom));
    return m.takes ? take_shown(coll) : WEFT_OK;
}

/* ---- where they lie ---- */

/*
 * The byte at which this rank begins to copy a part.  All takers of a broadcast copy the same one,
 * and the kernel counts whoever uses a page: if all went from the first page to the last, all cores
 * would write the same counter all the time.
 */
static size_t start_of(const weft_i_coll *coll, const moving *m)
{
    enum { PAGE = 4096 };
    int place = coll->lane->me - coll->ask.root, takers = coll->lane->size - 1;
    if (!m->from_root || m->in_stride || !place)
        return 0;
    place += place < 0 ? takers : -1; /* counted from the root on: 0 ... takers - 1 */
    return m->part / PAGE * (size_t)place / (size_t)takers * PAGE;
}

/* Every taker copies its part from where the givers have it. */
static weft_status pull(weft_i_coll *coll, const moving *m, const weft_i_locations *locations)
{
    size_t at = (size_t)coll->lane->me * m->in_stride, start = start_of(coll, m);
    for (int i = 0; m->takes && i < m->givers; i++) {
        int rank = rank_at(coll, m->first_giver, i);
        char *to = coll->ask.out + (size_t)rank * m->out_stride;
        WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, at + start, to + start, m->part - start));
        if (start)
            WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, at, to, start));
    }
    return weft_i_coll_sync(coll);
}

/* Every giver copies its parts to where the takers want them. */
static weft_status push(weft_i_coll *coll, const moving *m, const weft_i_locations *locations)
{
    WEFT_ASSERT(!m->from_root);
    size_t at = (size_t)coll->lane->me * m->out_stride;
    for (int i = 0; i < m->takers; i++) {
        int rank = rank_at(coll, m->first_taker, i);
        weft_i_coll_deliver(coll, locations, rank, at, coll->ask.in + (size_t)rank * m->in_stride,
                            m->part);
    }
    return weft_i_coll_sync(coll);
}

/*
 * A broadcast that all can touch: others take all but the last slice from the root, who meanwhile
 * gives that one to each of them, so everybody copies the same number of bytes.
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

/* ---- pieces through the bounce buffer ---- */

/*
 * Bytes of a piece.  Where one rank copies in what others copy out at the same time, there are
 * several pieces even of a short part, so that they do work at the same time.
 */
static size_t piece_for(const weft_i_lane *lane, const moving *m)
{
    size_t most = m->in_stride ? WEFT_I_CHUNK / (size_t)lane->size : WEFT_I_CHUNK;
    if (!m->from_root || lane->mode != WEFT_I_WAIT_SPIN)
        return most; /* there are too few cores, and a sync costs more than a copy */
    size_t quarter = (m->part / 4 + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
    size_t least = weft_i_coll_min(PIECE_LEAST, most);
    return weft_i_coll_min(quarter > least ? quarter : least, most);
}

/* Copies a piece of every part of the input, but for my own, into my chunk. */
static void put_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const moving *m = arg;
    char *chunk = weft_i_lane_chunk(coll->lane, coll->lane->me, turn);
    const char *in = coll->ask.in + piece.first;
    if (m->in_stride)
        weft_i_coll_put_parts(coll, chunk, in, piece.count, m->in_stride);
    else
        memcpy(chunk, in, piece.count);
}

static void take_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const moving *m = arg;
    size_t mine = m->in_stride ? (size_t)coll->lane->me * piece.count : 0;
    for (int i = 0; i < m->givers; i++) {
        int rank = rank_at(coll, m->first_giver, i);
        if (rank == coll->lane->me)
            put_own(coll, m, piece.first, piece.count);
        else
            memcpy(coll->ask.out + (size_t)rank * m->out_stride + piece.first,
                   weft_i_lane_chunk(coll->lane, rank, turn) + mine, piece.count);
    }
}

static weft_status pipeline(weft_i_coll *coll, const moving *m)
{
    weft_i_pipeline line = {.total = m->part,
                            .piece = piece_for(coll->lane, m),
                            .put = m->gives ? put_piece : NULL,
                            .take = m->takes ? take_piece : NULL,
                            .arg = m};
    return weft_i_pipeline_run(coll, &line);
}

/* ---- fifos ---- */

/*
 * No core's own cache holds so large an output of a gather.  It is written past the caches: otherwise
 * each line is read before it is written.
 */
static bool goes_far(const weft_i_coll *coll, const moving *m)
{
    return m->to_root && coll->ask.out_bytes >= WEFT_I_FAR_LEAST;
}

/* Takes chunks `first` to `end` of the fifo of `rank`, or copies that much of this rank's own part. */
static weft_status take_run(weft_i_coll *coll, const moving *m, const weft_i_fifo *fifo, int rank,
                            size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) {
        size_t at = k * fifo->chunk, bytes = weft_i_fifo_bytes(fifo, k);
        if (rank == coll->lane->me) {
            put_own(coll, m, at, bytes);
            continue;
        }
        WEFT_TRY(weft_i_fifo_await(coll, fifo, rank, k));
        char *to = coll->ask.out + (size_t)rank * m->out_stride + at;
        const char *chunk = weft_i_fifo_chunk(fifo, coll->lane, rank, k);
        if (goes_far(coll, m))
            weft_i_far_copy(to, chunk, bytes);
        else
            memcpy(to, chunk, bytes);
    }
    return WEFT_OK;
}

/*
 * A whole input to all, or the inputs of all to the root at the same time.  The root takes half a
 * room of one rank, then of the next, while the others fill their second halves.  If it took single
 * chunks in turn, it would write to as many distant places at once as there are ranks, and the
 * processor could not fetch their lines and pages ahead.
 */
static weft_status flow(weft_i_coll *coll, const moving *m)
{
    weft_i_fifo fifo = weft_i_fifo_long(coll->lane, m->part);
    WEFT_ASSERT(m->from_root != m->to_root && !m->in_stride);
    if (m->gives)
        WEFT_TRY(weft_i_fifo_write(coll, &fifo, coll->ask.in, m->to_root ? coll->ask.root : -1));
    size_t chunks = m->gives ? 0 : weft_i_fifo_chunks(&fifo);
    size_t run = m->to_root ? fifo.room / fifo.chunk / 2 : 1;
    for (size_t k = 0; k < chunks; k += run) {
        size_t end = weft_i_coll_min(k + run, chunks);
        for (int i = 0; i < m->givers; i++)
            WEFT_TRY(take_run(coll, m, &fifo, rank_at(coll, m->first_giver, i), k, end));
        weft_i_fifo_drain(coll, &fifo, end - 1);
    }
    if (goes_far(coll, m))
        weft_i_far_end();
    return weft_i_coll_sync(coll);
}

/*
 * All inputs to all.  A rank writes its own fifo one chunk ahead of what it takes from the others.
 * There is room for four chunks, so it waits only for a rank that is more than two behind, instead of
 * for all at every piece.  Ranks cannot all wait for each other: the one that is farthest behind
 * finds what it takes filled, and its room free.
 */
static weft_status flow_to_all(weft_i_coll *coll, const moving *m)
{
    weft_i_fifo fifo = weft_i_fifo_wide(coll->lane, m->part);
    size_t chunks = weft_i_fifo_chunks(&fifo);
    WEFT_TRY(weft_i_fifo_write_chunk(coll, &fifo, 0, coll->ask.in, -1));
    for (size_t k = 0; k < chunks; k++) {
        if (k + 1 < chunks)
            WEFT_TRY(weft_i_fifo_write_chunk(coll, &fifo, k + 1, coll->ask.in, -1));
        for (int i = 0; i < m->givers; i++)
            WEFT_TRY(take_run(coll, m, &fifo, rank_at(coll, m->first_giver, i), k, k + 1));
        weft_i_fifo_drain(coll, &fifo, k);
    }
    return weft_i_coll_sync(coll);
}

/* One chunk would be a pipeline of one piece. */
static bool flows_to_all(const weft_i_coll *coll, const moving *m)
{
    return !m->from_root && !m->to_root && !m->in_stride && m->part > WEFT_I_EAGER &&
           weft_i_fifo_pays(coll->lane, m->part);
}

/*
 * Some parts of a scatter flow through the root's bounce buffer, the others are copied by the
 * kernel meanwhile, by those whom they are for: the root alone would be too slow, and so would
 * copies of one rank's memory by all at once.
 */
typedef struct sharing {
    int served;       /* ranks behind the root to whom parts flow */
    size_t pieces;    /* chunks of a part */
    weft_i_fifo fifo; /* a chunk for each of them in turn */
} sharing;

static sharing share(const weft_i_coll *coll, const moving *m)
{
    sharing s = {.served = coll->lane->size / 2, .fifo = weft_i_fifo_long(coll->lane, m->part)};
    s.pieces = weft_i_fifo_chunks(&s.fifo);
    s.fifo.total = s.pieces * (size_t)s.served * s.fifo.chunk;
    return s;
}

static size_t shared_bytes(const sharing *s, const moving *m, size_t piece)
{
    return weft_i_coll_min(s->fifo.chunk, m->part - piece * s->fifo.chunk);
}

static weft_status serve(weft_i_coll *coll, const moving *m, const sharing *s)
{
    size_t around = s->fifo.room / s->fifo.chunk, served = (size_t)s->served;
    for (size_t k = 0; k < s->pieces * served; k++) {
        size_t piece = k / served;
        int rank = rank_at(coll, coll->lane->me, 1 + (int)(k % served));
        if (k >= around) {
            int last = rank_at(coll, coll->lane->me, 1 + (int)((k - around) % served));
            WEFT_TRY(weft_i_fifo_await_drained(coll, &s->fifo, k - around, last));
        }
        weft_i_fifo_put(coll, &s->fifo, k,
                        coll->ask.in + (size_t)rank * m->part + piece * s->fifo.chunk,
                        shared_bytes(s, m, piece));
    }
    put_own(coll, m, 0, m->part);
    return WEFT_OK;
}

static weft_status be_served(weft_i_coll *coll, const moving *m, const sharing *s, int place)
{
    for (size_t piece = 0; piece < s->pieces; piece++) {
        size_t k = piece * (size_t)s->served + (size_t)place;
        WEFT_TRY(weft_i_fifo_await(coll, &s->fifo, coll->ask.root, k));
        memcpy(coll->ask.out + piece * s->fifo.chunk,
               weft_i_fifo_chunk(&s->fifo, coll->lane, coll->ask.root, k),
               shared_bytes(s, m, piece));
        weft_i_fifo_drain(coll, &s->fifo, k);
    }
    return WEFT_OK;
}

static weft_status scatter_shared(weft_i_coll *coll, const moving *m,
                                  const weft_i_locations *locations)
{
    int size = coll->lane->size, root = coll->ask.root;
    int place = (coll->lane->me - root + size - 1) % size; /* the root is the last */
    sharing s = share(coll, m);
    if (m->gives)
        WEFT_TRY(serve(coll, m, &s));
    else if (place < s.served)
        WEFT_TRY(be_served(coll, m, &s, place));
    else
        return pull(coll, m, locations);
    return weft_i_coll_sync(coll);
}

/* ---- the collectives ---- */

/* Of a gather or scatter all touch the root's operand alone: it lies where theirs do, or in the
 * memory of all their other operands. */
static void look_at_root(const weft_i_coll *coll, const moving *m, weft_i_locations *locations)
{
    weft_i_registration *in = locations->all_in ? locations->in : NULL;
    weft_i_registration *out = locations->all_out ? locations->out : NULL;
    if (m->to_root) {
        locations->out = out ? out : in;
        locations->all_out = weft_i_touch_out(coll, locations->out, coll->ask.root) != NULL;
    } else if (m->from_root && m->in_stride) {
        locations->in = in ? in : out;
        locations->all_in = weft_i_touch_in(coll, locations->in, coll->ask.root) != NULL;
    }
}

weft_status weft_i_coll_move(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return move_shown(coll);
    weft_i_locations locations;
    moving m = moving_of(coll);
    WEFT_TRY(weft_i_enter_located(coll, &locations, m.part,
                                  m.gives ? WEFT_I_GIVES : WEFT_I_GIVES_NOTHING));
    if (locations.all_shown)
        return m.takes ? take_shown(coll) : WEFT_OK;
    look_at_root(coll, &m, &locations);
    if (m.to_root ? locations.all_out
                  : !m.from_root && weft_i_locations_push(coll, &locations, m.part))
        return push(coll, &m, &locations);
    if (m.from_root && !m.in_stride && locations.all_in)
        return broadcast_copies(coll, &locations);
    if (locations.all_in || locations.cma)
        return pull(coll, &m, &locations);
    if ((m.from_root || m.to_root) && weft_i_fifo_pays(coll->lane, m.part)) {
        if (!m.in_stride)
            return flow(coll, &m);
        if (coll->lane->cma == WEFT_I_CMA_KERNEL)
            return scatter_shared(coll, &m, &locations);
    }
    return flows_to_all(coll, &m) ? flow_to_all(coll, &m) : pipeline(coll, &m);
}

weft_status weft_i_coll_all_to_all(weft_i_coll *coll)
{
    bool splits = coll->ask.in_splits || coll->list;
    return splits ? weft_i_coll_all_to_all_splits(coll) : weft_i_coll_move(coll);
}
