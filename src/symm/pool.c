/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool cuts tensors from its blocks.  Gaps are kept in order of address and merged, and the first
 * that fits is taken, so ranks that cut alike get alike offsets, and a tensor freed and made again
 * returns to its place.  In a pool that grows, large tensors are cut from the end of the last gap, so
 * that small ones that stay do not lie between them.
 *
 * On a device a gap knows the stream that used it last; a tensor cut there by another one is behind it.
 * Gaps of different streams stay apart, side by side, until one tensor takes both.
 */
#include "symm/pool.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "tensor/object/device.h"

#include <string.h>

enum {
    UNIT = WEFT_I_LINE,     /* tensors start and end on lines of their own */
    BLOCK_LEAST = 32 << 20, /* of a pool that grows */
    LARGE = 4               /* a tensor of a quarter of its block is large */
};

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static void set_stream(gap *g, weft_stream *stream)
{
    weft_stream *old = g->by;
    g->by = stream ? weft_i_object_hold(stream) : NULL;
    weft_i_object_drop(old);
}

/* ---- blocks ---- */

static void free_part(weft_i_pool_block *part)
{
    for (size_t i = 0; i < part->count; i++)
        weft_i_object_drop(part->gaps[i].by);
    weft_i_block_drop(part->block);
    WEFT_OS->free(part->gaps);
    WEFT_OS->free(part);
}

static weft_status make_part(weft_device device, size_t bytes, weft_i_pool_block **out)
{
    weft_i_pool_block *part = WEFT_OS->alloc(sizeof *part);
    if (part)
        part->gaps = WEFT_OS->alloc(16 * sizeof *part->gaps);
    if (!part || !part->gaps) {
        WEFT_OS->free(part);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a pool");
    }
    part->room = 16;
    weft_status status = weft_i_block_new(device, bytes, NULL, &part->block);
    if (status < 0) {
        free_part(part);
        return status;
    }
    part->gaps[0] = (gap){0, bytes, NULL};
    part->count = 1;
    *out = part;
    return WEFT_OK;
}

/* Under the lock: another block behind the others. */
static void append(weft_symm_pool *pool, weft_i_pool_block *part)
{
    weft_i_pool_block **at = &pool->first;
    while (*at)
        at = &(*at)->next;
    *at = part;
    pool->blocks++;
}

static void destroy(weft_i_object *object)
{
    weft_symm_pool *pool = (weft_symm_pool *)object;
    while (pool->first) {
        weft_i_pool_block *part = pool->first;
        pool->first = part->next;
        free_part(part);
    }
    pthread_mutex_destroy(&pool->lock);
    weft_i_object_free(object);
}

/* A block whose allocation is a call of all ranks cannot come when one of them needs it. */
static weft_status check_growth(weft_device device)
{
    const weft_i_backend *backend = weft_i_backend_for(device);
    if (!backend)
        return weft_last_status();
    return strcmp(backend->name, "nvshmem") != 0
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_UNSUPPORTED,
                             "weft_symm_pool_new: memory of backend nvshmem is allocated by all "
                             "ranks together, so a pool of it has a size from the start");
}

weft_symm_pool *weft_symm_pool_new(weft_device device, size_t bytes)
{
    if (bytes > (size_t)INT64_MAX - UNIT)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_symm_pool_new: %zu bytes make no pool",
                           bytes);
    if (!bytes && check_growth(device) < 0)
        return NULL;
    weft_symm_pool *pool = weft_i_object_new(WEFT_I_POOL, sizeof *pool, destroy);
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->device = device;
    pool->grows = bytes == 0;
    weft_i_pool_block *part = NULL;
    if (bytes && make_part(device, round_up(bytes, UNIT), &part) < 0) {
        weft_release(pool);
        return NULL;
    }
    if (part)
        append(pool, part);
    return pool;
}

/* ---- cutting and giving back: under the lock ---- */

/* Room for every gap there can be when all tensors have been released, so that a release never
 * allocates. */
static bool has_room(weft_i_pool_block *part)
{
    if (part->count + part->tensors + 2 <= part->room)
        return true;
    gap *wider = WEFT_OS->resize(part->gaps, 2 * part->room * sizeof *wider);
    if (!wider)
        return false;
    part->gaps = wider;
    part->room *= 2;
    return true;
}

static void remove_gaps(weft_i_pool_block *part, size_t at, size_t count)
{
    for (size_t i = at; i < at + count; i++)
        weft_i_object_drop(part->gaps[i].by);
    memmove(&part->gaps[at], &part->gaps[at + count],
            (part->count - at - count) * sizeof *part->gaps);
    part->count -= count;
}

/* Gaps that lie side by side from number `from` on and have `bytes` bytes in all; 0: they have not. */
static size_t run_of(const weft_i_pool_block *part, size_t from, size_t bytes)
{
    size_t have = 0, i = from;
    for (; i < part->count && have < bytes; i++) {
        if (i > from && part->gaps[i - 1].at + part->gaps[i - 1].bytes != part->gaps[i].at)
            return 0;
        have += part->gaps[i].bytes;
    }
    return have >= bytes ? i - from : 0;
}

