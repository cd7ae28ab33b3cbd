/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement.  A round: every member shows its flags; one that sees that each has shown them, or is
 * lost, writes down what it saw (the flags of those that did, and which are lost) and
 * proposes that.  One compare and exchange decides whose words count, on the board or in the store,
 * and all follow them, also if their writer is dead by then.  So it does not matter that
 * members see a death at different times, nor when one dies: before the exchange its words
 * do not count, after it they are complete.
 *
 * The next round is decided only when all that live have come to it, so none still reads the
 * words of the last one.  A member whose time is up has shown its flags and cannot take them back;
 * it goes on with the same round when it calls again.
 */
#include "fabric/group/group_agree.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, POLL_NS = 5000000 };

typedef weft_i_agreeing agreeing;
typedef weft_i_ballot ballot;
#define ballot_bytes weft_i_ballot_bytes

/* Adds what this rank sees itself; true if that was news. */
static bool look(agreeing *a)
{
    bool news = false;
    for (int rank = 0; rank < a->group->size; rank++)
        if (!a->mine->lost[rank] && weft_i_group_member_fate(a->group, rank) < 0)
            a->mine->lost[rank] = news = true;
    return news;
}

/* The gravest fate of those who are lost. */
weft_status weft_i_agree_fate(const agreeing *a, const ballot *b)
{
    weft_status gravest = WEFT_OK;
    for (int rank = 0; rank < a->group->size; rank++) {
        weft_status fate = b->lost[rank] ? weft_i_group_member_fate(a->group, rank) : WEFT_OK;
        if (b->lost[rank] && fate == WEFT_OK)
            fate = WEFT_ERR_PEER_DEAD; /* on another host, which told us so */
        if (fate < 0 && gravest != WEFT_ERR_PEER_DEAD)
            gravest = fate;
    }
    return gravest;
}

static void list_ranks(const agreeing *a, const unsigned char *chosen, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    out[0] = 0;
    for (int rank = 0; rank < a->group->size && text.used + 48 < bytes; rank++)
        if (chosen[rank])
            weft_i_text_put(&text, "%s%d", text.used ? ", " : "", rank);
}

static void describe_ranks(const agreeing *a, const unsigned char *chosen, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    out[0] = 0;
    for (int rank = 0; rank < a->group->size && text.used + 8 < bytes; rank++)
        if (chosen[rank])
            weft_i_world_list(a->group->world, a->group->members[rank], &text);
}

/* `missing` live and have not come. */
weft_status weft_i_agree_fail_late(const agreeing *a, const unsigned char *missing)
{
    char names[1400];
    describe_ranks(a, missing, names, sizeof names);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s in \"%s\": waited %lld ms for %s", a->op,
                       a->group->name, (long long)a->limit_ms,
                       *names ? names : "ranks that came as the deadline passed");
}

/* ---- on one host ---- */

weft_i_vote *weft_i_agree_vote(const agreeing *a, int rank)
{
    return &a->group->board->row[rank].vote;
}

/* Has the member come to this round?  Its flags are complete then. */
bool weft_i_agree_has_come(const agreeing *a, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < a->group->size);
    /* Pairs with the release in show_flags. */
    uint32_t round = atomic_load_explicit(&weft_i_agree_vote(a, rank)->round, memory_order_acquire);
    return (int32_t)(round - a->round) >= 0;
}

uint64_t weft_i_agree_word(const agreeing *a)
{
    /* Pairs with the exchange in propose: the words that count are complete. */
    return atomic_load_explicit(&a->group->board->agreed, memory_order_acquire);
}

bool weft_i_agree_is_decided(uint64_t word, uint32_t round)
{
    return (uint32_t)(word >> 32) == round;
}

void weft_i_agree_ring(const agreeing *a)
{
    atomic_thread_fence(
        memory_order_seq_cst); /* pairs with the fence of a sleeper in base/share/wait.c */
    for (int rank = 0; rank < a->group->size; rank++)
        if (rank != a->group->rank)
            weft_i_wait_ring(&weft_i_agree_vote(a, rank)->bell);
}

