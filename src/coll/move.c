/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving: broadcast, scatter and all_to_all.  As in gather.c: shown at the entry when small, pulled
 * from symmetric memory when large, in pieces through the bounce buffer otherwise.
 */
#include "coll/enter.h"
#include "coll/list.h"
#include "coll/pipeline.h"

#include "base/os.h"
#include "base/status.h"

enum { PIECE_LEAST = 16 << 10 };

/* The root shows its input and goes on, the others wait for it alone. */
static weft_status show_from_root(weft_i_coll *coll)
{
    bool root = coll->lane->me == coll->ask.root;
    return weft_i_enter_eager(coll, root, root ? WEFT_I_FOR_NOBODY : coll->ask.root);
}

static weft_i_gift gift_of_root(const weft_i_coll *coll)
{
    return coll->lane->me == coll->ask.root ? WEFT_I_GIVES : WEFT_I_GIVES_NOTHING;
}

/* ---- broadcast ---- */

/* Bytes of a piece where one rank copies in what others copy out at the same time: several pieces
 * even of a short operand, so that they do work at the same time. */
static size_t piece_for(const weft_i_lane *lane, size_t total, size_t most)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        return most; /* there are too few cores, and a sync costs more than a copy */
    size_t quarter = (total / 4 + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
    size_t least = weft_i_coll_min(PIECE_LEAST, most);
    return weft_i_coll_min(quarter > least ? quarter : least, most);
}

static weft_status broadcast_flow(weft_i_coll *coll)
{
    weft_i_fifo fifo = weft_i_fifo_long(coll->lane, coll->ask.in_bytes);
    if (coll->lane->me == coll->ask.root)
        WEFT_TRY(weft_i_fifo_write(coll, &fifo, coll->ask.in, -1));
    else
        WEFT_TRY(weft_i_fifo_read(coll, &fifo, coll->ask.root, coll->ask.out));
    return weft_i_coll_sync(coll);
}

static size_t piece_bytes_of(const weft_i_coll *coll, size_t piece, size_t k)
{
    return weft_i_coll_min(coll->ask.in_bytes - k * piece, piece);
}

static void put_piece(weft_i_coll *coll, const void *arg, size_t k)
{
    size_t piece = *(const size_t *)arg;
    memcpy(weft_i_lane_chunk(coll->lane, coll->lane->me, k), coll->ask.in + k * piece,
           piece_bytes_of(coll, piece, k));
}

static void take_piece(weft_i_coll *coll, const void *arg, size_t k)
{
    size_t piece = *(const size_t *)arg;
    memcpy(coll->ask.out + k * piece, weft_i_lane_chunk(coll->lane, coll->ask.root, k),
           piece_bytes_of(coll, piece, k));
}

static weft_status broadcast_pipeline(weft_i_coll *coll)
{
    bool root = coll->lane->me == coll->ask.root;
    size_t piece = piece_for(coll->lane, coll->ask.in_bytes, WEFT_I_CHUNK);
    weft_i_pipeline line = {.pieces = weft_i_pipeline_pieces(coll->ask.in_bytes, piece),
                            .put = root ? put_piece : NULL,
                            .take = root ? NULL : take_piece,
                            .arg = &piece};
    return weft_i_pipeline_run(coll, &line);
}

/* My output is what lies at byte `at` of the root's input. */
static weft_status pull_from_root(weft_i_coll *coll, const weft_i_locations *locations, size_t at)
{
    WEFT_TRY(
        weft_i_coll_fetch(coll, locations, coll->ask.root, at, coll->ask.out, coll->ask.out_bytes));
    return weft_i_coll_sync(coll);
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
        weft_i_coll_deliver(coll, locations, (lane->me + i) % lane->size, last.first,
                            coll->ask.in + last.first, last.count);
    return weft_i_coll_sync(coll);
}

weft_status weft_i_coll_broadcast(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(show_from_root(coll));
        return weft_i_eager_take(coll, coll->ask.root, coll->ask.out);
    }
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->ask.in_bytes, gift_of_root(coll)));
    if (locations.all_shown)
        return weft_i_eager_take(coll, coll->ask.root, coll->ask.out);
    if (locations.all_in)
        return broadcast_copies(coll, &locations);
    if (locations.cma)
        return pull_from_root(coll, &locations, 0);
    if (weft_i_fifo_pays(coll->lane, coll->ask.in_bytes))
        return broadcast_flow(coll);
    return broadcast_pipeline(coll);
}

