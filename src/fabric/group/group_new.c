/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a group.  It needs no collective call of its parent.  The members find each other by the
 * list: a key that follows from the parent and the ranks.  On one host the first member makes the
 * board, offers it under that key until all have met on it, and its random key becomes the group's;
 * a member takes no board on which it has met before, so that one list can be made a group of again
 * and again.  A member that fails ends the board, or if it has none says so in its rank_record, and
 * the others fail at once.  Between hosts members count how often they have made a group of the
 * list. No number that depends on other groups goes into a name or key, so ranks that are in
 * different numbers of groups cannot miss each other.
 */
#include "fabric/group/exchange.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/opts.h"
#include "base/report/status.h"
#include "fabric/group/exchange_store.h"
#include "fabric/group/hosts.h"
#include "fabric/group/quarrel.h"
#include "fabric/group/rank_list.h"

#include <stdio.h>
#include <string.h>

/* ---- what is asked for ---- */

typedef struct wish {
    weft_group *parent;
    weft_i_rank_view ranks; /* of the parent */
    int count;
    bool sorted;
    bool shrinks;
    const weft_group *near_of; /* it is a part of that one */
    int64_t limit_ms;
} wish;

weft_status weft_i_group_check_ranks(const weft_group *parent, const int *ranks, int count)
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

static bool is_member(const wish *w)
{
    for (int i = 0; i < w->count; i++)
        if (weft_i_rank_view_at(&w->ranks, i) == w->parent->world->rank)
            return true;
    return false;
}

/* World rank of member `i`, `before` being that of the one before it.  Needs no memory, because a
 * rank that has none must still find out whom to tell. */
static int member_at(const wish *w, int i, int before)
{
    if (!w->sorted)
        return weft_i_rank_view_at(&w->ranks, i);
    int least = w->parent->world->size;
    for (int k = 0; k < w->count; k++) {
        int rank = weft_i_rank_view_at(&w->ranks, k);
        if (rank > before && rank < least)
            least = rank;
    }
    return least;
}

static weft_i_key list_key(const wish *w)
{
    static const char shrinking[] = "shrink"; /* must not meet who makes a group of the same list */
    static const char near[] = "near"; /* nor who makes one of the same list while it is made */
    weft_i_key key = w->near_of ? w->near_of->key : w->parent->key;
    if (w->near_of)
        key = weft_i_key_of(key, near, sizeof near);
    else if (w->shrinks)
        key = weft_i_key_of(key, shrinking, sizeof shrinking);
    for (int i = 0, rank = -1; i < w->count; i++) {
        rank = member_at(w, i, rank);
        key = weft_i_key_of(key, &rank, sizeof rank);
    }
    return key;
}

weft_status weft_i_group_copy_opts(const weft_group_opts *given, weft_group_opts *out)
{
    *out = (weft_group_opts)WEFT_GROUP_OPTS_INIT;
    return weft_i_opts_copy(out, sizeof *out, given, "a group (start from WEFT_GROUP_OPTS_INIT)");
}

static weft_status check_text(const char *what, const char *text)
{
    if (text && strlen(text) >= WEFT_I_GROUP_NAME)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a group's %s has at most %d characters", what,
                           WEFT_I_GROUP_NAME - 1);
    return WEFT_OK;
}

static weft_status check_opts(const weft_group_opts *opts)
{
    WEFT_TRY(check_text("name", opts->name));
    WEFT_TRY(check_text("description", opts->description));
    if (opts->name && (strchr(opts->name, '/') || !strcmp(opts->name, "0")))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%s\" cannot be a group's name: \"0\" is the world's, and names with "
                           "'/' are derived",
                           opts->name);
    if (opts->tag && !strncmp(opts->tag, "ptd:", 4))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%s\" cannot be a group's tag: \"ptd:\" marks groups without one",
                           opts->tag);
    if (opts->timeout_ms < WEFT_FOREVER)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "a group's limit is a positive number of ms, WEFT_FOREVER, or 0 for its "
                           "parent's, not %lld",
                           (long long)opts->timeout_ms);
    return WEFT_OK;
}

/* ---- meeting ---- */

