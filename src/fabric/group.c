/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: the object, what can be asked of it, and its end.  How groups are made is in group_new.c
 * and group_split.c, how they are found in group_find.c, how members meet in exchange.c.
 */
#include "fabric/group.h"

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "fabric/exchange_store.h"
#include "fabric/group_event.h"
#include "fabric/news.h"
#include "fabric/ranks.h"

#include <stdio.h>
#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_group *group = (weft_group *)object;
    weft_i_registry *registry = &group->world->registry;
    if (registry->root == group) /* written before the group was anybody's */
        weft_i_registry_let_go(registry);
    weft_i_registry_leave(registry, group);
    weft_i_event_close(group);
    weft_i_object_drop(group->coalesce);
    if (group->world->mine && group->world->generation == weft_i_os_generation())
        weft_i_job_quit(group->world->mine, group->id);
    for (int kind = 0; kind < WEFT_I_DEVICE_KINDS; kind++)
        weft_i_object_drop(group->carriers[kind]);
    weft_i_object_drop(group->lane);
    weft_i_object_drop(group->workspace);
    weft_i_segment_drop(group->board_segment);
    weft_i_lineage_free(&group->lineage);
    WEFT_OS->free(group->members);
    WEFT_OS->free(group->creations);
    weft_i_object_drop(group->parent);
    weft_i_world_drop(group->world);
    weft_i_object_free(object);
}

weft_group *weft_i_group_allocate(weft_i_world *world, int size)
{
    weft_group *group = weft_i_object_new(WEFT_I_GROUP, sizeof *group, destroy);
    if (!group)
        return NULL;
    group->world = weft_i_world_hold(world);
    group->size = size;
    group->timeout_ms = world->timeout_ms;
    group->members = WEFT_OS->alloc((size_t)size * sizeof *group->members);
    if (group->members)
        return group;
    weft_release(group);
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a group of %d ranks", size);
}

bool weft_i_group_all_local(const weft_group *group)
{
    for (int rank = 0; rank < group->size && !group->world->fake; rank++)
        if (!weft_i_group_slot(group, rank))
            return false;
    return true;
}

weft_status weft_i_group_open_fake(weft_group *group)
{
    WEFT_TRY(weft_i_segment_new(sizeof(weft_i_board), WEFT_I_BETWEEN_THREADS, "a fake group",
                                &group->board_segment));
    group->board = (weft_i_board *)(void *)group->board_segment->base;
    group->key = group->board_segment->key;
    group->id = group->parent ? weft_i_group_number(group->key) : 0;
    return WEFT_OK;
}

void weft_i_group_log_made(const weft_group *group)
{
    char ranks[200], limit[32] = "none";
    if (!weft_i_log_wants(WEFT_LOG_INFO))
        return;
    weft_i_ranks_text(group->members, group->size, ranks, sizeof ranks);
    if (group->timeout_ms >= 0)
        snprintf(limit, sizeof limit, "%lld ms", (long long)group->timeout_ms);
    weft_i_log(WEFT_LOG_INFO,
               "group \"%s\" (%x) made: rank %d of %d, world ranks %s, tag \"%s\", limit %s, %s",
               group->name, group->id, group->rank, group->size, ranks, weft_group_tag(group),
               limit, group->description);
}

/* The world group's own fields; it is the root of the registry. */
static weft_status fill_world(weft_group *group)
{
    weft_i_world *world = group->world;
    for (int rank = 0; rank < world->size; rank++)
        group->members[rank] = rank;
    group->rank = world->rank;
    group->key = world->key;
    group->local = weft_i_group_all_local(group);
    if (world->fake)
        WEFT_TRY(weft_i_group_open_fake(group));
    else
        group->board =
            group->local ? weft_i_job_board(weft_i_job_of(world->job), world->local_size) : NULL;
    group->untagged = true;
    snprintf(group->description, sizeof group->description, "the world");
    WEFT_TRY(weft_i_registry_enter(&world->registry, group));
    world->registry.root = group;
    weft_i_registry_publish(&world->registry, group, "0", "ptd:0");
    weft_i_group_log_made(group);
    return WEFT_OK;
}

weft_group *weft_i_group_of_world(weft_i_world *world)
{
    weft_group *group = weft_i_group_allocate(world, world->size);
    if (group && fill_world(group) < 0) {
        weft_release(group);
        group = NULL;
    }
    if (!group) /* acquired by peers, whose waits for us end */
        atomic_store_explicit(&world->mine->life.state, WEFT_I_RANK_FAILED, memory_order_release);
    weft_i_world_drop(world); /* the group holds it now */
    return group;
}

