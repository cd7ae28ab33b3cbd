/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: members, names, making and splitting.  How members meet is in exchange.c.
 *
 * A new group needs no collective call of its parent.  Its members find each other by the list: a
 * key that follows from the parent and the ranks.  On one host the first member makes the board,
 * offers it under that key until all have met on it, and its random key becomes the group's; a
 * member takes no board on which it has met before, so that one list can be made a group of again
 * and again.  A member that fails ends the board, or if it has none says so in its slot, and the
 * others fail at once.  Between hosts members count how often they have made a group of the list.
 */
#include "fabric/group.h"

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "fabric/letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_group *group = (weft_group *)object;
    weft_i_object_drop(group->lane);
    weft_i_object_drop(group->workspace);
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
    for (int rank = 0; rank < group->size && !group->world->fake; rank++)
        if (!weft_i_group_slot(group, rank))
            return false;
    return true;
}

/* A group without peers: its board is there to be revoked, and nobody meets on it. */
static weft_status open_fake(weft_group *group)
{
    WEFT_TRY(weft_i_segment_new(sizeof(weft_i_board), WEFT_I_BETWEEN_THREADS, "a fake group",
                                &group->board_segment));
    group->board = (weft_i_board *)(void *)group->board_segment->base;
    group->key = group->board_segment->key;
    group->id = group->parent ? (uint32_t)(group->key.word[0] & 0xffff) | 0x10000 : 0;
    return WEFT_OK;
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
        snprintf(group->name, sizeof group->name, "0");
        if (world->fake && open_fake(group) < 0) {
            weft_release(group);
            group = NULL;
        } else if (group->local && !world->fake) {
            group->board = weft_i_job_board(weft_i_job_of(world->job));
        }
    } else { /* acquired by peers, whose waits for us end */
        atomic_store_explicit(&world->mine->life.state, WEFT_I_RANK_FAILED, memory_order_release);
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

/* ---- making a group ---- */

/* `why` is negative if the group could not be made, else WEFT_OK. */
static void end_board(const weft_group *group, weft_status why)
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
    for (uint32_t rank = 0; rank < group->board->ranks; rank++)
        weft_i_wait_ring(&group->board->row[rank].bell);
}

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

/* The count of groups made of this list between hosts; NULL if memory runs out. */
static weft_i_creation *find_creation(weft_group *parent, weft_i_key list)
{
    for (size_t i = 0; i < parent->creation_count; i++)
        if (weft_i_key_equal(parent->creations[i].ranks, list))
            return &parent->creations[i];
    size_t count = parent->creation_count + 1;
    weft_i_creation *wider = WEFT_OS->resize(parent->creations, count * sizeof *wider);
    if (!wider)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to count the groups of a list of ranks");
    parent->creations = wider;
    parent->creation_count = count;
    wider[count - 1] = (weft_i_creation){list, 0};
    return &wider[count - 1];
}

static weft_i_key list_key(const weft_group *parent, const int *ranks, int count)
{
    weft_i_key key = parent->key;
    for (int i = 0; i < count; i++)
        key = weft_i_key_of(key, &parent->members[ranks[i]], sizeof *parent->members);
    return key;
}

/* If any member is lost there will be no group, and the first one may have stopped offering it. */
static weft_status lost_member(void *arg)
{
    const weft_i_call *call = arg;
    for (int rank = 0; rank < call->group->size; rank++)
        if (weft_i_group_fate(call->group, rank) < 0)
            return weft_i_group_lost(call, rank);
    return WEFT_OK;
}

/* The first member makes the board; if it cannot, the others must not wait for it. */
static weft_status make_board(weft_group *group)
{
    WEFT_TRY(weft_i_segment_new(weft_i_board_bytes(group->size), group->world->sharing,
                                "a group's board", &group->board_segment));
    weft_i_board *board = (weft_i_board *)(void *)group->board_segment->base;
    board->ranks = (uint32_t)group->size;
    board->key = group->board_segment->key;
    WEFT_TRY(weft_i_post_offer(group->world->post, group->list, group->board_segment, WEFT_OK));
    group->board = board;
    return WEFT_OK;
}

static weft_status fail_late(const weft_group *group, int64_t timeout_ms)
{
    char who[512];
    weft_i_world_describe(group->world, group->members[0], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "group_new \"%s\": waited %lld ms for %s to make it",
                       group->name, (long long)timeout_ms, who);
}

static weft_status fetch_once(weft_group *group, int64_t deadline)
{
    weft_i_call call = {group, "group_new", -1};
    weft_i_post_order order = {.own = group->world->post,
                               .peer = group->world->peers[group->members[0]].post,
                               .key = group->list,
                               .bytes = weft_i_board_bytes(group->size),
                               .deadline = deadline,
                               .lost = lost_member,
                               .arg = &call};
    WEFT_TRY(lost_member(&call));
    return weft_i_post_fetch(&order, &group->board_segment);
}