/* The count of groups made of this list; NULL if memory runs out. */
static weft_i_creation *find_creation(weft_group *parent, weft_i_key list)
{
    for (size_t i = 0; i < parent->rest.creation_count; i++)
        if (weft_i_key_equal(parent->rest.creations[i].ranks, list))
            return &parent->rest.creations[i];
    size_t count = parent->rest.creation_count + 1;
    weft_i_creation *wider = WEFT_OS->resize(parent->rest.creations, count * sizeof *wider);
    if (!wider)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to count the groups of a list of ranks");
    parent->rest.creations = wider;
    parent->rest.creation_count = count;
    wider[count - 1] = (weft_i_creation){.ranks = list};
    return &wider[count - 1];
}

/* If any member is lost there will be no group, and the first one may have stopped offering it. */
static weft_status lost_member(void *arg)
{
    const weft_i_label *label = arg;
    for (int rank = 0; rank < label->group->size; rank++)
        if (weft_i_group_fate(label->group, rank) < 0)
            return weft_i_group_lost(label, rank);
    return WEFT_OK;
}

/* Can the first member still make the board?  Not if it waits for us in the parent;
 * WEFT_ERR_CANCELLED if any member waits there for the lane to be made. */
static weft_status lost_first(void *arg)
{
    const weft_i_label *label = arg;
    if (weft_i_quarrel_wants_lane_above(label->group))
        return WEFT_ERR_CANCELLED;
    weft_i_quarrel_look_above(label->group, NULL, 0);
    return lost_member(arg);
}

/* The first member makes the board; if it cannot, the others must not wait for it. */
static weft_status make_board(weft_group *group, weft_group *parent)
{
    WEFT_ASSERT(group->rank == 0 && !group->board);
    weft_i_creation *creation = find_creation(parent, group->birth->list);
    if (!creation)
        return WEFT_ERR_NO_MEMORY;
    WEFT_TRY(weft_i_segment_new(weft_i_board_bytes(group->size), group->world->sharing,
                                "a group's board", &group->rest.board_segment));
    weft_i_board *board = (weft_i_board *)(void *)group->rest.board_segment->base;
    board->ranks = (uint32_t)group->size;
    board->times = creation->times;
    board->key = group->rest.board_segment->key;
    WEFT_TRY(weft_i_fdpass_publish(group->world->fdpass, group->birth->list,
                                   group->rest.board_segment, WEFT_OK));
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
    weft_i_label label = {group, "group_new", -1};
    weft_i_fdpass_order order = {.own = group->world->fdpass,
                                 .peer = group->world->peers[group->members[0]].fdpass,
                                 .key = group->birth->list,
                                 .bytes = weft_i_board_bytes(group->size),
                                 .deadline = deadline,
                                 .lost = lost_first,
                                 .arg = &label};
    WEFT_TRY(lost_member(&label));
    return weft_i_fdpass_fetch(&order, &group->rest.board_segment);
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
    WEFT_ASSERT(group->rank > 0 && !group->board);
    for (;;) {
        weft_status status = fetch_once(group, deadline);
        if (status == WEFT_ERR_CANCELLED) {
            WEFT_TRY(weft_i_group_help_above(group, deadline));
            continue;
        }
        if (status < 0)
            return status == WEFT_ERR_TIMEOUT ? fail_late(group, timeout_ms) : status;
        weft_i_board *board = (weft_i_board *)(void *)group->rest.board_segment->base;
        if (!is_used(group, board)) {
            group->board = board;
            return WEFT_OK;
        }
        weft_i_segment_drop(group->rest.board_segment);
        group->rest.board_segment = NULL;
        if (WEFT_OS->clock_ns() >= deadline)
            return fail_late(group, timeout_ms);
        WEFT_OS->sleep_ns(1000000); /* its first member is about to withdraw it */
    }
}

/* What the members show each other when they meet: they must want the same, and be able to. */
typedef struct plan {
    uint64_t name, tag;
    int64_t failure; /* a status: this one cannot be a member */
} plan;

static plan plan_of(const weft_group *group, weft_status can)
{
    plan p = {group->listing.named ? weft_i_registry_hash(group->name) : 0,
              weft_i_registry_hash(group->listing.tag), can};
    return p;
}

/* Until it has the board the group has no number: the record says that the rank waits in its
 * parent, for the first member. */
