/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the members of a group meet: on its board when they share a host, through the store when they
 * do not.  Every way of failing gets a message here that says who is missing, or who called what.
 */
#include "fabric/group.h"

#include "base/os.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum {
    SLICE_MS = 20
}; /* between looks at the lives of local members while a remote one is awaited */

static void describe_call(const weft_i_call *call, char *out, size_t bytes)
{
    const weft_group *group = call->group;
    if (call->channel >= 0)
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s on channel %d", group->rank,
                 group->size, group->name, call->op, call->channel);
    else
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s", group->rank, group->size,
                 group->name, call->op);
}

weft_status weft_i_group_lost(const weft_i_call *call, int rank)
{
    const weft_group *group = call->group;
    /* Pairs with the release in weft_group_revoke. */
    uint32_t revoked =
        group->board ? atomic_load_explicit(&group->board->revoked, memory_order_acquire) : 0;
    const weft_i_slot *slot = weft_i_group_slot(group, rank);
    if (!revoked && (!slot || weft_i_watch_fate(slot) == WEFT_I_ALIVE))
        return WEFT_OK;
    char what[160];
    describe_call(call, what, sizeof what);
    if (revoked)
        return weft_i_fail(WEFT_ERR_REVOKED, "%s: rank %u revoked the group", what, revoked - 1);
    return weft_i_world_lost(group->world, group->members[rank], what);
}

static weft_status point_lost(void *arg, uint64_t missing)
{
    return weft_i_group_lost(arg, (int)missing);
}

/* Names everybody whose word is behind: "waiting for rank 2 (...), rank 3 (...)". */
static weft_status fail_timeout(const weft_i_call *call, const weft_i_point *point,
                                const weft_i_meeting *meeting, int64_t timeout_ms)
{
    char what[160], names[1400] = "";
    size_t used = 0;
    describe_call(call, what, sizeof what);
    for (int rank = 0; rank < point->size && used + 8 < sizeof names; rank++) {
        uint64_t word = atomic_load_explicit(weft_i_point_turn(point, rank, meeting->epoch),
                                             memory_order_relaxed);
        if (rank == point->me || weft_i_arrived(word, meeting->epoch))
            continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s", used ? ", " : "");
        weft_i_world_describe(call->group->world, call->group->members[rank], names + used,
                              sizeof names - used);
        used = strlen(names);
    }
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: waited %lld ms for %s", what, (long long)timeout_ms,
                       names);
}

weft_status weft_i_group_mismatch(const weft_i_call *call, const weft_i_meeting *meeting)
{
    char what[160], who[512];
    describe_call(call, what, sizeof what);
    weft_i_world_describe(call->group->world, call->group->members[meeting->culprit], who,
                          sizeof who);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s: another rank called something else here: %s", what,
                       who);
}

weft_status weft_i_group_meet(const weft_i_call *call, weft_i_point *point, uint32_t digest,
                              int64_t timeout_ms, weft_i_meeting *meeting)
{
    point->lost = point_lost;
    point->arg = (void *)(uintptr_t)call;
    weft_status status = weft_i_signal_meet(point, digest, timeout_ms, meeting);
    if (status == WEFT_ERR_TIMEOUT)
        return fail_timeout(call, point, meeting, timeout_ms);
    return status;
}

static uint32_t digest_of(const char *what, size_t bytes)
{
    uint32_t digest = weft_i_digest(1, bytes);
    for (const char *c = what; *c; c++)
        digest = weft_i_digest(digest, (unsigned char)*c);
    return digest;
}

/*
 * Two notes by turns: a note is overwritten two exchanges later, and by then everybody has met once
 * more, which they do only after reading it.
 */
static weft_status exchange_on_board(const weft_i_call *call, const void *mine, size_t bytes,
                                     char *all, int64_t timeout_ms)
{
    const weft_group *group = call->group;
    weft_i_board_row *row = group->board->row;
    uint64_t word =
        atomic_load_explicit(&row[group->rank].arrival, memory_order_relaxed); /* our own word */
    int parity = (int)((weft_i_arrival_epoch(word) + 1) & 1);
    if (bytes)
        memcpy(row[group->rank].note[parity], mine, bytes);
    weft_i_point point = {.me = group->rank,
                          .size = group->size,
                          .words = (char *)&row[0].arrival,
                          .bells = (char *)&row[0].bell,
                          .word_stride = sizeof *row,
                          .bell_stride = sizeof *row,
                          .mode = group->world->mode};
    weft_i_meeting meeting;
    weft_status status =
        weft_i_group_meet(call, &point, digest_of(call->op, bytes), timeout_ms, &meeting);
    if (status < 0)
        return status == WEFT_ERR_MISMATCH ? weft_i_group_mismatch(call, &meeting) : status;
    for (int rank = 0; all && rank < group->size; rank++)
        memcpy(all + (size_t)rank * bytes, row[rank].note[parity], bytes);
    return WEFT_OK;
}

