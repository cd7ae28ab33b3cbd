/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and streams, all as active messages of UCX, in one fragment each.  Streams are not UCX's
 * matched sends: cancelling a receive that has begun takes no effect there, and what still arrives is
 * written to memory that is its owner's again.
 */
#include "base/os/assert.h"
#include "base/report/status.h"
#include "wire.h"

static weft_i_ucs_status on_message(void *arg, const void *head, size_t head_bytes, void *data,
                                    size_t bytes, const weft_i_ucp_am_received *how)
{
    weft_i_ucx_wire *wire = arg;
    if (head_bytes != WEFT_I_HEAD_BYTES || how->attr & WEFT_I_UCP_AM_RECV_ATTR_FLAG_RNDV)
        wire->strays++;
    else
        wire->opts.on_message(wire->opts.arg, head, data, bytes);
    return WEFT_I_UCS_OK;
}

static weft_i_ucs_status on_piece(void *arg, const void *head, size_t head_bytes, void *data,
                                  size_t bytes, const weft_i_ucp_am_received *how)
{
    weft_i_ucx_wire *wire = arg;
    weft_i_stream_piece piece;
    weft_i_sent *over = NULL;
    weft_i_piece_turn turn = WEFT_I_PIECE_STRAY;
    if (head_bytes == WEFT_I_PIECE_HEAD_BYTES && !(how->attr & WEFT_I_UCP_AM_RECV_ATTR_FLAG_RNDV) &&
        weft_i_piece_read(head, bytes, wire->opts.rank, wire->opts.ranks, &piece))
        turn = weft_i_expected_take(&wire->expected, &piece, data, &over);
    wire->strays += turn == WEFT_I_PIECE_STRAY;
    if (turn == WEFT_I_PIECE_LAST)
        weft_i_sent_end(over, over->status);
    return WEFT_I_UCS_OK;
}

static weft_status set_on(weft_i_ucx_wire *wire, weft_i_ucp_am_target params)
{
    params.mask = WEFT_I_UCP_AM_HANDLER_PARAM_FIELD_ID | WEFT_I_UCP_AM_HANDLER_PARAM_FIELD_CB |
                  WEFT_I_UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.arg = wire;
    weft_i_ucs_status status = wire->ucx->ucp_worker_set_am_recv_handler(wire->worker, &params);
    return status ? weft_i_ucx_fail(status, "a place for messages") : WEFT_OK;
}

weft_status weft_i_ucx_listen(weft_i_ucx_wire *wire)
{
    WEFT_TRY(set_on(wire, (weft_i_ucp_am_target){.id = WEFT_I_UCX_MESSAGE, .call = on_message}));
    return set_on(wire, (weft_i_ucp_am_target){.id = WEFT_I_UCX_PIECE, .call = on_piece});
}

weft_status weft_i_ucx_send(void *of, int rank, const weft_i_head *head, const void *data,
                            size_t bytes, weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_peer *peer;
    if (bytes > WEFT_I_PIECE_BYTES)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a message has at most %d bytes, not %zu",
                           WEFT_I_PIECE_BYTES, bytes);
    weft_i_ucx_enter(wire);
    weft_status status = weft_i_ucx_peer_of(wire, rank, &peer);
    if (status == WEFT_OK) {
        weft_i_head_write(head, sent->head);
        sent->wire = wire;
        sent->peer = rank;
        weft_i_ucp_request_params params = weft_i_ucx_told(weft_i_ucx_ended, sent);
        params.flags = WEFT_I_UCP_AM_SEND_FLAG_EAGER;
        const void *result = wire->ucx->ucp_am_send_nbx(peer->ep, WEFT_I_UCX_MESSAGE, sent->head,
                                                        WEFT_I_HEAD_BYTES, data, bytes, &params);
        status = weft_i_ucx_begun(wire, rank, result, "a message");
    }
    weft_i_ucx_leave(wire);
    return status;
}

weft_status weft_i_ucx_expect(void *of, int rank, uint64_t tag, void *to, size_t bytes,
                              weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    if (rank < 0 || rank >= wire->opts.ranks || rank == wire->opts.rank)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d of %d expects nothing of rank %d",
                           wire->opts.rank, wire->opts.ranks, rank);
    weft_i_ucx_enter(wire);
    weft_status status = weft_i_expected_add(&wire->expected, rank, tag, to, bytes, sent);
    weft_i_ucx_leave(wire);
    return status == WEFT_OK ? WEFT_IN_PROGRESS : status;
}

static void note(weft_i_sent *stream, weft_status status)
{
    if (status >= 0)
        return;
    stream->status = stream->status < 0 ? stream->status : status;
    stream->whole = true; /* the rest stays */
}

