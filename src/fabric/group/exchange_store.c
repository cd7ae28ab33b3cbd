/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchange through the store: see exchange_store.h.  Keys, under the group's key: "<round>/<rank>"
 * an entry, "<round>/so" what became of the round, "end" why there will be no more.  An entry of a
 * later round says that its writer is done with the earlier ones, so once a round has succeeded
 * their keys are removed.
 */
#include "fabric/group/exchange_store.h"
#include "base/os/assert.h"
#include "base/report/text.h"
#include "store/store.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"
#include "fabric/world/news.h"
#include "store/store.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    SLICE_MS = 20, /* between looks at the lives of members while one is awaited */
    KEY_BYTES = 96
};

typedef struct entry {
    uint32_t digest, bytes;
    unsigned char note[WEFT_I_NOTE_BYTES];
} entry;

/* What became of a round, and what "end" says. */
typedef struct decision {
    int32_t rank; /* who decided */
    int32_t status;
} decision;

static void name_key(weft_i_key key, const char *rest, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "x/%016llx%016llx/%s", (unsigned long long)key.word[0],
             (unsigned long long)key.word[1], rest);
}

static void entry_key(const weft_group *group, uint64_t round, int rank, char out[KEY_BYTES])
{
    WEFT_ASSERT(rank >= 0 && rank < group->size);
    char rest[48];
    snprintf(rest, sizeof rest, "%llu/%d", (unsigned long long)round, rank);
    name_key(group->key, rest, out);
}

static void decision_key(const weft_group *group, uint64_t round, char out[KEY_BYTES])
{
    char rest[48];
    snprintf(rest, sizeof rest, "%llu/so", (unsigned long long)round);
    name_key(group->key, rest, out);
}

static weft_status fail_foreign(size_t bytes)
{
    return weft_i_fail(WEFT_ERR_PROTOCOL,
                       "a value of %zu bytes in the store where ranks meet is not weft's", bytes);
}

/* Copies a value of a size within bounds; WEFT_ERR_PROTOCOL if it has another. */
static weft_status take(weft_store_value *value, void *out, size_t least, size_t most)
{
    bool fits = value->bytes >= least && value->bytes <= most;
    if (fits)
        memcpy(out, value->data, value->bytes);
    size_t bytes = value->bytes;
    weft_store_value_clear(value);
    return fits ? WEFT_OK : fail_foreign(bytes);
}

/* Reads a decision that may be missing: WEFT_ERR_NOT_FOUND. */
static weft_status read_decision(weft_store *store, const char *key, decision *out)
{
    bool there = false; /* asked first, because a miss is no error of ours */
    WEFT_TRY(weft_store_check(store, 1, &key, &there));
    if (!there)
        return WEFT_ERR_NOT_FOUND;
    weft_store_value value = {0};
    WEFT_TRY(weft_store_get(store, key, WEFT_STORE_NOW, &value));
    return take(&value, out, sizeof *out, sizeof *out);
}

/* Proposes what becomes of a round; `out` is what did. */
static weft_status decide(const weft_group *group, uint64_t round, weft_status what, decision *out)
{
    char key[KEY_BYTES];
    decision mine = {group->members[group->rank], what};
    weft_store_value now = {0};
    decision_key(group, round, key);
    WEFT_TRY(
        weft_store_compare_set(group->world->store, key, "", 0, &mine, sizeof mine, NULL, &now));
    return take(&now, out, sizeof *out, sizeof *out);
}

weft_status weft_i_exchange_store_end(weft_store *store, weft_i_key key, int rank, weft_status why)
{
    char text[KEY_BYTES];
    decision mine = {rank, why};
    name_key(key, "end", text);
    return weft_store_compare_set(store, text, "", 0, &mine, sizeof mine, NULL, NULL);
}

void weft_i_exchange_store_allow(weft_store *store, weft_i_key key, int rank)
{
    char text[KEY_BYTES];
    decision said;
    name_key(key, "end", text);
    if (read_decision(store, text, &said) == WEFT_OK && said.rank == rank)
        weft_store_delete_key(store, text, NULL);
}

