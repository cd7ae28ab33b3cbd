/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement of a group that spans hosts: one ballot for each host.
 *
 * Members show their flags on the board of their host.  The first one there that lives and has come tells
 * for all of them: it puts the host's ballot into the store (the flags, which have come, which are lost), and
 * again when that changes, and reads those of the others.  Once every member has come or is lost somewhere, one
 * compare and exchange in the store decides, as it does without a transport.  The rank that tells then writes
 * the outcome on its host's board, where the others wait for it; the one that decided also sends it to the other
 * hosts, which so know it even if the store ends there and then.  A teller that dies has a successor,
 * which finds the same flags on the board.
 */
#include "fabric/group/group_agree.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/hosts.h"
#include "fabric/world/news.h"
#include "weft/store.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, POLL_MS = 5, PATIENCE_NS = 200 * 1000 * 1000 };
enum { AWAY, HAS_COME, IS_LOST }; /* of a member, in a ballot */

typedef struct telling {
    weft_i_agreeing *a;
    unsigned char *state; /* by member: what is known from all ballots */
    weft_i_ballot *shown; /* what this rank has put into the store */
    bool told;
    uint64_t flags; /* of all who have come */
    int64_t began;
    const char **keys; /* of the ballots, and their text */
    char (*text)[KEY_BYTES];
    weft_store_value *values;
    int *list;
} telling;

static const weft_i_hosts *hosts_of(const telling *t)
{
    return t->a->group->hosts;
}

/* ---- the outcome ---- */

/* Onto this host's board, unless it is there.  Two threads of this rank may do it. */
static void publish(const weft_group *group, uint32_t round, const weft_i_ballot *outcome)
{
    weft_i_agreeing a = {.group = (weft_group *)group, .round = round};
    weft_i_remote_enter(group->world->remote);
    uint64_t before = weft_i_agree_word(&a);
    if ((int32_t)((uint32_t)(before >> 32) - round) < 0) {
        weft_i_vote *mine = weft_i_agree_vote(&a, group->rank);
        int turn = round & 1;
        memset(mine->lost[turn], 0, sizeof mine->lost[turn]);
        for (int rank = 0; rank < group->size; rank++)
            if (outcome->lost[rank])
                mine->lost[turn][rank / 8] |= (unsigned char)(1u << rank % 8);
        mine->decided[turn] = outcome->flags;
        mine->status[turn] = (int32_t)outcome->status;
        /* Pairs with the acquire in weft_i_agree_word; if it fails another one has written the same. */
        atomic_compare_exchange_strong_explicit(&group->board->agreed, &before,
                                                (uint64_t)round << 32 | (1 + (uint32_t)group->rank),
                                                memory_order_acq_rel, memory_order_acquire);
    }
    weft_i_remote_give(group->world->remote);
    weft_i_agree_ring(&a);
}

/* What was decided must outlive the store and its decider. */
static void send_outcome(const weft_i_agreeing *a, const weft_i_ballot *outcome)
{
    const weft_group *group = a->group;
    uint32_t word[WEFT_I_HEAD_WORDS] = {a->round};
    size_t bytes = weft_i_ballot_bytes(group);
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_i_remote_enter(group->world->remote);
    for (int host = 0; host < group->hosts->count; host++) {
        int partner = host == group->hosts->mine ? -1 : weft_i_hosts_partner(group->hosts, host);
        if (partner >= 0 && bytes <= weft_i_remote_segment(group->world->remote))
            weft_i_hosts_tell(group, partner, WEFT_I_HEAD_AGREED, word, outcome, bytes);
    }
    weft_i_remote_give(group->world->remote);
    weft_i_errors_restore(&before);
}

static bool take_agreed(weft_group *group, int from, const weft_i_head *head, const void *data,
                        size_t bytes)
{
    (void)from;
    weft_i_ballot *outcome = bytes == weft_i_ballot_bytes(group) ? WEFT_OS->alloc(bytes) : NULL;
    if (outcome) { /* else the store has it */
        memcpy(outcome, data, bytes);
        publish(group, head->word[0], outcome);
    }
    WEFT_OS->free(outcome);
    return true;
}

