/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions: all_reduce, reduce, reduce_scatter.
 *
 * Inline and eager: every rank shows its whole input and folds all of them for itself.  Large and
 * symmetric: each rank folds its slice straight from all inputs and stores it where it is wanted,
 * one pass and no copy.  Large and ordinary: pieces go through the bounce buffer, folded by slices,
 * with one sync per piece (see `pipeline`).
 */
#include "base/os/assert.h"
#include "coll/host/algorithms.h"
#include "coll/lane/enter.h"
#include "coll/lane/pipeline.h"

enum { CHUNK = 64 << 10 }; /* bytes of a copy by CMA that is folded at once: fits a core's cache */

/* ---- everybody shows its whole input ---- */

/* Folds chunk by chunk, as they come. */
static weft_status fold_flowing(weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    weft_i_fifo fifo = weft_i_fifo_eager(lane->epoch, coll->ask.in_bytes);
    for (size_t k = 0; k < weft_i_fifo_chunks(&fifo); k++) {
        for (int rank = 0; rank < lane->size; rank++) {
            if (rank != lane->me)
                WEFT_TRY(weft_i_fifo_await(coll, &fifo, rank, k));
            lane->sources[rank] = rank == lane->me ? coll->ask.in + k * fifo.chunk
                                                   : weft_i_fifo_chunk(&fifo, lane, rank, k);
        }
        weft_i_coll_fold_to(coll, coll->ask.out + k * fifo.chunk,
                            weft_i_fifo_bytes(&fifo, k) / coll->ask.item);
    }
    return WEFT_OK;
}

/* One-shot: folds what all have shown, from element `first` on. */
static weft_status fold_shown(weft_i_coll *coll, size_t first)
{
    weft_i_lane *lane = coll->lane;
    WEFT_ASSERT(coll->ask.in_bytes <= WEFT_I_EAGER);
    weft_i_coll_read_factors(coll);
    if (weft_i_eager_is_chunked(coll))
        return fold_flowing(coll);
    for (int rank = 0; rank < lane->size; rank++)
        lane->sources[rank] = weft_i_eager_of(coll, rank) + first * coll->ask.item;
    weft_i_coll_fold_to(coll, coll->ask.out, coll->ask.count);
    return WEFT_OK;
}

/* ---- large operands ---- */

/* Points lane->sources at element `first` of everybody's symmetric input. */
static void aim_at_inputs(weft_i_coll *coll, const weft_i_locations *locations, size_t first)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] =
            weft_i_touch_in(coll, locations->in, rank) + first * coll->ask.item;
}

/* Points lane->sources at element `first` of everybody's chunk, and at `own` for us. */
static void aim_at_chunks(weft_i_coll *coll, uint64_t turn, size_t first, const char *own)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] =
            weft_i_lane_chunk(coll->lane, rank, turn) + first * coll->ask.item;
    coll->lane->sources[coll->lane->me] = own;
}

/* Two-shot, direct: my slice of all inputs goes into everybody's output (or the root's). */
static weft_status two_shot(weft_i_coll *coll, const weft_i_locations *locations, bool to_root)
{
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(coll->ask.count, lane->size, lane->me, coll->ask.item);
    WEFT_ASSERT(mine.first + mine.count <= coll->ask.count);
    aim_at_inputs(coll, locations, mine.first);
    int outputs = 0;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size; /* our own first; not all at the same peer */
        if (!to_root || rank == coll->ask.root)
            lane->targets[outputs++] =
                weft_i_touch_out(coll, locations->out, rank) + mine.first * coll->ask.item;
    }
    weft_i_coll_fold(coll, outputs, mine.count);
    return weft_i_coll_sync(coll);
}

/* Does a rank's output lie in its symmetric input?  Nobody may write its output then before all
 * have read it. */
static bool any_in_place(const weft_i_coll *coll)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        if (weft_i_coll_location(coll, rank)->in_address ==
            weft_i_coll_location(coll, rank)->out_address)
            return true;
    return false;
}

/* Is the vector so short that folding all of it on every rank is faster than folding slices and
 * exchanging them? */
static bool is_one_shot(const weft_i_coll *coll)
{
    size_t size = (size_t)coll->lane->size;
    return coll->ask.in_bytes * size * size <= coll->lane->fold_whole_up_to;
}

/* One-shot, direct: all inputs, from element `first` on, into my own output, which nobody else can
 * reach. */
static weft_status pull(weft_i_coll *coll, const weft_i_locations *locations, size_t first)
{
    WEFT_ASSERT(locations->all_in);
    aim_at_inputs(coll, locations, first);
    weft_i_coll_fold_to(coll, coll->ask.out, coll->ask.count);
    return weft_i_coll_sync(coll);
}

