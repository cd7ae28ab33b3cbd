/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fifo: bytes that go from one rank to others through its bounce buffers, chunk by chunk, without
 * a sync for each.  The writer counts in its head how many chunks it has filled.  Readers follow,
 * and count how many they have drained.  The writer waits for them only where it comes round to a
 * chunk that another rank still needs.  So both sides copy at the same time.
 *
 * A count stands beside the number of the entry it belongs to.  A later number means that the rank
 * has done its whole part of this entry.  Fifos are used only where every rank has a core.
 * Elsewhere each chunk would cost a context switch.
 */
#ifndef WEFT_COLL_FIFO_H
#define WEFT_COLL_FIFO_H

#include "base/os/assert.h"
#include "coll/lane/call.h"

/* `total` bytes go round and round through `room` bytes at offset `at` of a rank's block. */
typedef struct weft_i_fifo {
    size_t total, chunk;
    size_t at, room;
    uint32_t epoch; /* the entry it belongs to */
} weft_i_fifo;

/* Through the eager buffer of an entry. */
weft_i_fifo weft_i_fifo_eager(uint32_t epoch, size_t total);

/* Through both chunk buffers.  Begins after an entry of all ranks and ends with a sync. */
weft_i_fifo weft_i_fifo_long(const weft_i_lane *lane, size_t total);

/* The same in larger chunks, for all ranks that write and read at once. */
weft_i_fifo weft_i_fifo_wide(const weft_i_lane *lane, size_t total);

/* Is a fifo faster for `total` bytes than copying all of them and then arriving? */
static inline bool weft_i_fifo_pays(const weft_i_lane *lane, size_t total)
{
    return total > weft_i_tune_same(WEFT_I_TUNE_FIFO_BEYOND, WEFT_I_BARRIER) &&
           total <= weft_i_tune_same(WEFT_I_TUNE_FIFO_UP_TO, WEFT_I_BARRIER) &&
           lane->mode == WEFT_I_WAIT_SPIN && lane->size > 1;
}

static inline size_t weft_i_fifo_chunks(const weft_i_fifo *fifo)
{
    WEFT_ASSERT(fifo->chunk > 0);
    return (fifo->total + fifo->chunk - 1) / fifo->chunk;
}

/* Where chunk `k` lies in a rank's bounce buffer, and how long it is. */
static inline char *weft_i_fifo_chunk(const weft_i_fifo *fifo, const weft_i_lane *lane, int rank,
                                      size_t k)
{
    WEFT_ASSERT(fifo->room % fifo->chunk == 0 && k < weft_i_fifo_chunks(fifo));
    return lane->registration->blocks[rank]->base + fifo->at + k * fifo->chunk % fifo->room;
}

static inline size_t weft_i_fifo_bytes(const weft_i_fifo *fifo, size_t k)
{
    WEFT_ASSERT(k * fifo->chunk < fifo->total);
    return weft_i_coll_min(fifo->chunk, fifo->total - k * fifo->chunk);
}

/* Fills chunk `k` and counts it.  The place must be free. */
void weft_i_fifo_put(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k, const char *from,
                     size_t bytes);

/* Waits until `reader` has drained chunk `k`. */
weft_status weft_i_fifo_await_drained(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k,
                                      int reader);

/*
 * Writes all of `data`.  `reader` is the rank that takes it, or -1 for all others.  The writer
 * waits for readers only if the data is longer than the room.
 */
weft_status weft_i_fifo_write(weft_i_coll *coll, const weft_i_fifo *fifo, const char *data,
                              int reader);

/* Writes chunk `k` of it alone.  Those before it are written. */
weft_status weft_i_fifo_write_chunk(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k,
                                    const char *data, int reader);

/* Waits until `writer` has filled chunk `k`. */
weft_status weft_i_fifo_await(weft_i_coll *coll, const weft_i_fifo *fifo, int writer, size_t k);

/* Counts chunks up to `k` as drained, of every fifo that this rank reads. */
void weft_i_fifo_drain(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k);

/* Reads all of `writer`'s fifo to `to`. */
weft_status weft_i_fifo_read(weft_i_coll *coll, const weft_i_fifo *fifo, int writer, char *to);

#endif
