/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions: all_reduce, reduce, reduce_scatter.
 *
 * Tiny and staged: everybody shows its whole input and folds all of them for itself.  Large and
 * symmetric: each rank folds its slice straight from all inputs and stores it where it is wanted,
 * one pass and no copy.  Large and ordinary: pieces go through the stage, folded by slices, with
 * one sync per piece (see `pipeline`).
 */
#include "coll/call.h"

/* ---- everybody shows its whole input ---- */

/* Enters with the input and points lane->sources at element `first` of everybody's. */
static weft_status show(weft_i_coll *coll, size_t first)
{
    weft_i_lane *lane = coll->lane;
    if (coll->algorithm == WEFT_I_ALGO_TINY) {
        WEFT_TRY(weft_i_coll_enter_with_data(coll, coll->in, coll->in_bytes));
    } else {
        weft_i_spot factor = {.factor = coll->factor};
        weft_i_coll_put(weft_i_lane_slot(lane, lane->me, lane->epoch + 1), coll->in,
                        coll->in_bytes);
        WEFT_TRY(weft_i_coll_enter_with_data(coll, &factor, sizeof factor));
        weft_i_coll_read_factors(coll);
    }
    for (int rank = 0; rank < lane->size; rank++) {
        const char *data = coll->algorithm == WEFT_I_ALGO_TINY
                               ? (const char *)weft_i_lane_payload(lane, rank)
                               : weft_i_lane_slot(lane, rank, lane->epoch);
        lane->sources[rank] = data + first * coll->item;
    }
    return WEFT_OK;
}

/* ---- large operands ---- */

/* Points lane->sources at element `first` of everybody's symmetric input. */
static void aim_at_inputs(weft_i_coll *coll, const weft_i_places *places, size_t first)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] = weft_i_coll_in_of(coll, places, rank) + first * coll->item;
}

static void aim_at_slots(weft_i_coll *coll, uint64_t turn, size_t first)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] = weft_i_lane_slot(coll->lane, rank, turn) + first * coll->item;
}

/* Two-shot, direct: my slice of all inputs goes into everybody's output (or the root's). */
static weft_status two_shot(weft_i_coll *coll, const weft_i_places *places, bool to_root)
{
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(coll->count, lane->size, lane->me, coll->item);
    aim_at_inputs(coll, places, mine.first);
    int outputs = 0;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size; /* our own first; not all at the same peer */
        if (!to_root || rank == coll->root)
            lane->targets[outputs++] =
                weft_i_coll_out_of(coll, places, rank) + mine.first * coll->item;
    }
    weft_i_coll_fold(coll, outputs, mine.count);
    return weft_i_coll_sync(coll);
}

/* Does a rank's output lie in its symmetric input?  Nobody may write its output then before all
 * have read it. */
static bool any_in_place(const weft_i_coll *coll)
{
    for (int rank = 0; rank < coll->lane->size; rank++) {
        const weft_i_spot *spot = weft_i_coll_spot(coll, rank);
        if (spot->in_serial == spot->out_serial && spot->in_offset == spot->out_offset)
            return true;
    }
    return false;
}

/* One-shot, direct: everything from all inputs into my own output, which nobody else can reach. */
static weft_status pull(weft_i_coll *coll, const weft_i_places *places, bool wanted)
{
    aim_at_inputs(coll, places, 0);
    if (wanted)
        weft_i_coll_fold_to(coll, coll->out, coll->count);
    return weft_i_coll_sync(coll);
}

/* Copies the pieces of a result that the ranks hold in their result slots to `out`. */
static void collect(const weft_i_coll *coll, char *out, size_t count, uint64_t turn)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_span part = weft_i_coll_slice(count, lane->size, rank, coll->item);
        memcpy(out + part.first * coll->item, weft_i_lane_result(lane, rank, turn),
               part.count * coll->item);
    }
}

/*
 * Pieces through the stage.  Per piece: copy my input in, fold my slice of all inputs, copy all
 * slices out; the copy of the next piece goes before the sync, so one sync per piece orders
 * everything:
 *   - inputs of piece k + 1 and results of piece k are complete at sync k;
 *   - a slot is written again two pieces later, when everybody has passed the sync that follows its
 * last use. With symmetric inputs the first copy is not needed.
 */
static weft_status pipeline(weft_i_coll *coll, const weft_i_places *places, bool wanted)
{
    weft_i_lane *lane = coll->lane;
    size_t piece = WEFT_I_SLOT / coll->item, item = coll->item;
    size_t pieces = (coll->count + piece - 1) / piece;
    bool staged = !places->all_in;
    if (staged) {
        memcpy(weft_i_lane_slot(lane, lane->me, 0), coll->in,
               weft_i_coll_min(piece, coll->count) * item);
        WEFT_TRY(weft_i_coll_sync(coll));
    }
    for (size_t k = 0; k < pieces; k++) {
        size_t first = k * piece, count = weft_i_coll_min(piece, coll->count - first);
        weft_i_span mine = weft_i_coll_slice(count, lane->size, lane->me, item);
        if (staged)
            aim_at_slots(coll, k, mine.first);
        else
            aim_at_inputs(coll, places, first + mine.first);
        weft_i_coll_fold_to(coll, weft_i_lane_result(lane, lane->me, k), mine.count);
        if (staged && k + 1 < pieces)
            memcpy(weft_i_lane_slot(lane, lane->me, k + 1), coll->in + (first + piece) * item,
                   weft_i_coll_min(piece, coll->count - first - piece) * item);
        WEFT_TRY(weft_i_coll_sync(coll));
        if (wanted)
            collect(coll, coll->out + first * item, count, k);
    }
    /*
     * Others may still copy the last results out.  That needs no sync: result slots are written
     * only after an entry, and the next entry waits for them.
     */
    return WEFT_OK;
}