/* ---- parts: what scatter and all_to_all send, piece by piece ---- */

typedef struct dealing {
    bool from_root; /* one rank gives (scatter), or everybody (all_to_all) */
    bool gives;     /* this rank */
    size_t part, piece;
} dealing;

static size_t dealt_bytes(const dealing *d, size_t k)
{
    return weft_i_coll_min(d->part - k * d->piece, d->piece);
}

/* Copies piece k of every part of the input, but for my own, into my chunk. */
static void put_parts(weft_i_coll *coll, const void *arg, size_t k)
{
    const dealing *d = arg;
    size_t bytes = dealt_bytes(d, k);
    char *chunk = weft_i_lane_chunk(coll->lane, coll->lane->me, k);
    for (int part = 0; part < coll->lane->size; part++)
        if (part != coll->lane->me)
            memcpy(chunk + (size_t)part * bytes,
                   coll->ask.in + (size_t)part * d->part + k * d->piece, bytes);
}

static void take_parts(weft_i_coll *coll, const void *arg, size_t k)
{
    const dealing *d = arg;
    const weft_i_lane *lane = coll->lane;
    size_t first = k * d->piece, bytes = dealt_bytes(d, k);
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        char *to = coll->ask.out + (d->from_root ? 0 : (size_t)rank * d->part) + first;
        if (rank == lane->me && d->gives)
            weft_i_coll_put_own(coll, to, coll->ask.in + (size_t)rank * d->part + first, bytes);
        else if (!d->from_root || rank == coll->ask.root)
            memcpy(to, weft_i_lane_chunk(lane, rank, k) + (size_t)lane->me * bytes, bytes);
    }
}

/* Equal parts: from the root alone (scatter), or from everybody (all_to_all). */
static weft_status parts_pipeline(weft_i_coll *coll, bool from_root)
{
    weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item, most = WEFT_I_CHUNK / (size_t)lane->size;
    dealing d = {from_root, !from_root || lane->me == coll->ask.root, part,
                 from_root ? piece_for(lane, part, most) : most};
    weft_i_pipeline line = {.pieces = weft_i_pipeline_pieces(part, d.piece),
                            .put = d.gives ? put_parts : NULL,
                            .take = take_parts,
                            .arg = &d};
    return weft_i_pipeline_run(coll, &line);
}

/*
 * Some parts flow through the root's bounce buffer, the others are copied by the kernel meanwhile,
 * by those whom they are for: the root alone would be too slow, and so would copies of one rank's
 * memory by all at once.
 */
typedef struct sharing {
    int served;          /* ranks behind the root to whom parts flow */
    size_t part, pieces; /* bytes of a part, chunks of it */
    weft_i_fifo fifo;    /* a chunk for each of them in turn */
} sharing;

static sharing share(const weft_i_coll *coll)
{
    sharing s = {.served = coll->lane->size / 2, .part = coll->ask.count * coll->ask.item};
    s.fifo = weft_i_fifo_long(coll->lane, s.part);
    s.pieces = weft_i_fifo_chunks(&s.fifo);
    s.fifo.total = s.pieces * (size_t)s.served * s.fifo.chunk;
    return s;
}

static size_t piece_bytes(const sharing *s, size_t piece)
{
    return weft_i_coll_min(s->fifo.chunk, s->part - piece * s->fifo.chunk);
}

static weft_status serve(weft_i_coll *coll, const sharing *s)
{
    const weft_i_lane *lane = coll->lane;
    size_t around = weft_i_fifo_around(&s->fifo);
    for (size_t k = 0; k < s->pieces * (size_t)s->served; k++) {
        size_t piece = k / (size_t)s->served;
        int rank = (lane->me + 1 + (int)(k % (size_t)s->served)) % lane->size;
        if (k >= around) {
            int last = (lane->me + 1 + (int)((k - around) % (size_t)s->served)) % lane->size;
            WEFT_TRY(weft_i_fifo_await_drained(coll, &s->fifo, k - around, last));
        }
        weft_i_fifo_put(coll, &s->fifo, k,
                        coll->ask.in + (size_t)rank * s->part + piece * s->fifo.chunk,
                        piece_bytes(s, piece));
    }
    weft_i_coll_put_own(coll, coll->ask.out, coll->ask.in + (size_t)lane->me * s->part, s->part);
    return WEFT_OK;
}

