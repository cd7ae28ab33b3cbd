/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: bytes of any length, different on every rank, that all ranks show each other.  What a
 * rank shows may lie in several runs; the others see them one after the other.  The first piece of
 * each stream is shown at the entry, so that short ones need no more than that; the others follow
 * piece by piece, one sync each.  How long the streams are the ranks tell in their tables of
 * splits.
 */
#ifndef WEFT_PARTS_GATHERV_H
#define WEFT_PARTS_GATHERV_H

#include "coll/lane/call.h"

typedef struct weft_i_run {
    const void *data;
    size_t bytes;
} weft_i_run;

/* What this rank shows. */
typedef struct weft_i_gatherv {
    weft_i_run (*run)(const weft_i_coll *coll, size_t index);
    size_t runs;
    size_t next, at; /* how far it was shown: run, and byte in it */
} weft_i_gatherv;

/* Bytes [from, to) of all streams; those that are shorter end before. */
typedef struct weft_i_piece {
    const weft_i_lane *lane;
    size_t from, to;
    const char *room; /* between hosts: where the pieces of all lie, `apart` bytes apart */
    size_t apart;
} weft_i_piece;

/* Where byte `from` of a rank's stream lies. */
static inline const char *weft_i_piece_of(const weft_i_piece *piece, int rank)
{
    if (piece->room)
        return piece->room + (size_t)rank * piece->apart;
    return piece->from
               ? weft_i_lane_result(piece->lane, rank, (piece->from - WEFT_I_EAGER) / WEFT_I_CHUNK)
               : weft_i_lane_eager(piece->lane, rank, piece->lane->epoch);
}

/* Shows the first piece and enters.  The table of splits, if any, must be written before. */
weft_status weft_i_gatherv_enter(weft_i_coll *coll, weft_i_gatherv *stream);

/* Shows the rest and takes everything, piece by piece; `longest` is the length of the longest
 * stream, as all ranks know it. */
typedef void weft_i_taking(weft_i_coll *coll, const weft_i_piece *piece);
weft_status weft_i_gatherv_take(weft_i_coll *coll, weft_i_gatherv *stream, size_t longest,
                                weft_i_taking *take);

#endif
