/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Showing and taking streams; see gatherv.h.  The first piece lies in the show chunk of the entry's
 * turn.  The others, which are longer, go through the two result chunks by
 * turns; a chunk is written again two pieces later, when everybody has passed the sync that follows
 * its last use.
 */
#include "parts/gatherv.h"
#include "base/assert.h"
#include "coll/enter.h"

#include "base/status.h"
#include "coll/pipeline.h"

/* Copies the next bytes of my stream, at most as many as there is room for. */
static void show(const weft_i_coll *coll, weft_i_gatherv *stream, char *chunk, size_t room)
{
    for (size_t used = 0; stream->next < stream->runs && used < room;) {
        weft_i_run run = stream->run(coll, stream->next);
        WEFT_ASSERT(stream->at <= run.bytes);
        size_t bytes = weft_i_coll_min(run.bytes - stream->at, room - used);
        if (bytes)
            memcpy(chunk + used, (const char *)run.data + stream->at, bytes);
        used += bytes;
        stream->at += bytes;
        if (stream->at == run.bytes) {
            stream->next++;
            stream->at = 0;
        }
    }
}

weft_status weft_i_gatherv_enter(weft_i_coll *coll, weft_i_gatherv *stream)
{
    weft_i_lane *lane = coll->lane;
    show(coll, stream, weft_i_lane_eager(lane, lane->me, lane->epoch + 1), WEFT_I_EAGER);
    return weft_i_enter(coll);
}

typedef struct rest {
    weft_i_gatherv *stream;
    weft_i_taking *take;
} rest;

static void put_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span span)
{
    (void)span;
    const rest *r = arg;
    show(coll, r->stream, weft_i_lane_result(coll->lane, coll->lane->me, turn), WEFT_I_CHUNK);
}

static void take_piece(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span span)
{
    (void)turn;
    const rest *r = arg;
    size_t from = WEFT_I_EAGER + span.first;
    weft_i_piece piece = {coll->lane, from, from + span.count};
    r->take(coll, &piece);
}

weft_status weft_i_gatherv_take(weft_i_coll *coll, weft_i_gatherv *stream, size_t longest,
                                weft_i_taking *take)
{
    weft_i_piece first = {coll->lane, 0, weft_i_coll_min(longest, WEFT_I_EAGER)};
    weft_i_record_way(weft_i_group_record(coll->group), coll->number,
                      longest > WEFT_I_EAGER ? WEFT_I_WAY_PIPELINED : WEFT_I_WAY_EAGER);
    take(coll, &first);
    if (longest <= WEFT_I_EAGER)
        return WEFT_OK;
    rest r = {stream, take};
    weft_i_pipeline line = {.total = longest - WEFT_I_EAGER,
                            .piece = WEFT_I_CHUNK,
                            .put = put_piece,
                            .take = take_piece,
                            .in_results = true,
                            .arg = &r};
    return weft_i_pipeline_run(coll, &line);
}
