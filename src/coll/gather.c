/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering: all_gather and gather.  Tiny and staged inputs are shown whole at the entry.  Large
 * ones are pulled from symmetric inputs or pushed into symmetric outputs; ordinary ones go through
 * the stage in pieces, one sync each.
 */
#include "coll/call.h"

enum {
    PUSH_FROM = 1 << 20
}; /* larger than a core's own cache: the reader gains nothing from having pulled */

static weft_status gather_shown(weft_i_coll *coll, bool wanted)
{
    weft_i_lane *lane = coll->lane;
    bool tiny = coll->algorithm == WEFT_I_ALGO_TINY;
    size_t bytes = coll->in_bytes;
    if (!tiny)
        weft_i_coll_put(weft_i_lane_show(lane, lane->me, lane->epoch + 1), coll->in, bytes);
    WEFT_TRY(weft_i_coll_enter_for(coll, wanted ? WEFT_I_FOR_ALL : WEFT_I_FOR_NOBODY,
                                   tiny ? coll->in : NULL, tiny ? bytes : 0));
    for (int rank = 0; wanted && rank < lane->size; rank++)
        weft_i_coll_put(coll->out + (size_t)rank * bytes,
                        tiny ? (const char *)weft_i_lane_payload(lane, rank)
                             : weft_i_lane_show(lane, rank, lane->epoch),
                        bytes);
    return WEFT_OK;
}

static weft_status pull_parts(weft_i_coll *coll, const weft_i_places *places, bool wanted)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; wanted && i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        WEFT_TRY(weft_i_coll_fetch(coll, places, rank, 0, coll->out + (size_t)rank * coll->in_bytes,
                                   coll->in_bytes));
    }
    return weft_i_coll_sync(coll);
}

static weft_status push_part(weft_i_coll *coll, const weft_i_places *places)
{
    const weft_i_lane *lane = coll->lane;
    size_t at = (size_t)lane->me * coll->in_bytes;
    for (int i = 0; i < lane->size; i++)
        weft_i_coll_deliver(coll, places, (lane->me + i) % lane->size, at, coll->in,
                            coll->in_bytes);
    return weft_i_coll_sync(coll);
}

/* Everybody puts its part into the root's output. */
static weft_status push_to_root(weft_i_coll *coll, const weft_i_places *places)
{
    weft_i_coll_deliver(coll, places, coll->root, (size_t)coll->lane->me * coll->in_bytes, coll->in,
                        coll->in_bytes);
    return weft_i_coll_sync(coll);
}

/* While piece k is copied out, piece k + 1 is copied in; a slot is written again after the sync
 * that follows its last reading. */
static weft_status gather_pipeline(weft_i_coll *coll, bool wanted)
{
    weft_i_lane *lane = coll->lane;
    size_t total = coll->in_bytes, pieces = (total + WEFT_I_SLOT - 1) / WEFT_I_SLOT;
    memcpy(weft_i_lane_slot(lane, lane->me, 0), coll->in, weft_i_coll_min(total, WEFT_I_SLOT));
    WEFT_TRY(weft_i_coll_sync(coll));
    for (size_t k = 0; k < pieces; k++) {
        size_t first = k * WEFT_I_SLOT, bytes = weft_i_coll_min(total - first, WEFT_I_SLOT);
        if (k + 1 < pieces)
            memcpy(weft_i_lane_slot(lane, lane->me, k + 1), coll->in + first + WEFT_I_SLOT,
                   weft_i_coll_min(total - first - WEFT_I_SLOT, WEFT_I_SLOT));
        for (int i = 0; wanted && i < lane->size; i++) {
            int rank = (lane->me + i) % lane->size;
            const char *from =
                rank == lane->me ? coll->in + first : weft_i_lane_slot(lane, rank, k);
            weft_i_coll_put(coll->out + (size_t)rank * total + first, from, bytes);
        }
        WEFT_TRY(weft_i_coll_sync(coll));
    }
    return WEFT_OK;
}

weft_status weft_i_coll_all_gather(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_LARGE)
        return gather_shown(coll, true);
    weft_i_places places;
    WEFT_TRY(weft_i_coll_enter_with_places(coll, &places, coll->in_bytes));
    weft_status status;
    if (places.all_out && (!places.all_in || coll->in_bytes >= PUSH_FROM))
        status = push_part(coll, &places);
    else if (places.all_in || places.peek)
        status = pull_parts(coll, &places, true);
    else
        status = gather_pipeline(coll, true);
    weft_i_coll_forget(&places);
    return status;
}

weft_status weft_i_coll_gather(weft_i_coll *coll)
{
    bool wanted = coll->lane->me == coll->root;
    if (coll->algorithm != WEFT_I_ALGO_LARGE)
        return gather_shown(coll, wanted);
    weft_i_places places;
    WEFT_TRY(weft_i_coll_enter_with_places(coll, &places, coll->in_bytes));
    /* Others touch the root's output if theirs lie there too, or in the memory of all inputs. */
    const weft_i_pairing *common = places.all_out ? places.out : places.all_in ? places.in : NULL;
    weft_i_places root = {.out = (weft_i_pairing *)common};
    weft_status status;
    if (weft_i_coll_touch_out(coll, common, coll->root))
        status = push_to_root(coll, &root);
    else if (places.all_in || places.peek)
        status = pull_parts(coll, &places, wanted);
    else
        status = gather_pipeline(coll, wanted);
    weft_i_coll_forget(&places);
    return status;
}