/* ---- copies by CMA ---- */

/* Elements that are fetched from each other rank at a time: they fit my bounce buffer. */
static size_t chunk_of(const weft_i_coll *coll)
{
    size_t bytes = 4 * WEFT_I_CHUNK / (size_t)coll->lane->size / WEFT_I_LINE * WEFT_I_LINE;
    return weft_i_coll_min(bytes, CHUNK) / coll->ask.item;
}

/* Folds elements of all inputs into `out`.  Those of others are fetched into my bounce buffer,
 * where nobody looks meanwhile. */
static weft_status fold_fetched(weft_i_coll *coll, const weft_i_locations *locations,
                                weft_i_span span, char *out)
{
    weft_i_lane *lane = coll->lane;
    char *room = weft_i_lane_chunk(lane, lane->me, 0);
    size_t bytes = span.count * coll->ask.item, apart = chunk_of(coll) * coll->ask.item;
    for (int i = 1; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        lane->sources[rank] = room + (size_t)(i - 1) * apart;
        if (locations->all_in)
            lane->sources[rank] =
                weft_i_touch_in(coll, locations->in, rank) + span.first * coll->ask.item;
        else
            WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, span.first * coll->ask.item,
                                       room + (size_t)(i - 1) * apart, bytes));
    }
    WEFT_ASSERT((size_t)(lane->size - 1) * apart <= 4 * WEFT_I_CHUNK);
    lane->sources[lane->me] = coll->ask.in + span.first * coll->ask.item;
    weft_i_coll_fold_to(coll, out, span.count);
    return WEFT_OK;
}

/* Two-shot: my slice of all inputs into my output, then everybody's slice out of theirs.  Of an
 * output that lies in its input only the slice is written that nobody else reads. */
static weft_status two_shot_copies(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(coll->ask.count, lane->size, lane->me, coll->ask.item);
    size_t end = mine.first + mine.count;
    for (weft_i_span span = mine; span.first < end; span.first += span.count) {
        span.count = weft_i_coll_min(chunk_of(coll), end - span.first);
        WEFT_TRY(fold_fetched(coll, locations, span, coll->ask.out + span.first * coll->ask.item));
    }
    WEFT_TRY(weft_i_coll_sync(coll));
    for (int i = 1; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_span theirs = weft_i_coll_slice(coll->ask.count, lane->size, rank, coll->ask.item);
        size_t at = theirs.first * coll->ask.item;
        if (theirs.count)
            WEFT_TRY(weft_i_coll_fetch_result(coll, rank, at, coll->ask.out + at,
                                              theirs.count * coll->ask.item));
    }
    return weft_i_coll_sync(coll);
}

/* My part of all inputs into my own output. */
static weft_status scatter_copies(weft_i_coll *coll, const weft_i_locations *locations)
{
    size_t first = (size_t)coll->lane->me * coll->ask.count;
    for (size_t done = 0, count; done < coll->ask.count; done += count) {
        count = weft_i_coll_min(chunk_of(coll), coll->ask.count - done);
        WEFT_TRY(fold_fetched(coll, locations, (weft_i_span){first + done, count},
                              coll->ask.out + done * coll->ask.item));
    }
    return weft_i_coll_sync(coll);
}

/* ---- pieces through the bounce buffer ---- */

typedef struct folding {
    const weft_i_locations *locations;
    bool wanted;    /* by this rank */
    bool goes_back; /* in the very lines that the input came in */
} folding;

/* Copies what others fold of my input into my chunk. */
static void put_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    (void)arg;
    const weft_i_lane *lane = coll->lane;
    size_t item = coll->ask.item;
    weft_i_span mine = weft_i_coll_slice(piece.count, lane->size, lane->me, item);
    char *chunk = weft_i_lane_chunk(lane, lane->me, turn);
    const char *in = coll->ask.in + piece.first * item;
    size_t before = mine.first * item, end = before + mine.count * item;
    weft_i_coll_put(chunk, in, before);
    weft_i_coll_put(chunk + end, in + end, piece.count * item - end);
}

/* Where the slice of a result lies that `rank` folds, for others to see. */
static char *result_of(const weft_i_coll *coll, bool goes_back, int rank, uint64_t turn,
                       weft_i_span slice)
{
    const weft_i_lane *lane = coll->lane;
    return goes_back ? weft_i_lane_chunk(lane, 1 - rank, turn) + slice.first * coll->ask.item
                     : weft_i_lane_result(lane, rank, turn);
}

/* A fold into lines that are read first: fetched to be written, a step ahead, so that they cross
 * once. */