/* Shows this rank's flags, unless it did so in an earlier try. */
void weft_i_agree_show(const agreeing *a)
{
    weft_i_vote *mine = weft_i_agree_vote(a, a->group->rank);
    if (weft_i_agree_has_come(a, a->group->rank))
        return;
    mine->flags[a->round & 1] = a->mine->flags;
    /* Pairs with the acquire in has_come. */
    atomic_store_explicit(&mine->round, a->round, memory_order_release);
    weft_i_agree_ring(a);
}

/* Is it decided, or can this rank decide it? */
static bool is_complete(void *arg)
{
    agreeing *a = arg;
    if (weft_i_agree_is_decided(weft_i_agree_word(a), a->round))
        return true;
    for (int rank = 0; rank < a->group->size; rank++)
        if (!weft_i_agree_has_come(a, rank) && weft_i_group_member_fate(a->group, rank) == WEFT_OK)
            return false;
    return true;
}

/* Writes what this rank has seen into its row, where it stays. */
static void write_words(agreeing *a)
{
    WEFT_ASSERT(a->group->size <= WEFT_I_BOARD_RANKS);
    weft_i_vote *mine = weft_i_agree_vote(a, a->group->rank);
    int turn = a->round & 1;
    look(a);
    memset(mine->lost[turn], 0, sizeof mine->lost[turn]);
    mine->decided[turn] = ~UINT64_C(0);
    for (int rank = 0; rank < a->group->size; rank++) {
        if (weft_i_agree_has_come(a, rank)) /* also of one that died since */
            mine->decided[turn] &= weft_i_agree_vote(a, rank)->flags[turn];
        if (a->mine->lost[rank])
            mine->lost[turn][rank / 8] |= (unsigned char)(1u << rank % 8);
    }
    mine->status[turn] = weft_i_agree_fate(a, a->mine);
}

static void propose(agreeing *a)
{
    uint64_t before = weft_i_agree_word(a);
    if (weft_i_agree_is_decided(before, a->round))
        return;
    write_words(a);
    uint64_t mine = (uint64_t)a->round << 32 | (1 + (uint32_t)a->group->rank);
    /* Pairs with the acquire in `agreed`.  If it fails, somebody else has decided the round. */
    atomic_compare_exchange_strong_explicit(&a->group->board->agreed, &before, mine,
                                            memory_order_acq_rel, memory_order_acquire);
    weft_i_agree_ring(a);
}

void weft_i_agree_follow(agreeing *a)
{
    const weft_i_vote *words = weft_i_agree_vote(a, (int)(uint32_t)weft_i_agree_word(a) - 1);
    int turn = a->round & 1;
    a->mine->flags = words->decided[turn];
    a->mine->status = words->status[turn];
    for (int rank = 0; rank < a->group->size; rank++)
        a->mine->lost[rank] = words->lost[turn][rank / 8] >> rank % 8 & 1;
}

static weft_status agree_on_board(agreeing *a)
{
    weft_i_agree_show(a);
    weft_i_wait wait = {.ready = is_complete,
                        .arg = a,
                        .bell = &weft_i_agree_vote(a, a->group->rank)->bell,
                        .deadline = a->deadline,
                        .mode = a->group->world->mode};
    if (weft_i_wait_for(&wait) < 0) {
        for (int rank = 0; rank < a->group->size; rank++)
            a->heard->lost[rank] = !weft_i_agree_has_come(a, rank) &&
                                   weft_i_group_member_fate(a->group, rank) == WEFT_OK;
        return weft_i_agree_fail_late(a, a->heard->lost);
    }
    propose(a);
    weft_i_agree_follow(a);
    return WEFT_OK;
}

/* ---- between hosts ---- */

