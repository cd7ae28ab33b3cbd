/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Showing and taking streams; see gatherv.h.  The first piece lies in the eager buffer of the
 * entry's turn.  The others, which are longer, go through the two result chunks by
 * turns; a chunk is written again two pieces later, when all ranks have passed the sync that follows
 * its last use.
 */
#include "parts/gatherv.h"
#include "base/os/assert.h"
#include "coll/hosts/hosts.h"
#include "coll/lane/enter.h"

#include "base/report/status.h"
#include "coll/lane/pipeline.h"

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

/* Between hosts all gather each other's pieces into scratch. */
static size_t far_piece(const weft_i_coll *coll)
{
    enum { ALL = 4 << 20, LEAST = 4 << 10 };
    size_t each = ALL / (size_t)coll->lane->size / WEFT_I_LINE * WEFT_I_LINE;
    each = each < LEAST ? LEAST : each;
    return weft_i_coll_min(each, WEFT_I_CHUNK);
}

static weft_status enter_far(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_ferry_make_room(coll, 1, far_piece(coll) * (size_t)coll->lane->size));
    WEFT_TRY(weft_i_hosts_enter(coll, NULL, 0));
    return weft_i_hosts_read_splits(coll);
}

static weft_status take_far(weft_i_coll *coll, weft_i_gatherv *stream, size_t longest,
                            weft_i_taking *take)
{
    char *room = coll->lane->ferry->room[1];
    size_t most = far_piece(coll), apart = 0;
    for (size_t from = 0; from < longest; from += apart) {
        apart = weft_i_coll_min(most, longest - from);
        show(coll, stream, room + (size_t)coll->lane->me * apart, apart);
        WEFT_TRY(weft_i_hosts_all_gather(coll, room, apart, apart));
        weft_i_piece piece = {coll->lane, from, from + apart, room, apart};
        take(coll, &piece);
    }
    return WEFT_OK;
}

weft_status weft_i_gatherv_enter(weft_i_coll *coll, weft_i_gatherv *stream)
{
    weft_i_lane *lane = coll->lane;
    if (lane->ferry)
        return enter_far(coll);
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
    weft_i_piece piece = {coll->lane, from, from + span.count, NULL, 0};
    r->take(coll, &piece);
}

weft_status weft_i_gatherv_take(weft_i_coll *coll, weft_i_gatherv *stream, size_t longest,
                                weft_i_taking *take)
{
    if (coll->lane->ferry)
        return take_far(coll, stream, longest, take);
    weft_i_piece first = {coll->lane, 0, weft_i_coll_min(longest, WEFT_I_EAGER), NULL, 0};
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
