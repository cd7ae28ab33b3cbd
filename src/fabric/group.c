/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: members, names, making and splitting.  How members meet is in exchange.c.
 *
 * A new group needs no collective call of its parent: its key follows from the job, the parent, the
 * rank list and how often that list was made a group of, so its members compute the same key alone.
 * The first member makes the board and offers it under that key; the others fetch it.
 */
#include "fabric/group.h"

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_group *group = (weft_group *)object;
    weft_i_object_drop(group->lane);
    weft_i_object_drop(group->workspace);
    if (group->board_segment && group->rank == 0)
        weft_i_post_withdraw(group->world->post, group->key);
    weft_i_segment_drop(group->board_segment);
    WEFT_OS->free(group->members);
    WEFT_OS->free(group->creations);
    weft_i_object_drop(group->parent);
    weft_i_world_drop(group->world);
    weft_i_object_free(object);
}

/* A group object with room for its members; holds the world. */
static weft_group *new_group(weft_i_world *world, int size)
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

static bool all_local(const weft_group *group)
{
    for (int rank = 0; rank < group->size; rank++)
        if (!weft_i_group_slot(group, rank))
            return false;
    return true;
}

weft_group *weft_i_group_of_world(weft_i_world *world)
{
    weft_group *group = new_group(world, world->size);
    if (group) {
        for (int rank = 0; rank < world->size; rank++)
            group->members[rank] = rank;
        group->rank = world->rank;
        group->key = world->key;
        group->local = all_local(group);
        group->board = group->local ? weft_i_job_board(weft_i_job_of(world->job)) : NULL;
        snprintf(group->name, sizeof group->name, "0");
    }
    weft_i_world_drop(world); /* the group holds it now */
    return group;
}

weft_status weft_i_group_usable(const weft_group *group)
{
    if (!group)
        return weft_last_status() < 0 ? weft_last_status()
                                      : weft_i_fail(WEFT_ERR_INVALID_ARG, "the group is NULL");
    return weft_i_world_usable(group->world);
}

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
    return group ? group->world->local_rank : -1;
}

int weft_local_size(const weft_group *group)
{
    return group ? group->world->local_size : -1;
}

const char *weft_group_name(const weft_group *group)
{
    return group ? group->name : "";
}

int weft_group_world_rank(const weft_group *group, int rank)
{
    return group && rank >= 0 && rank < group->size ? group->members[rank] : -1;
}

int weft_group_rank_of(const weft_group *group, int world_rank)
{
    for (int rank = 0; group && rank < group->size; rank++)
        if (group->members[rank] == world_rank)
            return rank;
    return -1;
}

int64_t weft_group_timeout(const weft_group *group)
{
    return group ? group->timeout_ms : 0;
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

/* ---- making a group ---- */

static weft_status check_ranks(const weft_group *parent, const int *ranks, int count)
{
    if (!ranks || count < 1 || count > parent->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a group of \"%s\" has 1 to %d ranks, not %d",
                           parent->name, parent->size, count);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d is outside group \"%s\" of %d ranks",
                               ranks[i], parent->name, parent->size);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d is named twice", ranks[i]);
    }
    return WEFT_OK;
}

/* Counts this making of the list; NULL if memory runs out. */
static weft_i_creation *count_creation(weft_group *parent, weft_i_key ranks)
{
    for (size_t i = 0; i < parent->creation_count; i++)
        if (weft_i_key_equal(parent->creations[i].ranks, ranks))
            return &parent->creations[i];
    size_t count = parent->creation_count + 1;
    weft_i_creation *wider = WEFT_OS->resize(parent->creations, count * sizeof *wider);
    if (!wider)
        return NULL;
    parent->creations = wider;
    parent->creation_count = count;
    wider[count - 1] = (weft_i_creation){ranks, 0};
    return &wider[count - 1];
}

static weft_status lost_leader(void *arg)
{
    return weft_i_group_lost(arg, 0);
}

static size_t board_bytes_of(const weft_group *group)
{
    return weft_i_board_bytes(group->size);
}

/* The first member makes the board; if it cannot, the others must not wait for it. */
static weft_status make_board(weft_group *group)
{
    weft_status status = weft_i_segment_new(board_bytes_of(group), group->world->sharing,
                                            "a group's board", &group->board_segment);
    if (status == WEFT_OK)
        ((weft_i_board *)(void *)group->board_segment->base)->ranks = (uint32_t)group->size;
    weft_status offered =
        weft_i_post_offer(group->world->post, group->key, group->board_segment, status);
    return status < 0 ? status : offered;
}

