/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: bytes that go from one rank to others through its stage, in chunks, without a sync for
 * each.  The writer counts in its head how many chunks are there, the readers follow, and count how
 * many they have taken; the writer waits for them only where it comes round to a chunk that
 * somebody still needs.  So both sides copy at the same time, and neither waits for a meeting.
 *
 * Counts are beside the number of the entry they belong to.  A later number means that the rank has
 * done all of this entry's part.  Only where every rank has a core: otherwise a chunk would be a
 * switch between processes.
 */
#ifndef WEFT_COLL_FLOW_H
#define WEFT_COLL_FLOW_H

#include "coll/call.h"

/* Where a flow of `total` bytes runs: through `room` bytes at the stage offset `at`. */
typedef struct weft_i_flow {
    size_t total, chunk;
    size_t at, room;
    uint32_t epoch; /* the entry it belongs to */
} weft_i_flow;

/* Through the show slot of an entry. */
weft_i_flow weft_i_flow_shown(uint32_t epoch, size_t total);

/* Round and round through the whole of the input slots; after an entry of all, and with a sync at
 * the end. */
weft_i_flow weft_i_flow_long(const weft_i_lane *lane, size_t total);

/* Does it pay to let `total` bytes flow, rather than copy them and then tell? */
bool weft_i_flow_pays(const weft_i_lane *lane, size_t total);

static inline size_t weft_i_flow_chunks(const weft_i_flow *flow)
{
    return (flow->total + flow->chunk - 1) / flow->chunk;
}

/* Where chunk `k` lies in a rank's stage, and how long it is. */
static inline char *weft_i_flow_chunk(const weft_i_flow *flow, const weft_i_lane *lane, int rank,
                                      size_t k)
{
    return lane->pairing->blocks[rank]->base + flow->at + k * flow->chunk % flow->room;
}

static inline size_t weft_i_flow_bytes(const weft_i_flow *flow, size_t k)
{
    return weft_i_coll_min(flow->chunk, flow->total - k * flow->chunk);
}

/* After how many chunks the flow comes round to the same place. */
static inline size_t weft_i_flow_around(const weft_i_flow *flow)
{
    return flow->room / flow->chunk;
}

/* Copies chunk `k` in and tells; where the flow is longer than its room, after its reader has taken
 * the one that was there. */
void weft_i_flow_put(weft_i_coll *coll, const weft_i_flow *flow, size_t k, const char *from,
                     size_t bytes);
weft_status weft_i_flow_await_taken(weft_i_coll *coll, const weft_i_flow *flow, size_t k,
                                    int reader);

/* Copies `data` in and tells chunk by chunk.  `reader` is who takes it, or -1: all others; they are
 * waited for only if the flow is longer than its room. */
weft_status weft_i_flow_write(weft_i_coll *coll, const weft_i_flow *flow, const char *data,
                              int reader);

/* Waits until chunk `k` of `writer` is there. */
weft_status weft_i_flow_await(weft_i_coll *coll, const weft_i_flow *flow, int writer, size_t k);

/* Tells that chunks up to `k` are taken by this rank, from all that flows to it. */
void weft_i_flow_take(weft_i_coll *coll, const weft_i_flow *flow, size_t k);

/* All of `writer`'s flow to `to`. */
weft_status weft_i_flow_read(weft_i_coll *coll, const weft_i_flow *flow, int writer, char *to);

#endif