/* Was a group revoked that this one was made from?  Those on one host are seen in memory. */
static weft_status check_elders(const weft_i_label *label)
{
    const weft_i_lineage *lineage = &label->group->lineage;
    char key[KEY_BYTES], what[160];
    for (int i = 0; i < lineage->count; i++) {
        const weft_i_elder *elder = &lineage->elders[i];
        decision said = {0};
        name_key(elder->key, "end", key);
        weft_status status = elder->board ? WEFT_ERR_NOT_FOUND
                                          : read_decision(label->group->world->store, key, &said);
        if (status < 0 && status != WEFT_ERR_NOT_FOUND)
            return status;
        weft_i_label_text(label, what, sizeof what);
        if (status == WEFT_OK && said.status == WEFT_ERR_REVOKED)
            return weft_i_fail(WEFT_ERR_REVOKED,
                               "%s: rank %d of the world revoked group \"%s\", from which this one "
                               "was made",
                               what, said.rank, elder->name);
    }
    return WEFT_OK;
}

static weft_status check_end(const weft_i_label *label)
{
    char key[KEY_BYTES], what[160];
    decision said;
    WEFT_TRY(check_elders(label));
    name_key(label->group->key, "end", key);
    weft_status status = read_decision(label->group->world->store, key, &said);
    if (status < 0)
        return status == WEFT_ERR_NOT_FOUND ? WEFT_OK : status;
    weft_i_label_text(label, what, sizeof what);
    if (said.status == WEFT_ERR_REVOKED)
        return weft_i_fail(WEFT_ERR_REVOKED, "%s: rank %d of the world revoked the group", what,
                           said.rank);
    return weft_i_fail(WEFT_ERR_PEER_LEFT, "%s: rank %d of the world could not take part (%s)",
                       what, said.rank, weft_strerror((weft_status)said.status));
}

typedef struct round_state {
    const weft_i_label *label;
    weft_group *group;
    uint64_t number;
    int64_t deadline;
    unsigned moves; /* of the store when it began */
    bool decided;   /* "yes": all entries are there, the deadline does not matter any more */
    bool late;      /* the deadline passed, and the message says who is missing */
} round_state;

/* Names everybody who has left no entry; those before `first` have.  A store that does not answer
 * any more ends this too, and then its server is to be named. */
static weft_status fail_late(round_state *round, int first)
{
    char what[160], text[KEY_BYTES], who[1400] = "";
    const char *key = text;
    weft_i_text list = {who, sizeof who, 0};
    weft_i_label_text(round->label, what, sizeof what);
    for (int rank = first; rank < round->group->size && list.used + 8 < sizeof who; rank++) {
        bool there = false;
        entry_key(round->group, round->number, rank, text);
        WEFT_TRY(rank == first ? WEFT_OK
                               : weft_store_check(round->group->world->store, 1, &key, &there));
        if (!there)
            weft_i_world_list(round->group->world, round->group->members[rank], &list);
    }
    round->late = true;
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: the deadline passed while waiting for %s", what, who);
}

static weft_status fail_different(const round_state *round, int rank)
{
    weft_i_meeting meeting = {.culprit = rank};
    return weft_i_group_mismatch(round->label, &meeting);
}

/* We give up: nobody shall succeed, unless somebody has; then `decided`. */
static weft_status give_up(round_state *round)
{
    decision came;
    WEFT_TRY(decide(round->group, round->number, WEFT_ERR_CANCELLED, &came));
    round->decided = came.status == WEFT_OK;
    if (came.status == WEFT_ERR_CANCELLED)
        round->group->rest.round = round->number + 1;
    return WEFT_OK;
}

/* What became of the round: WEFT_OK if nothing yet or "yes", WEFT_ERR_CANCELLED for "no". */
static weft_status check_decision(const round_state *round)
{
    char key[KEY_BYTES];
    decision came;
    decision_key(round->group, round->number, key);
    weft_status status = read_decision(round->group->world->store, key, &came);
    if (status < 0)
        return status == WEFT_ERR_NOT_FOUND ? WEFT_OK : status;
    if (came.status == WEFT_ERR_MISMATCH)
        return fail_different(round, weft_group_rank_of(round->group, came.rank));
    return (weft_status)came.status;
}

/* Does the group last?  Whoever has ended it may have decided this round before, since we looked:
 * then it has taken part. */