static void note_key(const weft_group *group, uint64_t number, int rank, char *out, size_t bytes)
{
    snprintf(out, bytes, "x/%016llx%016llx/%llu/%d", (unsigned long long)group->key.word[0],
             (unsigned long long)group->key.word[1], (unsigned long long)number, rank);
}

typedef struct letter {
    uint32_t digest, bytes;
    unsigned char note[WEFT_I_NOTE_BYTES];
} letter;

static weft_status fail_letter(const weft_i_call *call, int rank)
{
    char what[160], who[512];
    describe_call(call, what, sizeof what);
    weft_i_world_describe(call->group->world, call->group->members[rank], who, sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: the deadline passed while waiting for %s", what, who);
}

/* Waits for one member's letter, in slices, so that a local member's death ends the wait. */
static weft_status read_letter(const weft_i_call *call, uint64_t number, int rank, int64_t deadline,
                               letter *out)
{
    char key[96];
    note_key(call->group, number, rank, key, sizeof key);
    for (;;) {
        weft_store_value value = {0};
        weft_status status = weft_store_get(call->group->world->store, key, SLICE_MS, &value);
        if (status == WEFT_OK) {
            memset(out, 0, sizeof *out);
            memcpy(out, value.data, value.bytes < sizeof *out ? value.bytes : sizeof *out);
            weft_store_value_clear(&value);
            return WEFT_OK;
        }
        if (status != WEFT_ERR_TIMEOUT)
            return status;
        WEFT_TRY(weft_i_group_lost(call, rank));
        if (WEFT_OS->clock_ns() >= deadline)
            return fail_letter(call, rank);
    }
}

static weft_status exchange_by_store(const weft_i_call *call, weft_group *group, const void *mine,
                                     size_t bytes, char *all, int64_t timeout_ms)
{
    letter own = {.digest = digest_of(call->op, bytes), .bytes = (uint32_t)bytes}, theirs;
    int64_t deadline = weft_i_os_deadline(timeout_ms);
    uint64_t number = group->exchanges++;
    char key[96];
    if (bytes)
        memcpy(own.note, mine, bytes);
    note_key(group, number, group->rank, key, sizeof key);
    WEFT_TRY(weft_store_set(group->world->store, key, &own, offsetof(letter, note) + bytes));
    for (int rank = 0; rank < group->size; rank++) {
        WEFT_TRY(read_letter(call, number, rank, deadline, &theirs));
        weft_i_meeting meeting = {.culprit = rank, .culprit_digest = theirs.digest};
        if (theirs.digest != own.digest || theirs.bytes != own.bytes)
            return weft_i_group_mismatch(call, &meeting);
        if (all)
            memcpy(all + (size_t)rank * bytes, theirs.note, bytes);
    }
    /* Everybody has written letter `number`, so everybody has read letter `number - 1`. */
    if (number > 0) {
        note_key(group, number - 1, group->rank, key, sizeof key);
        weft_store_delete_key(group->world->store, key, NULL);
    }
    return WEFT_OK;
}

weft_status weft_i_group_exchange(weft_group *group, const char *what, const void *mine,
                                  size_t bytes, void *all, int64_t timeout_ms)
{
    if (bytes > WEFT_I_NOTE_BYTES)
        return weft_i_fail(WEFT_ERR_INTERNAL, "an exchange of %zu bytes does not fit a note",
                           bytes);
    weft_i_call call = {group, what, -1};
    int64_t limit = weft_i_group_limit(group, timeout_ms);
    uint64_t number =
        weft_i_record_begin(weft_i_group_record(group), what, group->id, bytes, -1, -1);
    weft_status status = group->board ? exchange_on_board(&call, mine, bytes, all, limit)
                                      : exchange_by_store(&call, group, mine, bytes, all, limit);
    weft_i_record_end(weft_i_group_record(group), number, status);
    return status;
}

void weft_i_group_show(weft_group *group, const char *what, const void *mine, size_t bytes)
{
    weft_status reason = weft_last_status();
    char message[512];
    snprintf(message, sizeof message, "%s", weft_last_error());
    if (weft_i_group_exchange(group, what, mine, bytes, NULL, WEFT_DEFAULT) < 0)
        weft_i_fail(reason, "%s", message);
}

weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms)
{
    WEFT_TRY(weft_i_group_usable(group));
    return weft_i_group_exchange(group, "group_barrier", NULL, 0, NULL, timeout_ms);
}