/* Has this rank met on the board before?  Then it is that of an earlier group of this list. */
static bool is_used(const weft_group *group, const weft_i_board *board)
{
    /* Our own word. */
    return weft_i_arrival_epoch(
               atomic_load_explicit(&board->row[group->rank].arrival, memory_order_relaxed)) != 0;
}

static weft_status fetch_board(weft_group *group, int64_t deadline, int64_t timeout_ms)
{
    for (;;) {
        weft_status status = fetch_once(group, deadline);
        if (status < 0)
            return status == WEFT_ERR_TIMEOUT ? fail_late(group, timeout_ms) : status;
        weft_i_board *board = (weft_i_board *)(void *)group->board_segment->base;
        if (!is_used(group, board)) {
            group->board = board;
            return WEFT_OK;
        }
        weft_i_segment_drop(group->board_segment);
        group->board_segment = NULL;
        if (WEFT_OS->clock_ns() >= deadline)
            return fail_late(group, timeout_ms);
        WEFT_OS->sleep_ns(1000000); /* its first member is about to withdraw it */
    }
}

static int64_t ms_until(int64_t deadline)
{
    int64_t left = deadline - WEFT_OS->clock_ns();
    return deadline == WEFT_I_NEVER ? WEFT_FOREVER : left > 0 ? left / 1000000 : 0;
}

static weft_status meet_on_board(weft_group *group)
{
    int64_t limit = weft_i_group_limit(group, WEFT_DEFAULT);
    int64_t deadline = weft_i_os_deadline(limit);
    WEFT_TRY(group->rank == 0 ? make_board(group) : fetch_board(group, deadline, limit));
    group->key = group->board->key;
    group->id = (uint32_t)(group->key.word[0] & 0xffff) | 0x10000;
    return weft_i_group_exchange(group, "group_new", NULL, 0, NULL, ms_until(deadline));
}

/* Do the others have to be told?  Not of a deadline that passed: they may go on waiting, and the
 * rank may try again. */
static bool is_news(weft_status status)
{
    return status < 0 && status != WEFT_ERR_TIMEOUT;
}

static weft_status open_local(weft_group *group)
{
    group->making = true;
    weft_i_job_allow(group->world->mine, group->list);
    weft_status status = meet_on_board(group);
    bool told = status < 0 && weft_i_group_hear_refusals(group); /* the others hear it too */
    /* The first member takes the board away: those who wait on it must not. */
    bool gone = group->rank == 0 && status == WEFT_ERR_TIMEOUT;
    if (group->board && (gone || (is_news(status) && !told)))
        end_board(group, status);
    else if (is_news(status) && !told)
        weft_i_job_refuse(group->world->mine, group->list, status);
    if (group->rank == 0)
        weft_i_post_withdraw(group->world->post, group->list);
    group->making = false;
    return status;
}

/* Tells the other members that this rank will not be one; keeps the reason. */
static void refuse_remote(weft_i_world *world, weft_i_key list, uint32_t times, weft_status why)
{
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_i_letters_end(world->store, weft_i_key_of(list, &times, sizeof times), world->rank, why);
    weft_i_errors_restore(&reason);
}

static weft_status open_remote(weft_group *group, weft_group *parent)
{
    weft_i_creation *creation = find_creation(parent, group->list);
    if (!creation) {
        refuse_remote(group->world, group->list, 0, WEFT_ERR_NO_MEMORY);
        return WEFT_ERR_NO_MEMORY;
    }
    group->key = weft_i_key_of(group->list, &creation->times, sizeof creation->times);
    group->id = (uint32_t)(group->key.word[0] & 0xffff) | 0x10000;
    weft_i_letters_allow(group->world->store, group->key, group->world->rank);
    weft_status status = weft_i_group_exchange(group, "group_new", NULL, 0, NULL, WEFT_DEFAULT);
    if (status == WEFT_OK)
        creation->times++;
    else if (is_news(status))
        refuse_remote(group->world, group->list, creation->times, status);
    return status;
}

static void name_group(weft_group *group, const weft_group *parent, const char *name)
{
    if (name)
        snprintf(group->name, sizeof group->name, "%s", name);
    else /* until the board has told the group's number, the list's */
        snprintf(group->name, sizeof group->name, "%.40s/%llx", parent->name,
                 (unsigned long long)(group->list.word[0] & 0xffff));
}

