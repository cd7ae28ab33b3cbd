/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the members of a group meet: on its board when they share a host, through the store when they
 * do not.  Every way of failing gets a message here that says who is missing, or who called what.
 */
#include "fabric/group.h"

#include "base/status.h"
#include "fabric/letters.h"

#include <stdio.h>
#include <string.h>

void weft_i_call_text(const weft_i_call *call, char *out, size_t bytes)
{
    const weft_group *group = call->group;
    if (call->channel >= 0)
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s on channel %d", group->rank,
                 group->size, group->name, call->op, call->channel);
    else
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s", group->rank, group->size,
                 group->name, call->op);
}

/* Has the member destroyed the group?  Pairs with the release in weft_i_group_mark_destroyed. */
static bool has_left(const weft_group *group, int rank)
{
    return group->board && !group->world->fake &&
           atomic_load_explicit(&group->board->row[rank].left, memory_order_acquire) != 0;
}

static weft_status fail_left(const weft_group *group, const char *what, int rank)
{
    return weft_i_fail(WEFT_ERR_PEER_LEFT, "%s: rank %d of the world has destroyed the group", what,
                       group->members[rank]);
}

/* A member's word that it cannot take part in making this group, if we have not acted on it yet. */
static uint64_t new_refusal(const weft_group *group, int rank)
{
    weft_i_peer *peer = &group->world->peers[group->members[rank]];
    uint64_t refusal =
        group->making && peer->slot ? weft_i_job_refusal(peer->slot, group->list) : 0;
    uint16_t heard = atomic_load_explicit(&peer->heard[weft_i_job_refusal_class(group->list)],
                                          memory_order_relaxed);
    return refusal && weft_i_job_refusal_number(refusal) != heard ? refusal : 0;
}

bool weft_i_group_hear_refusals(const weft_group *group)
{
    int class = weft_i_job_refusal_class(group->list);
    bool any = false;
    for (int rank = 0; rank < group->size; rank++) {
        weft_i_peer *peer = &group->world->peers[group->members[rank]];
        uint64_t refusal = rank == group->rank ? 0 : weft_i_job_refusal(peer->slot, group->list);
        if (refusal)
            atomic_store_explicit(&peer->heard[class], weft_i_job_refusal_number(refusal),
                                  memory_order_relaxed);
        any |= refusal != 0;
    }
    return any;
}

/* While a group is made every member counts, also one that has arrived: the others may know of its
 * death already and be making a group without it. */
static int lost_while_making(const weft_group *group)
{
    for (int rank = 0; group->making && rank < group->size; rank++)
        if (weft_i_world_fate(group->world, group->members[rank]) < 0)
            return rank;
    return -1;
}

weft_status weft_i_group_fate(const weft_group *group, int rank)
{
    if (weft_i_group_revoker(group))
        return WEFT_ERR_REVOKED;
    uint64_t refusal = new_refusal(group, rank);
    if (refusal)
        return weft_i_job_refusal_status(refusal);
    if (has_left(group, rank))
        return WEFT_ERR_PEER_LEFT;
    int lost = lost_while_making(group);
    return weft_i_world_fate(group->world, group->members[lost < 0 ? rank : lost]);
}

/* The first dead member, or -1. */
static int dead_member(const weft_group *group)
{
    for (int rank = 0; rank < group->size; rank++)
        if (weft_i_world_fate(group->world, group->members[rank]) == WEFT_ERR_PEER_DEAD)
            return rank;
    return -1;
}

/* A rank that gave up because another one died is not the news; the dead one is. */
static weft_status fail_refusal(const weft_group *group, const char *what, int rank,
                                weft_status why)
{
    int dead = why == WEFT_ERR_PEER_DEAD ? dead_member(group) : -1;
    if (dead >= 0)
        return weft_i_world_lost(group->world, group->members[dead], what);
    return weft_i_fail(why, "%s: rank %d of the world could not take part (%s)", what,
                       group->members[rank], weft_strerror(why));
}

