/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: data of any size, cut into pieces that find the memory that waits for them.  Every transport
 * that has nothing better carries streams this way.  weft itself copies a piece to where it belongs, so
 * nothing is written there once the expectation is taken back, whatever still arrives.
 *
 * A piece begins with 40 bytes, little-endian:
 *
 *      0  magic    4 bytes
 *      4  layout   2
 *      6  zero     2
 *      8  source   4   the sender's rank
 *     12  bytes    4   of this piece
 *     16  tag      8
 *     24  at       8   where it begins: a multiple of WEFT_I_PIECE_BYTES
 *     32  total    8   of the stream
 */
#ifndef WEFT_TRANSPORT_PIECE_H
#define WEFT_TRANSPORT_PIECE_H

#include "transport/transport.h"

enum {
    WEFT_I_PIECE_HEAD_BYTES = 40,
    WEFT_I_PIECE_MAGIC = 0x50544657, /* "WFTP" */
    WEFT_I_PIECE_BYTES = 60 << 10    /* with its head in 64 KiB, the buffers of UCX over TCP */
};

typedef struct weft_i_stream_piece {
    uint32_t source, bytes;
    uint64_t tag, at, total;
} weft_i_stream_piece;

void weft_i_piece_write(const weft_i_stream_piece *piece,
                        unsigned char out[WEFT_I_PIECE_HEAD_BYTES]);

/* `bytes`: how many came.  False for what no sender of ours makes; `out` is not written then. */
bool weft_i_piece_read(const void *head, size_t bytes, int rank, int ranks,
                       weft_i_stream_piece *out);

/* The next piece of a stream; moves `at` on. */
weft_i_stream_piece weft_i_piece_cut(weft_i_sent *stream, int source);

/* What one rank expects, of all its peers. */
typedef struct weft_i_expected {
    weft_i_sent *first;
} weft_i_expected;

/* WEFT_ERR_EXISTS if the peer's tag is expected already; WEFT_ERR_NO_MEMORY. */
weft_status weft_i_expected_add(weft_i_expected *expected, int peer, uint64_t tag, void *to,
                                size_t bytes, weft_i_sent *sent);

typedef enum weft_i_piece_turn {
    WEFT_I_PIECE_STRAY, /* nobody expects it, or not that */
    WEFT_I_PIECE_PLACED,
    WEFT_I_PIECE_LAST /* *over ends, with its status; it is expected no more */
} weft_i_piece_turn;

weft_i_piece_turn weft_i_expected_take(weft_i_expected *expected, const weft_i_stream_piece *piece,
                                       const void *data, weft_i_sent **over);

/* Takes one of a peer's back (-1: of any); NULL: there is none. */
weft_i_sent *weft_i_expected_remove(weft_i_expected *expected, int peer);

#endif
