/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the members of a group meet: on its board when they share a host, through the store when they
 * do not.  Every way of failing gets a message here that says which ranks are missing, or what each has called.
 */
#include "fabric/group/exchange.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "fabric/group/exchange_store.h"
#include "fabric/group/hosts.h"
#include "fabric/group/quarrel.h"
#include "tensor/object/eye.h"

#include <stdio.h>
#include <string.h>

void weft_i_label_text(const weft_i_label *label, char *out, size_t bytes)
{
    const weft_group *group = label->group;
    weft_i_group_concerns(group);
    if (label->channel >= 0)
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s on channel %d", group->rank,
                 group->size, group->name, label->op, label->channel);
    else
        snprintf(out, bytes, "rank %d of %d in group \"%s\", %s", group->rank, group->size,
                 group->name, label->op);
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

weft_status weft_i_group_member_fate(const weft_group *group, int rank)
{
    weft_status fate = weft_i_world_fate(group->world, group->members[rank]);
    return fate < 0 ? fate : has_left(group, rank) ? WEFT_ERR_PEER_LEFT : WEFT_OK;
}

/* A member's word that it cannot take part in making this group, if we have not acted on it yet. */
static uint64_t refusal_of(const weft_group *group, int rank)
{
    weft_i_peer *peer = &group->world->peers[group->members[rank]];
    if (!weft_i_group_is_made(group) || !peer->rank_record)
        return 0;
    uint64_t refusal = weft_i_job_refusal(peer->rank_record, group->birth->list);
    uint16_t heard = atomic_load_explicit(
        &peer->heard[weft_i_job_refusal_class(group->birth->list)], memory_order_relaxed);
    return refusal && weft_i_job_refusal_number(refusal) != heard ? refusal : 0;
}

uint64_t weft_i_group_new_refusal(const weft_group *group, int *who)
{
    uint64_t refusal = 0;
    for (int rank = 0; weft_i_group_is_made(group) && !refusal && rank < group->size; rank++) {
        refusal = refusal_of(group, rank);
        *who = rank;
    }
    return refusal;
}

bool weft_i_group_hear_refusals(const weft_group *group)
{
    WEFT_ASSERT(group->birth);
    int class = weft_i_job_refusal_class(group->birth->list);
    bool any = false;
    for (int rank = 0; rank < group->size; rank++) {
        weft_i_peer *peer = &group->world->peers[group->members[rank]];
        uint64_t refusal =
            rank == group->rank ? 0 : weft_i_job_refusal(peer->rank_record, group->birth->list);
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
    for (int rank = 0; weft_i_group_is_made(group) && rank < group->size; rank++)
        if (weft_i_world_fate(group->world, group->members[rank]) < 0)
            return rank;
    return -1;
}

weft_status weft_i_group_fate(const weft_group *group, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < group->size);
    if (weft_i_group_has_ended(group) || weft_i_quarrel_told_above(group))
        return WEFT_ERR_REVOKED;
    int refuser = -1;
    uint64_t refusal = weft_i_group_new_refusal(group, &refuser);
    if (refusal)
        return weft_i_job_refusal_status(refusal);
    if (has_left(group, rank))
        return WEFT_ERR_PEER_LEFT;
    int lost = lost_while_making(group);
    return weft_i_world_fate(group->world, group->members[lost < 0 ? rank : lost]);
}

/* A rank that gave up because another one died or left is not the news; that one is. */
static weft_status fail_refusal(const weft_group *group, const char *what, int rank,
                                weft_status why)
{
    bool is_loss = why == WEFT_ERR_PEER_DEAD || why == WEFT_ERR_PEER_LEFT;
    int lost = is_loss ? weft_i_group_find_lost(group, why) : -1;
    if (lost >= 0)
        return weft_i_world_lost(group->world, group->members[lost], what);
    const weft_group *above = why == WEFT_ERR_MISMATCH ? weft_i_group_made_from(group) : NULL;
    const char *told = above && above->board ? weft_i_quarrel_told(above) : NULL;
    if (told) {
        weft_i_quarrel_hear(above);
        return weft_i_fail(why, "%s: %s", what, told);
    }
    return weft_i_fail(why, "%s: rank %d of the world could not take part (%s)", what,
                       group->members[rank], weft_strerror(why));
}