weft_status weft_i_group_tell_revoked(const weft_i_call *call)
{
    const weft_group *group = call->group;
    uint32_t revoked = weft_i_group_revoker(group);
    char what[160];
    weft_i_call_text(call, what, sizeof what);
    weft_status why =
        (weft_status)atomic_load_explicit(&group->board->failure, memory_order_relaxed);
    if (why < 0 && group->making)
        return fail_refusal(group, what, (int)revoked - 1, why);
    for (int rank = 0; why == WEFT_ERR_PEER_LEFT && rank < group->size; rank++)
        if (has_left(group, rank))
            return fail_left(group, what, rank);
    for (int rank = 0; why < 0 && rank < group->size; rank++) /* is it a rank that is lost? */
        if (weft_i_world_fate(group->world, group->members[rank]) == why)
            return weft_i_world_lost(group->world, group->members[rank], what);
    if (why < 0)
        return weft_i_fail(why, "%s: rank %u ended the group: %s", what, revoked - 1,
                           weft_strerror(why));
    return weft_i_fail(WEFT_ERR_REVOKED, "%s: rank %u revoked the group", what, revoked - 1);
}

/* Ranks leave when another one dies: then the dead one is the news. */
static int root_cause(const weft_group *group, int rank)
{
    bool left = weft_i_world_fate(group->world, group->members[rank]) == WEFT_ERR_PEER_LEFT;
    int dead = left ? dead_member(group) : -1;
    return dead >= 0 ? dead : rank;
}

weft_status weft_i_group_lost(const weft_i_call *call, int rank)
{
    const weft_group *group = call->group;
    WEFT_TRY(weft_i_group_check_revoked(call));
    char what[160];
    weft_i_call_text(call, what, sizeof what);
    uint64_t refusal = new_refusal(group, rank);
    if (refusal)
        return fail_refusal(group, what, rank, weft_i_job_refusal_status(refusal));
    if (has_left(group, rank))
        return fail_left(group, what, rank);
    int lost = lost_while_making(group);
    if (lost >= 0)
        rank = lost;
    return weft_i_world_lost(group->world, group->members[root_cause(group, rank)], what);
}

/* Without a message: the meeting may turn out to have succeeded. */
static weft_status point_lost(void *arg, uint64_t missing)
{
    const weft_i_call *call = arg;
    return weft_i_group_fate(call->group, (int)missing);
}

/* Names everybody whose word is behind: "waiting for rank 2 (...), rank 3 (...)". */
static weft_status fail_timeout(const weft_i_call *call, const weft_i_point *point,
                                const weft_i_meeting *meeting, int64_t timeout_ms)
{
    char what[160], names[1400] = "";
    size_t used = 0;
    weft_i_call_text(call, what, sizeof what);
    for (int rank = 0; rank < point->size && used + 8 < sizeof names; rank++) {
        uint64_t word = atomic_load_explicit(weft_i_point_turn(point, rank, meeting->epoch),
                                             memory_order_relaxed);
        if (rank == point->me || (point->whom && rank != point->whom - 1) ||
            weft_i_arrived(word, meeting->epoch))
            continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s", used ? ", " : "");
        weft_i_world_describe(call->group->world, call->group->members[rank], names + used,
                              sizeof names - used);
        used = strlen(names);
    }
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: waited %lld ms for %s", what, (long long)timeout_ms,
                       used ? names : "ranks that came as the deadline passed");
}

static weft_status fail_anew(const weft_i_call *call, const weft_i_meeting *meeting)
{
    char what[160], who[512];
    weft_i_call_text(call, what, sizeof what);
    weft_i_world_describe(call->group->world, call->group->members[meeting->culprit], who,
                          sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: given up by %s, whose deadline passed", what, who);
}

weft_status weft_i_group_mismatch(const weft_i_call *call, const weft_i_meeting *meeting)
{
    if (meeting->culprit < 0)
        return WEFT_ERR_MISMATCH; /* an earlier one, told by weft_i_group_check_revoked */
    char what[160], who[512];
    weft_i_call_text(call, what, sizeof what);
    weft_i_world_describe(call->group->world, call->group->members[meeting->culprit], who,
                          sizeof who);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s: another rank called something else here: %s", what,
                       who);
}

weft_status weft_i_group_meet(const weft_i_call *call, weft_i_point *point, uint32_t digest,
                              int64_t timeout_ms, weft_i_meeting *meeting)
{
    meeting->culprit = -1;
    WEFT_TRY(weft_i_group_check_revoked(call));
    if (call->group->world->fake)
        return weft_i_group_check_mute(call);
    WEFT_TRY(weft_i_signal_come(point, digest, meeting));
    return weft_i_group_await(call, point, timeout_ms, meeting);
}