static weft_status get_board(weft_group *group, weft_group *parent, int64_t deadline, int64_t limit)
{
    if (group->rank == 0)
        return make_board(group, parent);
    int first = weft_group_rank_of(parent, group->members[0]);
    WEFT_ASSERT(first >= 0);
    uint64_t number =
        weft_i_record_begin(weft_i_group_record(group), "group_new", parent->id, 0, first, -1);
    weft_status status = fetch_board(group, deadline, limit);
    weft_i_record_end(weft_i_group_record(group), number, status);
    return status;
}

static weft_status meet_on_board(weft_group *group, weft_group *parent, int64_t limit,
                                 const plan *mine, plan *all)
{
    int64_t deadline = weft_i_os_deadline(limit);
    WEFT_TRY(get_board(group, parent, deadline, limit));
    group->key = group->board->key;
    group->birth->times = WEFT_I_READ_ONCE(group->board->times);
    group->id = weft_i_group_number(group->key);
    if (!group->birth->near_of)
        weft_i_job_join(group->world->mine, group->id, group->name, group->members, group->size);
    WEFT_TRY(weft_i_group_exchange(group, "group_new", mine, sizeof *mine, all,
                                   weft_i_os_ms_until(deadline)));
    if (group->rank == 0)
        find_creation(parent, group->birth->list)->times++; /* it is there since make_board */
    return WEFT_OK;
}

/* Do the others have to be told?  Not of a deadline that passed: they may go on waiting, and the
 * rank may try again. */
static bool is_news(weft_status status)
{
    return status < 0 && status != WEFT_ERR_TIMEOUT;
}

static weft_status open_local(weft_group *group, weft_group *parent, int64_t limit,
                              const plan *mine, plan *all)
{
    WEFT_ASSERT(group->local && !group->birth->under_way);
    group->birth->under_way = true;
    group->birth->old_quarrel = group->birth->from && group->birth->from->board &&
                                weft_i_quarrel_is_heard(group->birth->from);
    weft_i_job_allow(group->world->mine, group->birth->list);
    weft_status status = meet_on_board(group, parent, limit, mine, all);
    bool told = status < 0 && weft_i_group_hear_refusals(group); /* the others hear it too */
    /* The first member takes the board away: those who wait on it must not. */
    bool gone = group->rank == 0 && status == WEFT_ERR_TIMEOUT;
    if (group->board && (gone || (is_news(status) && !told)))
        weft_i_group_end_board(group, status);
    else if (is_news(status) && !told)
        weft_i_job_refuse(group->world->mine, group->birth->list, status);
    if (group->rank == 0)
        weft_i_fdpass_withdraw(group->world->fdpass, group->birth->list);
    group->birth->under_way = false;
    return status;
}

/* Those of this host meet by themselves first. */
static weft_i_key near_key(const wish *w, weft_i_key key)
{
    static const char near[] = "near";
    const weft_i_world *world = w->parent->world;
    key = weft_i_key_of(key, near, sizeof near);
    for (int i = 0, rank = -1; i < w->count; i++) {
        rank = member_at(w, i, rank);
        if (world->peers[rank].rank_record)
            key = weft_i_key_of(key, &rank, sizeof rank);
    }
    return key;
}

/* Tells the other members that this rank will not be one; keeps the reason. */
static void refuse_remote(const wish *w, weft_i_key list, uint32_t times, weft_status why)
{
    weft_i_world *world = w->parent->world;
    weft_i_key key = weft_i_key_of(list, &times, sizeof times);
    weft_i_errors reason;
    int mine = 0;
    weft_i_errors_save(&reason);
    if (!world->remote)
        weft_i_exchange_store_end(world->store, key, world->rank, why);
    else
        weft_i_job_refuse(world->mine, near_key(w, key), why);
    for (int i = 0, rank = -1; world->remote && i < w->count; i++)
        if ((rank = member_at(w, i, rank)) == world->rank)
            mine = i;
    for (int i = 0, rank = -1; world->remote && i < w->count; i++) {
        rank = member_at(w, i, rank);
        if (!world->peers[rank].rank_record)
            weft_i_hosts_refuse(world, key, rank, mine, why);
    }
    weft_i_errors_restore(&reason);
}