/* ---- ballots ---- */

/* Under the group's key and the round: "h<host>" a ballot, "so" what was decided. */
static void name_key(const weft_i_agreeing *a, uint32_t round, int host, char out[KEY_BYTES])
{
    char last[16] = "so";
    if (host >= 0)
        snprintf(last, sizeof last, "h%d", host);
    snprintf(out, KEY_BYTES, "agree/%016llx%016llx/%u/%s",
             (unsigned long long)a->group->key.word[0], (unsigned long long)a->group->key.word[1],
             round, last);
}

static weft_status fail_foreign(const weft_i_agreeing *a)
{
    return weft_i_fail(WEFT_ERR_PROTOCOL, "%s: a value in the store is not weft's", a->op);
}

/* What is seen on this host. */
static void look_here(const telling *t, weft_i_ballot *out)
{
    const weft_i_agreeing *a = t->a;
    out->flags = ~UINT64_C(0);
    out->status = WEFT_OK;
    for (int rank = 0; rank < a->group->size; rank++) {
        bool came = !a->group->hosts->away[rank] && weft_i_agree_has_come(a, rank);
        bool lost = weft_i_group_member_fate(a->group, rank) < 0;
        if (came)
            out->flags &= weft_i_agree_vote(a, rank)->flags[a->round & 1];
        out->lost[rank] = lost ? IS_LOST : came ? HAS_COME : AWAY;
    }
}

static void merge(telling *t, const weft_i_ballot *ballot)
{
    t->flags &= ballot->flags;
    for (int rank = 0; rank < t->a->group->size; rank++)
        if (ballot->lost[rank] > t->state[rank] && ballot->lost[rank] <= IS_LOST)
            t->state[rank] = ballot->lost[rank];
}

static weft_status tell(telling *t)
{
    size_t bytes = weft_i_ballot_bytes(t->a->group);
    weft_i_ballot *now = t->a->heard;
    look_here(t, now);
    t->flags = ~UINT64_C(0);
    memset(t->state, AWAY, (size_t)t->a->group->size);
    merge(t, now);
    if (t->told && !memcmp(now, t->shown, bytes))
        return WEFT_OK;
    char key[KEY_BYTES];
    name_key(t->a, t->a->round, hosts_of(t)->mine, key);
    WEFT_TRY(weft_store_set(t->a->group->world->store, key, now, bytes));
    memcpy(t->shown, now, bytes);
    t->told = true;
    return WEFT_OK;
}

static bool lives_somebody(const telling *t, int host)
{
    const weft_i_host *there = &hosts_of(t)->host[host];
    for (int i = 0; i < there->count; i++)
        if (t->state[there->members[i]] != IS_LOST)
            return true;
    return false;
}

/* Reads the ballots of a list of hosts at once; 1: all were there, 0, or a status. */
static int hear(telling *t, const int *hosts, size_t count)
{
    WEFT_ASSERT(count <= (size_t)hosts_of(t)->count);
    weft_store *store = t->a->group->world->store;
    bool there = false;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count; i++)
        name_key(t->a, t->a->round, hosts[i], t->text[i]);
    if (!count)
        return 1;
    WEFT_TRY(weft_store_check(store, count, t->keys, &there));
    if (!there)
        return 0;
    WEFT_TRY(weft_store_multi_get(store, count, t->keys, WEFT_STORE_NOW, t->values));
    for (size_t i = 0; i < count; i++) {
        if (t->values[i].bytes != weft_i_ballot_bytes(t->a->group))
            status = fail_foreign(t->a);
        else
            memcpy(t->a->heard, t->values[i].data, t->values[i].bytes);
        weft_store_value_clear(&t->values[i]);
        if (status == WEFT_OK)
            merge(t, t->a->heard);
    }
    return status < 0 ? (int)status : 1;
}

/* Those of all hosts in which somebody lives at once, if they are all there.  Else, and those of the
 * others, one by one: who is missing shall be known, and flags of the dead count too. */
