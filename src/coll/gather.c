/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering: all_gather and gather.  Inline and eager inputs are shown whole at the entry.  Large
 * ones are pulled from symmetric inputs or pushed into symmetric outputs; ordinary ones go through
 * the bounce buffer in pieces, one sync each.
 */
#include "coll/enter.h"
#include "coll/pipeline.h"

/* Takes what all have shown. */
static weft_status take_shown(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        WEFT_TRY(weft_i_eager_take(coll, rank, coll->ask.out + (size_t)rank * coll->ask.in_bytes));
    }
    return WEFT_OK;
}

static weft_status gather_shown(weft_i_coll *coll, bool gives, bool wanted)
{
    WEFT_TRY(weft_i_enter_eager(coll, gives, wanted ? WEFT_I_FOR_ALL : WEFT_I_FOR_NOBODY));
    return wanted ? take_shown(coll) : WEFT_OK;
}

static weft_status pull_parts(weft_i_coll *coll, const weft_i_locations *locations, bool wanted)
{
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; wanted && i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        WEFT_TRY(weft_i_coll_fetch(coll, locations, rank, 0,
                                   coll->ask.out + (size_t)rank * coll->ask.in_bytes,
                                   coll->ask.in_bytes));
    }
    return weft_i_coll_sync(coll);
}

static weft_status push_part(weft_i_coll *coll, const weft_i_locations *locations)
{
    const weft_i_lane *lane = coll->lane;
    size_t at = (size_t)lane->me * coll->ask.in_bytes;
    for (int i = 0; i < lane->size; i++)
        weft_i_coll_deliver(coll, locations, (lane->me + i) % lane->size, at, coll->ask.in,
                            coll->ask.in_bytes);
    return weft_i_coll_sync(coll);
}

/* Everybody puts its part into the root's output. */
static weft_status push_to_root(weft_i_coll *coll, const weft_i_locations *locations)
{
    weft_i_coll_deliver(coll, locations, coll->ask.root,
                        (size_t)coll->lane->me * coll->ask.in_bytes, coll->ask.in,
                        coll->ask.in_bytes);
    return weft_i_coll_sync(coll);
}

static size_t piece_bytes(const weft_i_coll *coll, size_t k)
{
    return weft_i_coll_min(coll->ask.in_bytes - k * WEFT_I_CHUNK, WEFT_I_CHUNK);
}

static void put_piece(weft_i_coll *coll, const void *arg, size_t k)
{
    (void)arg;
    memcpy(weft_i_lane_chunk(coll->lane, coll->lane->me, k), coll->ask.in + k * WEFT_I_CHUNK,
           piece_bytes(coll, k));
}

static void take_pieces(weft_i_coll *coll, const void *arg, size_t k)
{
    (void)arg;
    const weft_i_lane *lane = coll->lane;
    size_t first = k * WEFT_I_CHUNK, bytes = piece_bytes(coll, k);
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        char *to = coll->ask.out + (size_t)rank * coll->ask.in_bytes + first;
        if (rank == lane->me)
            weft_i_coll_put_own(coll, to, coll->ask.in + first, bytes);
        else
            memcpy(to, weft_i_lane_chunk(lane, rank, k), bytes);
    }
}

static weft_status gather_pipeline(weft_i_coll *coll, bool gives, bool wanted)
{
    weft_i_pipeline line = {.pieces = weft_i_pipeline_pieces(coll->ask.in_bytes, WEFT_I_CHUNK),
                            .put = gives ? put_piece : NULL,
                            .take = wanted ? take_pieces : NULL};
    return weft_i_pipeline_run(coll, &line);
}

/* All parts flow to the root at the same time. */
static weft_status gather_flow(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    weft_i_fifo fifo = weft_i_fifo_long(lane, coll->ask.in_bytes);
    if (lane->me != coll->ask.root) {
        WEFT_TRY(weft_i_fifo_write(coll, &fifo, coll->ask.in, coll->ask.root));
        return weft_i_coll_sync(coll);
    }
    for (size_t k = 0; k < weft_i_fifo_chunks(&fifo); k++) {
        size_t at = k * fifo.chunk, bytes = weft_i_fifo_bytes(&fifo, k);
        weft_i_coll_put_own(coll, coll->ask.out + (size_t)lane->me * coll->ask.in_bytes + at,
                            coll->ask.in + at, bytes);
        for (int i = 1; i < lane->size; i++) {
            int rank = (lane->me + i) % lane->size;
            WEFT_TRY(weft_i_fifo_await(coll, &fifo, rank, k));
            memcpy(coll->ask.out + (size_t)rank * coll->ask.in_bytes + at,
                   weft_i_fifo_chunk(&fifo, lane, rank, k), bytes);
        }
        weft_i_fifo_drain(coll, &fifo, k);
    }
    return weft_i_coll_sync(coll);
}

weft_status weft_i_coll_all_gather(weft_i_coll *coll)
{
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return gather_shown(coll, true, true);
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->ask.in_bytes, WEFT_I_GIVES));
    if (locations.all_shown)
        return take_shown(coll);
    if (weft_i_locations_push(&locations, coll->ask.in_bytes))
        return push_part(coll, &locations);
    if (locations.all_in || locations.cma)
        return pull_parts(coll, &locations, true);
    return gather_pipeline(coll, true, true);
}

weft_status weft_i_coll_gather(weft_i_coll *coll)
{
    bool wanted = coll->lane->me == coll->ask.root;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        return gather_shown(coll, !wanted, wanted);
    weft_i_locations locations;
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->ask.in_bytes,
                                  wanted ? WEFT_I_GIVES_NOTHING : WEFT_I_GIVES));
    /* Others touch the root's output if theirs lie there too, or in the memory of all inputs. */
    const weft_i_registration *common = locations.all_out  ? locations.out
                                        : locations.all_in ? locations.in
                                                           : NULL;
    weft_i_locations root = {.out = (weft_i_registration *)common};
    if (locations.all_shown)
        return wanted ? take_shown(coll) : WEFT_OK;
    if (weft_i_touch_out(coll, common, coll->ask.root))
        return push_to_root(coll, &root);
    if (locations.all_in || locations.cma)
        return pull_parts(coll, &locations, wanted);
    if (weft_i_fifo_pays(coll->lane, coll->ask.in_bytes))
        return gather_flow(coll);
    return gather_pipeline(coll, !wanted, wanted);
}