static weft_status be_served(weft_i_coll *coll, const sharing *s, int place)
{
    for (size_t piece = 0; piece < s->pieces; piece++) {
        size_t k = piece * (size_t)s->served + (size_t)place;
        WEFT_TRY(weft_i_fifo_await(coll, &s->fifo, coll->ask.root, k));
        memcpy(coll->ask.out + piece * s->fifo.chunk,
               weft_i_fifo_chunk(&s->fifo, coll->lane, coll->ask.root, k), piece_bytes(s, piece));
        weft_i_fifo_drain(coll, &s->fifo, k);
    }
    return WEFT_OK;
}

static weft_status scatter_shared(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    sharing s = share(coll);
    int place =
        (lane->me - coll->ask.root + lane->size - 1) % lane->size; /* the root is the last */
    if (lane->me == coll->ask.root)
        WEFT_TRY(serve(coll, &s));
    else if (place < s.served)
        WEFT_TRY(be_served(coll, &s, place));
    else
        WEFT_TRY(weft_i_coll_fetch(coll, locations, coll->ask.root, (size_t)lane->me * s.part,
                                   coll->ask.out, s.part));
    return weft_i_coll_sync(coll);
}

/* Of what the root has shown. */
static weft_status take_my_part(const weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    const char *from = weft_i_eager_of(coll, coll->ask.root) + (size_t)coll->lane->me * part;
    if (coll->lane->me == coll->ask.root)
        weft_i_coll_put_own(coll, coll->ask.out, from, part);
    else
        weft_i_coll_put(coll->ask.out, from, part);
    return WEFT_OK;
}

weft_status weft_i_coll_scatter(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item, mine = (size_t)lane->me * part;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(show_from_root(coll));
        return take_my_part(coll);
    }
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, part, gift_of_root(coll)));
    /* Others touch the root's input if theirs lie there too, or in the memory of all outputs. */
    const weft_i_registration *common = locations.all_in    ? locations.in
                                        : locations.all_out ? locations.out
                                                            : NULL;
    weft_i_locations root = {.in = (weft_i_registration *)common,
                             .all_in = weft_i_touch_in(coll, common, coll->ask.root) != NULL};
    if (locations.all_shown)
        return take_my_part(coll);
    if (root.all_in || locations.cma)
        return pull_from_root(coll, &root, mine);
    if (lane->cma == WEFT_I_CMA_KERNEL && weft_i_fifo_pays(lane, part))
        return scatter_shared(coll, &root);
    return parts_pipeline(coll, true);
}

/* ---- all_to_all ---- */

static weft_status pull_equal(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, (size_t)lane->me * part,
                                   coll->ask.out + (size_t)rank * part, part));
    }
    return weft_i_coll_sync(coll);
}

static weft_status push_equal(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_coll_deliver(coll, locations, rank, (size_t)lane->me * part,
                            coll->ask.in + (size_t)rank * part, part);
    }
    return weft_i_coll_sync(coll);
}

/* Takes this rank's part of what all have shown. */
static weft_status take_shown(const weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    size_t part = coll->ask.count * coll->ask.item, mine = (size_t)lane->me * part;
    weft_i_coll_put_own(coll, coll->ask.out + mine, coll->ask.in + mine, part);
    for (int i = 1; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_coll_put(coll->ask.out + (size_t)rank * part, weft_i_eager_of(coll, rank) + mine,
                        part);
    }
    return WEFT_OK;
}

static weft_status all_to_all_equal(weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(weft_i_enter_eager(coll, true, WEFT_I_FOR_ALL));
        return take_shown(coll);
    }
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, part, WEFT_I_GIVES));
    if (locations.all_shown)
        return take_shown(coll);
    if (weft_i_locations_push(&locations, part))
        return push_equal(coll, &locations);
    if (locations.all_in || locations.cma)
        return pull_equal(coll, &locations);
    return parts_pipeline(coll, false);
}

/* Table row of a rank: bytes it sends to each, then bytes it expects from each. */
static void write_splits(weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    uint64_t *row = weft_i_lane_splits(lane, lane->me, lane->epoch + 1);
    for (int rank = 0; rank < lane->size; rank++) {
        const weft_i_list_item *item = coll->list ? &coll->list->items[rank] : NULL;
        row[rank] = item ? item->bytes : (uint64_t)coll->ask.in_splits[rank] * coll->ask.row;
        row[lane->size + rank] =
            item ? item->out_bytes : (uint64_t)coll->ask.out_splits[rank] * coll->ask.row;
    }
}

