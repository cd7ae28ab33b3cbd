/* SPDX-License-Identifier: Apache-2.0 */
/* A pool as the source of a thread's results, and pools of all ranks that meet in a group. */
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/group/exchange.h"
#include "symm/pool.h"
#include "symm/registration.h"

#include <string.h>

/* ---- results of the thread ---- */

typedef struct use {
    weft_i_source source; /* first */
    weft_symm_pool *pool; /* held; NULL: none */
} use;

static _Thread_local use used; /* guarded by being the thread's own */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor lets the pool of a thread go that ends */

static void stop_using(void)
{
    weft_symm_pool *old = used.pool;
    used.pool = NULL;
    weft_i_source_set(NULL);
    weft_i_object_drop(old);
}

static void at_thread_end(void *unused)
{
    (void)unused;
    stop_using();
}

static void make_key(void)
{
    pthread_key_create(&key, at_thread_end);
}

/* The plain way, told once. */
static weft_status tell_full(weft_symm_pool *pool, size_t bytes, const char *why)
{
    pthread_mutex_lock(&pool->lock);
    bool told = pool->told;
    pool->told = true;
    pthread_mutex_unlock(&pool->lock);
    if (!told)
        weft_i_log(WEFT_LOG_WARN,
                   "a symmetric pool has no room for a result of %zu bytes (%s): this result and "
                   "others like it lie in plain memory",
                   bytes, why);
    return WEFT_ERR_NOT_FOUND;
}

WEFT_I_COLD void weft_i_pool_tell_passed(const weft_i_lease *lease, const weft_group *group)
{
    weft_symm_pool *pool = lease->pool;
    if (!atomic_exchange_explicit(&pool->passed, true, memory_order_relaxed))
        weft_i_log(
            WEFT_LOG_WARN,
            "a collective of group \"%s\" takes the plain way for a tensor of a symmetric pool "
            "that has met in another group: weft_symm_pool_meet in this group opens the "
            "symmetric one",
            group->name);
}

static bool is_noted(const weft_stream *stream)
{
    return stream->table->stream_noted && stream->table->stream_noted(stream->own);
}

/* Memory that is noted in a capture must be nobody else's as long as its replay lives, which a pool does
 * not know: captures have memory of their own. */
static weft_status take(weft_i_source *source, weft_storage *storage, size_t bytes)
{
    weft_symm_pool *pool = ((use *)source)->pool;
    weft_i_lease *lease = WEFT_OS->alloc(sizeof *lease);
    weft_stream *stream = storage->ordered ? storage->stream : NULL;
    if (!lease)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a symmetric tensor");
    weft_status status = WEFT_ERR_NOT_FOUND;
    weft_i_errors before;
    weft_i_errors_save(&before);
    bool captured = stream && is_noted(stream);
    if (!captured)
        status = weft_i_pool_take(pool, bytes, stream, lease);
    if (status < 0) {
        WEFT_OS->free(lease);
        status = tell_full(pool, bytes,
                           captured                       ? "its stream is being captured"
                           : status == WEFT_ERR_NOT_FOUND ? "it is full"
                                                          : weft_last_error());
        weft_i_errors_restore(&before);
        return status;
    }
    weft_i_block_lend(lease, storage);
    return WEFT_OK;
}

weft_status weft_symm_pool_use(weft_symm_pool *pool)
{
    if (pool && pool->object.kind != WEFT_I_POOL)
        return weft_i_fail(WEFT_ERR_TYPE, "weft_symm_pool_use: this is no pool");
    pthread_once(&once, make_key);
    if (pool == used.pool)
        return WEFT_OK;
    if (pool)
        weft_i_object_hold(pool);
    stop_using();
    if (pool) {
        pthread_setspecific(key, &used);
        used.pool = pool;
        used.source = (weft_i_source){.device = pool->device, .take = take};
        weft_i_source_set(&used.source);
    }
    return WEFT_OK;
}

/* ---- meeting ---- */

/* What a member's pool looks like; ranks that took and gave alike have the same. */
typedef struct entry {
    uint64_t takes, used, blocks, met, layout;
    int32_t status;
} entry;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Where one tensor ends and another begins does not matter, nor whose stream a gap is. */
static uint64_t layout_of(const weft_i_pool_block *part)
{
    uint64_t hash = mix(1, part->block->bytes);
    for (size_t i = 0; i < part->count; i++) {
        bool joined = i && part->gaps[i - 1].at + part->gaps[i - 1].bytes == part->gaps[i].at;
        if (!joined)
            hash = mix(hash, part->gaps[i].at);
        bool goes_on =
            i + 1 < part->count && part->gaps[i].at + part->gaps[i].bytes == part->gaps[i + 1].at;
        if (!goes_on)
            hash = mix(hash, part->gaps[i].at + part->gaps[i].bytes);
    }
    return hash;
}