/* The first member's deadline has passed, and it has taken the board away.  Those for whom it
 * waited never came to the board, nor did they give up there. */
static weft_status fail_unmade(const weft_group *group, const char *what, int ender)
{
    const weft_i_board_row *row = group->board->row;
    char names[1400] = "";
    weft_i_text text = {names, sizeof names, 0};
    for (int rank = 0; rank < group->size && text.used + 8 < sizeof names; rank++) {
        /* Relaxed: for the message only. */
        uint64_t word = atomic_load_explicit(&row[rank].arrival, memory_order_relaxed);
        uint64_t stamp = atomic_load_explicit(&row[rank].gave_up, memory_order_relaxed);
        if (rank == group->rank || rank == ender || weft_i_arrival_epoch(word) || stamp)
            continue;
        weft_i_world_list(group->world, group->members[rank], &text);
    }
    return weft_i_fail(
        WEFT_ERR_TIMEOUT, "%s: given up by rank %d of the world, which waited for %s", what,
        group->members[ender], text.used ? names : "ranks that came as its deadline passed");
}

static uint32_t recaller(const weft_i_board *board)
{
    return atomic_load_explicit(&board->recalled, memory_order_relaxed) - 1; /* seen before */
}

weft_status weft_i_group_tell_revoked(const weft_i_label *label)
{
    const weft_group *group = label->group;
    uint32_t revoked = weft_i_group_revoker(group);
    char what[160];
    weft_i_label_text(label, what, sizeof what);
    const weft_i_elder *elder = weft_i_lineage_recalled(&group->lineage);
    if (elder)
        return weft_i_fail(
            WEFT_ERR_REVOKED,
            "%s: rank %u of group \"%s\", from which this one was made, revoked that", what,
            recaller(elder->board), elder->name);
    weft_status why =
        (weft_status)atomic_load_explicit(&group->board->failure, memory_order_relaxed);
    const char *quarrel = why == WEFT_ERR_MISMATCH ? weft_i_quarrel_told(group) : NULL;
    if (quarrel) {
        weft_i_quarrel_hear(group);
        return weft_i_fail(WEFT_ERR_MISMATCH, "%s: %s", what, quarrel);
    }
    if (why == WEFT_ERR_TIMEOUT && weft_i_group_is_made(group))
        return fail_unmade(group, what, (int)revoked - 1);
    if (why < 0 && weft_i_group_is_made(group))
        return fail_refusal(group, what, (int)revoked - 1, why);
    for (int rank = 0; why == WEFT_ERR_PEER_LEFT && rank < group->size; rank++)
        if (has_left(group, rank))
            return fail_left(group, what, rank);
    bool is_loss = why == WEFT_ERR_PEER_DEAD || why == WEFT_ERR_PEER_LEFT;
    int lost = is_loss ? weft_i_group_find_lost(group, why) : -1;
    if (lost >= 0)
        return weft_i_world_lost(group->world, group->members[lost], what);
    if (why < 0)
        return weft_i_fail(why, "%s: rank %u ended the group: %s", what, revoked - 1,
                           weft_strerror(why));
    return weft_i_fail(WEFT_ERR_REVOKED, "%s: rank %u revoked the group", what, revoked - 1);
}

/* Ranks leave when another one dies: then the dead one is the news. */
static int root_cause(const weft_group *group, int rank)
{
    bool left = weft_i_world_fate(group->world, group->members[rank]) == WEFT_ERR_PEER_LEFT;
    int dead = left ? weft_i_group_of_fate(group, WEFT_ERR_PEER_DEAD) : -1;
    return dead >= 0 ? dead : rank;
}

weft_status weft_i_group_lost(const weft_i_label *label, int rank)
{
    const weft_group *group = label->group;
    WEFT_TRY(weft_i_group_check_revoked(label));
    char what[160];
    weft_i_label_text(label, what, sizeof what);
    if (weft_i_quarrel_told_above(group)) {
        weft_i_quarrel_hear(weft_i_group_made_from(group));
        return weft_i_fail(WEFT_ERR_MISMATCH, "%s: %s", what, weft_i_quarrel_told_above(group));
    }
    int refuser = -1;
    uint64_t refusal = weft_i_group_new_refusal(group, &refuser);
    if (refusal)
        return fail_refusal(group, what, refuser, weft_i_job_refusal_status(refusal));
    if (has_left(group, rank))
        return fail_left(group, what, rank);
    int lost = lost_while_making(group);
    if (lost >= 0)
        rank = lost;
    return weft_i_world_lost(group->world, group->members[root_cause(group, rank)], what);
}