/* The stream is put behind whoever used the gaps. */
static weft_status order(const weft_i_pool_block *part, size_t from, size_t count,
                         weft_stream *stream)
{
    for (size_t i = from; stream && i < from + count; i++)
        if (part->gaps[i].by)
            WEFT_TRY(weft_i_stream_after(stream, part->gaps[i].by, false));
    return WEFT_OK;
}

/* From the first gaps that fit; what is left of the last one stays. */
static size_t cut_low(weft_i_pool_block *part, size_t from, size_t count, size_t bytes)
{
    size_t at = part->gaps[from].at;
    gap *last = &part->gaps[from + count - 1];
    size_t end = last->at + last->bytes;
    if (end == at + bytes) {
        remove_gaps(part, from, count);
        return at;
    }
    last->at = at + bytes;
    last->bytes = end - last->at;
    remove_gaps(part, from, count - 1);
    return at;
}

static weft_status take_low(weft_i_pool_block *part, size_t bytes, weft_stream *stream, size_t *at)
{
    for (size_t from = 0; from < part->count; from++) {
        size_t count = run_of(part, from, bytes);
        if (!count)
            continue;
        WEFT_TRY(order(part, from, count, stream));
        *at = cut_low(part, from, count, bytes);
        return WEFT_OK;
    }
    return WEFT_ERR_NOT_FOUND;
}

/* From the end of the last gap that fits. */
static weft_status take_high(weft_i_pool_block *part, size_t bytes, weft_stream *stream, size_t *at)
{
    for (size_t i = part->count; i-- > 0;) {
        gap *g = &part->gaps[i];
        if (g->bytes < bytes)
            continue;
        WEFT_TRY(order(part, i, 1, stream));
        g->bytes -= bytes;
        *at = g->at + g->bytes;
        if (!g->bytes)
            remove_gaps(part, i, 1);
        return WEFT_OK;
    }
    return take_low(part, bytes, stream, at); /* side by side, perhaps */
}

static weft_status take_from(const weft_symm_pool *pool, weft_i_pool_block *part, size_t bytes,
                             weft_stream *stream, size_t *at)
{
    if (!has_room(part))
        return WEFT_ERR_NOT_FOUND;
    bool high = pool->grows && bytes >= part->block->bytes / LARGE;
    WEFT_TRY(high ? take_high(part, bytes, stream, at) : take_low(part, bytes, stream, at));
    WEFT_ASSERT(*at % UNIT == 0 && bytes % UNIT == 0);
    part->tensors++;
    return WEFT_OK;
}

static void note_take(weft_symm_pool *pool, size_t bytes)
{
    pool->takes++;
    pool->used += bytes;
    pool->most = pool->used > pool->most ? pool->used : pool->most;
}

/* Is the neighbour's end this one's begin, and were both used by the same stream? */
static bool joins(const gap *left, const gap *right)
{
    return left->at + left->bytes == right->at && left->by == right->by;
}

static void give_back(weft_i_pool_block *part, size_t at, size_t bytes, weft_stream *by)
{
    size_t i = 0;
    while (i < part->count && part->gaps[i].at < at)
        i++;
    gap *left = i > 0 ? &part->gaps[i - 1] : NULL;
    WEFT_ASSERT(part->tensors > 0 && bytes % UNIT == 0 && part->count < part->room);
    WEFT_ASSERT(i == part->count || at + bytes <= part->gaps[i].at); /* it was no gap */
    WEFT_ASSERT(!left || left->at + left->bytes <= at);
    memmove(&part->gaps[i + 1], &part->gaps[i], (part->count++ - i) * sizeof *part->gaps);
    part->gaps[i] = (gap){at, bytes, NULL};
    set_stream(&part->gaps[i], by);
    part->tensors--;
    if (i + 1 < part->count && joins(&part->gaps[i], &part->gaps[i + 1])) {
        part->gaps[i].bytes += part->gaps[i + 1].bytes;
        remove_gaps(part, i + 1, 1);
    }
    if (left && joins(left, &part->gaps[i])) {
        left->bytes += part->gaps[i].bytes;
        remove_gaps(part, i, 1);
    }
}

/* One empty block is kept for what comes; the others of a pool that grows go back to the system. */
static weft_i_pool_block *take_spare(weft_symm_pool *pool, const weft_i_pool_block *emptied)
{
    weft_i_pool_block **found = NULL;
    int empty = 0;
    for (weft_i_pool_block **at = &pool->first; *at; at = &(*at)->next)
        if (!(*at)->tensors) {
            empty++;
            found = at;
        }
    if (!pool->grows || emptied->tensors || empty < 2)
        return NULL;
    weft_i_pool_block *spare = *found;
    *found = spare->next;
    pool->blocks--;
    return spare;
}

