/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitored barrier.  It meets on the group's board as an ordinary barrier does.  A rank that
 * gives up takes its arrival back, as in every meeting; it would look to the others as if it had
 * never come.  So it also increments a counter in its row.  A rank that sees the counter change
 * gives up too, and does not report that rank as missing.  All ranks then report the same missing
 * ranks, and none waits longer than the first.
 */
#include "weft/monitor.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"
#include "fabric/group/quarrel.h"

#include <stdio.h>
#include <string.h>

/* What is known of the others when the rank arrives. */
typedef struct vigil {
    weft_i_label label;
    const weft_i_board_row *row;
    const uint32_t *before; /* given_up of each rank */
    weft_i_vigil *look;
} vigil;

static uint32_t given_up(const weft_i_board_row *row)
{
    /* Pairs with the release in `tell`: the arrival is seen to be gone. */
    return atomic_load_explicit(&row->given_up, memory_order_acquire);
}

static bool gave_up_here(const vigil *v, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < v->label.group->size);
    return given_up(&v->row[rank]) != v->before[rank];
}

/* Can the barrier still succeed?  Called for each rank that is missing. */
static weft_status watch(void *arg, uint64_t missing)
{
    const vigil *v = arg;
    return gave_up_here(v, (int)missing) ? WEFT_ERR_TIMEOUT
                                         : weft_i_vigil_look(v->look, (int)missing);
}

/* Has the rank not come, and not given up either? */
static bool is_missing(const vigil *v, const weft_i_meeting *meeting, int rank)
{
    /* Relaxed: only for the message. */
    uint64_t word = atomic_load_explicit(&v->row[rank].arrival, memory_order_relaxed);
    return rank != v->label.group->rank && !weft_i_arrived(word, meeting->epoch) &&
           !gave_up_here(v, rank);
}

/* Why it cannot succeed: the gravest fate of those who are missing.  Who gave up and then left is
 * not one of them. */
static weft_status gravest(const vigil *v, const weft_i_meeting *meeting)
{
    weft_status why = WEFT_ERR_TIMEOUT;
    for (int rank = 0; rank < v->label.group->size; rank++) {
        weft_status fate =
            is_missing(v, meeting, rank) ? weft_i_group_fate(v->label.group, rank) : WEFT_OK;
        if (fate < 0 && why != WEFT_ERR_PEER_DEAD)
            why = fate;
    }
    return why;
}

/* "rank 2 (...), rank 3 (...)": all that are missing, or the first that has this fate. */
static bool name_missing(const vigil *v, const weft_i_meeting *meeting, bool all, weft_status why,
                         char *out, size_t bytes)
{
    const weft_group *group = v->label.group;
    weft_i_text list = {out, bytes, 0};
    out[0] = 0;
    for (int rank = 0; rank < group->size && (all || !list.used) && list.used + 48 < bytes;
         rank++) {
        int world = group->members[rank];
        weft_status fate = weft_i_world_fate(group->world, world);
        if (!is_missing(v, meeting, rank) || (!all && why != WEFT_ERR_TIMEOUT && fate != why))
            continue;
        weft_i_text_put(&list, "%s", list.used ? ", " : "");
        if (world != rank)
            weft_i_text_put(&list, "rank %d of the group, world ", rank);
        weft_i_world_put(group->world, world, &list);
    }
    return list.used > 0;
}

/* Tells the others that this rank waits no longer. */
static void tell(const weft_i_point *point, weft_i_board_row *mine)
{
    /* Pairs with the acquire in given_up. */
    atomic_fetch_add_explicit(&mine->given_up, 1, memory_order_release);
    weft_i_signal_ring(point);
}

static weft_status fail(const vigil *v, const weft_i_meeting *meeting, bool all, int64_t begin)
{
    char what[160], names[1500];
    weft_status why = gravest(v, meeting);
    long long waited_ms = (WEFT_OS->clock_ns() - begin) / 1000000;
    WEFT_TRY(weft_i_group_check_revoked(&v->label));
    weft_i_label_text(&v->label, what, sizeof what);
    if (!name_missing(v, meeting, all, why, names, sizeof names))
        snprintf(names, sizeof names, "nobody any more: the last came as the limit passed");
    return weft_i_fail(why, "%s: %s after %lld ms: %s", what,
                       why == WEFT_ERR_TIMEOUT ? "still missing" : "will not succeed", waited_ms,
                       names);
}