/* Others whose deadline passes a moment later must not take us for one who never came. */
static void note_giving_up(void *arg)
{
    const weft_i_vigil *vigil = arg;
    const weft_i_point *point = vigil->point;
    if (point->gave_up) /* relaxed: see weft_i_vigil_saw_give_up */
        atomic_store_explicit(weft_i_point_gave_up(point, point->me),
                              weft_i_stamp(WEFT_OS->clock_ns(), point->tag), memory_order_relaxed);
}

/* Is this meeting still without the rank, which has not given up either? */
static bool is_missing(const weft_i_vigil *vigil, const weft_i_meeting *meeting, int rank)
{
    const weft_i_point *point = vigil->point;
    /* Acquire: an arrival that was taken back is seen with the stamp. */
    uint64_t word =
        atomic_load_explicit(weft_i_point_turn(point, rank, meeting->epoch), memory_order_acquire);
    return rank != point->me && (!point->whom || rank == point->whom - 1) &&
           !weft_i_arrived(word, meeting->epoch) && !weft_i_vigil_saw_give_up(vigil, rank);
}

/* Whom a rank that does not come to a later meeting of an operation waits for itself: in between
 * it fetches memory (symm/registration.c).  -1: nobody. */
static int awaits(const weft_i_vigil *vigil, int rank)
{
    const weft_group *group = vigil->label->group;
    if (!vigil->point->later || !group->board)
        return -1;
    return (int)atomic_load_explicit(&group->board->row[rank].fetches, memory_order_relaxed) - 1;
}

static bool is_stopped(const weft_i_vigil *vigil, int rank)
{
    const weft_group *group = vigil->label->group;
    return weft_i_world_is_stopped(group->world, group->members[rank]);
}

/* Is this the rank to be named?  It is missing and waits for nobody, or one that is behind waits
 * for it.  Who is stopped waits for nobody, whatever it did last. */
static bool is_to_blame(const weft_i_vigil *vigil, const weft_i_meeting *meeting, int rank)
{
    if (rank == vigil->point->me)
        return false;
    int whom = awaits(vigil, rank);
    if (is_missing(vigil, meeting, rank) &&
        (whom < 0 || whom == vigil->point->me || is_stopped(vigil, rank)))
        return true;
    for (int other = 0; vigil->point->later && other < vigil->point->size; other++) {
        uint64_t word = atomic_load_explicit(weft_i_point_turn(vigil->point, other, meeting->epoch),
                                             memory_order_relaxed);
        if (other != vigil->point->me && awaits(vigil, other) == rank &&
            !weft_i_arrived(word, meeting->epoch) && !is_stopped(vigil, other))
            return true;
    }
    return false;
}

/* Names everybody who is missing: "rank 2 (...), rank 3 (...)"; false: nobody any more.  Those for
 * whom there is no room are counted. */
static bool name_missing(const weft_i_vigil *vigil, const weft_i_meeting *meeting, char *out,
                         size_t bytes)
{
    enum { FOR_COUNT = 32 };
    const weft_group *group = vigil->label->group;
    weft_i_text text = {out, bytes - FOR_COUNT, 0}, count = {out, bytes, 0};
    int more = 0;
    for (int rank = 0; rank < group->size; rank++) {
        if (!is_to_blame(vigil, meeting, rank))
            continue;
        if (text.used + 8 < text.room)
            weft_i_world_list(group->world, group->members[rank], &text);
        else
            more++;
    }
    count.used = text.used < text.room ? text.used : text.room - 1;
    if (more)
        weft_i_text_put(&count, " ... and %d more", more);
    return text.used > 0;
}

/* "all_reduce has waited 30 s ...": once, long before the limit. */
static void warn_late(const weft_i_vigil *vigil)
{
    weft_i_meeting meeting = {.epoch = vigil->turn, .culprit = -1};
    const weft_group *group = vigil->label->group;
    char what[160], names[1400];
    weft_i_label_text(vigil->label, what, sizeof what);
    if (name_missing(vigil, &meeting, names, sizeof names))
        weft_i_log(WEFT_LOG_WARN, "%s: has waited %.3g s for %s", what,
                   (double)group->world->warn_ns * 1e-9, names);
}