static size_t sends(const weft_i_coll *coll, int from, int to)
{
    return weft_i_lane_splits(coll->lane, from, coll->lane->epoch)[to];
}

/* Everybody checks every pair, so that a difference is an error on all ranks. */
static weft_status check_splits(const weft_i_coll *coll, size_t *largest)
{
    const weft_i_lane *lane = coll->lane;
    *largest = 0;
    for (int from = 0; from < lane->size; from++)
        for (int to = 0; to < lane->size; to++) {
            size_t sent = sends(coll, from, to), expected = sends(coll, to, lane->size + from);
            if (sent != expected) {
                weft_i_group_spoil(coll->group, WEFT_ERR_MISMATCH);
                return weft_i_fail(
                    WEFT_ERR_MISMATCH,
                    "all_to_all in group \"%s\": rank %d sends rank %d %zu bytes, which "
                    "expects %zu",
                    coll->group->name, from, to, sent, expected);
            }
            if (sent > *largest)
                *largest = sent;
        }
    return WEFT_OK;
}

/* Where the part for `to` starts in the input of `from`. */
static size_t part_offset(const weft_i_coll *coll, int from, int to)
{
    size_t offset = 0;
    for (int rank = 0; rank < to; rank++)
        offset += sends(coll, from, rank);
    return offset;
}

static weft_status pull_uneven(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    char *out = coll->ask.out;
    for (int rank = 0; rank < lane->size; rank++) {
        size_t bytes = sends(coll, rank, lane->me);
        if (bytes)
            WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, part_offset(coll, rank, lane->me),
                                       out, bytes));
        out = bytes ? out + bytes : out;
    }
    return weft_i_coll_sync(coll);
}

/* Bytes of piece k of a part. */
static size_t piece_of(size_t part, size_t piece, size_t k)
{
    return part > k * piece ? weft_i_coll_min(part - k * piece, piece) : 0;
}

static void put_uneven(weft_i_coll *coll, const void *arg, size_t k)
{
    const weft_i_lane *lane = coll->lane;
    size_t piece = *(const size_t *)arg;
    const char *from = coll->ask.in;
    for (int to = 0; to < lane->size; to++) {
        if (coll->list)
            from = coll->list->items[to].in;
        size_t part = sends(coll, lane->me, to), bytes = piece_of(part, piece, k);
        if (bytes)
            memcpy(weft_i_lane_chunk(lane, lane->me, k) + (size_t)to * piece, from + k * piece,
                   bytes);
        from = part ? from + part : from;
    }
}

static void take_uneven(weft_i_coll *coll, const void *arg, size_t k)
{
    const weft_i_lane *lane = coll->lane;
    size_t piece = *(const size_t *)arg;
    char *out = coll->ask.out;
    for (int rank = 0; rank < lane->size; rank++) {
        if (coll->list)
            out = coll->list->items[rank].out;
        size_t part = sends(coll, rank, lane->me), bytes = piece_of(part, piece, k);
        if (bytes)
            memcpy(out + k * piece, weft_i_lane_chunk(lane, rank, k) + (size_t)lane->me * piece,
                   bytes);
        out = part ? out + part : out;
    }
}

static weft_status uneven_pipeline(weft_i_coll *coll, size_t largest)
{
    size_t piece = WEFT_I_CHUNK / (size_t)coll->lane->size;
    weft_i_pipeline line = {.pieces = weft_i_pipeline_pieces(largest, piece),
                            .put = put_uneven,
                            .take = take_uneven,
                            .arg = &piece};
    return weft_i_pipeline_run(coll, &line);
}

static weft_status all_to_all_uneven(weft_i_coll *coll)
{
    weft_i_locations locations;
    size_t largest = 0;
    write_splits(coll);
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->list ? 0 : SIZE_MAX, WEFT_I_NEVER_SHOWN));
    WEFT_TRY(check_splits(coll, &largest));
    bool cma = locations.cma && largest >= coll->cma_from;
    return !coll->list && (locations.all_in || cma) ? pull_uneven(coll, &locations)
                                                    : uneven_pipeline(coll, largest);
}

weft_status weft_i_coll_all_to_all(weft_i_coll *coll)
{
    return coll->ask.in_splits || coll->list ? all_to_all_uneven(coll) : all_to_all_equal(coll);
}