weft_status weft_i_group_await(const weft_i_call *call, weft_i_point *point, int64_t timeout_ms,
                               weft_i_meeting *meeting)
{
    point->lost = point_lost;
    point->arg = (void *)(uintptr_t)call;
    weft_status status = weft_i_signal_await(point, timeout_ms, meeting);
    switch (status) {
    case WEFT_OK:
    case WEFT_ERR_MISMATCH:
        return status;
    case WEFT_ERR_TIMEOUT:
        return fail_timeout(call, point, meeting, timeout_ms);
    case WEFT_ERR_CANCELLED:
        return fail_anew(call, meeting);
    default: /* what point_lost said, which is for ever */
        WEFT_TRY(weft_i_group_lost(call, meeting->culprit));
        return weft_i_fail(status, "%s: rank %d will not come", call->op, meeting->culprit);
    }
}

weft_status weft_i_group_settle(const weft_i_call *call, weft_i_point *point, uint32_t epoch,
                                int64_t timeout_ms)
{
    weft_i_meeting meeting = {.epoch = epoch, .culprit = -1};
    WEFT_TRY(weft_i_group_check_revoked(call));
    point->lost = point_lost;
    point->arg = (void *)(uintptr_t)call;
    weft_status status = weft_i_signal_settle(point, epoch, timeout_ms, &meeting.culprit);
    if (status == WEFT_ERR_TIMEOUT)
        return fail_timeout(call, point, &meeting, timeout_ms);
    if (status < 0 && meeting.culprit >= 0)
        WEFT_TRY(weft_i_group_lost(call, meeting.culprit));
    return status < 0 ? weft_i_fail(status, "%s: a rank will not come", call->op) : WEFT_OK;
}

static uint32_t digest_of(const char *what, size_t bytes)
{
    uint32_t digest = weft_i_digest(1, bytes);
    for (const char *c = what; *c; c++)
        digest = weft_i_digest(digest, (unsigned char)*c);
    return digest;
}

static weft_i_point board_point(const weft_group *group, bool later)
{
    weft_i_board_row *row = group->board->row;
    return (weft_i_point){.me = group->rank,
                          .size = group->size,
                          .words = (char *)&row[0].arrival,
                          .passes = (char *)&row[0].pass,
                          .bells = (char *)&row[0].bell,
                          .stride = sizeof *row,
                          .later = later,
                          .mode = group->world->mode};
}

/*
 * Two notes by turns: a note is overwritten two exchanges later, and by then everybody has met once
 * more, which they do only after reading it.
 */
static weft_status exchange_on_board(const weft_i_call *call, uint32_t digest, bool later,
                                     const void *mine, size_t bytes, char *all, int64_t timeout_ms)
{
    const weft_group *group = call->group;
    weft_i_board_row *row = group->board->row;
    uint64_t word =
        atomic_load_explicit(&row[group->rank].arrival, memory_order_relaxed); /* our own word */
    int parity = (int)((weft_i_arrival_epoch(word) + 1) & 1);
    if (bytes)
        memcpy(row[group->rank].note[parity], mine, bytes);
    weft_i_point point = board_point(group, later);
    weft_i_meeting meeting;
    weft_status status = weft_i_group_meet(call, &point, digest, timeout_ms, &meeting);
    if (status < 0)
        return status == WEFT_ERR_MISMATCH ? weft_i_group_mismatch(call, &meeting) : status;
    for (int rank = 0; all && rank < group->size; rank++)
        memcpy(all + (size_t)rank * bytes, row[rank].note[parity], bytes);
    return WEFT_OK;
}

weft_status weft_i_group_check_mute(const weft_i_call *call)
{
    return call->group->world->mute
               ? weft_i_fail(WEFT_ERR_STATE,
                             "%s in fake group \"%s\": collectives are errors here "
                             "(error_on_collective)",
                             call->op, call->group->name)
               : WEFT_OK;
}