static entry entry_of(weft_symm_pool *pool, const weft_group *group)
{
    entry mine = {.layout = 1};
    pthread_mutex_lock(&pool->lock);
    mine.takes = pool->takes;
    mine.used = pool->used;
    mine.blocks = pool->blocks;
    for (const weft_i_pool_block *part = pool->first; part; part = part->next) {
        mine.layout = mix(mine.layout, layout_of(part));
        bool met = weft_i_registration_find(part->block, group) != NULL;
        mine.met += met;
        mine.layout = mix(mine.layout, met);
    }
    pthread_mutex_unlock(&pool->lock);
    return mine;
}

static weft_status fail_table(const weft_group *group, const entry *all)
{
    char table[1600] = "";
    weft_i_text text = {table, sizeof table, 0};
    for (int rank = 0; rank < group->size && text.used + 120 < sizeof table; rank++) {
        weft_i_text_put(&text, "%s rank %d: ", rank ? ";" : "", rank);
        if (all[rank].status < 0)
            weft_i_text_put(&text, "%s", weft_strerror((weft_status)all[rank].status));
        else
            weft_i_text_put(&text, "%llu taken so far, %llu bytes in use in %llu blocks",
                            (unsigned long long)all[rank].takes, (unsigned long long)all[rank].used,
                            (unsigned long long)all[rank].blocks);
    }
    weft_i_group_concerns(group);
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "weft_symm_pool_meet in group \"%s\": the ranks have cut different tensors "
                       "from their pools, or in another order.%s",
                       group->name, table);
}

static weft_status compare(const weft_group *group, const entry *all)
{
    for (int rank = 0; rank < group->size; rank++)
        if (all[rank].status < 0)
            return rank == group->rank
                       ? (weft_status)all[rank].status
                       : weft_i_fail((weft_status)all[rank].status,
                                     "weft_symm_pool_meet in group \"%s\": rank %d cannot take "
                                     "part (%s)",
                                     group->name, rank,
                                     weft_strerror((weft_status)all[rank].status));
    for (int rank = 1; rank < group->size; rank++)
        if (all[rank].blocks != all[0].blocks || all[rank].layout != all[0].layout ||
            all[rank].met != all[0].met)
            return fail_table(group, all);
    return WEFT_OK;
}

/* By a tensor of the whole block, which comes and goes. */
static weft_status meet_block(weft_i_block *block, weft_group *group)
{
    weft_i_lease lease = {.block = block, .bytes = block->bytes, .lent = true};
    weft_tensor *all =
        weft_i_block_tensor(&lease, WEFT_U8, WEFT_SHAPE((int64_t)block->bytes), NULL);
    weft_symm *mem = weft_symm_rendezvous(all, group);
    weft_status status = mem ? WEFT_OK : weft_last_status();
    weft_release(mem);
    weft_release(all);
    return status;
}

/* The next block that has not met; held. */
static weft_i_block *next_block(weft_symm_pool *pool, const weft_group *group)
{
    pthread_mutex_lock(&pool->lock);
    const weft_i_pool_block *part = pool->first;
    while (part && weft_i_registration_find(part->block, group))
        part = part->next;
    weft_i_block *found = part ? weft_i_block_hold(part->block) : NULL;
    pthread_mutex_unlock(&pool->lock);
    return found;
}

static weft_status can_meet(const weft_symm_pool *pool)
{
    if (pool)
        return WEFT_OK;
    return weft_last_status() < 0
               ? weft_last_status()
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_symm_pool_meet: the pool is NULL");
}

weft_status weft_symm_pool_meet(weft_symm_pool *pool, weft_group *group)
{
    WEFT_TRY(weft_i_group_usable(group));
    entry mine = {.status = can_meet(pool)};
    entry *all = WEFT_OS->alloc((size_t)group->size * sizeof *all);
    if (!all && mine.status == WEFT_OK)
        mine.status = weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_symm_pool_meet: no memory for %d ranks",
                                  group->size);
    if (mine.status == WEFT_OK)
        mine = entry_of(pool, group);
    if (!all) {
        weft_i_group_show(group, "weft_symm_pool_meet", &mine, sizeof mine);
        return (weft_status)mine.status;
    }
    weft_status status =
        weft_i_group_exchange(group, "weft_symm_pool_meet", &mine, sizeof mine, all, WEFT_DEFAULT);
    if (status == WEFT_OK)
        status = compare(group, all);
    WEFT_OS->free(all);
    for (weft_i_block *block = NULL;
         status == WEFT_OK && (block = next_block(pool, group)) != NULL;) {
        status = meet_block(block, group);
        weft_i_block_drop(block);
    }
    return status;
}