static int hear_all(telling *t)
{
    const weft_i_hosts *hosts = hosts_of(t);
    size_t count = 0;
    for (int host = 0; host < hosts->count; host++)
        if (host != hosts->mine && lives_somebody(t, host))
            t->list[count++] = host;
    int all = hear(t, t->list, count);
    for (int host = 0; all >= 0 && host < hosts->count; host++) {
        if (host == hosts->mine || (all && lives_somebody(t, host)))
            continue;
        int there = hear(t, &host, 1);
        if (there < 0)
            return there;
    }
    return all;
}

static bool is_complete(const telling *t)
{
    for (int rank = 0; rank < t->a->group->size; rank++)
        if (t->state[rank] == AWAY)
            return false;
    return true;
}

/* ---- deciding ---- */

static weft_status take(telling *t, weft_store_value *value)
{
    size_t bytes = weft_i_ballot_bytes(t->a->group);
    bool fits = value->bytes == bytes;
    if (fits)
        memcpy(t->a->heard, value->data, bytes);
    weft_store_value_clear(value);
    if (!fits)
        return fail_foreign(t->a);
    publish(t->a->group, t->a->round, t->a->heard);
    return WEFT_OK;
}

static weft_status decide(telling *t)
{
    WEFT_ASSERT(is_complete(t));
    weft_i_ballot *mine = t->a->mine;
    char key[KEY_BYTES];
    bool first = false;
    weft_store_value now = {0};
    for (int rank = 0; rank < t->a->group->size; rank++)
        mine->lost[rank] = t->state[rank] == IS_LOST;
    mine->flags = t->flags;
    mine->status = weft_i_agree_fate(t->a, mine);
    name_key(t->a, t->a->round, -1, key);
    WEFT_TRY(weft_store_compare_set(t->a->group->world->store, key, "", 0, mine,
                                    weft_i_ballot_bytes(t->a->group), &first, &now));
    WEFT_TRY(take(t, &now));
    if (first)
        send_outcome(t->a, t->a->heard);
    return WEFT_OK;
}

/* 1: it is decided, 0: not yet, or a status. */
static int step(telling *t)
{
    char text[KEY_BYTES];
    const char *key = text;
    bool there = false;
    weft_store *store = t->a->group->world->store;
    WEFT_TRY(tell(t));
    name_key(t->a, t->a->round, -1, text);
    WEFT_TRY(weft_store_check(store, 1, &key, &there));
    if (there) {
        weft_store_value value = {0};
        WEFT_TRY(weft_store_get(store, key, WEFT_STORE_NOW, &value));
        WEFT_TRY(take(t, &value));
        return 1;
    }
    int all = hear_all(t);
    if (all < 0 || !is_complete(t))
        return all < 0 ? all : 0;
    WEFT_TRY(decide(t));
    return 1;
}

/* In another store everything is told anew. */
static int step_anywhere(telling *t)
{
    int done = step(t);
    if (done != WEFT_ERR_UNREACHABLE)
        return done;
    t->told = false;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status moved = weft_i_news_move(t->a->group->world, t->a->deadline);
    weft_i_errors_restore(&before);
    return moved == WEFT_OK ? 0 : done;
}

/* ---- waiting ---- */

/* Is it on us to tell for this host?  On whoever is first and has come, unless it is stopped. */
static bool tells(const telling *t)
{
    const weft_i_agreeing *a = t->a;
    const weft_i_host *here = &hosts_of(t)->host[hosts_of(t)->mine];
    bool late = WEFT_OS->clock_ns() - t->began > PATIENCE_NS;
    for (int i = 0; i < here->count; i++) {
        int member = here->members[i];
        if (member == a->group->rank)
            return true;
        if (weft_i_agree_has_come(a, member) &&
            weft_i_group_member_fate(a->group, member) == WEFT_OK &&
            !(late && weft_i_world_is_stopped(a->group->world, a->group->members[member])))
            return false;
    }
    return true;
}