static weft_status check_stay(const round_state *round)
{
    char key[KEY_BYTES];
    decision came;
    weft_i_errors before, after;
    weft_i_errors_save(&before);
    weft_status end = check_end(round->label);
    if (end != WEFT_ERR_PEER_LEFT)
        return end;
    weft_i_errors_save(&after);
    decision_key(round->group, round->number, key);
    bool decided =
        read_decision(round->group->world->store, key, &came) == WEFT_OK && came.status == WEFT_OK;
    weft_i_errors_restore(decided ? &before : &after);
    return decided ? WEFT_OK : end;
}

static bool has_moved(const round_state *round)
{
    /* Pairs with the release in news.c. */
    return atomic_load_explicit(&round->group->world->moves, memory_order_acquire) != round->moves;
}

/* The member that keeps this round from ending: `rank`, of which there is no entry yet, or another
 * one that is gone and has left none; -1: none. */
static weft_status find_lost(const round_state *round, int rank, int *out)
{
    const weft_group *group = round->group;
    char text[KEY_BYTES];
    const char *key = text;
    *out = weft_i_group_fate(group, rank) < 0 ? rank : -1;
    for (int other = 0; other < group->size && *out < 0; other++) {
        bool there = false;
        if (weft_i_world_fate(group->world, group->members[other]) == WEFT_OK)
            continue;
        entry_key(group, round->number, other, text);
        WEFT_TRY(weft_store_check(group->world->store, 1, &key, &there));
        if (!there)
            *out = other;
    }
    return WEFT_OK;
}

/* Nothing from `rank` yet: can it still come?  WEFT_ERR_CANCELLED: not in this round. */
static weft_status check_round(round_state *round, int rank)
{
    int lost = -1;
    WEFT_TRY(check_decision(round));
    WEFT_TRY(check_stay(round));
    if (has_moved(round))
        return WEFT_ERR_UNREACHABLE; /* the entries are in the old store */
    WEFT_TRY(weft_i_news_hear(round->group->world));
    WEFT_TRY(find_lost(round, rank, &lost));
    if (round->decided || (lost < 0 && WEFT_OS->clock_ns() < round->deadline))
        return WEFT_OK;
    WEFT_TRY(give_up(round));
    if (round->decided)
        return WEFT_OK;
    return lost >= 0 ? weft_i_group_lost(round->label, lost) : fail_late(round, rank);
}

/* One slice of a wait for a key; the end of a slice is no error. */
static weft_status wait_slice(weft_store *store, const char *key)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_store_wait(store, 1, &key, SLICE_MS);
    if (status == WEFT_ERR_TIMEOUT) {
        weft_i_errors_restore(&before);
        return WEFT_OK;
    }
    return status;
}

/* Waits for one member's entry, in slices, so that a local member's death ends the wait. */
static weft_status read_entry(round_state *round, int rank, entry *out)
{
    weft_store *store = round->group->world->store;
    char text[KEY_BYTES];
    const char *key = text;
    entry_key(round->group, round->number, rank, text);
    for (;;) {
        bool there = false;
        WEFT_TRY(weft_store_check(store, 1, &key, &there));
        if (there) {
            weft_store_value value = {0};
            WEFT_TRY(weft_store_get(store, key, WEFT_DEFAULT, &value));
            size_t bytes = value.bytes;
            WEFT_TRY(take(&value, out, offsetof(entry, note), sizeof *out));
            return bytes == offsetof(entry, note) + out->bytes ? WEFT_OK : fail_foreign(bytes);
        }
        WEFT_TRY(check_round(round, rank));
        WEFT_TRY(wait_slice(store, key));
    }
}

/* The round never ends otherwise, so whoever comes later is told too. */
static weft_status keep_mismatch(const round_state *round, int rank)
{
    decision came;
    WEFT_TRY(decide(round->group, round->number, WEFT_ERR_MISMATCH, &came));
    return came.status == WEFT_ERR_CANCELLED ? WEFT_ERR_CANCELLED : fail_different(round, rank);
}

