/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of streams, and what expects them; see piece.h. */
#include "piece.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"

#include <string.h>

enum { LAYOUT = 1, WORD_BITS = 64 };

void weft_i_piece_write(const weft_i_stream_piece *piece,
                        unsigned char out[WEFT_I_PIECE_HEAD_BYTES])
{
    weft_i_wire_writer to = weft_i_wire_write(out, WEFT_I_PIECE_HEAD_BYTES);
    weft_i_wire_put_u32(&to, WEFT_I_PIECE_MAGIC);
    weft_i_wire_put_u16(&to, LAYOUT);
    weft_i_wire_put_zero(&to, 2);
    weft_i_wire_put_u32(&to, piece->source);
    weft_i_wire_put_u32(&to, piece->bytes);
    weft_i_wire_put_u64(&to, piece->tag);
    weft_i_wire_put_u64(&to, piece->at);
    weft_i_wire_put_u64(&to, piece->total);
    WEFT_ASSERT(to.at == WEFT_I_PIECE_HEAD_BYTES);
}

/* Is this how a stream of that size is cut?  Nothing here overflows: `at` is below `total`. */
static bool is_cut(const weft_i_stream_piece *piece)
{
    if (!piece->total)
        return !piece->at && !piece->bytes;
    if (piece->total > INT64_MAX || piece->at >= piece->total || piece->at % WEFT_I_PIECE_BYTES)
        return false;
    uint64_t left = piece->total - piece->at;
    return piece->bytes == (left < WEFT_I_PIECE_BYTES ? left : WEFT_I_PIECE_BYTES);
}

bool weft_i_piece_read(const void *head, size_t bytes, int rank, int ranks,
                       weft_i_stream_piece *out)
{
    weft_i_wire_reader from = weft_i_wire_read(head, WEFT_I_PIECE_HEAD_BYTES);
    weft_i_stream_piece found;
    bool ours = weft_i_wire_get_u32(&from) == WEFT_I_PIECE_MAGIC;
    ours &= weft_i_wire_get_u16(&from) == LAYOUT;
    weft_i_wire_get_zero(&from, 2);
    found.source = weft_i_wire_get_u32(&from);
    found.bytes = weft_i_wire_get_u32(&from);
    found.tag = weft_i_wire_get_u64(&from);
    found.at = weft_i_wire_get_u64(&from);
    found.total = weft_i_wire_get_u64(&from);
    if (!ours || !weft_i_wire_done(&from) || found.source >= (uint32_t)ranks ||
        found.source == (uint32_t)rank || found.bytes != bytes || !is_cut(&found))
        return false;
    *out = found;
    return true;
}

weft_i_stream_piece weft_i_piece_cut(weft_i_sent *stream, int source)
{
    WEFT_ASSERT(stream->at <= stream->bytes);
    size_t left = stream->bytes - stream->at;
    weft_i_stream_piece piece = {
        .source = (uint32_t)source,
        .bytes = (uint32_t)(left < WEFT_I_PIECE_BYTES ? left : WEFT_I_PIECE_BYTES),
        .tag = stream->tag,
        .at = stream->at,
        .total = stream->bytes};
    stream->at += piece.bytes;
    return piece;
}

static weft_i_sent **find(weft_i_expected *expected, int peer, uint64_t tag)
{
    weft_i_sent **at = &expected->first;
    while (*at && ((*at)->peer != peer || (*at)->tag != tag))
        at = &(*at)->next;
    return at;
}

static void take_out(weft_i_sent **at)
{
    weft_i_sent *sent = *at;
    *at = sent->next;
    if (sent->seen != &sent->few)
        WEFT_OS->free(sent->seen);
}

weft_status weft_i_expected_add(weft_i_expected *expected, int peer, uint64_t tag, void *to,
                                size_t bytes, weft_i_sent *sent)
{
    size_t pieces = bytes / WEFT_I_PIECE_BYTES + 1;
    if (*find(expected, peer, tag))
        return weft_i_fail(WEFT_ERR_EXISTS, "two streams of rank %d with one tag are expected",
                           peer);
    sent->few = 0;
    sent->seen = &sent->few;
    if (pieces > WORD_BITS)
        sent->seen = WEFT_OS->alloc((pieces + WORD_BITS - 1) / WORD_BITS * sizeof *sent->seen);
    if (!sent->seen)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to note the pieces of %zu bytes", bytes);
    sent->peer = peer;
    sent->tag = tag;
    sent->memory = to;
    sent->bytes = bytes;
    sent->at = 0;
    sent->status = WEFT_OK;
    sent->next = expected->first;
    expected->first = sent;
    return WEFT_OK;
}

/* False if the piece was there before. */
static bool note(weft_i_sent *sent, uint64_t at)
{
    WEFT_ASSERT(at <= sent->bytes);
    uint64_t number = at / WEFT_I_PIECE_BYTES, bit = UINT64_C(1) << number % WORD_BITS;
    bool fresh = !(sent->seen[number / WORD_BITS] & bit);
    sent->seen[number / WORD_BITS] |= bit;
    return fresh;
}

weft_i_piece_turn weft_i_expected_take(weft_i_expected *expected, const weft_i_stream_piece *piece,
                                       const void *data, weft_i_sent **over)
{
    weft_i_sent **at = find(expected, (int)piece->source, piece->tag), *sent = *at;
    if (!sent)
        return WEFT_I_PIECE_STRAY;
    if (piece->total != sent->bytes) {
        sent->status = WEFT_ERR_MISMATCH;
    } else {
        if (!note(sent, piece->at))
            return WEFT_I_PIECE_STRAY;
        if (piece->bytes)
            memcpy(sent->memory + piece->at, data, piece->bytes);
        sent->at += piece->bytes;
        if (sent->at < sent->bytes)
            return WEFT_I_PIECE_PLACED;
    }
    take_out(at);
    *over = sent;
    return WEFT_I_PIECE_LAST;
}

weft_i_sent *weft_i_expected_remove(weft_i_expected *expected, int peer)
{
    for (weft_i_sent **at = &expected->first; *at; at = &(*at)->next)
        if (peer < 0 || (*at)->peer == peer) {
            weft_i_sent *sent = *at;
            take_out(at);
            return sent;
        }
    return NULL;
}
