/* SPDX-License-Identifier: Apache-2.0 */
/* How a group ends: revoked, destroyed by its members, or freed with its last reference. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange_store.h"
#include "fabric/group/group.h"
#include "fabric/group/group_event.h"
#include "fabric/group/hosts.h"
#include "fabric/world/news.h"

static void ring_all(const weft_group *group)
{
    for (int rank = 0; rank < group->size && !group->world->fake; rank++) {
        weft_i_wait_ring(&group->board->row[rank].bell);
        weft_i_wait_ring(&group->board->row[rank].lane_bell);
    }
}

/* True: this was the first word of it here. */
static bool end_here(const weft_group *group, int who, weft_status why)
{
    WEFT_ASSERT(who >= 0 && who < group->size && why <= WEFT_OK);
    uint32_t nobody = 0;
    int32_t no_reason = 0;
    /* Relaxed: seen by whoever sees `revoked`.  In both the first one counts. */
    if (why < 0)
        atomic_compare_exchange_strong_explicit(&group->board->failure, &no_reason, why,
                                                memory_order_relaxed, memory_order_relaxed);
    /* Pairs with the acquire in `revoker`. */
    bool first =
        atomic_compare_exchange_strong_explicit(&group->board->revoked, &nobody, 1 + (uint32_t)who,
                                                memory_order_release, memory_order_relaxed);
    ring_all(group);
    if (first && group->hosts && group->hosts->near)
        weft_i_group_end_here(group->hosts->near, group->hosts->near->rank, why);
    return first;
}

void weft_i_group_end_here(const weft_group *group, int who, weft_status why)
{
    end_here(group, who, why);
}

void weft_i_group_end_board(const weft_group *group, weft_status why)
{
    if (end_here(group, group->rank, why) && group->hosts)
        weft_i_hosts_tell_end(group, why, false);
}

void weft_i_group_spoil(const weft_group *group, weft_status why)
{
    if (group->board)
        weft_i_group_end_board(group, weft_status_scope(why) < WEFT_SCOPE_GROUP ? WEFT_OK : why);
}

static weft_status revoke_in_store(const weft_group *group)
{
    weft_i_world *world = group->world;
    int64_t deadline = weft_i_os_deadline(weft_i_group_limit(group, WEFT_DEFAULT));
    weft_status status =
        weft_i_exchange_store_end(world->store, group->key, world->rank, WEFT_ERR_REVOKED);
    if (status == WEFT_ERR_UNREACHABLE && weft_i_news_move(world, deadline) == WEFT_OK)
        status = weft_i_exchange_store_end(world->store, group->key, world->rank, WEFT_ERR_REVOKED);
    return status;
}

weft_status weft_group_revoke(weft_group *group)
{
    WEFT_TRY(weft_i_group_usable(group));
    weft_i_registry_retire(&group->world->registry, group);
    if (!group->board)
        return revoke_in_store(group);
    uint32_t nobody = 0; /* the first one counts */
    /* Pairs with the acquire in weft_i_board_is_recalled. */
    atomic_compare_exchange_strong_explicit(&group->board->recalled, &nobody,
                                            1 + (uint32_t)group->rank, memory_order_release,
                                            memory_order_relaxed);
    if (group->hosts)
        weft_i_hosts_tell_end(group, WEFT_OK, true);
    weft_i_group_spoil(group, WEFT_OK);
    return WEFT_OK;
}

void weft_i_group_mark_destroyed(weft_group *group)
{
    /* Pairs with the acquire in weft_i_group_is_destroyed. */
    if (atomic_exchange_explicit(&group->destroyed, true, memory_order_acq_rel))
        return;
    weft_i_event_close(group);
    if (!group->board || group->world->fake)
        return;
    /* Pairs with the acquire in `has_left` of exchange.c. */
    atomic_store_explicit(&group->board->row[group->rank].left, 1, memory_order_release);
    ring_all(group);
    if (group->hosts)
        weft_i_hosts_tell_left(group);
}

/* Members on other hosts learn it from the store; that they may not is no error of ours. */
static void tell_other_hosts(weft_i_world *world)
{
    weft_i_errors before;
    weft_i_key key;
    weft_i_errors_save(&before);
    while (weft_i_registry_next_doomed(&world->registry, &key))
        if (world->store)
            weft_i_exchange_store_end(world->store, key, world->rank, WEFT_ERR_PEER_LEFT);
    weft_i_errors_restore(&before);
}

weft_status weft_group_destroy(weft_group *group)
{
    if (!group)
        return WEFT_OK;
    WEFT_TRY(weft_i_group_usable(group));
    weft_i_registry_doom(&group->world->registry, group);
    tell_other_hosts(group->world);
    return WEFT_OK;
}

void weft_i_group_free(weft_i_object *object)
{
    weft_group *group = (weft_group *)object;
    weft_i_registry *registry = &group->world->registry;
    if (registry->root == group) /* written before the group was anybody's */
        weft_i_registry_let_go(registry);
    weft_i_registry_leave(registry, group);
    weft_i_event_close(group);
    if (group->world->mine && group->world->generation == weft_i_os_generation())
        weft_i_job_quit(group->world->mine, group->id);
    for (int floor = 0; floor < WEFT_I_GROUP_FLOORS; floor++)
        weft_i_object_drop(group->floor[floor]);
    weft_i_hosts_end(group->hosts);
    weft_i_object_drop(group->lane);
    weft_i_hosts_free(group->hosts);
    weft_i_segment_drop(group->rest.board_segment);
    weft_i_lineage_free(&group->lineage);
    WEFT_OS->free(group->members);
    WEFT_OS->free(group->rest.creations);
    weft_i_object_drop(group->rest.parent);
    weft_i_world_drop(group->world);
    weft_i_object_free(object);
}