/*
 * A member that died may have come to this host's board and not to another's.  Those there give up, and
 * will not come again; here the dead one is not missing.  One who gave up an earlier meeting looks the
 * same: with a death in the group this one may fail too.
 */
static bool gave_up_for_a_death(const weft_i_vigil *vigil, int missing)
{
    const weft_i_point *point = vigil->point;
    if (!point->far || !point->gave_up)
        return false;
    /* Relaxed: see weft_i_vigil_saw_give_up. */
    return atomic_load_explicit(weft_i_point_gave_up(point, missing), memory_order_relaxed) &&
           weft_i_group_of_fate(vigil->label->group, WEFT_ERR_PEER_DEAD) >= 0;
}

/* Without a message: the meeting may turn out to have succeeded. */
static weft_status point_lost(void *arg, uint64_t missing)
{
    weft_i_vigil *vigil = arg;
    if (vigil->label->group->hosts)
        weft_i_hosts_look(vigil->label->group, (int)missing);
    weft_status status = weft_i_vigil_look(vigil, (int)missing);
    if (status == WEFT_OK && gave_up_for_a_death(vigil, (int)missing))
        return WEFT_ERR_PEER_DEAD;
    if (status == WEFT_OK &&
        weft_i_world_is_late(vigil->label->group->world, &vigil->late, WEFT_OS->clock_ns()))
        warn_late(vigil);
    return status;
}

static weft_status fail_timeout(const weft_i_vigil *vigil, const weft_i_meeting *meeting,
                                int64_t timeout_ms)
{
    char what[160], names[1400];
    weft_i_label_text(vigil->label, what, sizeof what);
    bool any = name_missing(vigil, meeting, names, sizeof names);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: waited %lld ms for %s", what, (long long)timeout_ms,
                       any ? names : "ranks that came as the deadline passed");
}

/* A rank whose deadline passed here has left the job: that is no news.  Who it waited for is.
 * WEFT_OK: it is not so. */
static weft_status fail_left_waiting(const weft_i_vigil *vigil, const weft_i_meeting *meeting)
{
    const weft_group *group = vigil->label->group;
    int leaver = meeting->culprit;
    char what[160], who[512], names[1000];
    if (leaver < 0 || weft_i_group_has_ended(group) ||
        weft_i_world_fate(group->world, group->members[leaver]) != WEFT_ERR_PEER_LEFT ||
        weft_i_group_of_fate(group, WEFT_ERR_PEER_DEAD) >= 0 ||
        !weft_i_vigil_saw_give_up(vigil, leaver) ||
        !name_missing(vigil, meeting, names, sizeof names))
        return WEFT_OK;
    weft_i_label_text(vigil->label, what, sizeof what);
    weft_i_world_describe(group->world, group->members[leaver], who, sizeof who);
    return weft_i_fail(WEFT_ERR_PEER_LEFT, "%s: %s waited in vain, as we do, for %s", what, who,
                       names);
}

/* The one that is missing lives, and has given up because of another one.  WEFT_OK: it is not so. */
static weft_status fail_for_a_death(const weft_i_vigil *vigil, int missing)
{
    const weft_group *group = vigil->label->group;
    return gave_up_for_a_death(vigil, missing)
               ? weft_i_group_lost(vigil->label, weft_i_group_of_fate(group, WEFT_ERR_PEER_DEAD))
               : WEFT_OK;
}

static weft_status fail_anew(const weft_i_label *label, const weft_i_meeting *meeting)
{
    char what[160], who[512];
    weft_i_label_text(label, what, sizeof what);
    weft_i_world_describe(label->group->world, label->group->members[meeting->culprit], who,
                          sizeof who);
    return weft_i_fail(WEFT_ERR_TIMEOUT, "%s: given up by %s, whose deadline passed", what, who);
}

weft_status weft_i_group_mismatch(const weft_i_label *label, const weft_i_meeting *meeting)
{
    if (meeting->culprit < 0)
        return WEFT_ERR_MISMATCH; /* an earlier one, told by weft_i_group_check_revoked */
    char what[160], who[512];
    weft_i_label_text(label, what, sizeof what);
    weft_i_world_describe(label->group->world, label->group->members[meeting->culprit], who,
                          sizeof who);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s: another rank called something else here: %s", what,
                       who);
}