static void fold_owning(weft_i_coll *coll, int outputs, size_t count)
{
    enum { STEP = 2048, LINE = 64 };
    weft_i_lane *lane = coll->lane;
    const char *other = lane->sources[1 - lane->me];
    size_t bytes = count * coll->ask.item, fetched = 0;
    for (size_t done = 0; done < bytes; done += STEP) {
        size_t ahead = weft_i_coll_min(done + 2 * STEP, bytes);
        for (; fetched < ahead; fetched += LINE)
            __builtin_prefetch(other + fetched, 1);
        coll->fold(lane->targets, outputs, lane->sources, 2,
                   weft_i_coll_min(STEP, bytes - done) / coll->ask.item, lane->factors);
        for (int i = 0; i < 2; i++)
            lane->sources[i] = (const char *)lane->sources[i] + STEP;
        for (int i = 0; i < outputs; i++)
            lane->targets[i] = (char *)lane->targets[i] + STEP;
    }
}

/* Folds my slice: into my output if I want it, and into my result chunk if others do. */
static void take_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const folding *f = arg;
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(piece.count, lane->size, lane->me, coll->ask.item);
    size_t first = piece.first + mine.first, at = first * coll->ask.item;
    if (f->locations->all_in)
        aim_at_inputs(coll, f->locations, first);
    else
        aim_at_chunks(coll, turn, mine.first, coll->ask.in + at);
    int outputs = 0;
    if (f->wanted)
        lane->targets[outputs++] = coll->ask.out + at;
    if (!f->wanted || coll->ask.kind != WEFT_I_REDUCE)
        lane->targets[outputs++] = result_of(coll, f->goes_back, lane->me, turn, mine);
    if (f->goes_back)
        fold_owning(coll, outputs, mine.count);
    else
        weft_i_coll_fold(coll, outputs, mine.count);
}

/* Copies the others' slices of a result from their result chunks to my output. */
static void collect_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const folding *f = arg;
    const weft_i_lane *lane = coll->lane;
    for (int i = 1; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_span slice = weft_i_coll_slice(piece.count, lane->size, rank, coll->ask.item);
        weft_i_coll_put(coll->ask.out + (piece.first + slice.first) * coll->ask.item,
                        result_of(coll, f->goes_back, rank, turn, slice),
                        slice.count * coll->ask.item);
    }
}

/*
 * Per piece: copy in what others fold, fold my slice of all inputs, copy their slices out.  Inputs
 * that all can touch need no copy in.  Their outputs may be written only when all have read that
 * piece of the input, because an output may lie in an input.
 *
 * Two ranks: the result goes back in the very lines that the input came in.  Without that 64 KiB
 * take half as long again on x86_64; with it, on a Neoverse N1.
 */
static weft_status pipeline(weft_i_coll *coll, const weft_i_locations *locations, bool wanted)
{
#if defined(__aarch64__)
    enum { GOING_BACK_PAYS = 0 };
#else
    enum { GOING_BACK_PAYS = 1 };
#endif
    bool direct = locations->all_in;
    folding f = {locations, wanted, GOING_BACK_PAYS && coll->lane->size == 2 && !direct};
    weft_i_pipeline line = {.total = coll->ask.count,
                            .piece = WEFT_I_CHUNK / coll->ask.item,
                            .put = direct ? NULL : put_piece,
                            .take = take_piece,
                            .collect = wanted ? collect_piece : NULL,
                            .direct = direct,
                            .arg = &f};
    return weft_i_pipeline_run(coll, &line);
}

/* If only the output is symmetric, the input may as well be there: then it is in place. */
static void move_in(weft_i_coll *coll)
{
    if (coll->lane->cma != WEFT_I_CMA_THREADS && coll->ask.in != coll->ask.out &&
        weft_i_block_lease_of(coll->out_tensor) && !weft_i_block_lease_of(coll->in_tensor)) {
        memcpy(coll->ask.out, coll->ask.in, coll->ask.in_bytes);
        coll->ask.in = coll->ask.out;
        coll->in_tensor = coll->out_tensor;
    }
}

weft_status weft_i_coll_all_reduce(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(weft_i_enter_eager(coll, true, WEFT_I_FOR_ALL));
        return fold_shown(coll, 0);
    }
    weft_i_locations locations;
    if (coll->ask.in_bytes > coll->shown_up_to)
        move_in(coll);
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->ask.in_bytes / (size_t)coll->lane->size,
                                  WEFT_I_GIVES));
    weft_i_coll_read_factors(coll);
    if (locations.all_shown)
        return fold_shown(coll, 0);
    if (locations.all_in && is_one_shot(coll) && !any_in_place(coll))
        return pull(coll, &locations, 0);
    if (locations.all_in && locations.all_out)
        return two_shot(coll, &locations, false);
    if (locations.cma)
        return two_shot_copies(coll, &locations);
    if (locations.all_in && coll->lane->size == 2 && !any_in_place(coll))
        return pull(coll, &locations, 0);
    return pipeline(coll, &locations, true);
}