/* If only the output is symmetric, the input may as well be there: then the operation is in place.
 */
static void move_in(weft_i_coll *coll)
{
    if (coll->out && coll->in != coll->out && weft_i_block_lease_of(coll->out_tensor) &&
        !weft_i_block_lease_of(coll->in_tensor)) {
        memcpy(coll->out, coll->in, coll->in_bytes);
        coll->in = coll->out;
        coll->in_tensor = coll->out_tensor;
    }
}

weft_status weft_i_coll_all_reduce(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_LARGE) {
        WEFT_TRY(show(coll, 0));
        weft_i_coll_fold_to(coll, coll->out, coll->count);
        return WEFT_OK;
    }
    weft_i_places places;
    move_in(coll);
    WEFT_TRY(weft_i_coll_enter_with_places(coll, &places));
    weft_i_coll_read_factors(coll);
    weft_status status;
    if (places.all_in && places.all_out)
        status = two_shot(coll, &places, false);
    else if (places.all_in && coll->lane->size == 2 && !any_in_place(coll))
        status = pull(coll, &places, true);
    else
        status = pipeline(coll, &places, true);
    weft_i_coll_forget(&places);
    return status;
}

weft_status weft_i_coll_reduce(weft_i_coll *coll)
{
    bool wanted = coll->lane->me == coll->root;
    if (coll->algorithm != WEFT_I_ALGO_LARGE) {
        WEFT_TRY(show(coll, 0));
        if (wanted)
            weft_i_coll_fold_to(coll, coll->out, coll->count);
        return WEFT_OK;
    }
    weft_i_places places;
    WEFT_TRY(weft_i_coll_enter_with_places(coll, &places));
    weft_i_coll_read_factors(coll);
    /* Others reach the root's output only if it lies in the memory that holds the inputs. */
    bool reachable =
        places.all_in && weft_i_coll_spot(coll, coll->root)->out_serial == places.in->serial;
    weft_status status;
    if (reachable) {
        weft_i_places same = {.in = places.in, .out = places.in};
        status = two_shot(coll, &same, true);
    } else {
        status = pipeline(coll, &places, wanted);
    }
    weft_i_coll_forget(&places);
    return status;
}

/* ---- reduce_scatter ---- */

/* My part straight from everybody's input. */
static weft_status scatter_direct(weft_i_coll *coll, const weft_i_places *places)
{
    aim_at_inputs(coll, places, (size_t)coll->lane->me * coll->count);
    weft_i_coll_fold_to(coll, coll->out, coll->count);
    return weft_i_coll_sync(coll);
}

/* Copies `count` elements from `first` on of every part of the input into my slot, part after part.
 */
static void stage_parts(const weft_i_coll *coll, uint64_t turn, size_t first, size_t count)
{
    char *slot = weft_i_lane_slot(coll->lane, coll->lane->me, turn);
    for (int part = 0; part < coll->lane->size; part++)
        memcpy(slot + (size_t)part * count * coll->item,
               coll->in + ((size_t)part * coll->count + first) * coll->item, count * coll->item);
}

static weft_status scatter_pipeline(weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    size_t piece = WEFT_I_SLOT / coll->item / (size_t)lane->size;
    size_t pieces = (coll->count + piece - 1) / piece;
    stage_parts(coll, 0, 0, weft_i_coll_min(piece, coll->count));
    WEFT_TRY(weft_i_coll_sync(coll));
    for (size_t k = 0; k < pieces; k++) {
        size_t first = k * piece, count = weft_i_coll_min(piece, coll->count - first);
        if (k + 1 < pieces)
            stage_parts(coll, k + 1, first + piece,
                        weft_i_coll_min(piece, coll->count - first - piece));
        aim_at_slots(coll, k, (size_t)lane->me * count);
        weft_i_coll_fold_to(coll, coll->out + first * coll->item, count);
        WEFT_TRY(weft_i_coll_sync(coll));
    }
    return WEFT_OK;
}

weft_status weft_i_coll_reduce_scatter(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_LARGE) {
        WEFT_TRY(show(coll, (size_t)coll->lane->me * coll->count));
        weft_i_coll_fold_to(coll, coll->out, coll->count);
        return WEFT_OK;
    }
    weft_i_places places;
    WEFT_TRY(weft_i_coll_enter_with_places(coll, &places));
    weft_i_coll_read_factors(coll);
    weft_status status = places.all_in ? scatter_direct(coll, &places) : scatter_pipeline(coll);
    weft_i_coll_forget(&places);
    return status;
}
