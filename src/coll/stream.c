/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Showing and taking streams; see stream.h.  The first piece lies in the show slot of the entry's
 * turn.  The others, which are longer, go through the two result slots by
 * turns; a slot is written again two pieces later, when everybody has passed the sync that follows
 * its last use.
 */
#include "coll/stream.h"

#include "base/status.h"

/* Copies the next bytes of my stream, at most as many as there is room for. */
static void show(const weft_i_coll *coll, weft_i_stream *stream, char *slot, size_t room)
{
    for (size_t used = 0; stream->next < stream->runs && used < room;) {
        weft_i_run run = stream->run(coll, stream->next);
        size_t bytes = weft_i_coll_min(run.bytes - stream->at, room - used);
        if (bytes)
            memcpy(slot + used, (const char *)run.data + stream->at, bytes);
        used += bytes;
        stream->at += bytes;
        if (stream->at == run.bytes) {
            stream->next++;
            stream->at = 0;
        }
    }
}

weft_status weft_i_stream_enter(weft_i_coll *coll, weft_i_stream *stream)
{
    weft_i_lane *lane = coll->lane;
    show(coll, stream, weft_i_lane_show(lane, lane->me, lane->epoch + 1), WEFT_I_SHOW);
    return weft_i_coll_enter_with_factor(coll);
}

static weft_i_piece piece_from(const weft_i_coll *coll, size_t from, size_t longest)
{
    size_t room = from ? WEFT_I_SLOT : WEFT_I_SHOW;
    return (weft_i_piece){coll->lane, from, from + weft_i_coll_min(longest - from, room)};
}

weft_status weft_i_stream_take(weft_i_coll *coll, weft_i_stream *stream, size_t longest,
                               weft_i_taking *take)
{
    weft_i_lane *lane = coll->lane;
    weft_i_piece piece = piece_from(coll, 0, longest);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number,
                      longest > WEFT_I_SHOW ? WEFT_I_WAY_PIPELINED : WEFT_I_WAY_STAGED);
    take(coll, &piece);
    if (longest <= WEFT_I_SHOW)
        return WEFT_OK;
    show(coll, stream, weft_i_lane_result(lane, lane->me, 0), WEFT_I_SLOT);
    for (uint64_t k = 1; piece.to < longest; k++) {
        WEFT_TRY(weft_i_coll_sync(coll));
        show(coll, stream, weft_i_lane_result(lane, lane->me, k), WEFT_I_SLOT);
        piece = piece_from(coll, piece.to, longest);
        take(coll, &piece);
    }
    return WEFT_OK; /* result slots are written only after an entry, which waits for the readers */
}
