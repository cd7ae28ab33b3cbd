/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on without the dead.  On one host all members read the same marks of life, which never go
 * back; a rank that sees one more death than the others makes them see it too, because a group with a
 * dead member cannot be made (see lost_while_making in exchange.c), and all try again.  Between
 * hosts all agree on the dead (group_agree_hosts.c).  Without a transport each member tells in the
 * store which it knows to be dead; when every member has spoken or is known to be dead, the store takes one
 * member's list, and all follow it.
 */
#include "base/os/assert.h"
#include "fabric/group/group_agree.h"
#include "store/store.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/world/news.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, POLL_NS = 5000000 };

typedef struct shrinking {
    weft_group *group;
    int64_t deadline, limit_ms;
    unsigned char *dead; /* one byte for each member: 1 is dead or has left */
    unsigned char *told; /* what was told last, and room for what others tell */
    int *ranks;          /* those who live */
} shrinking;

/* Adds what this rank sees itself; true if that was news. */
static bool look(shrinking *s)
{
    bool news = false;
    for (int rank = 0; rank < s->group->size; rank++)
        if (!s->dead[rank] && weft_i_world_fate(s->group->world, s->group->members[rank]) < 0)
            s->dead[rank] = news = true;
    return news;
}

static int list_living(shrinking *s)
{
    int count = 0;
    for (int rank = 0; rank < s->group->size; rank++)
        if (!s->dead[rank])
            s->ranks[count++] = rank;
    WEFT_ASSERT(count > 0);
    return count;
}

/* ---- between hosts ---- */

/* Under the group's key and the number of the decision: "<rank>" whom it knows to be dead, "so"
 * what was decided. */
static void name_key(const shrinking *s, const char *rest, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "shrink/%016llx%016llx/%u/%s",
             (unsigned long long)s->group->key.word[0], (unsigned long long)s->group->key.word[1],
             s->group->rest.shrinks, rest);
}

static void name_rank_key(const shrinking *s, int rank, char out[KEY_BYTES])
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    name_key(s, text, out);
}

/* Reads a list of the dead into s->told, if it is there: 1, 0, or a status. */
static int read_list(shrinking *s, const char *key)
{
    weft_store *store = s->group->world->store;
    bool there = false;
    WEFT_TRY(weft_store_check(store, 1, &key, &there));
    if (!there)
        return 0;
    weft_store_value value = {0};
    WEFT_TRY(weft_store_get(store, key, WEFT_STORE_NOW, &value));
    bool fits = value.bytes == (size_t)s->group->size;
    if (fits)
        memcpy(s->told, value.data, value.bytes);
    weft_store_value_clear(&value);
    return fits ? 1
                : (int)weft_i_fail(WEFT_ERR_PROTOCOL,
                                   "weft_group_shrink: a value in the store is not weft's");
}

/* One round over the members' lists.  The first member that is neither dead nor has spoken, -1 if
 * there is none, or a status below that. */
static int hear_all(shrinking *s)
{
    char key[KEY_BYTES];
    int silent = -1;
    for (int rank = 0; rank < s->group->size; rank++) {
        name_rank_key(s, rank, key);
        int there = read_list(s, key);
        if (there < 0)
            return there - 1;
        for (int i = 0; there && i < s->group->size; i++)
            s->dead[i] |= s->told[i] != 0;
        if (!there && !s->dead[rank] && silent < 0)
            silent = rank;
    }
    return silent >= 0 && s->dead[silent] ? hear_all(s) : silent;
}

static weft_status tell(shrinking *s)
{
    char key[KEY_BYTES];
    name_rank_key(s, s->group->rank, key);
    return weft_store_set(s->group->world->store, key, s->dead, (size_t)s->group->size);
}

/* Everybody is heard: proposes our list and follows the one that was first. */
static weft_status decide(shrinking *s)
{
    char key[KEY_BYTES];
    size_t bytes = (size_t)s->group->size;
    weft_store_value now = {0};
    name_key(s, "so", key);
    WEFT_TRY(
        weft_store_compare_set(s->group->world->store, key, "", 0, s->dead, bytes, NULL, &now));
    bool fits = now.bytes == bytes;
    if (fits)
        memcpy(s->dead, now.data, bytes);
    weft_store_value_clear(&now);
    return fits ? WEFT_OK
                : weft_i_fail(WEFT_ERR_PROTOCOL,
                              "weft_group_shrink: a value in the store is not weft's");
}

static weft_status fail_silent(const shrinking *s, int rank)
{
    char who[512];
    weft_i_world_describe(s->group->world, s->group->members[rank], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT,
                       "weft_group_shrink of \"%s\": waited %lld ms for %s to say who lives",
                       s->group->name, (long long)s->limit_ms, who);
}

