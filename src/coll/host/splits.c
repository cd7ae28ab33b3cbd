/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_to_all with splits: every pair of ranks has a count of its own.  The ranks tell each other
 * theirs in tables beside the arrival; then parts are pulled where they lie, or go through the
 * bounce buffer piece by piece.
 */
#include "base/os/assert.h"
#include "base/report/status.h"
#include "coll/host/algorithms.h"
#include "coll/lane/enter.h"
#include "coll/lane/list.h"
#include "coll/lane/pipeline.h"
#include "fabric/group/quarrel.h"

/* Table row of a rank: bytes it sends to each, then bytes it expects from each. */
void weft_i_splits_write(weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    uint64_t *row = weft_i_lane_splits(lane, lane->me);
    for (int rank = 0; rank < lane->size; rank++) {
        const weft_i_list_item *item = coll->list ? &coll->list->items[rank] : NULL;
        row[rank] = item ? item->bytes : (uint64_t)coll->ask.in_splits[rank] * coll->ask.row;
        row[lane->size + rank] =
            item ? item->out_bytes : (uint64_t)coll->ask.out_splits[rank] * coll->ask.row;
    }
    weft_i_lane_show_splits(lane);
}

static size_t sends(const weft_i_coll *coll, int from, int to)
{
    return weft_i_lane_splits(coll->lane, from)[to];
}

/* Also for calls behind it, should this one be posted. */
static weft_status fail_splits(const weft_i_coll *coll, int from, int to, size_t sent,
                               size_t expected)
{
    char what[160];
    snprintf(what, sizeof what,
             "all_to_all in group \"%.63s\": rank %d sends rank %d %zu bytes, which expects %zu",
             coll->group->name, from, to, sent, expected);
    weft_i_quarrel_say(coll->group, what);
    weft_i_group_spoil(coll->group, WEFT_ERR_MISMATCH);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s", what);
}

/* Everybody checks every pair, so that a difference is an error on all ranks. */
weft_status weft_i_splits_check(const weft_i_coll *coll, size_t *largest)
{
    const weft_i_lane *lane = coll->lane;
    *largest = 0;
    for (int from = 0; from < lane->size; from++)
        for (int to = 0; to < lane->size; to++) {
            size_t sent = sends(coll, from, to), expected = sends(coll, to, lane->size + from);
            if (sent != expected)
                return fail_splits(coll, from, to, sent, expected);
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

/* Bytes of a piece in a part; the piece is of the largest. */
static size_t bytes_of(weft_i_span piece, size_t part)
{
    return part > piece.first ? weft_i_coll_min(part - piece.first, piece.count) : 0;
}

static void put_uneven(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const weft_i_lane *lane = coll->lane;
    size_t apart = *(const size_t *)arg;
    const char *from = coll->ask.in;
    for (int to = 0; to < lane->size; to++) {
        if (coll->list)
            from = coll->list->items[to].in;
        size_t part = sends(coll, lane->me, to), bytes = bytes_of(piece, part);
        if (bytes)
            memcpy(weft_i_lane_chunk(lane, lane->me, turn) + (size_t)to * apart, from + piece.first,
                   bytes);
        from = part ? from + part : from;
    }
}

static void take_uneven(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const weft_i_lane *lane = coll->lane;
    size_t apart = *(const size_t *)arg;
    char *out = coll->ask.out;
    for (int rank = 0; rank < lane->size; rank++) {
        if (coll->list)
            out = coll->list->items[rank].out;
        size_t part = sends(coll, rank, lane->me), bytes = bytes_of(piece, part);
        if (bytes)
            memcpy(out + piece.first,
                   weft_i_lane_chunk(lane, rank, turn) + (size_t)lane->me * apart, bytes);
        out = part ? out + part : out;
    }
}

static weft_status uneven_pipeline(weft_i_coll *coll, size_t largest)
{
    size_t apart = WEFT_I_CHUNK / (size_t)coll->lane->size; /* in a chunk, from part to part */
    weft_i_pipeline line = {
        .total = largest, .piece = apart, .put = put_uneven, .take = take_uneven, .arg = &apart};
    return weft_i_pipeline_run(coll, &line);
}

weft_status weft_i_coll_all_to_all_splits(weft_i_coll *coll)
{
    weft_i_locations locations;
    size_t largest = 0;
    weft_i_splits_write(coll);
    WEFT_TRY(weft_i_enter_located(coll, &locations, coll->list ? 0 : SIZE_MAX, WEFT_I_NEVER_SHOWN));
    weft_i_lane_read_splits(coll->lane);
    WEFT_TRY(weft_i_splits_check(coll, &largest));
    bool cma = locations.cma && largest >= coll->cma_from;
    return !coll->list && (locations.all_in || cma) ? pull_uneven(coll, &locations)
                                                    : uneven_pipeline(coll, largest);
}