static void ended(weft_i_lease *lease)
{
    weft_symm_pool *pool = lease->pool;
    size_t bytes = round_up(lease->bytes ? lease->bytes : 1, UNIT);
    pthread_mutex_lock(&pool->lock);
    weft_i_pool_block *part = pool->first;
    while (part->block != lease->block)
        part = part->next;
    give_back(part, lease->offset, bytes, lease->storage ? lease->storage->stream : NULL);
    pool->used -= bytes;
    weft_i_pool_block *spare = take_spare(pool, part);
    pthread_mutex_unlock(&pool->lock);
    if (spare)
        free_part(spare); /* the lease holds its own block until this returns */
    weft_i_object_drop(pool);
}

/* Another block for at least `bytes`.  Not under the lock: it takes a while. */
static weft_status grow(weft_symm_pool *pool, size_t bytes)
{
    weft_i_pool_block *part = NULL;
    WEFT_TRY(make_part(pool->device, bytes < BLOCK_LEAST ? BLOCK_LEAST : bytes, &part));
    pthread_mutex_lock(&pool->lock);
    append(pool, part);
    pthread_mutex_unlock(&pool->lock);
    return WEFT_OK;
}

static weft_status take_any(weft_symm_pool *pool, size_t bytes, weft_stream *stream,
                            weft_i_lease *out)
{
    weft_status status = WEFT_ERR_NOT_FOUND;
    pthread_mutex_lock(&pool->lock);
    for (weft_i_pool_block *part = pool->first; part && status == WEFT_ERR_NOT_FOUND;
         part = part->next) {
        out->block = part->block;
        status = take_from(pool, part, bytes, stream, &out->offset);
    }
    if (status == WEFT_OK)
        note_take(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

weft_status weft_i_pool_take(weft_symm_pool *pool, size_t bytes, weft_stream *stream,
                             weft_i_lease *out)
{
    *out = (weft_i_lease){.bytes = bytes, .ended = ended};
    size_t rounded = round_up(bytes ? bytes : 1, UNIT);
    weft_status status = take_any(pool, rounded, stream, out);
    if (status == WEFT_ERR_NOT_FOUND && pool->grows) {
        WEFT_TRY(grow(pool, rounded));
        status = take_any(pool, rounded, stream, out);
    }
    if (status == WEFT_OK)
        out->pool = weft_i_object_hold(pool);
    return status;
}

weft_tensor *weft_symm_pool_empty(weft_symm_pool *pool, weft_dtype dtype, weft_shape shape)
{
    if ((!pool && weft_i_missing("the pool is NULL") < 0) ||
        weft_i_shape_check("weft_symm_pool_empty", dtype, shape, NULL) < 0)
        return NULL;
    size_t bytes = (size_t)weft_i_shape_numel(shape) * weft_dtype_size(dtype);
    weft_stream *stream =
        weft_i_device_is_host(pool->device) ? NULL : weft_i_stream_current(pool->device);
    char text[WEFT_I_SHAPE_TEXT];
    weft_i_lease lease;
    weft_status status = weft_i_pool_take(pool, bytes, stream, &lease);
    if (status == WEFT_ERR_NOT_FOUND)
        return weft_i_null(WEFT_ERR_NO_SPACE,
                           "no gap of %zu bytes for %s of shape %s in a pool of %zu bytes", bytes,
                           weft_dtype_name(dtype), weft_i_shape_text(shape, text),
                           pool->first ? pool->first->block->bytes : 0);
    if (status < 0)
        return NULL;
    if (weft_i_device_fill(pool->device, lease.block->segment->base + lease.offset, 0, bytes) < 0) {
        ended(&lease);
        return NULL;
    }
    return weft_i_block_tensor(&lease, dtype, shape, NULL);
}

weft_status weft_symm_pool_describe(weft_symm_pool *pool, weft_symm_pool_info *out)
{
    if (!pool)
        return weft_i_missing("weft_symm_pool_describe: the pool is NULL");
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_symm_pool_describe: the result is NULL");
    pthread_mutex_lock(&pool->lock);
    *out = (weft_symm_pool_info){.device = pool->device,
                                 .blocks = pool->blocks,
                                 .used = pool->used,
                                 .most = pool->most,
                                 .takes = pool->takes};
    for (const weft_i_pool_block *part = pool->first; part; part = part->next) {
        out->bytes += part->block->bytes;
        for (size_t i = 0, run = 0; i < part->count; i++) {
            bool side_by_side =
                i && part->gaps[i - 1].at + part->gaps[i - 1].bytes == part->gaps[i].at;
            run = part->gaps[i].bytes + (side_by_side ? run : 0);
            out->gaps += !side_by_side;
            out->largest_gap = run > out->largest_gap ? run : out->largest_gap;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return WEFT_OK;
}
