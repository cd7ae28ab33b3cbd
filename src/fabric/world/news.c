/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key "meet/gone" holds one note for each rank that has gone, in the order in which that was
 * told; notes are never removed, and saying the same twice does no harm.
 *
 * Why all find the same successor: a rank's server lives as long as the rank is in the job, so that
 * a refused connection means that the rank is gone, for all and for ever; and all try them in
 * the order of the ranks.
 */
#include "fabric/world/news.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "store/client.h"

#include <stdio.h>
#include <string.h>

static const char gone_key[] = "meet/gone";
static const int64_t pause_ns = 2000000;    /* between looks */
static const int64_t probe_ns = 50000000;   /* for one rank to take a connection */
static const int64_t probes_ns = 500000000; /* for all of them */
static const int64_t longest_ns =
    60000000000; /* that leaving takes where operations have no limit */

typedef struct note {
    int32_t rank, fate;
} note;

/* What was heard first stands: whoever has left in order cannot die afterwards. */
static void mark(weft_i_world *world, int rank, weft_i_fate fate)
{
    WEFT_ASSERT(rank >= 0 && rank < world->size && fate != WEFT_I_ALIVE);
    int alive = WEFT_I_ALIVE;
    atomic_compare_exchange_strong_explicit(&world->peers[rank].gone, &alive, (int)fate,
                                            memory_order_relaxed, memory_order_relaxed);
}

static bool is_gone(const weft_i_world *world, int rank)
{
    return weft_i_world_fate(world, rank) < 0 ||
           atomic_load_explicit(&world->peers[rank].gone, memory_order_relaxed) != WEFT_I_ALIVE;
}

static weft_status tell(weft_i_world *world, int rank, weft_i_fate fate)
{
    WEFT_ASSERT(world->store && fate != WEFT_I_ALIVE);
    note told = {rank, (int32_t)fate};
    return weft_store_append(world->store, gone_key, &told, sizeof told);
}

/* Where no server sees a rank's end its neighbours tell it. */
static weft_status tell_local_deaths(weft_i_world *world)
{
    for (int rank = 0; rank < world->size; rank++) {
        weft_i_peer *peer = &world->peers[rank];
        if (!peer->rank_record || weft_i_watch_fate(peer->rank_record) != WEFT_I_DEAD ||
            atomic_load_explicit(&peer->gone, memory_order_relaxed) != WEFT_I_ALIVE)
            continue;
        WEFT_TRY(tell(world, rank, WEFT_I_DEAD));
        mark(world, rank, WEFT_I_DEAD);
    }
    return WEFT_OK;
}

weft_status weft_i_news_open(weft_i_world *world)
{
    note mine = {world->rank, WEFT_I_DEAD};
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_i_store_will(world->store, gone_key, &mine, sizeof mine);
    world->wills = status == WEFT_OK;
    if (status == WEFT_ERR_UNSUPPORTED)
        weft_i_errors_restore(&before);
    else if (status < 0)
        return status;
    WEFT_TRY(weft_store_append(world->store, gone_key, "", 0)); /* so that it can be read */
    world->told = true;
    return WEFT_OK;
}

weft_status weft_i_news_hear(weft_i_world *world)
{
    weft_store_value value = {0};
    note told;
    if (!world->told)
        return WEFT_OK;
    if (!world->wills)
        WEFT_TRY(tell_local_deaths(world));
    WEFT_TRY(weft_store_get(world->store, gone_key, WEFT_STORE_NOW, &value));
    for (size_t at = 0; at + sizeof told <= value.bytes; at += sizeof told) {
        memcpy(&told, (const char *)value.data + at, sizeof told);
        bool known = told.fate == WEFT_I_LEFT || told.fate == WEFT_I_DEAD;
        if (known && told.rank >= 0 && told.rank < world->size && told.rank != world->rank)
            mark(world, told.rank, (weft_i_fate)told.fate);
    }
    weft_store_value_clear(&value);
    return WEFT_OK;
}

/* ---- the store in reserve ---- */

weft_status weft_i_news_stand_by(weft_i_world *world, char *out, size_t bytes)
{
    char text[WEFT_I_STORE_ADDRESS_TEXT] = "";
    *out = 0;
    if (!world->own_store || !weft_i_store_client_is(world->store))
        return WEFT_OK;
    WEFT_TRY(weft_i_store_client_stand_by(world->store, &world->standby, text));
    if (strlen(text) < bytes)
        snprintf(out, bytes, "%s", text);
    return WEFT_OK;
}

/* The old store knew who was gone, the new one has to be told; and those who died together with the
 * old one have no will in the new one, so they are asked for. */
static weft_status retell(weft_i_world *world)
{
    int64_t end = WEFT_OS->clock_ns() + probes_ns;
    WEFT_TRY(weft_i_news_open(world));
    for (int rank = 0; rank < world->size; rank++) {
        weft_i_peer *peer = &world->peers[rank];
        int64_t now = WEFT_OS->clock_ns(), limit = now + probe_ns < end ? now + probe_ns : end;
        if (rank != world->rank && !is_gone(world, rank) && now < end &&
            weft_i_store_dial_is_refused(peer->store, limit))
            mark(world, rank, WEFT_I_DEAD);
        int fate = atomic_load_explicit(&peer->gone, memory_order_relaxed);
        if (fate != WEFT_I_ALIVE)
            WEFT_TRY(tell(world, rank, (weft_i_fate)fate));
    }
    return WEFT_OK;
}