/* The members of each host, then all on their boards. */
static weft_status meet_between_hosts(weft_group *group, const wish *w, weft_i_creation *creation,
                                      int64_t limit, const plan *mine, plan *all)
{
    WEFT_ASSERT(!group->local && !group->birth->under_way);
    int64_t deadline = weft_i_os_deadline(limit);
    uint32_t times = creation->times;
    bool again = creation->failed;
    creation->failed = true; /* until it has not; making the part of this host may move it */
    group->birth->under_way = true;
    weft_status status = weft_i_hosts_open(group, w->parent, again, deadline);
    bool opened = status == WEFT_OK;
    if (opened)
        status = weft_i_group_exchange(group, "group_new", mine, sizeof *mine, all,
                                       weft_i_os_ms_until(deadline));
    if (is_news(status) && opened)
        weft_i_group_end_board(group, status);
    else if (is_news(status))
        refuse_remote(w, group->birth->list, times, status);
    group->birth->under_way = false;
    creation = find_creation(w->parent, group->birth->list); /* it is there */
    WEFT_ASSERT(creation);
    creation->failed = status < 0;
    creation->times += status == WEFT_OK;
    return status;
}

static weft_status open_remote(weft_group *group, const wish *w, int64_t limit, const plan *mine,
                               plan *all)
{
    weft_i_creation *creation = find_creation(w->parent, group->birth->list);
    if (!creation) {
        refuse_remote(w, group->birth->list, 0, WEFT_ERR_NO_MEMORY);
        return WEFT_ERR_NO_MEMORY;
    }
    group->birth->times = creation->times;
    group->key = weft_i_key_of(group->birth->list, &creation->times, sizeof creation->times);
    group->id = weft_i_group_number(group->key);
    if (group->world->remote)
        return meet_between_hosts(group, w, creation, limit, mine, all);
    weft_i_exchange_store_allow(group->world->store, group->key, group->world->rank);
    weft_status status = weft_i_group_exchange(group, "group_new", mine, sizeof *mine, all, limit);
    if (status == WEFT_OK)
        creation->times++;
    else if (is_news(status))
        refuse_remote(w, group->birth->list, creation->times, status);
    return status;
}

/* All have seen the same plans, so all fail or none. */
static weft_status compare_plans(const weft_group *group, const plan *all)
{
    if (all[group->rank].failure < 0)
        return (weft_status)all[group->rank].failure; /* has its message */
    for (int rank = 0; rank < group->size; rank++)
        if (all[rank].failure < 0)
            return weft_i_fail((weft_status)all[rank].failure,
                               "group_new \"%s\": rank %d of the world could not take part (%s)",
                               group->name, group->members[rank],
                               weft_strerror((weft_status)all[rank].failure));
    for (int rank = 1; rank < group->size; rank++) {
        const char *what = all[rank].name != all[0].name ? "name"
                           : all[rank].tag != all[0].tag ? "tag"
                                                         : NULL;
        if (what)
            return weft_i_fail(WEFT_ERR_MISMATCH,
                               "group_new \"%s\": ranks %d and %d of the world gave it different "
                               "%ss",
                               group->name, group->members[0], group->members[rank], what);
    }
    return WEFT_OK;
}

/* ---- from the wish to the group ---- */

/* "<parent>/<world ranks>", in short form if that is too long; with the number of groups that were
 * made of the list before. */
static void derive_name(const weft_group *group, const weft_group *parent, char out[], size_t bytes)
{
    char ranks[512], whole[640];
    if (group->birth->near_of) {
        snprintf(out, bytes, "%.40s@%d", group->birth->near_of->name, group->members[0]);
        return;
    }
    weft_i_rank_list_text(group->members, group->size, ranks, sizeof ranks);
    snprintf(whole, sizeof whole, "%s/%s", parent->name, ranks);
    size_t used = strlen(whole);
    if (used > WEFT_I_GROUP_NAME - 16) {
        uint64_t hash = weft_i_registry_hash(whole);
        for (int rank = 0; rank < group->size; rank++) /* the text may have been cut */
            hash = (hash ^ (uint64_t)group->members[rank]) * 0x100000001b3u;
        used = (size_t)snprintf(out, bytes, "%.24s~%016llx", whole, (unsigned long long)hash);
    } else {
        snprintf(out, bytes, "%s", whole);
    }
    if (group->birth->times && used < bytes)
        snprintf(out + used, bytes - used, "#%u", group->birth->times);
}