/* Without peers, everybody shows what we show. */
static weft_status exchange_with_self(const weft_i_call *call, const void *mine, size_t bytes,
                                      char *all)
{
    WEFT_TRY(weft_i_group_check_revoked(call));
    for (int rank = 0; all && bytes && rank < call->group->size; rank++)
        memcpy(all + (size_t)rank * bytes, mine, bytes);
    return WEFT_OK;
}

/* The how manieth exchange on its board comes next; 0 without a board. */
static uint32_t next_turn(const weft_group *group)
{
    return group->board && !group->world->fake
               ? weft_i_arrival_epoch(atomic_load_explicit(&group->board->row[group->rank].arrival,
                                                           memory_order_relaxed)) +
                     1 /* our own word */
               : 0;
}

static weft_status exchange(weft_group *group, const char *what, bool later, const void *mine,
                            size_t bytes, void *all, int64_t timeout_ms)
{
    if (bytes > WEFT_I_NOTE_BYTES)
        return weft_i_fail(WEFT_ERR_INTERNAL, "an exchange of %zu bytes does not fit a note",
                           bytes);
    WEFT_TRY(weft_i_group_check_limit(what, timeout_ms));
    weft_i_call call = {group, what, -1};
    int64_t limit = weft_i_group_limit(group, timeout_ms);
    uint32_t digest = digest_of(what, bytes);
    group->sequence++;
    uint64_t number = weft_i_record_begin(weft_i_group_record(group), what, group->id, bytes,
                                          weft_i_record_turn(next_turn(group)), -1);
    weft_status status =
        group->world->fake ? exchange_with_self(&call, mine, bytes, all)
        : group->board     ? exchange_on_board(&call, digest, later, mine, bytes, all, limit)
                           : weft_i_letters_exchange(&call, group, digest, mine, bytes, all, limit);
    weft_i_record_end(weft_i_group_record(group), number, status);
    return status;
}

weft_status weft_i_group_exchange(weft_group *group, const char *what, const void *mine,
                                  size_t bytes, void *all, int64_t timeout_ms)
{
    return exchange(group, what, false, mine, bytes, all, timeout_ms);
}

weft_status weft_i_group_exchange_later(weft_group *group, const char *what, const void *mine,
                                        size_t bytes, void *all, int64_t timeout_ms)
{
    return exchange(group, what, true, mine, bytes, all, timeout_ms);
}

void weft_i_group_show(weft_group *group, const char *what, const void *mine, size_t bytes)
{
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_i_group_exchange(group, what, mine, bytes, NULL, WEFT_DEFAULT);
    weft_i_errors_restore(&reason);
}

/* An exchange of nothing, which takes as long as a hop: the record is written while the arrival is
 * on its way. */
static weft_status barrier_on_board(weft_group *group, int64_t timeout_ms)
{
    enum { BARRIER_DIGEST = 0x62617272 };
    static const weft_i_record_name name = {"group_barrier"};
    weft_i_record *record = weft_i_group_record(group);
    weft_i_call call = {group, "group_barrier", -1};
    weft_i_point point = board_point(group, false);
    weft_i_meeting meeting = {.culprit = -1};
    int turn = weft_i_record_turn(next_turn(group));
    group->sequence++;
    weft_status status = weft_i_group_check_revoked(&call);
    bool came = status == WEFT_OK;
    if (came)
        status = weft_i_signal_come(&point, BARRIER_DIGEST, &meeting);
    uint64_t number = weft_i_record_begin_named(record, &name, group->id, 0, turn, -1);
    if (came && status == WEFT_OK)
        status = weft_i_group_await(&call, &point, timeout_ms, &meeting);
    if (came && status == WEFT_ERR_MISMATCH)
        status = weft_i_group_mismatch(&call, &meeting);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms)
{
    if (!group || !weft_i_group_is_usable(group))
        WEFT_TRY(weft_i_group_usable(group));
    WEFT_TRY(weft_i_group_check_limit("weft_group_barrier", timeout_ms));
    if (group->board && !group->world->fake)
        return barrier_on_board(group, weft_i_group_limit(group, timeout_ms));
    WEFT_TRY(weft_i_group_check_mute(&(weft_i_call){group, "group_barrier", -1}));
    return weft_i_group_exchange(group, "group_barrier", NULL, 0, NULL, timeout_ms);
}