static weft_status fetch_board(weft_group *group, int64_t timeout_ms)
{
    weft_i_call call = {group, "group_new", -1};
    weft_i_post_order order = {.own = group->world->post,
                               .peer = group->world->peers[group->members[0]].post,
                               .key = group->key,
                               .bytes = board_bytes_of(group),
                               .deadline = weft_i_os_deadline(timeout_ms),
                               .lost = lost_leader,
                               .arg = &call};
    weft_status status = weft_i_post_fetch(&order, &group->board_segment);
    char who[512];
    if (status == WEFT_ERR_TIMEOUT) {
        weft_i_world_describe(group->world, group->members[0], who, sizeof who);
        return weft_i_fail(status, "group_new \"%s\": waited %lld ms for %s to make it",
                           group->name, (long long)timeout_ms, who);
    }
    if (status < 0 && weft_last_status() != status)
        return weft_i_fail(status,
                           "group_new \"%s\": rank %d of the world could not make its board (%s)",
                           group->name, group->members[0], weft_strerror(status));
    return status;
}

static weft_status open_board(weft_group *group)
{
    int64_t limit = weft_i_group_limit(group, WEFT_DEFAULT);
    if (group->local) {
        WEFT_TRY(group->rank == 0 ? make_board(group) : fetch_board(group, limit));
        group->board = (weft_i_board *)(void *)group->board_segment->base;
    }
    return weft_i_group_exchange(group, "group_new", NULL, 0, NULL, limit);
}

static weft_status fill_group(weft_group *group, weft_group *parent, const int *ranks,
                              const char *name)
{
    for (int i = 0; i < group->size; i++)
        group->members[i] = parent->members[ranks[i]];
    weft_i_key list =
        weft_i_key_of(parent->key, group->members, (size_t)group->size * sizeof *group->members);
    weft_i_creation *creation = count_creation(parent, list);
    if (!creation)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a group of %d ranks", group->size);
    uint32_t nth = creation->times++;
    group->parent = weft_i_object_hold(parent);
    group->rank = weft_group_rank_of(group, parent->world->rank);
    group->key = weft_i_key_of(list, &nth, sizeof nth);
    group->id = (uint32_t)(group->key.word[0] & 0xffff) | 0x10000;
    group->timeout_ms = parent->timeout_ms;
    group->local = all_local(group);
    if (name)
        snprintf(group->name, sizeof group->name, "%s", name);
    else
        snprintf(group->name, sizeof group->name, "%.40s/%x", parent->name, group->id);
    return WEFT_OK;
}

weft_group *weft_group_new(weft_group *parent, const int *ranks, int count, const char *name)
{
    if (weft_i_group_usable(parent) < 0 || check_ranks(parent, ranks, count) < 0)
        return NULL;
    if (name && strlen(name) >= sizeof parent->name)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "a group's name has at most %zu characters",
                           sizeof parent->name - 1);
    bool member = false;
    for (int i = 0; i < count; i++)
        member |= ranks[i] == parent->rank;
    if (!member)
        return NULL;
    weft_group *group = new_group(parent->world, count);
    if (!group)
        return NULL;
    if (fill_group(group, parent, ranks, name) < 0 || open_board(group) < 0) {
        weft_release(group);
        return NULL;
    }
    weft_i_log(WEFT_LOG_INFO, "group \"%s\" (%x): rank %d of %d, world rank %d", group->name,
               group->id, group->rank, group->size, group->world->rank);
    return group;
}

typedef struct choice {
    int color, key, rank;
} choice;

static int by_key_then_rank(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

weft_group *weft_group_split(weft_group *parent, int color, int key)
{
    if (weft_i_group_usable(parent) < 0)
        return NULL;
    choice mine = {color, key, parent->rank};
    choice *all = WEFT_OS->alloc((size_t)parent->size * sizeof *all);
    int *ranks = WEFT_OS->alloc((size_t)parent->size * sizeof *ranks);
    weft_group *group = NULL;
    if (!all || !ranks) {
        weft_i_null(WEFT_ERR_NO_MEMORY, "weft_group_split: no memory for %d ranks", parent->size);
    } else if (weft_i_group_exchange(parent, "group_split", &mine, sizeof mine, all,
                                     WEFT_DEFAULT) == WEFT_OK &&
               color >= 0) {
        int count = 0;
        for (int rank = 0; rank < parent->size; rank++)
            if (all[rank].color == color)
                all[count++] = all[rank];
        qsort(all, (size_t)count, sizeof *all, by_key_then_rank);
        for (int i = 0; i < count; i++)
            ranks[i] = all[i].rank;
        group = weft_group_new(parent, ranks, count, NULL);
    }
    WEFT_OS->free(all);
    WEFT_OS->free(ranks);
    return group;
}

void weft_i_group_spoil(const weft_group *group)
{
    if (!group->board)
        return;
    uint32_t nobody = 0;
    /* Pairs with the acquire in weft_i_group_lost.  The first to revoke is the one named. */
    atomic_compare_exchange_strong_explicit(&group->board->revoked, &nobody,
                                            1 + (uint32_t)group->rank, memory_order_release,
                                            memory_order_relaxed);
    for (int rank = 0; rank < group->size; rank++)
        weft_i_wait_ring(&group->board->row[rank].bell);
}

weft_status weft_group_revoke(weft_group *group)
{
    WEFT_TRY(weft_i_group_usable(group));
    if (!group->board)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "group \"%s\" spans hosts: it cannot be revoked yet", group->name);
    weft_i_group_spoil(group);
    return WEFT_OK;
}