static void fill_group(weft_group *group, const wish *w, const weft_i_making *how)
{
    weft_group *parent = w->parent;
    const weft_group_opts *opts = &how->opts;
    for (int i = 0; i < group->size; i++)
        group->members[i] = member_at(w, i, i ? group->members[i - 1] : -1);
    group->listing.parent_key = parent->key;
    group->rank = weft_group_rank_of(group, parent->world->rank);
    WEFT_ASSERT(group->rank >= 0);
    group->timeout_ms = opts->timeout_ms ? opts->timeout_ms : parent->timeout_ms;
    group->local = weft_i_group_all_local(group);
    group->listing.for_mesh = how->for_mesh;
    group->listing.named = opts->name && *opts->name;
    group->listing.untagged = !(opts->tag && *opts->tag) && !how->unlisted;
    if (group->listing.named)
        snprintf(group->name, sizeof group->name, "%s", opts->name);
    else
        derive_name(group, parent, group->name, sizeof group->name);
    snprintf(group->listing.description, sizeof group->listing.description, "%s",
             opts->description ? opts->description : "undefined");
    if (opts->tag && *opts->tag)
        weft_i_group_store_tag(opts->tag, group->listing.tag); /* was checked */
    else if (!how->near_of)
        group->rest.parent = weft_i_object_hold(parent); /* a part does not outlive its whole */
}

static weft_status fill_lineage(weft_group *group, const wish *w)
{
    const weft_group *parent = w->parent;
    weft_i_elder elder = {parent->board, parent->rest.board_segment, parent->key, ""};
    snprintf(elder.name, sizeof elder.name, "%s", parent->name);
    return weft_i_lineage_new(&parent->lineage, w->shrinks ? NULL : &elder, &group->lineage);
}

/* This rank cannot take part: tells the others without needing memory.  Keeps the reason. */
static void refuse(const wish *w, weft_status why)
{
    weft_group *parent = w->parent;
    weft_i_key list = list_key(w);
    bool local = true;
    for (int i = 0; i < w->count; i++)
        local &= parent->world->peers[weft_i_rank_view_at(&w->ranks, i)].rank_record != NULL;
    uint32_t times = 0;
    for (size_t i = 0; i < parent->rest.creation_count; i++)
        if (weft_i_key_equal(parent->rest.creations[i].ranks, list))
            times = parent->rest.creations[i].times;
    if (local)
        weft_i_job_refuse(parent->world->mine, list, why);
    else
        refuse_remote(w, list, times, why);
}

/* Nobody else is there to agree with. */
static weft_status open_fake(weft_group *group, weft_group *parent, const plan *mine, plan *all)
{
    weft_i_creation *creation = find_creation(parent, group->birth->list);
    if (!creation)
        return WEFT_ERR_NO_MEMORY;
    group->birth->times = creation->times;
    WEFT_TRY(weft_i_group_open_fake(group));
    creation->times++;
    for (int rank = 0; rank < group->size; rank++)
        all[rank] = *mine;
    return WEFT_OK;
}

static weft_status open_group(weft_group *group, const wish *w, weft_status can)
{
    int64_t limit = weft_i_group_limit(group, w->limit_ms);
    plan mine = plan_of(group, can);
    plan *all = WEFT_OS->alloc((size_t)group->size * sizeof *all);
    if (!all) {
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a group of %d ranks", group->size);
        refuse(w, WEFT_ERR_NO_MEMORY);
        return WEFT_ERR_NO_MEMORY;
    }
    weft_status status = group->world->fake ? open_fake(group, w->parent, &mine, all)
                         : group->local     ? open_local(group, w->parent, limit, &mine, all)
                                            : open_remote(group, w, limit, &mine, all);
    if (status == WEFT_OK)
        status = compare_plans(group, all);
    WEFT_OS->free(all);
    return status;
}

static weft_group *drop(weft_group *group)
{
    weft_release(group);
    return NULL;
}