/* Under the group's key and the round: "<rank>" what it shows, "so" what was decided. */
static void name_key(const agreeing *a, uint32_t round, int rank, char out[KEY_BYTES])
{
    char last[16] = "so";
    if (rank >= 0)
        snprintf(last, sizeof last, "%d", rank);
    snprintf(out, KEY_BYTES, "agree/%016llx%016llx/%u/%s",
             (unsigned long long)a->group->key.word[0], (unsigned long long)a->group->key.word[1],
             round, last);
}

static weft_status take(const agreeing *a, weft_store_value *value, ballot *out)
{
    size_t bytes = ballot_bytes(a->group);
    bool fits = value->bytes == bytes;
    if (fits)
        memcpy(out, value->data, bytes);
    weft_store_value_clear(value);
    return fits ? WEFT_OK
                : weft_i_fail(WEFT_ERR_PROTOCOL, "group_agree: a value in the store is not weft's");
}

/* Reads a ballot into a->heard, if it is there: 1, 0, or a status. */
static int read_ballot(agreeing *a, int rank)
{
    char text[KEY_BYTES];
    const char *key = text;
    weft_store *store = a->group->world->store;
    bool there = false;
    name_key(a, a->round, rank, text);
    WEFT_TRY(weft_store_check(store, 1, &key, &there));
    if (!there)
        return 0;
    weft_store_value value = {0};
    WEFT_TRY(weft_store_get(store, key, WEFT_STORE_NOW, &value));
    WEFT_TRY(take(a, &value, a->heard));
    return 1;
}

/* Shows the flags, which stay as they were at the first try, and whom we know to be lost. */
static weft_status tell(agreeing *a)
{
    char key[KEY_BYTES];
    int there = read_ballot(a, a->group->rank);
    if (there < 0)
        return (weft_status)there;
    if (there)
        a->mine->flags = a->heard->flags;
    name_key(a, a->round, a->group->rank, key);
    return weft_store_set(a->group->world->store, key, a->mine, ballot_bytes(a->group));
}

/* One round over the members' ballots: `all` is the and of them; `missing`, whose is not there. */
static weft_status hear_all(agreeing *a, uint64_t *all, unsigned char *missing)
{
    *all = ~UINT64_C(0);
    for (int rank = 0; rank < a->group->size; rank++) {
        int there = read_ballot(a, rank);
        if (there < 0)
            return (weft_status)there;
        missing[rank] = !there;
        for (int i = 0; there && i < a->group->size; i++)
            a->mine->lost[i] |= a->heard->lost[i];
        if (there)
            *all &= a->heard->flags;
    }
    return WEFT_OK;
}

static bool all_accounted_for(const agreeing *a, unsigned char *missing)
{
    bool all = true;
    for (int rank = 0; rank < a->group->size; rank++) {
        missing[rank] = missing[rank] && !a->mine->lost[rank];
        all &= !missing[rank];
    }
    return all;
}

static weft_status decide_in_store(agreeing *a, uint64_t all)
{
    char key[KEY_BYTES];
    weft_store_value now = {0};
    a->mine->flags = all;
    a->mine->status = weft_i_agree_fate(a, a->mine);
    name_key(a, a->round, -1, key);
    WEFT_TRY(weft_store_compare_set(a->group->world->store, key, "", 0, a->mine,
                                    ballot_bytes(a->group), NULL, &now));
    return take(a, &now, a->mine);
}

/* Everybody has come to this round, so nobody reads the one before any more. */
static void sweep(const agreeing *a)
{
    char key[KEY_BYTES];
    int first = 0;
    while (first < a->group->rank && a->mine->lost[first])
        first++;
    if (a->round < 2)
        return;
    name_key(a, a->round - 1, a->group->rank, key);
    weft_store_delete_key(a->group->world->store, key, NULL);
    name_key(a, a->round - 1, -1, key);
    if (first == a->group->rank)
        weft_store_delete_key(a->group->world->store, key, NULL);
}