static bool is_decided(void *arg)
{
    const weft_i_agreeing *a = arg;
    return weft_i_agree_is_decided(weft_i_agree_word(a), a->round);
}

static void wait_a_moment(weft_i_agreeing *a)
{
    int64_t soon = weft_i_os_deadline(POLL_MS);
    weft_i_wait wait = {.ready = is_decided,
                        .arg = a,
                        .bell = &weft_i_agree_vote(a, a->group->rank)->bell,
                        .wheel = weft_i_remote_wheel(a->group->world->remote),
                        .deadline = soon < a->deadline ? soon : a->deadline,
                        .mode = a->group->world->mode};
    weft_i_wait_for(&wait);
}

/* Who has not come, as far as this rank knows: those of other hosts are known to who tells. */
static weft_status fail_late(telling *t)
{
    const weft_i_agreeing *a = t->a;
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (tell(t) == WEFT_OK)
        hear_all(t);
    weft_i_errors_restore(&before);
    for (int rank = 0; rank < a->group->size; rank++)
        t->state[rank] = t->state[rank] == AWAY;
    return weft_i_agree_fail_late(a, t->state);
}

static weft_status reach(telling *t)
{
    weft_i_agreeing *a = t->a;
    while (!is_decided(a)) {
        int done = tells(t) ? step_anywhere(t) : 0;
        if (done < 0)
            return (weft_status)done;
        if (done > 0 || is_decided(a))
            break;
        if (WEFT_OS->clock_ns() >= a->deadline)
            return fail_late(t);
        wait_a_moment(a);
    }
    weft_i_agree_follow(a);
    return WEFT_OK;
}

/* Everybody has come to this round, so nobody reads the one before any more. */
static void sweep(const telling *t)
{
    const weft_i_agreeing *a = t->a;
    char key[KEY_BYTES];
    weft_i_errors before;
    if (a->round < 2 || !tells(t))
        return;
    weft_i_errors_save(&before);
    name_key(a, a->round - 1, hosts_of(t)->mine, key);
    weft_store_delete_key(a->group->world->store, key, NULL);
    name_key(a, a->round - 1, -1, key);
    if (hosts_of(t)->mine == 0)
        weft_store_delete_key(a->group->world->store, key, NULL);
    weft_i_errors_restore(&before);
}

static bool allocate(telling *t)
{
    size_t hosts = (size_t)hosts_of(t)->count;
    t->state = WEFT_OS->alloc((size_t)t->a->group->size);
    t->shown = WEFT_OS->alloc(weft_i_ballot_bytes(t->a->group));
    t->keys = WEFT_OS->alloc(hosts * sizeof *t->keys);
    t->text = WEFT_OS->alloc(hosts * sizeof *t->text);
    t->values = WEFT_OS->alloc(hosts * sizeof *t->values);
    t->list = WEFT_OS->alloc(hosts * sizeof *t->list);
    if (!t->list || !t->state || !t->shown || !t->keys || !t->text || !t->values)
        return false;
    for (size_t i = 0; i < hosts; i++)
        t->keys[i] = t->text[i];
    return true;
}

weft_status weft_i_agree_between_hosts(weft_i_agreeing *a)
{
    WEFT_ASSERT(a->group->hosts && a->group->size <= WEFT_I_BOARD_RANKS);
    telling t = {.a = a, .began = WEFT_OS->clock_ns()};
    weft_status status =
        allocate(&t)
            ? WEFT_OK
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d ranks", a->op, a->group->size);
    if (status == WEFT_OK) {
        weft_i_agree_show(a);
        status = reach(&t);
    }
    if (status == WEFT_OK)
        sweep(&t);
    WEFT_OS->free(t.state);
    WEFT_OS->free(t.shown);
    WEFT_OS->free((void *)t.keys);
    WEFT_OS->free(t.text);
    WEFT_OS->free(t.values);
    WEFT_OS->free(t.list);
    return status;
}

__attribute__((constructor)) static void take_outcomes(void)
{
    weft_i_hosts_on(WEFT_I_HEAD_AGREED, take_agreed);
}
