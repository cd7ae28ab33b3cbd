/* SPDX-License-Identifier: Apache-2.0 */
/* Entering and leaving a job, and what is known of its ranks; see world.h. */
#include "fabric/world/world.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "base/team/team.h"
#include "fabric/world/lifeline.h"
#include "tensor/object/scope.h"
#include "weft/version.h"

#include <stdio.h>
#include <string.h>

static pthread_mutex_t worlds_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_world *worlds;

static void remember(weft_i_world *world)
{
    pthread_mutex_lock(&worlds_lock);
    world->next = worlds;
    worlds = world;
    pthread_mutex_unlock(&worlds_lock);
}

void weft_i_world_forget(weft_i_world *world)
{
    pthread_mutex_lock(&worlds_lock);
    weft_i_world **at = &worlds;
    while (*at && *at != world)
        at = &(*at)->next;
    if (*at)
        *at = world->next;
    pthread_mutex_unlock(&worlds_lock);
}

void weft_i_world_forget_all(void)
{
    pthread_mutex_lock(&worlds_lock);
    worlds = NULL;
    pthread_mutex_unlock(&worlds_lock);
    weft_i_losses_forget();
}

weft_group *weft_i_world_group(void)
{
    weft_group *found = NULL;
    int count = 0;
    pthread_mutex_lock(&worlds_lock);
    for (weft_i_world *world = worlds; world; world = world->next) {
        /* Acquire: pairs with the release of weft_finish. */
        if (world->generation != weft_i_os_generation() || world->fake || !world->registry.root ||
            atomic_load_explicit(&world->finished, memory_order_acquire))
            continue;
        found = world->registry.root;
        count++;
    }
    pthread_mutex_unlock(&worlds_lock);
    return count == 1 ? found : NULL;
}

weft_status weft_i_world_new(int rank, int size, weft_i_world **out)
{
    WEFT_ASSERT(rank >= 0 && size > 0);
    weft_i_world *world = WEFT_OS->alloc(sizeof *world);
    weft_i_peer *peers = WEFT_OS->alloc((size_t)size * sizeof *peers);
    if (!world || !peers) {
        WEFT_OS->free(world);
        WEFT_OS->free(peers);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a world of %d ranks", size);
    }
    atomic_init(&world->references, 1);
    weft_i_registry_init(&world->registry);
    weft_i_losses_open(&world->losses);
    pthread_mutex_init(&world->moving, NULL);
    world->rank = rank;
    world->size = size;
    world->peers = peers;
    world->generation = weft_i_os_generation();
    world->timeout_ms = weft_i_env_number_or_default(WEFT_I_ENV_TIMEOUT);
    int64_t warn_ms = weft_i_env_number_or_default(WEFT_I_ENV_WARN_AFTER);
    world->warn_ns = warn_ms < 0 ? WEFT_I_NEVER : warn_ms * 1000000;
    remember(world);
    *out = world;
    return WEFT_OK;
}

static void fill_address(weft_i_world *world)
{
    weft_i_rank_record *rank_record = world->mine;
    rank_record->address.process =
        world->sharing == WEFT_I_BETWEEN_PROCESSES ? weft_i_os_process() : 0;
    rank_record->address.world_rank = world->rank;
    rank_record->address.layout = WEFT_I_JOB_LAYOUT;
    snprintf(rank_record->address.version, sizeof rank_record->address.version, "%s", WEFT_VERSION);
    snprintf(rank_record->address.fdpass, sizeof rank_record->address.fdpass, "%s",
             weft_i_fdpass_name(world->fdpass));
    weft_i_os_core_mask(rank_record->address.cores);
    weft_i_record_init(&rank_record->record);
    if (*weft_i_env_text(WEFT_I_ENV_TRACE))
        weft_i_record_want_details(&rank_record->record);
}

/* Ranks may be bound to a core each, so the cores of one say nothing: all of them together count.
 */
/* The ranks of this host that may run on some of our cores. */
static int count_sharers(const weft_i_world *world)
{
    uint64_t mine[WEFT_I_OS_CORE_WORDS];
    int sharers = 0;
    weft_i_os_core_mask(mine);
    for (int rank = 0; rank < world->size; rank++) {
        bool shares = false;
        for (int word = 0; world->peers[rank].rank_record && word < WEFT_I_OS_CORE_WORDS; word++)
            shares |= (WEFT_I_READ_ONCE(world->peers[rank].rank_record->address.cores[word]) &
                       mine[word]) != 0;
        sharers += shares;
    }
    return sharers;
}

void weft_i_world_count_cores(weft_i_world *world)
{
    uint64_t all[WEFT_I_OS_CORE_WORDS] = {0};
    int cores = 0;
    for (int rank = 0; rank < world->size; rank++)
        for (int word = 0; world->peers[rank].rank_record && word < WEFT_I_OS_CORE_WORDS; word++)
            all[word] |= WEFT_I_READ_ONCE(world->peers[rank].rank_record->address.cores[word]);
    for (int word = 0; word < WEFT_I_OS_CORE_WORDS; word++)
        cores += __builtin_popcountll(all[word]);
    world->cores = cores;
    if (cores)
        world->mode = weft_i_wait_mode_for(world->local_size, cores);
    weft_i_team_share(count_sharers(world), world->local_size);
}