weft_status weft_i_group_usable(const weft_group *group)
{
    if (!group)
        return weft_last_status() < 0 ? weft_last_status()
                                      : weft_i_fail(WEFT_ERR_INVALID_ARG, "the group is NULL");
    WEFT_TRY(weft_i_world_usable(group->world));
    return weft_i_group_is_destroyed(group)
               ? weft_i_fail(WEFT_ERR_STATE, "group \"%s\" is already destroyed", group->name)
               : WEFT_OK;
}

/* ---- asking ---- */

int weft_rank(const weft_group *group)
{
    return group ? group->rank : -1;
}

int weft_size(const weft_group *group)
{
    return group ? group->size : -1;
}

int weft_local_rank(const weft_group *group)
{
    return group && group->world ? group->world->local_rank : -1;
}

int weft_local_size(const weft_group *group)
{
    return group && group->world ? group->world->local_size : -1;
}

const char *weft_group_name(const weft_group *group)
{
    return group ? group->name : "";
}

int weft_group_world_rank(const weft_group *group, int rank)
{
    return group && group->members && rank >= 0 && rank < group->size ? group->members[rank] : -1;
}

int weft_group_rank_of(const weft_group *group, int world_rank)
{
    for (int rank = 0; group && group->members && rank < group->size; rank++)
        if (group->members[rank] == world_rank)
            return rank;
    return -1;
}

int64_t weft_group_timeout(const weft_group *group)
{
    return group ? group->timeout_ms : 0;
}

weft_status weft_i_group_check_limit(const char *what, int64_t timeout_ms)
{
    return timeout_ms < WEFT_DEFAULT
               ? weft_i_fail(
                     WEFT_ERR_INVALID_ARG,
                     "%s: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not "
                     "%lld",
                     what, (long long)timeout_ms)
               : WEFT_OK;
}

weft_status weft_group_set_timeout(weft_group *group, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_group_usable(group));
    if (timeout_ms == 0 || timeout_ms < WEFT_FOREVER)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "a time limit is a positive number of ms or WEFT_FOREVER, not %lld",
                           (long long)timeout_ms);
    group->timeout_ms = timeout_ms;
    return WEFT_OK;
}

const int *weft_group_ranks(const weft_group *group)
{
    return group ? group->members : NULL;
}

const char *weft_group_description(const weft_group *group)
{
    return group ? group->description : "";
}

const char *weft_group_tag(const weft_group *group)
{
    if (!group)
        return "";
    return strncmp(group->tag, "user:", 5) ? group->tag : group->tag + 5;
}

uint64_t weft_group_sequence(const weft_group *group)
{
    return group ? group->sequence : 0;
}

/* ---- the end of a group ---- */

/* How many rows there are the group knows; the board is memory that others write to.  A fake one
 * has none. */
static void ring_all(const weft_group *group)
{
    for (int rank = 0; rank < group->size && !group->world->fake; rank++) {
        weft_i_wait_ring(&group->board->row[rank].bell);
        weft_i_wait_ring(&group->board->row[rank].lane_bell);
    }
}

void weft_i_group_end_board(const weft_group *group, weft_status why)
{
    uint32_t nobody = 0;
    int32_t no_reason = 0;
    /* Relaxed: seen by who sees `revoked`.  In both the first one counts. */
    if (why < 0)
        atomic_compare_exchange_strong_explicit(&group->board->failure, &no_reason, why,
                                                memory_order_relaxed, memory_order_relaxed);
    /* Pairs with the acquire in `revoker`. */
    atomic_compare_exchange_strong_explicit(&group->board->revoked, &nobody,
                                            1 + (uint32_t)group->rank, memory_order_release,
                                            memory_order_relaxed);
    ring_all(group);
}

void weft_i_group_spoil(const weft_group *group, weft_status why)
{
    if (group->board)
        weft_i_group_end_board(group, why);
}

static weft_status revoke_by_letter(const weft_group *group)
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
        return revoke_by_letter(group);
    uint32_t nobody = 0; /* the first one counts */
    /* Pairs with the acquire in weft_i_board_is_recalled. */
    atomic_compare_exchange_strong_explicit(&group->board->recalled, &nobody,
                                            1 + (uint32_t)group->rank, memory_order_release,
                                            memory_order_relaxed);
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