/* Meets, as often as another rank needs the group's lane to be made first. */
static weft_status see_through(weft_group *group, vigil *v, weft_i_point *point, int64_t limit,
                               weft_i_meeting *meeting)
{
    static const weft_i_stay stay = {.place = WEFT_I_ON_BOARD};
    weft_i_vigil look = {.label = &v->label, .point = point, .stay = &stay};
    int64_t deadline = weft_i_os_deadline(limit);
    weft_status status;
    v->look = &look;
    weft_i_group_show_op(group, v->label.op);
    do {
        look.wanted = false;
        status = weft_i_signal_come(point, weft_i_digest(weft_i_digest(1, 0), 'm'), meeting);
        look.turn = meeting->epoch;
        if (status == WEFT_OK)
            status = weft_i_signal_await(point, limit, meeting);
        if (look.wanted && status == WEFT_ERR_CANCELLED) {
            weft_i_group_help_make_lane(group, deadline);
            limit = limit < 0 ? limit : weft_i_os_ms_until(deadline);
        }
    } while (look.wanted && status == WEFT_ERR_CANCELLED);
    weft_i_quarrel_move_on(group);
    if (status < 0)
        weft_i_quarrel_quit(&look);
    return status;
}

static weft_status meet(weft_group *group, vigil *v, int64_t limit, bool all)
{
    weft_i_board_row *row = group->board->row;
    weft_i_point point = {.me = group->rank,
                          .size = group->size,
                          .words = (char *)&row[0].arrival,
                          .passes = (char *)&row[0].pass,
                          .bells = (char *)&row[0].bell,
                          .stride = sizeof *row,
                          .mode = group->world->mode,
                          .lost = watch,
                          .arg = v};
    weft_i_meeting meeting = {.culprit = -1};
    int64_t begin = WEFT_OS->clock_ns();
    WEFT_TRY(weft_i_group_check_revoked(&v->label));
    weft_status status = see_through(group, v, &point, limit, &meeting);
    if (status == WEFT_OK)
        return WEFT_OK;
    if (status == WEFT_ERR_MISMATCH)
        return weft_i_group_fail_quarrel(&v->label, &meeting);
    tell(&point, &row[group->rank]);
    return fail(v, &meeting, all, begin);
}

static weft_status meet_on_board(weft_group *group, int64_t limit, bool all)
{
    WEFT_ASSERT(group->board);
    uint32_t *before = WEFT_OS->alloc((size_t)group->size * sizeof *before);
    if (!before)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "monitored_barrier: no memory for %d ranks",
                           group->size);
    for (int rank = 0; rank < group->size; rank++)
        before[rank] = given_up(&group->board->row[rank]);
    vigil v = {{group, "monitored_barrier", -1}, group->board->row, before, NULL};
    uint64_t number =
        weft_i_record_begin(weft_i_group_record(group), "monitor_barrier", group->id, 0, -1, -1);
    weft_status status = meet(group, &v, limit, all);
    weft_i_record_end(weft_i_group_record(group), number, status);
    WEFT_OS->free(before);
    return status;
}

weft_status weft_monitored_barrier(weft_group *group, int64_t timeout_ms, bool wait_all)
{
    WEFT_TRY(weft_i_group_usable(group));
    WEFT_TRY(weft_i_group_check_limit("monitored_barrier", timeout_ms));
    WEFT_TRY(weft_i_group_check_mute(&(weft_i_label){group, "monitored_barrier", -1}));
    /* Between hosts the message names everybody who is missing; in a fake group nobody can be. */
    if (!group->local || group->world->fake)
        return weft_i_group_exchange(group, "monitored_barrier", NULL, 0, NULL, timeout_ms);
    return meet_on_board(group, weft_i_group_limit(group, timeout_ms), wait_all);
}