/* Reads everybody's entry; then the round is ours to decide. */
static weft_status read_all(round_state *round, const entry *own, char *all)
{
    entry theirs;
    decision came;
    for (int rank = 0; rank < round->group->size; rank++) {
        WEFT_TRY(read_entry(round, rank, &theirs));
        if (theirs.digest != own->digest || theirs.bytes != own->bytes)
            return keep_mismatch(round, rank);
        if (all)
            memcpy(all + (size_t)rank * own->bytes, theirs.note, own->bytes);
    }
    WEFT_TRY(decide(round->group, round->number, WEFT_OK, &came));
    if (came.status == WEFT_ERR_MISMATCH)
        return fail_different(round, weft_group_rank_of(round->group, came.rank));
    return (weft_status)came.status;
}

/* Removes what the rounds before a successful one have left.  A store that has gone meanwhile is no
 * error of a round that succeeded. */
static void sweep(weft_group *group)
{
    WEFT_ASSERT(group->rest.swept <= group->rest.round);
    char key[KEY_BYTES];
    weft_i_errors before;
    weft_i_errors_save(&before);
    for (; group->rest.swept < group->rest.round; group->rest.swept++) {
        entry_key(group, group->rest.swept, group->rank, key);
        weft_store_delete_key(group->world->store, key, NULL);
        decision_key(group, group->rest.swept, key);
        if (group->rank == 0)
            weft_store_delete_key(group->world->store, key, NULL);
    }
    weft_i_errors_restore(&before);
}

/*
 * The store is gone, and perhaps what was decided with it: some may have passed this round, others
 * cannot any more.  So it is over for us, and the next one is everybody's next.  IN_PROGRESS: the
 * same store is there again, and the round goes on.
 */
static weft_status go_on(round_state *round, int server)
{
    weft_i_world *world = round->group->world;
    char what[160];
    weft_status status;
    do { /* the next one may go while we talk to it */
        if (weft_i_news_move(world, round->deadline) < 0)
            return WEFT_ERR_UNREACHABLE;
        if (!has_moved(round))
            return WEFT_IN_PROGRESS;
        status = give_up(round);
    } while (status == WEFT_ERR_UNREACHABLE);
    WEFT_TRY(status);
    round->group->rest.round = round->number + 1;
    weft_i_label_text(round->label, what, sizeof what);
    WEFT_TRY(weft_i_world_lost(world, server, what));
    return weft_i_fail(WEFT_ERR_PEER_DEAD, "%s: rank %d, which served the store, is gone", what,
                       server);
}

/* One round; IN_PROGRESS and CANCELLED: one more. */
static weft_status play(round_state *round, const entry *own, char *all)
{
    weft_group *group = round->group;
    weft_i_world *world = group->world;
    int server = atomic_load_explicit(&world->server, memory_order_relaxed);
    char key[KEY_BYTES];
    round->number = group->rest.round;
    /* Pairs with the release in news.c. */
    round->moves = atomic_load_explicit(&world->moves, memory_order_acquire);
    entry_key(group, round->number, group->rank, key);
    weft_status status = weft_store_set(world->store, key, own, offsetof(entry, note) + own->bytes);
    if (status == WEFT_OK)
        status = read_all(round, own, all);
    if (status == WEFT_ERR_CANCELLED)
        group->rest.round = round->number + 1;
    if (status == WEFT_ERR_UNREACHABLE)
        status = go_on(round, server);
    if (status == WEFT_ERR_TIMEOUT && !round->late) {
        char what[160];
        weft_i_label_text(round->label, what, sizeof what);
        return weft_i_explain(status, "%s: rank %d, which serves the store, does not answer", what,
                              server);
    }
    return status;
}

weft_status weft_i_exchange_store(const weft_i_label *label, weft_group *group, uint32_t digest,
                                  const void *mine, size_t bytes, char *all, int64_t timeout_ms)
{
    WEFT_ASSERT(bytes <= WEFT_I_NOTE_BYTES);
    entry own = {.digest = digest, .bytes = (uint32_t)bytes};
    round_state round = {
        .label = label, .group = group, .deadline = weft_i_os_deadline(timeout_ms)};
    if (bytes)
        memcpy(own.note, mine, bytes);
    int64_t before = weft_i_store_until(weft_i_store_late(round.deadline));
    weft_status status;
    do
        status = play(&round, &own, all);
    while (status == WEFT_ERR_CANCELLED || status == WEFT_IN_PROGRESS);
    if (status == WEFT_OK) {
        sweep(group);
        group->rest.round = round.number + 1;
    }
    weft_i_store_until(before);
    return status;
}