static void fill_group(weft_group *group, weft_group *parent, const int *ranks, const char *name)
{
    for (int i = 0; i < group->size; i++)
        group->members[i] = parent->members[ranks[i]];
    group->list = list_key(parent, ranks, group->size);
    group->parent = weft_i_object_hold(parent);
    group->rank = weft_group_rank_of(group, parent->world->rank);
    group->timeout_ms = parent->timeout_ms;
    group->local = all_local(group);
    name_group(group, parent, name);
}

/* Not even memory for the group: tells the others without any. */
static void refuse(weft_group *parent, const int *ranks, int count, weft_status why)
{
    weft_i_world *world = parent->world;
    weft_i_key list = list_key(parent, ranks, count);
    bool local = true;
    for (int i = 0; i < count; i++)
        local &= weft_i_group_slot(parent, ranks[i]) != NULL;
    uint32_t times = 0;
    for (size_t i = 0; i < parent->creation_count; i++)
        if (weft_i_key_equal(parent->creations[i].ranks, list))
            times = parent->creations[i].times;
    if (local)
        weft_i_job_refuse(world->mine, list, why);
    else
        refuse_remote(world, list, times, why);
}

static bool is_member(const weft_group *parent, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == parent->rank)
            return true;
    return false;
}

weft_group *weft_group_new(weft_group *parent, const int *ranks, int count, const char *name)
{
    if (weft_i_group_usable(parent) < 0 || check_ranks(parent, ranks, count) < 0)
        return NULL;
    if (name && strlen(name) >= sizeof parent->name)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "a group's name has at most %zu characters",
                           sizeof parent->name - 1);
    if (!is_member(parent, ranks, count))
        return NULL;
    weft_group *group = new_group(parent->world, count);
    if (!group) {
        refuse(parent, ranks, count, weft_last_status());
        return NULL;
    }
    fill_group(group, parent, ranks, name);
    weft_status status = group->world->fake ? open_fake(group)
                         : group->local     ? open_local(group)
                                            : open_remote(group, parent);
    if (status < 0) {
        weft_release(group);
        return NULL;
    }
    if (!name)
        snprintf(group->name, sizeof group->name, "%.40s/%x", parent->name, group->id);
    weft_i_log(WEFT_LOG_INFO, "group \"%s\" (%x): rank %d of %d, world rank %d", group->name,
               group->id, group->rank, group->size, group->world->rank);
    return group;
}

typedef struct choice {
    int color, key, rank;
    int failure; /* a status: this rank cannot take part */
} choice;

static int by_key_then_rank(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* The ranks of our color in order; returns how many, or a status. */
static int choose(const weft_group *parent, int color, choice *all, int *ranks)
{
    int count = 0;
    for (int rank = 0; rank < parent->size; rank++) {
        if (all[rank].failure < 0)
            return weft_i_fail((weft_status)all[rank].failure,
                               "group_split of \"%s\": rank %d could not take part (%s)",
                               parent->name, rank, weft_strerror((weft_status)all[rank].failure));
        all[rank].rank = rank; /* a fake group sees its own choice in every place */
        if (all[rank].color == color)
            all[count++] = all[rank];
    }
    qsort(all, (size_t)count, sizeof *all, by_key_then_rank);
    for (int i = 0; i < count; i++)
        ranks[i] = all[i].rank;
    return count;
}

weft_group *weft_group_split(weft_group *parent, int color, int key)
{
    if (weft_i_group_usable(parent) < 0)
        return NULL;
    choice mine = {color, key, parent->rank, 0};
    choice *all = WEFT_OS->alloc((size_t)parent->size * sizeof *all);
    int *ranks = WEFT_OS->alloc((size_t)parent->size * sizeof *ranks);
    weft_group *group = NULL;
    if (!all || !ranks) {
        mine.failure = weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_group_split: no memory for %d ranks",
                                   parent->size);
        weft_i_group_show(parent, "group_split", &mine, sizeof mine);
    } else if (weft_i_group_exchange(parent, "group_split", &mine, sizeof mine, all,
                                     WEFT_DEFAULT) == WEFT_OK) {
        int count = choose(parent, color, all, ranks);
        if (color >= 0 && count > 0)
            group = weft_group_new(parent, ranks, count, NULL);
    }
    WEFT_OS->free(all);
    WEFT_OS->free(ranks);
    return group;
}

void weft_i_group_spoil(const weft_group *group, weft_status why)
{
    if (group->board)
        end_board(group, why);
}

weft_status weft_group_revoke(weft_group *group)
{
    WEFT_TRY(weft_i_group_usable(group));
    if (!group->board)
        return weft_i_letters_end(group->world->store, group->key, group->world->rank,
                                  WEFT_ERR_REVOKED);
    weft_i_group_spoil(group, WEFT_OK);
    return WEFT_OK;
}
