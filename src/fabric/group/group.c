/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: the object, what can be asked of it, and its end.  How groups are made is in group_new.c
 * and group_split.c, how they are found in group_find.c, how members meet in exchange.c.
 */
#include "fabric/group/group.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "fabric/group/rank_list.h"

#include <stdio.h>
#include <string.h>

const weft_i_lanes *weft_i_lanes_table;

weft_group *weft_i_group_allocate(weft_i_world *world, int size)
{
    WEFT_ASSERT(world && size > 0);
    weft_group *group = weft_i_object_new(WEFT_I_GROUP, sizeof *group, weft_i_group_free);
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
        if (!weft_i_group_rank_record(group, rank))
            return false;
    return true;
}

weft_status weft_i_group_open_fake(weft_group *group)
{
    WEFT_ASSERT(group->world->fake);
    WEFT_TRY(weft_i_segment_new(sizeof(weft_i_board), WEFT_I_BETWEEN_THREADS, "a fake group",
                                &group->rest.board_segment));
    group->board = (weft_i_board *)(void *)group->rest.board_segment->base;
    group->key = group->rest.board_segment->key;
    group->id = group->rest.parent ? weft_i_group_number(group->key) : 0;
    return WEFT_OK;
}

void weft_i_group_log_made(const weft_group *group)
{
    char ranks[200], limit[32] = "none";
    if (!weft_i_log_wants(WEFT_LOG_INFO))
        return;
    weft_i_rank_list_text(group->members, group->size, ranks, sizeof ranks);
    if (group->timeout_ms >= 0)
        snprintf(limit, sizeof limit, "%lld ms", (long long)group->timeout_ms);
    weft_i_log(WEFT_LOG_INFO,
               "group \"%s\" (%x) made: rank %d of %d, world ranks %s, tag \"%s\", limit %s, %s",
               group->name, group->id, group->rank, group->size, ranks, weft_group_tag(group),
               limit, group->listing.description);
}

/* The world group's own fields; it is the root of the registry. */
static weft_status fill_world(weft_group *group)
{
    weft_i_world *world = group->world;
    WEFT_ASSERT(group->size == world->size);
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
    group->listing.untagged = true;
    snprintf(group->listing.description, sizeof group->listing.description, "the world");
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
        return weft_i_missing("the group is NULL");
    WEFT_TRY(weft_i_world_usable(group->world));
    return weft_i_group_is_destroyed(group)
               ? weft_i_fail(WEFT_ERR_STATE, "group \"%s\" is already destroyed", group->name)
               : WEFT_OK;
}

/* In the log once, at its usual level: a program that looks at no status would only see what follows
 * from a call that did not happen. */
weft_status weft_i_group_fail_shared(weft_group *group, const char *op)
{
    bool told = atomic_exchange_explicit(&group->calls.told_shared, true, memory_order_relaxed);
    return weft_i_fail_at(told ? WEFT_LOG_INFO : WEFT_LOG_WARN, WEFT_ERR_STATE,
                          "%s in group \"%s\": another thread of rank %d is in a call on this "
                          "group; one thread at a time may use a group, so give each thread one of "
                          "its own (weft_group_new)",
                          op, group->name, group->rank);
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

weft_status weft_i_group_refuse_limit(const char *what, int64_t timeout_ms)
{
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not %lld",
                       what, (long long)timeout_ms);
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
    return group ? group->listing.description : "";
}

const char *weft_group_tag(const weft_group *group)
{
    if (!group)
        return "";
    return strncmp(group->listing.tag, "user:", 5) ? group->listing.tag : group->listing.tag + 5;
}

uint64_t weft_group_sequence(const weft_group *group)
{
    return group ? group->sequence : 0;
}

/* ---- the end of a group ---- */

/* How many rows there are the group knows; the board is memory that others write to.  A fake one
 * has none. */

/* ---- who is lost ---- */

int weft_i_group_of_fate(const weft_group *group, weft_status fate)
{
    for (int rank = 0; rank < group->size; rank++)
        if (weft_i_world_fate(group->world, group->members[rank]) == fate)
            return rank;
    return -1;
}

typedef struct search {
    const weft_group *group;
    weft_status fate;
    int found;
} search;

static bool is_found(void *arg)
{
    search *s = arg;
    return (s->found = weft_i_group_of_fate(s->group, s->fate)) >= 0;
}

int weft_i_group_find_lost(const weft_group *group, weft_status fate)
{
    enum { NEWS_MS = 300 };
    search s = {group, fate, -1};
    if (!is_found(&s) && group->world->lifeline)
        weft_i_wait_until(is_found, &s, weft_i_os_deadline(NEWS_MS));
    return s.found;
}