static weft_status agree_in_store(agreeing *a, unsigned char *missing)
{
    look(a);
    WEFT_TRY(tell(a));
    for (;;) {
        int decided = read_ballot(a, -1);
        if (decided < 0)
            return (weft_status)decided;
        if (decided) {
            memcpy(a->mine, a->heard, ballot_bytes(a->group));
            break;
        }
        uint64_t all;
        if (look(a))
            WEFT_TRY(tell(a));
        WEFT_TRY(hear_all(a, &all, missing));
        if (all_accounted_for(a, missing)) {
            WEFT_TRY(decide_in_store(a, all));
            break;
        }
        if (WEFT_OS->clock_ns() >= a->deadline)
            return weft_i_agree_fail_late(a, missing);
        WEFT_OS->sleep_ns(POLL_NS);
    }
    sweep(a);
    return WEFT_OK;
}

/* ---- both ---- */

static weft_status tell_outcome(const agreeing *a)
{
    weft_status status = (weft_status)a->mine->status;
    char ranks[300], who[1100];
    if (status == WEFT_OK)
        return WEFT_OK;
    list_ranks(a, a->mine->lost, ranks, sizeof ranks);
    describe_ranks(a, a->mine->lost, who, sizeof who);
    return weft_i_fail(status, "group_agree in \"%s\": agreed without rank %s of the group: %s",
                       a->group->name, ranks, who);
}

/* On one board, on those of several hosts and in the store, or in the store alone. */
static weft_status agree(agreeing *a)
{
    if (a->group->local)
        return agree_on_board(a);
    if (a->group->hosts && a->group->size <= WEFT_I_BOARD_RANKS)
        return weft_i_agree_between_hosts(a);
    unsigned char *missing = WEFT_OS->alloc((size_t)a->group->size);
    if (!missing)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d ranks", a->op, a->group->size);
    weft_status status = agree_in_store(a, missing);
    WEFT_OS->free(missing);
    return status;
}

/* With the ballots' memory; `fate`: whether all took part, with a message. */
static weft_status run_round(agreeing *a, uint64_t *flags, unsigned char *lost, weft_status *fate)
{
    WEFT_ASSERT(a->round == a->group->rest.agreements + 1);
    size_t bytes = ballot_bytes(a->group);
    a->mine = WEFT_OS->alloc(2 * bytes + 16);
    if (!a->mine)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d ranks", a->op, a->group->size);
    a->heard = (ballot *)(void *)((char *)a->mine + (bytes + 7) / 8 * 8);
    a->mine->flags = *flags;
    weft_status status = agree(a);
    if (status == WEFT_OK) {
        a->group->rest.agreements = a->round;
        *flags = a->mine->flags;
        if (lost)
            memcpy(lost, a->mine->lost, (size_t)a->group->size);
        if (fate)
            *fate = tell_outcome(a);
    }
    WEFT_OS->free(a->mine);
    return status;
}

weft_status weft_i_agree_round(weft_group *group, const char *op, uint64_t *flags,
                               unsigned char *lost, int64_t limit_ms, weft_status *fate)
{
    agreeing a = {.group = group,
                  .op = op,
                  .round = group->rest.agreements + 1,
                  .limit_ms = limit_ms,
                  .deadline = weft_i_os_deadline(limit_ms)};
    return run_round(&a, flags, lost, fate);
}

weft_status weft_group_agree(weft_group *group, uint64_t *flags, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_group_usable(group));
    WEFT_TRY(weft_i_group_check_limit("weft_group_agree", timeout_ms));
    if (!flags)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_group_agree: no flags");
    if (group->world->fake)
        return WEFT_OK;
    weft_status fate = WEFT_OK;
    uint64_t number =
        weft_i_record_begin(weft_i_group_record(group), "group_agree", group->id, 0, -1, -1);
    weft_status status = weft_i_agree_round(group, "group_agree", flags, NULL,
                                            weft_i_group_limit(group, timeout_ms), &fate);
    status = status < 0 ? status : fate;
    weft_i_record_end(weft_i_group_record(group), number, status);
    return status;
}