static void settle(weft_i_sent *stream)
{
    WEFT_ASSERT(stream->pieces >= 0);
    if (stream->whole && !stream->queued && !stream->pieces)
        weft_i_sent_end(stream, stream->status);
}

static void give_back(weft_i_ucx_slice *slice)
{
    slice->next = slice->wire->free;
    slice->wire->free = slice;
}

static void on_slice(void *request, weft_i_ucs_status status, void *of)
{
    weft_i_ucx_slice *slice = of;
    weft_i_sent *stream = slice->stream;
    WEFT_ASSERT(stream->pieces > 0 && slice->wire->peers[stream->peer].under_way > 0);
    slice->wire->ucx->ucp_request_free(request);
    slice->wire->peers[stream->peer].under_way--;
    stream->pieces--;
    note(stream, weft_i_ucx_status_of(status));
    give_back(slice);
    settle(stream);
}

static void submit(weft_i_ucx_wire *wire, weft_i_sent *stream)
{
    WEFT_ASSERT(wire->free && !stream->whole && stream->pieces < WEFT_I_UCX_STREAM_PIECES);
    weft_i_ucx_peer *peer = &wire->peers[stream->peer];
    weft_i_ucx_slice *slice = wire->free;
    wire->free = slice->next;
    slice->stream = stream;
    weft_i_stream_piece piece = weft_i_piece_cut(stream, wire->opts.rank);
    stream->whole = stream->at == stream->bytes;
    weft_i_piece_write(&piece, slice->head);
    weft_i_ucp_request_params params = weft_i_ucx_told(on_slice, slice);
    params.flags = WEFT_I_UCP_AM_SEND_FLAG_EAGER;
    const void *result =
        wire->ucx->ucp_am_send_nbx(peer->ep, WEFT_I_UCX_PIECE, slice->head, WEFT_I_PIECE_HEAD_BYTES,
                                   stream->memory + piece.at, piece.bytes, &params);
    if (result && !weft_i_ucx_is_error(result)) {
        stream->pieces++;
        peer->under_way++;
        return;
    }
    if (result)
        note(stream, weft_i_ucx_status_of(weft_i_ucx_error_of(result)));
    give_back(slice);
}

static int fill(weft_i_ucx_wire *wire, weft_i_sent *stream)
{
    int moved = 0;
    if (wire->peers[stream->peer].life != WEFT_I_UCX_USED)
        note(stream, WEFT_ERR_UNREACHABLE);
    for (; wire->free && !stream->whole && stream->pieces < WEFT_I_UCX_STREAM_PIECES; moved++)
        submit(wire, stream);
    return moved;
}

weft_status weft_i_ucx_stream(void *of, int rank, uint64_t tag, const void *from, size_t bytes,
                              weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_peer *peer;
    weft_i_ucx_enter(wire);
    weft_status status = weft_i_ucx_peer_of(wire, rank, &peer);
    if (status == WEFT_OK) {
        sent->wire = wire;
        sent->peer = rank;
        sent->tag = tag;
        sent->memory = (char *)(uintptr_t)from; /* only read */
        sent->bytes = bytes;
        sent->at = 0;
        sent->pieces = 0;
        sent->whole = sent->queued = false;
        sent->status = WEFT_OK;
        sent->next = NULL;
        fill(wire, sent);
        status = sent->whole && !sent->pieces ? sent->status : WEFT_IN_PROGRESS;
        if (status < 0)
            weft_i_fail(status, "a stream of %zu bytes to rank %d cannot be sent", bytes, rank);
        weft_i_sent **at = &wire->streams;
        while (*at)
            at = &(*at)->next;
        sent->queued = !sent->whole;
        if (sent->queued)
            *at = sent;
    }
    weft_i_ucx_leave(wire);
    return status;
}

/* What is told may stream more, which goes to the end of the list. */
int weft_i_ucx_pump(weft_i_ucx_wire *wire)
{
    int moved = 0;
    for (weft_i_sent **at = &wire->streams; *at;) {
        weft_i_sent *stream = *at;
        moved += fill(wire, stream);
        if (!stream->whole) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        stream->queued = false;
        settle(stream);
        moved++;
    }
    return moved;
}

void weft_i_ucx_abandon(weft_i_ucx_wire *wire, int rank)
{
    weft_i_sent *stream, *expectation;
    for (weft_i_sent **at = &wire->streams; (stream = *at);) {
        if (stream->peer != rank) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        stream->queued = false;
        note(stream, WEFT_ERR_CANCELLED);
        settle(stream);
    }
    while ((expectation = weft_i_expected_remove(&wire->expected, rank)))
        weft_i_sent_end(expectation, WEFT_ERR_CANCELLED);
}
