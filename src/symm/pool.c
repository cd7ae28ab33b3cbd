/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool cuts tensors from one block.  Gaps are kept in order of address and merged, and the first
 * that fits is taken, so ranks that cut alike get alike offsets, and a tensor freed and made again
 * returns to its place.
 */
#include "base/os.h"
#include "base/status.h"
#include "symm/block.h"
#include "tensor/device.h"
#include "weft/symm.h"

#include <string.h>

enum { UNIT = WEFT_I_LINE }; /* tensors start and end on lines of their own */

typedef struct gap {
    size_t at, bytes;
} gap;

struct weft_symm_pool {
    weft_i_object object;
    weft_i_block *block;  /* held */
    pthread_mutex_t lock; /* guards the gaps: tensors may be released by any thread */
    gap *gaps; /* room for one more than there are tensors, so that a release never allocates */
    size_t count, room, tensors;
};

static void destroy(weft_i_object *object)
{
    weft_symm_pool *pool = (weft_symm_pool *)object;
    weft_i_block_drop(pool->block);
    pthread_mutex_destroy(&pool->lock);
    WEFT_OS->free(pool->gaps);
    weft_i_object_free(object);
}

weft_symm_pool *weft_symm_pool_new(weft_device device, size_t bytes)
{
    if (bytes == 0 || bytes > (size_t)INT64_MAX - UNIT)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_symm_pool_new: %zu bytes make no pool",
                           bytes);
    bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    weft_symm_pool *pool = weft_i_object_new(WEFT_I_POOL, sizeof *pool, destroy);
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->room = 16;
    pool->gaps = WEFT_OS->alloc(pool->room * sizeof *pool->gaps);
    if (!pool->gaps || weft_i_block_new(device, bytes, NULL, &pool->block) < 0) {
        if (!pool->gaps)
            weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a pool");
        weft_release(pool);
        return NULL;
    }
    pool->gaps[0] = (gap){0, bytes};
    pool->count = 1;
    return pool;
}

/* Takes `bytes` from the first gap that has them; false if none has, or no room could be made. */
static bool take(weft_symm_pool *pool, size_t bytes, size_t *at)
{
    if (pool->tensors + 2 > pool->room) {
        gap *wider = WEFT_OS->resize(pool->gaps, 2 * pool->room * sizeof *wider);
        if (!wider)
            return false;
        pool->gaps = wider;
        pool->room *= 2;
    }
    for (size_t i = 0; i < pool->count; i++) {
        gap *first = &pool->gaps[i];
        if (first->bytes < bytes)
            continue;
        *at = first->at;
        first->at += bytes;
        first->bytes -= bytes;
        if (!first->bytes)
            memmove(first, first + 1, (--pool->count - i) * sizeof *first);
        pool->tensors++;
        return true;
    }
    return false;
}

static void give_back(weft_symm_pool *pool, size_t at, size_t bytes)
{
    size_t i = 0;
    while (i < pool->count && pool->gaps[i].at < at)
        i++;
    bool joins_left = i > 0 && pool->gaps[i - 1].at + pool->gaps[i - 1].bytes == at;
    bool joins_right = i < pool->count && at + bytes == pool->gaps[i].at;
    if (joins_left && joins_right) {
        pool->gaps[i - 1].bytes += bytes + pool->gaps[i].bytes;
        memmove(&pool->gaps[i], &pool->gaps[i + 1], (--pool->count - i) * sizeof(gap));
    } else if (joins_left) {
        pool->gaps[i - 1].bytes += bytes;
    } else if (joins_right) {
        pool->gaps[i].at = at;
        pool->gaps[i].bytes += bytes;
    } else {
        memmove(&pool->gaps[i + 1], &pool->gaps[i], (pool->count++ - i) * sizeof(gap));
        pool->gaps[i] = (gap){at, bytes};
    }
    pool->tensors--;
}

static size_t units(size_t bytes)
{
    return bytes ? (bytes + UNIT - 1) / UNIT * UNIT : UNIT;
}

static void ended(weft_i_lease *lease)
{
    weft_symm_pool *pool = lease->pool;
    pthread_mutex_lock(&pool->lock);
    give_back(pool, lease->offset, units(lease->bytes));
    pthread_mutex_unlock(&pool->lock);
    weft_i_object_drop(pool);
}

weft_tensor *weft_symm_pool_empty(weft_symm_pool *pool, weft_dtype dtype, weft_shape shape)
{
    if (!pool)
        return weft_last_status() < 0 ? NULL
                                      : weft_i_null(WEFT_ERR_INVALID_ARG, "the pool is NULL");
    if (weft_i_shape_check("weft_symm_pool_empty", dtype, shape, NULL) < 0)
        return NULL;
    size_t bytes = (size_t)weft_i_shape_numel(shape) * weft_dtype_size(dtype), at = 0;
    pthread_mutex_lock(&pool->lock);
    bool taken = take(pool, units(bytes), &at);
    pthread_mutex_unlock(&pool->lock);
    char text[WEFT_I_SHAPE_TEXT];
    if (!taken)
        return weft_i_null(
            WEFT_ERR_NO_SPACE, "no gap of %zu bytes for %s of shape %s in a pool of %zu bytes",
            bytes, weft_dtype_name(dtype), weft_i_shape_text(shape, text), pool->block->bytes);
    if (weft_i_device_fill(pool->block->device, pool->block->segment->base + at, 0, bytes) < 0) {
        pthread_mutex_lock(&pool->lock);
        give_back(pool, at, units(bytes));
        pthread_mutex_unlock(&pool->lock);
        return NULL;
    }
    weft_i_lease lease = {.block = pool->block,
                          .offset = at,
                          .bytes = bytes,
                          .ended = ended,
                          .pool = weft_i_object_hold(pool)};
    return weft_i_block_tensor(&lease, dtype, shape, NULL);
}
