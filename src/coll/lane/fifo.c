/* SPDX-License-Identifier: Apache-2.0 */
/* Filling and draining fifos; see fifo.h. */
#include "coll/lane/fifo.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

enum {
    SHORT_CHUNK = 4 << 10, /* of 16 KiB at most */
    CHUNK = 8 << 10,       /* of what fits an eager buffer */
    LONG_CHUNK = 16 << 10,
    WIDE_CHUNK = 64 << 10, /* where each chunk is counted by all and waited for by all */
    FEW_LOOKS = 4096 /* without a look at the clock: about as long as it takes to copy a chunk */
};

weft_i_fifo weft_i_fifo_eager(uint32_t epoch, size_t total)
{
    return (weft_i_fifo){.total = total,
                         .chunk = total <= 4 * SHORT_CHUNK ? SHORT_CHUNK : CHUNK,
                         .at = (epoch % WEFT_I_EAGERS) * (size_t)WEFT_I_EAGER,
                         .room = WEFT_I_EAGER,
                         .epoch = epoch};
}

weft_i_fifo weft_i_fifo_long(const weft_i_lane *lane, size_t total)
{
    return (weft_i_fifo){
        .total = total, .chunk = LONG_CHUNK, .room = 2 * WEFT_I_CHUNK, .epoch = lane->epoch};
}

weft_i_fifo weft_i_fifo_wide(const weft_i_lane *lane, size_t total)
{
    weft_i_fifo fifo = weft_i_fifo_long(lane, total);
    fifo.chunk = WIDE_CHUNK;
    return fifo;
}

/* ---- counts: number of the entry, and chunks ---- */

static uint64_t count_of(const weft_i_fifo *fifo, size_t chunks)
{
    return (uint64_t)fifo->epoch << 32 | (uint32_t)chunks;
}

static bool has_come_to(const _Atomic uint64_t *counter, uint64_t count)
{
    /* Pairs with the release in weft_i_fifo_put and weft_i_fifo_drain: the chunk is complete, or
     * needed no more. */
    uint64_t now = atomic_load_explicit(counter, memory_order_acquire);
    return (int64_t)(now - count) >= 0; /* entries wrap around as epochs do */
}

typedef struct following {
    const weft_i_label *label;
    const _Atomic uint64_t *counter;
    uint64_t count;
    int rank;
} following;

static bool is_there(void *arg)
{
    const following *f = arg;
    return has_come_to(f->counter, f->count);
}

static weft_status is_lost(void *arg)
{
    const following *f = arg;
    return weft_i_group_fate(f->label->group, f->rank);
}

/* The rank is in the middle of the operation, so there is no trying again. */
static weft_status fail(const following *f, weft_status status, int64_t timeout_ms)
{
    char who[512];
    const weft_group *group = f->label->group;
    if (status != WEFT_ERR_TIMEOUT) {
        weft_status told = weft_i_group_lost(f->label, f->rank);
        status = told < 0
                     ? told
                     : weft_i_fail(status, "%s: rank %d will not go on", f->label->op, f->rank);
    } else {
        weft_i_world_describe(group->world, group->members[f->rank], who, sizeof who);
        weft_i_fail(WEFT_ERR_TIMEOUT, "%s in group \"%s\": waited %lld ms in its middle for %s",
                    f->label->op, group->name, (long long)timeout_ms, who);
    }
    weft_i_group_spoil(group, status);
    return status;
}

static weft_status follow(weft_i_coll *coll, const _Atomic uint64_t *counter, uint64_t count,
                          int rank)
{
    for (int looks = 0; looks < FEW_LOOKS; looks++)
        if (has_come_to(counter, count))
            return WEFT_OK;
    following f = {&coll->label, counter, count, rank};
    weft_i_wait wait = {.ready = is_there,
                        .lost = is_lost,
                        .arg = &f,
                        .deadline = weft_i_os_deadline(coll->ask.limit_ms),
                        .mode = coll->lane->mode};
    weft_status status = weft_i_wait_for(&wait);
    return status < 0 ? fail(&f, status, coll->ask.limit_ms) : WEFT_OK;
}

/* ---- the writer ---- */

weft_status weft_i_fifo_await_drained(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k,
                                      int reader)
{
    return follow(coll, &weft_i_lane_head_of(coll->lane, reader)->drained, count_of(fifo, k + 1),
                  reader);
}

/* Waits until chunk `k` may be written over what was there a round before. */
static weft_status make_room(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k, int reader)
{
    const weft_i_lane *lane = coll->lane;
    size_t around = fifo->room / fifo->chunk; /* chunks until it comes round to the same place */
    for (int rank = 0; rank < lane->size && k >= around; rank++)
        if (rank != lane->me && (reader < 0 || rank == reader))
            WEFT_TRY(weft_i_fifo_await_drained(coll, fifo, k - around, rank));
    return WEFT_OK;
}

void weft_i_fifo_put(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k, const char *from,
                     size_t bytes)
{
    WEFT_ASSERT(bytes <= fifo->chunk);
    const weft_i_lane *lane = coll->lane;
    memcpy(weft_i_fifo_chunk(fifo, lane, lane->me, k), from, bytes);
    /* Pairs with the acquire in has_come_to. */
    atomic_store_explicit(&weft_i_lane_head_of(lane, lane->me)->filled, count_of(fifo, k + 1),
                          memory_order_release);
}

weft_status weft_i_fifo_write_chunk(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k,
                                    const char *data, int reader)
{
    WEFT_TRY(make_room(coll, fifo, k, reader));
    weft_i_fifo_put(coll, fifo, k, data + k * fifo->chunk, weft_i_fifo_bytes(fifo, k));
    return WEFT_OK;
}

weft_status weft_i_fifo_write(weft_i_coll *coll, const weft_i_fifo *fifo, const char *data,
                              int reader)
{
    for (size_t k = 0; k < weft_i_fifo_chunks(fifo); k++)
        WEFT_TRY(weft_i_fifo_write_chunk(coll, fifo, k, data, reader));
    return WEFT_OK;
}

/* ---- readers ---- */

weft_status weft_i_fifo_await(weft_i_coll *coll, const weft_i_fifo *fifo, int writer, size_t k)
{
    return follow(coll, &weft_i_lane_head_of(coll->lane, writer)->filled, count_of(fifo, k + 1),
                  writer);
}

void weft_i_fifo_drain(weft_i_coll *coll, const weft_i_fifo *fifo, size_t k)
{
    WEFT_ASSERT(k < weft_i_fifo_chunks(fifo));
    if (fifo->total <= fifo->room)
        return; /* nobody waits for it */
    /* Pairs with the acquire in has_come_to. */
    atomic_store_explicit(&weft_i_lane_head_of(coll->lane, coll->lane->me)->drained,
                          count_of(fifo, k + 1), memory_order_release);
}

weft_status weft_i_fifo_read(weft_i_coll *coll, const weft_i_fifo *fifo, int writer, char *to)
{
    for (size_t k = 0; k < weft_i_fifo_chunks(fifo); k++) {
        WEFT_TRY(weft_i_fifo_await(coll, fifo, writer, k));
        memcpy(to + k * fifo->chunk, weft_i_fifo_chunk(fifo, coll->lane, writer, k),
               weft_i_fifo_bytes(fifo, k));
        weft_i_fifo_drain(coll, fifo, k);
    }
    return WEFT_OK;
}