/* The wait is about to begin, or over. */
static void open_vigil(weft_i_vigil *vigil, weft_i_point *point)
{
    point->lost = point_lost;
    point->giving_up = note_giving_up;
    point->arg = vigil;
}

static void close_vigil(const weft_i_vigil *vigil, weft_i_point *point)
{
    point->arg = NULL; /* points may outlive the wait */
    if (vigil->stay && vigil->begin)
        weft_i_quarrel_move_on(vigil->label->group);
}

static weft_status tell_await(const weft_i_vigil *vigil, const weft_i_meeting *meeting,
                              weft_status status, int64_t timeout_ms)
{
    const weft_i_label *label = vigil->label;
    switch (status) {
    case WEFT_OK:
    case WEFT_ERR_MISMATCH:
        return status;
    case WEFT_ERR_TIMEOUT:
        return fail_timeout(vigil, meeting, timeout_ms);
    case WEFT_ERR_CANCELLED:
        return vigil->wanted ? status : fail_anew(label, meeting);
    default: /* what point_lost said, which is for ever */
        if (label->group->hosts)
            weft_i_hosts_hear(label->group->world);
        WEFT_TRY(fail_left_waiting(vigil, meeting));
        WEFT_TRY(weft_i_group_lost(label, meeting->culprit));
        WEFT_TRY(fail_for_a_death(vigil, meeting->culprit));
        return weft_i_fail(status, "%s: rank %d will not come", label->op, meeting->culprit);
    }
}

weft_status weft_i_group_keep_vigil(const weft_i_label *label, weft_i_point *point,
                                    const weft_i_stay *stay, int64_t timeout_ms,
                                    weft_i_meeting *meeting)
{
    weft_i_vigil vigil = {.label = label, .point = point, .stay = stay, .turn = meeting->epoch};
    open_vigil(&vigil, point);
    weft_status status = weft_i_signal_await(point, timeout_ms, meeting);
    close_vigil(&vigil, point);
    if (status < 0)
        weft_i_quarrel_quit(&vigil);
    /* The first look at the others may come long after that, where this rank was held up. */
    if (vigil.begin && meeting->began && meeting->began < vigil.begin)
        vigil.begin = meeting->began;
    return status == WEFT_OK ? status : tell_await(&vigil, meeting, status, timeout_ms);
}

weft_status weft_i_group_settle(const weft_i_label *label, weft_i_point *point,
                                const weft_i_stay *stay, uint32_t epoch, int64_t timeout_ms)
{
    weft_i_meeting meeting = {.epoch = epoch, .culprit = -1};
    WEFT_TRY(weft_i_group_check_revoked(label));
    if (weft_i_signal_is_settled(point, epoch))
        return WEFT_OK;
    weft_i_vigil vigil = {.label = label, .point = point, .stay = stay, .turn = epoch};
    open_vigil(&vigil, point);
    weft_status status = weft_i_signal_settle(point, epoch, timeout_ms, &meeting.culprit);
    close_vigil(&vigil, point);
    if (status == WEFT_ERR_TIMEOUT)
        return fail_timeout(&vigil, &meeting, timeout_ms);
    if (status < 0) /* then it has named who */
        WEFT_TRY(weft_i_group_lost(label, meeting.culprit));
    return status < 0 ? weft_i_fail(status, "%s: a rank will not come", label->op) : WEFT_OK;
}

static uint32_t digest_of(const char *what, size_t bytes)
{
    uint32_t digest = weft_i_digest(1, bytes);
    for (const char *c = what; *c; c++)
        digest = weft_i_digest(digest, (unsigned char)*c);
    return digest;
}

/* Where the group's exchanges meet. */
static inline weft_i_point board_point(const weft_group *group, bool later)
{
    weft_i_board_row *row = group->board->row;
    return (weft_i_point){.me = group->rank,
                          .size = group->size,
                          .words = (char *)&row[0].arrival,
                          .passes = (char *)&row[0].pass,
                          .bells = (char *)&row[0].bell,
                          .gave_up = (char *)&row[0].gave_up,
                          .stride = sizeof *row,
                          .later = later,
                          .mode = group->world->mode};
}