/* Tries the servers in the order of their ranks.  The rank reached; -1: none yet; or a status below
 * that. */
static int try_all(weft_i_world *world, int64_t deadline)
{
    for (int rank = 0; rank < world->size; rank++) {
        const weft_i_peer *peer = &world->peers[rank];
        if (!peer->store[0] || (rank != world->rank && is_gone(world, rank)))
            continue;
        weft_status status = weft_i_store_client_redial(world->store, peer->store, deadline);
        if (status == WEFT_OK)
            return rank;
        if (status == WEFT_ERR_NO_MEMORY || status == WEFT_ERR_LIMIT)
            return (int)status - 1;
        if (status > 0)
            return -1; /* it is there and busy: the others find it too */
        if (rank != world->rank)
            mark(world, rank, WEFT_I_DEAD);
    }
    return WEFT_ERR_UNREACHABLE - 1;
}

static weft_status move(weft_i_world *world, int64_t deadline)
{
    int rank;
    while ((rank = try_all(world, deadline)) == -1) {
        if (WEFT_OS->clock_ns() >= deadline)
            return WEFT_ERR_UNREACHABLE;
        WEFT_OS->sleep_ns(pause_ns);
    }
    if (rank < -1)
        return (weft_status)(rank + 1);
    WEFT_ASSERT(rank >= 0 && rank < world->size);
    int before = atomic_load_explicit(&world->server, memory_order_relaxed);
    if (rank != before) {
        weft_i_log(WEFT_LOG_INFO, "rank %d, which served the store, is gone; rank %d serves it now",
                   before, rank);
        atomic_store_explicit(&world->server, rank, memory_order_relaxed);
        /* Pairs with the acquire of whoever compares it with what it was. */
        atomic_fetch_add_explicit(&world->moves, 1, memory_order_release);
    }
    return retell(world);
}

weft_status weft_i_news_move(weft_i_world *world, int64_t deadline)
{
    if (!world->told || !world->own_store || !world->peers[world->rank].store[0])
        return WEFT_ERR_UNREACHABLE;
    weft_i_errors before;
    weft_i_errors_save(&before);
    pthread_mutex_lock(&world->moving);
    /* Another thread may have done it; and a new store may be gone before it was told. */
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && weft_i_store_client_is_broken(world->store))
        if ((status = move(world, deadline)) == WEFT_ERR_UNREACHABLE &&
            weft_i_store_client_is_broken(world->store) && WEFT_OS->clock_ns() < deadline &&
            atomic_load_explicit(&world->server, memory_order_relaxed) != world->rank)
            status = WEFT_OK;
    pthread_mutex_unlock(&world->moving);
    weft_i_errors_restore(&before);
    return status;
}

/* ---- leaving ---- */

static bool all_gone(weft_i_world *world)
{
    for (int rank = 0; rank < world->size; rank++)
        if (rank != world->rank && !is_gone(world, rank))
            return false;
    return true;
}

static bool serves(weft_i_world *world)
{
    return weft_i_store_client_serves(world->store) ||
           (world->standby &&
            atomic_load_explicit(&world->server, memory_order_relaxed) == world->rank);
}

static void await_others(weft_i_world *world, int64_t deadline)
{
    while (weft_i_news_hear(world) == WEFT_OK && !all_gone(world)) {
        if (WEFT_OS->clock_ns() >= deadline) {
            weft_i_log(WEFT_LOG_WARN, "rank %d, which serves the store, leaves before the others",
                       world->rank);
            return;
        }
        WEFT_OS->sleep_ns(pause_ns);
    }
}

/* The limit of leaving, also for calls of the store; a weft_init that fails has its own, and that is
 * not made longer.  `*before` is what to set back. */
static int64_t leaving_deadline(const weft_i_world *world, int64_t *before)
{
    int64_t longest = WEFT_OS->clock_ns() + longest_ns;
    int64_t wanted = weft_i_os_deadline(world->timeout_ms);
    int64_t deadline = wanted < longest ? wanted : longest;
    *before = weft_i_store_until(deadline);
    if (*before < deadline)
        weft_i_store_until(deadline = *before);
    return deadline;
}

void weft_i_news_leave(weft_i_world *world)
{
    if (!world->told)
        return;
    weft_i_errors before;
    weft_i_errors_save(&before);
    int64_t until, deadline = leaving_deadline(world, &until);
    weft_status status = tell(world, world->rank, WEFT_I_LEFT);
    if (status == WEFT_ERR_UNREACHABLE && weft_i_news_move(world, deadline) == WEFT_OK)
        status = tell(world, world->rank, WEFT_I_LEFT);
    if (status == WEFT_OK && world->wills)
        weft_i_store_will(world->store, gone_key, "", 0);
    weft_i_store_until(until);
    weft_i_errors_restore(&before);
}

void weft_i_news_see_off(weft_i_world *world)
{
    if (!world->told || !serves(world))
        return;
    weft_i_errors before;
    weft_i_errors_save(&before);
    int64_t until, deadline = leaving_deadline(world, &until);
    await_others(world, deadline);
    weft_i_store_until(until);
    weft_i_errors_restore(&before);
}