weft_status weft_i_world_enter(weft_i_world *world, weft_i_segment *segment, weft_i_fdpass *fdpass,
                               int local_rank)
{
    weft_i_job *job = weft_i_job_of(segment);
    int ranks = weft_i_job_ranks(segment);
    WEFT_ASSERT(!world->mine && !world->job);
    if (local_rank < 0 || local_rank >= ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "local rank %d is outside the job page's %d ranks",
                           local_rank, ranks);
    weft_i_rank_record *rank_record = weft_i_job_rank(job, local_rank);
    uint32_t awaited = WEFT_I_RANK_AWAITED;
    /* Of two that claim one place, one gets it; nothing is published yet. */
    if (!atomic_compare_exchange_strong_explicit(&rank_record->life.state, &awaited,
                                                 WEFT_I_RANK_ENTERING, memory_order_acq_rel,
                                                 memory_order_acquire))
        return weft_i_fail(
            WEFT_ERR_STATE,
            "rank %d has already met in this job (a second weft_init, or two ranks with "
            "one number)",
            world->rank);
    world->local_rank = local_rank;
    world->local_size = ranks;
    world->mode = weft_i_wait_mode_for(ranks, weft_i_os_cores());
    if (!world->fdpass)
        world->fdpass = weft_i_fdpass_hold(fdpass);
    world->mine = rank_record;
    weft_i_os_barrier_join();
    fill_address(world);
    if (world->sharing == WEFT_I_BETWEEN_PROCESSES) {
        weft_status status = weft_i_watch_start(rank_record, fdpass, &world->watch);
        if (status < 0) {
            /* Acquired by peers, whose waits for us end. */
            atomic_store_explicit(&rank_record->life.state, WEFT_I_RANK_FAILED,
                                  memory_order_release);
            world->mine = NULL;
            return status;
        }
    }
    world->job = weft_i_segment_hold(segment);
    /* Publishes the address and the held life word; pairs with the acquire of every peer that waits
     * for us. */
    atomic_store_explicit(&rank_record->life.state, WEFT_I_RANK_HERE, memory_order_release);
    return WEFT_OK;
}

void weft_i_world_tell_failed(weft_i_rank_record *rank_record)
{
    uint32_t awaited = WEFT_I_RANK_AWAITED; /* else it is not ours to tell of */
    /* Acquired by peers, whose waits for us end. */
    atomic_compare_exchange_strong_explicit(&rank_record->life.state, &awaited, WEFT_I_RANK_FAILED,
                                            memory_order_release, memory_order_relaxed);
}

weft_i_world *weft_i_world_hold(weft_i_world *world)
{
    WEFT_ASSERT(atomic_load_explicit(&world->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&world->references, 1, memory_order_relaxed);
    return world;
}

weft_status weft_i_world_usable(const weft_i_world *world)
{
    if (!world)
        return weft_i_fail(WEFT_ERR_STATE,
                           "the group has a name and a size but no members: it is a "
                           "stand-in, good for meta tensors only");
    if (atomic_load_explicit(&world->finished,
                             memory_order_acquire)) /* pairs with weft_i_world_leave */
        return weft_i_fail(WEFT_ERR_STATE, "this rank has left its job (weft_finish was called)");
    if (world->generation != weft_i_os_generation())
        return weft_i_fail(
            WEFT_ERR_STATE,
            "this process was forked from rank %d and is not a rank itself; only the "
            "parent may use its groups",
            world->rank);
    return WEFT_OK;
}

static const char *told_of(const weft_i_peer *peer)
{
    int gone = atomic_load_explicit(&peer->gone, memory_order_relaxed);
    return gone == WEFT_I_DEAD   ? ": died, or exited without weft_finish"
           : gone == WEFT_I_LEFT ? ": left the job"
                                 : "";
}

static void put_remote(const weft_i_world *world, int rank, weft_i_text *out)
{
    const weft_i_peer *peer = &world->peers[rank];
    weft_i_text_put(out, "on host %.40s", peer->host);
    if (!weft_i_lifeline_put(world->lifeline, rank, out))
        weft_i_text_put(out, "%s", told_of(peer));
}

bool weft_i_world_is_stopped(const weft_i_world *world, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < world->size);
    const weft_i_rank_record *rank_record = world->peers[rank].rank_record;
    return rank_record ? weft_i_watch_is_stopped(rank_record)
                       : weft_i_lifeline_is_stopped(world->lifeline, rank);
}

void weft_i_world_put(const weft_i_world *world, int rank, weft_i_text *out)
{
    WEFT_ASSERT(rank >= 0 && rank < world->size);
    const weft_i_peer *peer = &world->peers[rank];
    weft_i_text_put(out, "rank %d (", rank);
    if (peer->rank_record)
        weft_i_watch_describe(peer->rank_record, out);
    else
        put_remote(world, rank, out);
    weft_i_text_put(out, ")");
}

void weft_i_world_describe(const weft_i_world *world, int rank, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    weft_i_world_put(world, rank, &text);
}

void weft_i_world_list(const weft_i_world *world, int rank, weft_i_text *list)
{
    if (list->used)
        weft_i_text_put(list, ", ");
    weft_i_world_put(world, rank, list);
}

weft_status weft_i_world_fate(const weft_i_world *world, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < world->size);
    const weft_i_peer *peer = &world->peers[rank];
    weft_i_fate fate = peer->rank_record
                           ? weft_i_watch_fate(peer->rank_record)
                           : (weft_i_fate)atomic_load_explicit(&peer->gone, memory_order_relaxed);
    if (fate == WEFT_I_ALIVE)
        return WEFT_OK;
    return fate == WEFT_I_DEAD ? WEFT_ERR_PEER_DEAD : WEFT_ERR_PEER_LEFT;
}

weft_status weft_i_world_lost(const weft_i_world *world, int rank, const char *what)
{
    weft_status fate = weft_i_world_fate(world, rank);
    if (fate == WEFT_OK)
        return WEFT_OK;
    char who[512];
    weft_i_world_describe(world, rank, who, sizeof who);
    return weft_i_fail(fate, "%s: %s will not come", what, who);
}