/* The same for exchanges that make its lane. */
static weft_i_point lane_point(const weft_group *group, bool later)
{
    weft_i_board_row *row = group->board->row;
    weft_i_point point = board_point(group, later);
    point.words = (char *)&row[0].lane_arrival;
    point.passes = (char *)&row[0].lane_pass;
    point.bells = (char *)&row[0].lane_bell;
    point.gave_up = (char *)&row[0].lane_gave_up;
    return point;
}

static unsigned char *note_of(const weft_group *group, int rank, uint32_t epoch)
{
    WEFT_ASSERT(rank >= 0 && rank < group->size);
    weft_i_board_row *row = &group->board->row[rank];
    return group->rest.lane_making.under_way ? row->lane_note[epoch & 1] : row->note[epoch & 1];
}

/* The number of the next meeting on its board. */
static uint32_t next_epoch(const weft_group *group)
{
    const weft_i_board_row *row = &group->board->row[group->rank];
    return weft_i_arrival_epoch(atomic_load_explicit(
               group->rest.lane_making.under_way ? &row->lane_arrival : &row->arrival,
               memory_order_relaxed)) + /* our own word */
           1;
}

weft_status weft_i_group_help_make_lane(weft_group *group, int64_t deadline)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    int64_t outer = weft_i_limit_swap(weft_i_os_ms_until(deadline));
    weft_status status = weft_i_lanes_table
                             ? weft_i_lanes_table->make(group)
                             : weft_i_fail(WEFT_ERR_UNSUPPORTED, "this program has no collectives");
    weft_i_limit_swap(outer);
    if (status == WEFT_ERR_TIMEOUT)
        return status;
    if (status < 0) /* told to whoever needs it */
        weft_i_errors_restore(&before);
    return WEFT_OK;
}

weft_status weft_i_group_help_above(weft_group *group, int64_t deadline)
{
    weft_group *above = weft_i_group_made_from(group);
    WEFT_ASSERT(above);
    weft_i_errors before;
    weft_i_errors_save(&before);
    above->rest.lane_making.on_behalf = group;
    weft_status status = weft_i_group_help_make_lane(above, deadline);
    above->rest.lane_making.on_behalf = NULL;
    if (status == WEFT_ERR_TIMEOUT && weft_i_os_ms_until(deadline) != 0) { /* nobody needs it */
        weft_i_errors_restore(&before);
        return WEFT_OK;
    }
    return status;
}

void weft_i_group_show_lane_need(const weft_group *group, uint64_t need)
{
    if (group->board && !group->world->fake) /* pairs with the acquire in needs_lane */
        atomic_store_explicit(&group->board->row[group->rank].lane_need, need,
                              memory_order_release);
}

weft_status weft_i_group_fail_quarrel(const weft_i_label *label, const weft_i_meeting *meeting)
{
    const weft_group *group = label->group;
    const char *told = weft_i_quarrel_told(group);
    int other = meeting->culprit;
    char what[160];
    weft_i_label_text(label, what, sizeof what);
    weft_i_quarrel_hear(group);
    if (told)
        return weft_i_fail(WEFT_ERR_MISMATCH, "%s: %s", what, told);
    if (other < 0 || other == group->rank || group->rest.lane_making.under_way) {
        WEFT_TRY(weft_i_group_check_revoked(label));
        return weft_i_group_mismatch(label, meeting);
    }
    const char *theirs = group->board->row[other].op; /* it stays there: nobody goes on */
    weft_i_quarrel_tell(group, label->op, other, theirs);
    return weft_i_fail(WEFT_ERR_MISMATCH, "%s: rank %d calls %s, but rank %d calls %.*s", what,
                       group->rank, label->op, other, (int)sizeof group->board->row[other].op,
                       theirs);
}

static const weft_i_stay on_board = {.place = WEFT_I_ON_BOARD};