static weft_status agree_through_store(shrinking *s)
{
    char key[KEY_BYTES];
    WEFT_TRY(weft_i_news_hear(s->group->world));
    look(s);
    WEFT_TRY(tell(s));
    name_key(s, "so", key);
    for (;;) {
        int decided = read_list(s, key);
        if (decided < 0)
            return (weft_status)decided;
        if (decided) {
            memcpy(s->dead, s->told, (size_t)s->group->size);
            return WEFT_OK;
        }
        WEFT_TRY(weft_i_news_hear(s->group->world));
        if (look(s))
            WEFT_TRY(tell(s));
        int silent = hear_all(s);
        if (silent < -1)
            return (weft_status)(silent + 1);
        if (silent == -1)
            return decide(s);
        if (WEFT_OS->clock_ns() >= s->deadline)
            return fail_silent(s, silent);
        WEFT_OS->sleep_ns(POLL_NS);
    }
}

/* With a transport: a round of agreement, whose flags nobody asks for. */
static weft_status agree_between_hosts(shrinking *s)
{
    uint64_t flags = 0;
    return weft_i_agree_round(s->group, "weft_group_shrink", &flags, s->dead,
                              weft_i_os_ms_until(s->deadline), NULL);
}

/* The new group has met, so all of it have read the decision. */
static void sweep(const shrinking *s)
{
    char key[KEY_BYTES];
    name_rank_key(s, s->group->rank, key);
    weft_store_delete_key(s->group->world->store, key, NULL);
    name_key(s, "so", key);
    if (s->ranks[0] == s->group->rank)
        weft_store_delete_key(s->group->world->store, key, NULL);
}

/* ---- both ---- */

/* One try.  `*again`: somebody died meanwhile. */
static weft_group *try_once(shrinking *s, bool *again)
{
    weft_group *old = s->group;
    weft_i_world *world = old->world;
    /* Pairs with the release in news.c. */
    unsigned moves = atomic_load_explicit(&world->moves, memory_order_acquire);
    *again = false;
    weft_status agreed = old->local   ? WEFT_OK
                         : old->hosts ? agree_between_hosts(s)
                                      : agree_through_store(s);
    if (agreed < 0) { /* in another store everybody tells anew */
        *again = agreed == WEFT_ERR_UNREACHABLE && weft_i_news_move(world, s->deadline) == WEFT_OK;
        return NULL;
    }
    if (old->local)
        look(s);
    if (s->dead[old->rank]) /* a link that was cut in one direction */
        return weft_i_null(
            WEFT_ERR_PEER_DEAD,
            "weft_group_shrink of \"%s\": the others have taken rank %d for dead, and "
            "went on without it",
            old->name, old->rank);
    weft_i_making how = {
        .opts = WEFT_GROUP_OPTS_INIT, .shrinks = true, .limit_ms = weft_i_os_ms_until(s->deadline)};
    how.opts.description = "shrunk";
    weft_group *group = weft_i_group_make(old, s->ranks, list_living(s), &how);
    weft_status status = group ? WEFT_OK : weft_last_status();
    if (group && !old->local && !old->hosts)
        sweep(s);
    *again = status == WEFT_ERR_PEER_DEAD || status == WEFT_ERR_PEER_LEFT;
    bool moved = atomic_load_explicit(&world->moves, memory_order_acquire) != moves;
    old->rest.shrinks +=
        group || (*again && !moved); /* a decision that went with its store is none */
    return group;
}

static weft_group *shrink(shrinking *s)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    for (;;) {
        bool again;
        weft_group *group = try_once(s, &again);
        if (group || !again || WEFT_OS->clock_ns() >= s->deadline)
            return group;
        weft_i_errors_restore(&before);
        if (s->group->local && !look(s))
            WEFT_OS->sleep_ns(POLL_NS); /* its mark is on its way */
    }
}

weft_group *weft_group_shrink(weft_group *group)
{
    if (weft_i_group_usable(group) < 0)
        return NULL;
    size_t size = (size_t)group->size;
    shrinking s = {.group = group, .limit_ms = weft_i_group_limit(group, WEFT_DEFAULT)};
    s.deadline = weft_i_os_deadline(s.limit_ms);
    s.dead = WEFT_OS->alloc(size);
    s.told = WEFT_OS->alloc(size);
    s.ranks = WEFT_OS->alloc(size * sizeof *s.ranks);
    int64_t before = weft_i_store_until(weft_i_store_late(s.deadline));
    weft_group *made =
        s.dead && s.told && s.ranks
            ? shrink(&s)
            : weft_i_null(WEFT_ERR_NO_MEMORY, "weft_group_shrink: no memory for %zu ranks", size);
    weft_i_store_until(before);
    WEFT_OS->free(s.dead);
    WEFT_OS->free(s.told);
    WEFT_OS->free(s.ranks);
    return made;
}