/*
 * Of two ranks the other one's input flows to the root, which folds each chunk as it comes.  That moves
 * fewer bytes than halves that both fold, of which the root has to fetch one.
 */
static weft_status flow_to_root(weft_i_coll *coll, bool wanted)
{
    weft_i_lane *lane = coll->lane;
    weft_i_fifo fifo = weft_i_fifo_long(lane, coll->ask.in_bytes);
    WEFT_ASSERT(lane->size == 2 && fifo.chunk % coll->ask.item == 0);
    if (!wanted)
        WEFT_TRY(weft_i_fifo_write(coll, &fifo, coll->ask.in, coll->ask.root));
    for (size_t k = 0; wanted && k < weft_i_fifo_chunks(&fifo); k++) {
        WEFT_TRY(weft_i_fifo_await(coll, &fifo, 1 - lane->me, k));
        lane->sources[lane->me] = coll->ask.in + k * fifo.chunk;
        lane->sources[1 - lane->me] = weft_i_fifo_chunk(&fifo, lane, 1 - lane->me, k);
        weft_i_coll_fold_to(coll, coll->ask.out + k * fifo.chunk,
                            weft_i_fifo_bytes(&fifo, k) / coll->ask.item);
        weft_i_fifo_drain(coll, &fifo, k);
    }
    return weft_i_coll_sync(coll);
}

weft_status weft_i_coll_reduce(weft_i_coll *coll)
{
    bool wanted = coll->lane->me == coll->ask.root;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(weft_i_enter_eager(coll, !wanted, wanted ? WEFT_I_FOR_ALL : WEFT_I_FOR_NOBODY));
        return wanted ? fold_shown(coll, 0) : WEFT_OK;
    }
    weft_i_locations locations;
    WEFT_TRY(
        weft_i_enter_located(coll, &locations, 0, wanted ? WEFT_I_GIVES_NOTHING : WEFT_I_GIVES));
    weft_i_coll_read_factors(coll);
    /* Others touch the root's output if theirs lie there too, or in the memory of all inputs. */
    weft_i_registration *common = locations.all_out ? locations.out : locations.in;
    weft_i_locations root = {.in = locations.in, .out = common};
    if (locations.all_shown)
        return wanted ? fold_shown(coll, 0) : WEFT_OK;
    if (locations.all_in && weft_i_touch_out(coll, common, coll->ask.root))
        return two_shot(coll, &root, true);
    if (!locations.all_in && coll->lane->size == 2 &&
        weft_i_fifo_pays(coll->lane, coll->ask.in_bytes))
        return flow_to_root(coll, wanted);
    return pipeline(coll, &locations, wanted);
}

/* ---- reduce_scatter ---- */

/* Copies a piece of every part of the input, but for my own, into my chunk. */
static void put_parts(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    (void)arg;
    weft_i_coll_put_parts(coll, weft_i_lane_chunk(coll->lane, coll->lane->me, turn),
                          coll->ask.in + piece.first * coll->ask.item, piece.count * coll->ask.item,
                          coll->ask.count * coll->ask.item);
}

static void fold_part(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    (void)arg;
    size_t me = (size_t)coll->lane->me;
    aim_at_chunks(coll, turn, me * piece.count,
                  coll->ask.in + (me * coll->ask.count + piece.first) * coll->ask.item);
    weft_i_coll_fold_to(coll, coll->ask.out + piece.first * coll->ask.item, piece.count);
}

/* A chunk has a piece of every part. */
static weft_status scatter_pipeline(weft_i_coll *coll)
{
    weft_i_pipeline line = {.total = coll->ask.count,
                            .piece = WEFT_I_CHUNK / coll->ask.item / (size_t)coll->lane->size,
                            .put = put_parts,
                            .take = fold_part};
    return weft_i_pipeline_run(coll, &line);
}

weft_status weft_i_coll_reduce_scatter(weft_i_coll *coll)
{
    size_t mine = (size_t)coll->lane->me * coll->ask.count;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        WEFT_TRY(weft_i_enter_eager(coll, true, WEFT_I_FOR_ALL));
        return fold_shown(coll, mine);
    }
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->ask.out_bytes, WEFT_I_GIVES));
    weft_i_coll_read_factors(coll);
    if (locations.all_shown)
        return fold_shown(coll, mine);
    if (locations.all_in)
        return pull(coll, &locations, mine);
    return locations.cma ? scatter_copies(coll, &locations) : scatter_pipeline(coll);
}