/* The group is made; its name follows from how often, and the world holds it if it has a tag. */
static weft_group *publish(weft_group *group, const weft_group *parent)
{
    WEFT_ASSERT(group->birth && !group->birth->under_way);
    char name[WEFT_I_GROUP_NAME], tag[WEFT_I_GROUP_TAG];
    if (group->listing.named)
        snprintf(name, sizeof name, "%s", group->name);
    else
        derive_name(group, parent, name, sizeof name);
    if (*group->listing.tag)
        snprintf(tag, sizeof tag, "%s", group->listing.tag);
    else
        snprintf(tag, sizeof tag, "ptd:%s", name);
    group->listing.held_by_world = *group->listing.tag != 0;
    if (group->birth->near_of) {
        group->birth = NULL;
        return group;
    }
    if (group->world->mine)
        weft_i_job_join(group->world->mine, group->id, name, group->members, group->size);
    group->birth = NULL;
    weft_i_registry_publish(&group->world->registry, group, name, tag);
    weft_i_group_log_made(group);
    return group->listing.held_by_world ? weft_keep(group) : group;
}

static weft_group *make(const wish *w, const weft_i_making *how)
{
    weft_group *group = weft_i_group_allocate(w->parent->world, w->count);
    if (!group) {
        refuse(w, weft_last_status());
        return NULL;
    }
    bool follows = !w->shrinks && w->near_of != w->parent;
    weft_i_birth birth = {
        .list = list_key(w), .from = follows ? w->parent : NULL, .near_of = w->near_of};
    group->birth = &birth;
    fill_group(group, w, how);
    if (fill_lineage(group, w) < 0) {
        refuse(w, weft_last_status());
        return drop(group);
    }
    /* A rank that has no place for it meets the others all the same, to tell them. */
    weft_status can = w->near_of ? WEFT_OK : weft_i_registry_enter(&group->world->registry, group);
    return open_group(group, w, can) < 0 ? drop(group) : publish(group, w->parent);
}

weft_group *weft_i_group_make(weft_group *parent, const int *ranks, int count,
                              const weft_i_making *how)
{
    char tag[WEFT_I_GROUP_TAG];
    if (weft_i_group_usable(parent) < 0 || check_opts(&how->opts) < 0 ||
        weft_i_group_store_tag(how->opts.tag, tag) < 0)
        return NULL;
    if (!ranks && count == 0)
        count = parent->size;
    if (ranks && weft_i_group_check_ranks(parent, ranks, count) < 0)
        return NULL;
    wish w = {.parent = parent,
              .ranks = {parent->members, ranks, how->first, count},
              .count = count,
              .sorted = how->opts.sorted != 0,
              .shrinks = how->shrinks,
              .near_of = how->near_of,
              .limit_ms = how->limit_ms};
    if (!is_member(&w))
        return NULL;
    weft_i_label label = {parent, how->shrinks ? "group_shrink" : "group_new", -1};
    if (!how->shrinks && weft_i_group_is_recalled(parent) && weft_i_group_tell_revoked(&label) < 0)
        return NULL;
    /* Whoever comes late to a quarrel of the parent hears of it here, as in any call of that group, and
     * does not wait for members that have gone on.  Who has heard may make a group of them. */
    if (!how->shrinks && weft_i_quarrel_is_news(parent) && weft_i_group_tell_revoked(&label) < 0)
        return NULL;
    weft_group *found = *tag ? weft_i_registry_find(&parent->world->registry, tag, &w.ranks) : NULL;
    return found ? found : make(&w, how);
}

weft_group *weft_group_new_with(weft_group *parent, const int *ranks, int count,
                                const weft_group_opts *opts)
{
    weft_i_making how = {.limit_ms = WEFT_DEFAULT};
    if (weft_i_group_copy_opts(opts, &how.opts) < 0)
        return NULL;
    return weft_i_group_make(parent, ranks, ranks ? count : 0, &how);
}

weft_group *weft_group_new(weft_group *parent, const int *ranks, int count, const char *name)
{
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.name = name;
    if (parent && !ranks)
        return weft_i_group_check_ranks(parent, ranks, count), NULL;
    return weft_group_new_with(parent, ranks, count, &opts);
}