/* The end of a meeting on the board whose wait gave `status`: it goes on once the lane is made. */
static weft_status see_through(const weft_i_label *label, weft_group *group, weft_i_point *point,
                               uint32_t digest, int64_t timeout_ms, weft_i_meeting *meeting,
                               weft_status status)
{
    int64_t deadline = status == WEFT_ERR_CANCELLED ? weft_i_os_deadline(timeout_ms) : 0;
    while (status == WEFT_ERR_CANCELLED) {
        WEFT_TRY(weft_i_group_is_made(group) ? weft_i_group_help_above(group, deadline)
                                             : weft_i_group_help_make_lane(group, deadline));
        WEFT_TRY(weft_i_group_check_revoked(label));
        status = weft_i_signal_come(point, digest, meeting);
        if (status == WEFT_OK)
            status =
                weft_i_group_await(label, point, &on_board, weft_i_os_ms_until(deadline), meeting);
    }
    /* On a new board all call the same: a mismatch there is one of the parent, and is told. */
    bool untold = status == WEFT_ERR_MISMATCH && !weft_i_group_is_made(group);
    return untold ? weft_i_group_fail_quarrel(label, meeting) : status;
}

/* A row of barriers writes its name once. */
void weft_i_group_show_op(weft_group *group, const char *op)
{
    weft_i_board_row *mine = &group->board->row[group->rank];
    if (group->rest.lane_making.under_way || group->rest.shown_op == op)
        return;
    snprintf(mine->op, sizeof mine->op, "%s", op);
    group->rest.shown_op = op;
}

/*
 * Two notes by turns: a note is overwritten two exchanges later, and by then everybody has met once
 * more, which they do only after reading it.
 */
static weft_status exchange_on_board(const weft_i_label *label, weft_group *group, uint32_t digest,
                                     bool later, const void *mine, size_t bytes, char *all,
                                     int64_t timeout_ms)
{
    uint32_t epoch = next_epoch(group);
    weft_i_point point =
        group->rest.lane_making.under_way ? lane_point(group, later) : board_point(group, later);
    weft_i_meeting meeting = {.culprit = -1};
    WEFT_TRY(weft_i_group_check_revoked(label));
    if (bytes)
        memcpy(note_of(group, group->rank, epoch), mine, bytes);
    weft_i_group_show_op(group, label->op);
    if (!later) /* what a failed one left */
        atomic_store_explicit(&group->board->row[group->rank].fetches, 0, memory_order_relaxed);
    weft_status status = weft_i_signal_come(&point, digest, &meeting);
    if (status == WEFT_OK)
        status =
            weft_i_group_await(label, &point, group->rest.lane_making.under_way ? NULL : &on_board,
                               timeout_ms, &meeting);
    if (status < 0)
        WEFT_TRY(see_through(label, group, &point, digest, timeout_ms, &meeting, status));
    for (int rank = 0; all && rank < group->size; rank++)
        memcpy(all + (size_t)rank * bytes, note_of(group, rank, epoch), bytes);
    return WEFT_OK;
}

weft_status weft_i_group_check_mute(const weft_i_label *label)
{
    return label->group->world->mute
               ? weft_i_fail(WEFT_ERR_STATE,
                             "%s in fake group \"%s\": collectives are errors here "
                             "(error_on_collective)",
                             label->op, label->group->name)
               : WEFT_OK;
}

/* Without peers, everybody shows what we show. */
static weft_status exchange_with_self(const weft_i_label *label, const void *mine, size_t bytes,
                                      char *all)
{
    WEFT_TRY(weft_i_group_check_revoked(label));
    for (int rank = 0; all && bytes && rank < label->group->size; rank++)
        memcpy(all + (size_t)rank * bytes, mine, bytes);
    return WEFT_OK;
}

/* The number of the next exchange on its board; 0 without a board. */
static uint32_t next_turn(const weft_group *group)
{
    return group->board && !group->world->fake ? next_epoch(group) : 0;
}

static weft_status exchange_alone(weft_group *group, const char *what, bool later, const void *mine,
                                  size_t bytes, void *all, int64_t timeout_ms)
{
    if (bytes > (group->rest.lane_making.under_way ? WEFT_I_LANE_NOTE_BYTES : WEFT_I_NOTE_BYTES))
        return weft_i_fail(WEFT_ERR_INTERNAL, "an exchange of %zu bytes does not fit a note",
                           bytes);
    WEFT_TRY(weft_i_group_check_limit(what, timeout_ms));
    const char *shown = group->rest.lane_making.under_way && group->rest.lane_making.op
                            ? group->rest.lane_making.op
                            : weft_i_record_operation(what);
    weft_i_label label = {group, shown, -1};
    int64_t limit = weft_i_group_limit(group, timeout_ms);
    uint32_t digest = digest_of(what, bytes);
    group->sequence++;
    uint64_t number = weft_i_record_begin(
        weft_i_group_record(group), group->rest.lane_making.under_way ? "lane" : what, group->id,
        bytes, weft_i_record_turn(next_turn(group)), -1);
    weft_status status =
        group->world->fake ? exchange_with_self(&label, mine, bytes, all)
        : group->hosts
            ? weft_i_exchange_hosts(&label, group, digest, later, mine, bytes, all, limit)
        : group->board ? exchange_on_board(&label, group, digest, later, mine, bytes, all, limit)
                       : weft_i_exchange_store(&label, group, digest, mine, bytes, all, limit);
    weft_i_record_end(weft_i_group_record(group), number, status);
    return status;
}

/* The lane is made by calls that are alone on the board, or wait there. */
static weft_status exchange(weft_group *group, const char *what, bool later, const void *mine,
                            size_t bytes, void *all, int64_t timeout_ms)
{
    if (weft_i_group_is_inside(&group->on_board) && group->rest.lane_making.under_way)
        return exchange_alone(group, what, later, mine, bytes, all, timeout_ms);
    WEFT_TRY(weft_i_group_enter(group, &group->on_board, what));
    weft_status status = exchange_alone(group, what, later, mine, bytes, all, timeout_ms);
    weft_i_group_leave(&group->on_board);
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

/* Apart, so that a barrier without collectives before it does not pay for them. */
WEFT_I_APART static void fetch_entries(const weft_group *group)
{
    weft_i_lanes_table->fetch(group);
}

WEFT_I_APART static weft_status compare_entries(weft_group *group, const weft_i_label *label)
{
    return weft_i_lanes_table->compare(group, label);
}

/* An exchange of nothing, which takes as long as a hop: the record is written while the arrival is
 * on its way. */
static weft_status barrier_on_board(weft_group *group, int64_t timeout_ms)
{
    enum { BARRIER_DIGEST = 0x62617272 };
    static const weft_i_record_name name = {"group_barrier"};
    weft_i_record *record = weft_i_group_record(group);
    weft_i_label label = {group, "group_barrier", -1};
    weft_i_point point = board_point(group, false);
    weft_i_meeting meeting;
    int turn = weft_i_record_turn(next_epoch(group));
    group->sequence++;
    weft_status status = weft_i_group_check_revoked(&label);
    bool free = status == WEFT_OK, came = false;
    if (free) {
        weft_i_group_show_op(group, label.op);
        status = weft_i_signal_come(&point, BARRIER_DIGEST, &meeting);
        came = status == WEFT_OK;
    }
    uint64_t number = weft_i_record_begin_named(record, &name, group->id, 0, turn, -1);
    /* Relaxed: an entry of the helper thread may come now, and then it is for the next barrier. */
    bool called =
        atomic_load_explicit(&group->calls.entries, memory_order_relaxed) != group->calls.compared;
    if (called)
        fetch_entries(group);
    if (came)
        status = weft_i_group_await(&label, &point, &on_board, timeout_ms, &meeting);
    if (free && status < 0)
        status = see_through(&label, group, &point, BARRIER_DIGEST, timeout_ms, &meeting, status);
    if (called && status == WEFT_OK)
        status = compare_entries(group, &label);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms)
{
    if (!group || !weft_i_group_is_usable(group))
        WEFT_TRY(weft_i_group_usable(group));
    WEFT_TRY(weft_i_not_captured("weft_group_barrier"));
    WEFT_TRY(weft_i_group_check_limit("weft_group_barrier", timeout_ms));
    if (group->local && !group->world->fake) {
        WEFT_TRY(weft_i_group_enter(group, &group->on_board, "group_barrier"));
        weft_status status = barrier_on_board(group, weft_i_group_limit(group, timeout_ms));
        weft_i_group_leave(&group->on_board);
        return status;
    }
    WEFT_TRY(weft_i_group_check_mute(&(weft_i_label){group, "group_barrier", -1}));
    return weft_i_group_exchange(group, "group_barrier", NULL, 0, NULL, timeout_ms);
}
