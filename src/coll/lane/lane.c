/* SPDX-License-Identifier: Apache-2.0 */
/* Making a lane, entering an operation on it, and barriers inside; see lane.h. */
#include "coll/lane/lane.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/lane/choose.h"
#include "coll/lane/cma.h"
#include "fabric/group/exchange.h"
#include "fabric/world/watch.h"
#include "symm/reach.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    SYNC_DIGEST = 0x73796e63
}; /* odd: a later meeting of an operation, see base/share/signal.h */

static void destroy(weft_i_object *object)
{
    weft_i_lane *lane = (weft_i_lane *)object;
    weft_i_queue_free(lane->queue);
    if (lane->learned && lane->me == 0)
        weft_i_trial_keep(lane->size, lane->trials);
    weft_i_p2p_free(lane->p2p, lane->size);
    weft_i_ferry_free(lane->ferry);
    weft_i_registration_drop(lane->registration);
    weft_i_block_drop(lane->block);
    WEFT_OS->free(lane->sources);
    WEFT_OS->free(lane->targets);
    WEFT_OS->free(lane->factors);
    WEFT_OS->free(lane->samples);
    WEFT_OS->free(lane->prefetched);
    WEFT_OS->free(lane->splits);
    weft_i_object_free(object);
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

weft_i_lane *weft_i_lane_allocate(const weft_group *group)
{
    weft_i_lane *lane = weft_i_object_new_unscoped(WEFT_I_LANE, sizeof *lane, destroy);
    if (!lane)
        return NULL;
    size_t size = (size_t)group->size;
    lane->me = group->rank;
    lane->size = group->size;
    lane->mode = group->world->mode;
    lane->sources = WEFT_OS->alloc(size * sizeof *lane->sources);
    lane->targets = WEFT_OS->alloc(size * sizeof *lane->targets);
    lane->factors = WEFT_OS->alloc(size * sizeof *lane->factors);
    lane->samples = WEFT_OS->alloc(size * sizeof *lane->samples);
    lane->prefetched = WEFT_OS->alloc(size * sizeof *lane->prefetched);
    lane->splits = WEFT_OS->alloc(size * 2 * size * sizeof *lane->splits);
    lane->p2p = weft_i_p2p_new(group->size);
    lane->splits_at = round_up(sizeof(weft_i_lane_head), WEFT_I_LINE);
    lane->splits_stride = round_up(2 * size * sizeof(uint64_t), WEFT_I_LINE);
    if (lane->sources && lane->targets && lane->factors && lane->samples && lane->prefetched &&
        lane->splits && lane->p2p)
        return lane;
    weft_i_object_drop(lane);
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for the lane of %d ranks", group->size);
}

/* ---- tables of splits ---- */

void weft_i_lane_show_splits(weft_i_lane *lane)
{
    if (lane->ferry)
        return; /* they travel after the entry */
    memcpy(weft_i_lane_shown_splits(lane, lane->me, lane->epoch + 1),
           weft_i_lane_splits(lane, lane->me), 2 * (size_t)lane->size * sizeof(uint64_t));
}

void weft_i_lane_read_splits(weft_i_lane *lane)
{
    for (int rank = 0; !lane->ferry && rank < lane->size; rank++)
        if (rank != lane->me) /* nobody else's word counts for our own */
            memcpy(weft_i_lane_splits(lane, rank),
                   weft_i_lane_shown_splits(lane, rank, lane->epoch),
                   2 * (size_t)lane->size * sizeof(uint64_t));
}

/* ---- for those who wait for us on the board ---- */

static bool is_kept(const void *who)
{
    return weft_i_queue_keeps_rank(who);
}

static void tell_stuck(const void *who, char *out, size_t bytes)
{
    const weft_i_lane *lane = who;
    char text[WEFT_I_SIGNATURE_TEXT];
    snprintf(out, bytes, "%s",
             weft_i_signature_text(weft_i_lane_signature(lane, lane->me, lane->epoch + 1), text,
                                   sizeof text));
}

/*
 * The lane's two points are made once: filling one for each call takes as long as a hop.  At an
 * entry, others on other cores are often just a hop away.  So a rank that shares its core looks for
 * about as long as that before it yields, which takes several times longer.  At a sync, and between
 * large calls (enter.c), they are in the middle of a copy, which takes longer still.
 */
static void make_points(weft_i_lane *lane)
{
    weft_i_point point = {.me = lane->me,
                          .size = lane->size,
                          .bells = lane->heads + offsetof(weft_i_lane_head, bell),
                          .stride = lane->head_stride};
    lane->entry = lane->steps = point;
    lane->entry.words = lane->heads + offsetof(weft_i_lane_head, entry[0].arrival);
    lane->entry.passes = lane->heads + offsetof(weft_i_lane_head, entry_pass);
    lane->entry.turn_stride = sizeof(weft_i_lane_entry);
    lane->entry.turns = WEFT_I_TURNS;
    lane->entry.looks = WEFT_I_LOOKS;
    lane->entry.gave_up = lane->heads + offsetof(weft_i_lane_head, gave_up);
    lane->steps.words = lane->heads + offsetof(weft_i_lane_head, step);
    lane->steps.passes = lane->heads + offsetof(weft_i_lane_head, step_pass);
}

void weft_i_lane_make_stays(weft_i_lane *lane)
{
    lane->for_room = (weft_i_stay){.place = WEFT_I_ON_LANE, .is_kept = is_kept, .who = lane};
    lane->at_entry = lane->for_room;
    lane->at_entry.tell = tell_stuck;
}

/* A lane holds what the rendezvous made, not its handle: a handle would hold the group, which holds
 * the lane. */
static weft_status meet(weft_i_lane *lane, weft_group *group)
{
    size_t bounce = WEFT_I_RINGS_AT + (size_t)group->size * weft_i_ring_bytes(group->size);
    /* Not the calling thread's: a rank of weft_spawn may have more threads than its first. */
    const weft_i_backend *backend = weft_i_backend_between(WEFT_CPU, group->world->sharing);
    weft_status can = weft_i_block_new_by(backend, WEFT_CPU, bounce, NULL, &lane->block);
    if (can == WEFT_OK)
        lane->block->pad_bytes = lane->splits_at + WEFT_I_TURNS * lane->splits_stride;
    WEFT_TRY(weft_i_registration_new(lane->block, 0, group, can, &lane->registration));
    lane->heads = weft_i_pads_of(&lane->registration->pads, 0);
    lane->head_stride = lane->registration->pads.stride;
    make_points(lane);
    weft_i_lane_make_stays(lane);
    weft_i_p2p_open(lane);
    return weft_i_cma_agree(lane, group);
}

static weft_status make_lane(weft_group *group)
{
    weft_i_lane *lane = weft_i_lane_allocate(group);
    weft_i_tune_load();
    if (!lane) {
        weft_status reason = weft_last_status();
        weft_i_registration *none = NULL;
        return weft_i_registration_new(NULL, 0, group, reason, &none); /* tells the others */
    }
    weft_status status = meet(lane, group);
    if (status < 0) {
        weft_i_object_drop(lane);
        return status;
    }
    lane->entered = &group->calls.entries;
    group->lane = lane;
    return WEFT_OK;
}

/* It meets in a place of its own: two ranks that exchange a message may need the bounce while a
 * third one is at a barrier, and comes to help from there. */
static weft_status make_together(weft_group *group)
{
    bool inside = weft_i_group_is_inside(&group->on_board); /* it helps from there */
    const char *op = group->rest.lane_making.op ? group->rest.lane_making.op : "lane";
    if (!inside)
        WEFT_TRY(weft_i_group_enter(group, &group->on_board, op));
    group->rest.lane_making.under_way = true;
    weft_i_group_show_lane_need(group, weft_i_group_lane_need(group->rest.lane_making.on_behalf));
    weft_status status = make_lane(group);
    weft_i_group_show_lane_need(group, 0);
    group->rest.lane_making.under_way = false;
    if (!inside)
        weft_i_group_leave(&group->on_board);
    return status;
}

/* Has `rank` entered operation `epoch`, or tried to? */
static bool has_entered(const weft_i_lane *lane, int rank, uint32_t epoch)
{
    /* Pairs with the release of its arrival: its signature of an earlier try does not count. */
    uint64_t word =
        atomic_load_explicit(&weft_i_lane_head_of(lane, rank)->entry[epoch % WEFT_I_TURNS].arrival,
                             memory_order_acquire);
    return weft_i_arrival_epoch(word) == epoch;
}

bool weft_i_lane_has_come(const weft_i_lane *lane, int rank)
{
    /* Acquire: pairs with the release of its arrival; its payload is complete. */
    uint64_t word = atomic_load_explicit(weft_i_point_turn(&lane->entry, rank, lane->epoch + 1),
                                         memory_order_acquire);
    uint64_t mine = atomic_load_explicit(weft_i_point_turn(&lane->entry, lane->me, lane->epoch + 1),
                                         memory_order_relaxed);
    return word == mine; /* epoch and digest of all calls so far */
}

typedef struct sought {
    const weft_i_signature *signature;
    uint32_t epoch;
    const weft_group *group;
    int rank;
} sought;

static uint32_t shown_at(const sought *it)
{
    /* Pairs with the release in weft_i_lane_await: the signature is complete. */
    return atomic_load_explicit(&it->signature->shown, memory_order_acquire);
}

/* Also if the rank has gone on already, and its next signature has taken the place. */
static bool is_shown(void *arg)
{
    const sought *it = arg;
    return (int32_t)(shown_at(it) - it->epoch) >= 0;
}

static weft_status is_gone(void *arg)
{
    const sought *it = arg;
    return weft_i_world_fate(it->group->world, it->group->members[it->rank]);
}

/* The signature of a rank that has entered is there, or a moment away, unless it died just then; a
 * long moment if something else has its core. */
static bool waits_for_signature(const weft_i_lane *lane, const weft_group *group, int rank,
                                uint32_t epoch)
{
    enum { MOMENT_MS = 1000 };
    sought it = {weft_i_lane_signature(lane, rank, epoch), epoch, group, rank};
    weft_i_wait wait = {.ready = is_shown,
                        .lost = is_gone,
                        .arg = &it,
                        .deadline = weft_i_os_deadline(MOMENT_MS),
                        .mode = WEFT_I_WAIT_YIELD};
    return weft_i_wait_for(&wait) == WEFT_OK && shown_at(&it) == epoch;
}

/* A rank that calls something else than we do; -1 if the others only differ among themselves. */
static int find_other(const weft_i_lane *lane, const weft_group *group,
                      const weft_i_signature *mine, uint32_t epoch)
{
    for (int rank = 0; rank < lane->size; rank++) {
        if (rank != lane->me && has_entered(lane, rank, epoch) &&
            waits_for_signature(lane, group, rank, epoch) &&
            !weft_i_signature_same(weft_i_lane_signature(lane, rank, epoch), mine))
            return rank;
    }
    return -1;
}

/* Tells both calls at an entry; WEFT_OK if there is no difference to be seen there. */
static weft_status tell_difference(const weft_i_lane *lane, const weft_i_label *label,
                                   const weft_i_signature *signature, uint32_t epoch)
{
    int other = find_other(lane, label->group, signature, epoch);
    if (other < 0)
        return WEFT_OK;
    char mine[WEFT_I_SIGNATURE_TEXT], theirs[WEFT_I_SIGNATURE_TEXT];
    weft_i_signature other_signature = *weft_i_lane_signature(lane, other, epoch);
    weft_i_signature_text(signature, mine, sizeof mine);
    weft_i_signature_text(&other_signature, theirs, sizeof theirs);
    weft_i_quarrel_tell(label->group, mine, other, theirs); /* for who cannot see it any more */
    weft_i_group_concerns(label->group);
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "group \"%s\", operation %u: rank %d calls %s, but rank %d calls %s",
                       label->group->name, epoch, lane->me, mine, other, theirs);
}

/* The same at the oldest entry before `next` at which there is one to be seen. */
static weft_status tell_earlier(const weft_i_lane *lane, const weft_i_label *label, uint32_t next)
{
    for (uint32_t back = WEFT_I_TURNS - 2; back > 0; back--)
        if (has_entered(lane, lane->me, next - back))
            WEFT_TRY(tell_difference(
                lane, label, weft_i_lane_signature(lane, lane->me, next - back), next - back));
    return WEFT_OK;
}

/* Tells both calls, also to a rank that comes after others have found the mismatch, and to one that
 * went on from the call in question.  A rank that takes its arrival back, if only for a moment,
 * hides its call: then what the first finder wrote onto the board is told.  The same goes for a call
 * behind a posted one that has failed so: it stands at that one's number, and would be compared with
 * calls that are not its own. */
static weft_status fail_mismatch(weft_i_lane *lane, const weft_i_label *label,
                                 const weft_i_signature *signature, bool late)
{
    uint32_t next = lane->epoch + 1;
    if (late && lane->quarrelled && weft_i_quarrel_told(label->group))
        return WEFT_ERR_MISMATCH; /* told by weft_i_group_check_revoked */
    lane->quarrelled = true;
    WEFT_TRY(tell_earlier(lane, label, next));
    if (!late || !has_entered(lane, lane->me, next))
        WEFT_TRY(tell_difference(lane, label, signature, next));
    if (late)
        return WEFT_ERR_MISMATCH; /* of an earlier call, told by weft_i_group_check_revoked */
    if (weft_i_quarrel_told(label->group))
        return weft_i_group_check_revoked(label);
    char mine[WEFT_I_SIGNATURE_TEXT];
    weft_i_quarrel_hear(label->group);
    weft_i_group_concerns(label->group);
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "group \"%s\", operation %u: rank %d calls %s; the ranks choose different "
                       "algorithms (weft/tune.h), or others call something else",
                       label->group->name, next, lane->me,
                       weft_i_signature_text(signature, mine, sizeof mine));
}

static weft_i_point *entry_point(weft_i_lane *lane, int whom)
{
    lane->entry.epoch = lane->epoch;
    lane->entry.settled = lane->settled;
    lane->entry.whom = whom;
    lane->entry.mode = weft_i_lane_mode(lane);
    return &lane->entry;
}

/*
 * Ranks that wait for nobody, as two do that both take themselves for the root of a broadcast, see
 * here that they have called different things.  A rank that is ahead may have come round to the
 * word already; then it is the one that sees it.
 */
static weft_status compare_settled(const weft_i_lane *lane, const weft_i_label *label)
{
    /* Relaxed: our own.  Acquire: pairs with the release of an arrival. */
    uint64_t mine = atomic_load_explicit(weft_i_point_turn(&lane->entry, lane->me, lane->settled),
                                         memory_order_relaxed);
    for (int rank = 0; rank < lane->size; rank++) {
        uint64_t word = atomic_load_explicit(weft_i_point_turn(&lane->entry, rank, lane->settled),
                                             memory_order_acquire);
        if (word == mine || weft_i_arrival_epoch(word) != weft_i_arrival_epoch(mine))
            continue;
        WEFT_TRY(tell_earlier(lane, label, lane->epoch + 1));
        WEFT_TRY(tell_difference(lane, label, weft_i_lane_signature(lane, lane->me, lane->settled),
                                 lane->settled));
        weft_i_group_concerns(label->group);
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "group \"%s\": rank %d and rank %d called different things before "
                           "operation %u",
                           label->group->name, lane->me, rank, lane->settled + 1);
    }
    return WEFT_OK;
}

/* The newest entry to which all have come, from one on to which they have. */
static inline uint32_t newest_settled(const weft_i_lane *lane, const weft_i_point *point,
                                      uint32_t settled)
{
    uint32_t newest = lane->epoch;
    while (newest != settled && !weft_i_signal_is_settled(point, newest))
        newest--;
    return newest;
}

static weft_status settle(weft_i_lane *lane, const weft_i_label *label, uint32_t needed,
                          int64_t timeout_ms)
{
    weft_i_point *point = entry_point(lane, 0);
    WEFT_TRY(weft_i_group_settle(label, point, &lane->for_room, needed, timeout_ms));
    lane->settled = newest_settled(lane, point, needed);
    return compare_settled(lane, label);
}

/* The lane, for members that are all at a barrier.  NULL while there is posted work: then it is the
 * helper's, and members are at different entries. */
static weft_i_lane *lane_at_barrier(const weft_group *group)
{
    /* Pairs with the release of whoever ends posted work. */
    return atomic_load_explicit(&group->calls.posted, memory_order_acquire) ? NULL : group->lane;
}

static void fetch_entries(const weft_group *group)
{
    const weft_i_lane *lane = lane_at_barrier(group);
    if (!lane || lane->settled == lane->epoch)
        return;
    for (int rank = 0; rank < lane->size; rank++)
        __builtin_prefetch(weft_i_point_turn(&lane->entry, rank, lane->epoch));
}

static weft_status compare_entries(weft_group *group, const weft_i_label *label)
{
    weft_i_lane *lane = lane_at_barrier(group);
    if (!lane)
        return WEFT_OK;
    group->calls.compared = lane->epoch;
    if (lane->settled == lane->epoch)
        return WEFT_OK;
    lane->settled = newest_settled(lane, entry_point(lane, 0), lane->settled);
    weft_status status = compare_settled(lane, label);
    if (status < 0)
        weft_i_group_spoil(group, status); /* as in weft_i_lane_await */
    return status;
}

__attribute__((constructor)) static void give_lanes(void)
{
    static const weft_i_lanes lanes = {.make = make_together,
                                       .compare = compare_entries,
                                       .fetch = fetch_entries,
                                       .tell_given = weft_i_signature_tell_given};
    weft_i_lanes_table = &lanes;
}

weft_status weft_i_lane_open(weft_group *group, const char *op, bool enters)
{
    if (group->hosts)
        return weft_i_ferry_open(group);
    if (weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) != WEFT_I_REACH_LANE)
        return weft_i_reach_refuse(op, group, "carries it");
    group->rest.lane_making.op = op;
    group->rest.lane_making.enters = enters;
    weft_status status = make_together(group);
    group->rest.lane_making.op = NULL;
    group->rest.lane_making.enters = false;
    return status;
}

weft_status weft_i_lane_make_room(weft_i_lane *lane, const weft_i_label *label, uint32_t turns,
                                  int64_t timeout_ms)
{
    weft_status status = settle(lane, label, lane->epoch + 1 - (turns - 1), timeout_ms);
    if (status < 0 && weft_status_scope(status) == WEFT_SCOPE_GROUP)
        weft_i_group_spoil(label->group, status); /* as in fail_entry */
    return status;
}

/* Is the rank lost to this entry?  One that has come to it owes it nothing, and may be gone. */
WEFT_I_APART static weft_status check_fate(const weft_i_lane *lane, const weft_i_label *label,
                                           int rank)
{
    uint32_t epoch = lane->epoch + 1;
    if (weft_i_group_member_fate(label->group, rank) == WEFT_OK)
        return WEFT_OK;
    /* Acquire: pairs with the release of an arrival. */
    uint64_t word =
        atomic_load_explicit(weft_i_point_turn(&lane->entry, rank, epoch), memory_order_acquire);
    return weft_i_arrived(word, epoch) ? WEFT_OK : weft_i_group_lost(label, rank);
}

/* Who waits for nobody would not hear of a death before it needs room.  So it looks at one of the
 * others at every other entry, by turns: that is a hundredth of a small broadcast. */
static inline weft_status look_at_next(weft_i_lane *lane, const weft_i_label *label)
{
    if (lane->epoch & 1)
        return WEFT_OK;
    int next = lane->looked_at + 1 + (lane->looked_at + 1 == lane->me);
    lane->looked_at = next = next < lane->size ? next : lane->me == 0 && lane->size > 1;
    return weft_i_watch_seems_alive(weft_i_group_rank_record(label->group, next))
               ? WEFT_OK
               : check_fate(lane, label, next);
}

void weft_i_lane_arrive(weft_i_lane *lane, const weft_i_label *label, int whom, uint32_t digest,
                        weft_i_arrival *out)
{
    WEFT_ASSERT(weft_i_lane_has_room(lane, WEFT_I_TURNS) && whom < lane->size);
    out->whom = whom;
    out->digest = weft_i_digest(lane->chain, digest);
    out->status = WEFT_OK;
    out->came = false;
    out->signature = &out->unshown;
    if (weft_i_group_revoker(label->group))
        return; /* others may still read our signature of the call that ended the group */
    out->signature = weft_i_lane_signature(lane, lane->me, lane->epoch + 1);
    out->point = entry_point(lane, whom == WEFT_I_FOR_NOBODY ? 0 : whom + 1);
    /* Relaxed: the arrival carries it. */
    atomic_store_explicit(&out->signature->shown, lane->epoch, memory_order_relaxed);
    if (whom != WEFT_I_FOR_NOBODY)
        out->status = weft_i_signal_come(out->point, out->digest, &out->meeting);
    else if ((out->status = look_at_next(lane, label)) == WEFT_OK)
        weft_i_signal_arrive(out->point, out->digest);
    out->came = out->status == WEFT_OK;
}

/* No arrival was made, because the group has ended: says why. */
WEFT_I_COLD static weft_status tell_end(weft_i_lane *lane, const weft_i_label *label,
                                        const weft_i_arrival *arrival)
{
    weft_status status = weft_i_group_check_revoked(label);
    return status == WEFT_ERR_MISMATCH ? fail_mismatch(lane, label, arrival->signature, true)
                                       : status;
}

WEFT_I_COLD static weft_status fail_entry(weft_i_lane *lane, const weft_i_label *label,
                                          const weft_i_arrival *arrival, weft_status status)
{
    if (status == WEFT_ERR_MISMATCH)
        fail_mismatch(lane, label, arrival->signature, arrival->meeting.culprit < 0);
    if (weft_status_scope(status) == WEFT_SCOPE_GROUP)
        weft_i_group_spoil(label->group, status); /* so that all get out, with the same cause */
    return status;
}

weft_status weft_i_lane_await(weft_i_lane *lane, const weft_i_label *label, weft_i_arrival *arrival,
                              int64_t timeout_ms)
{
    weft_status status = arrival->status;
    if (arrival->signature == &arrival->unshown)
        return tell_end(lane, label, arrival);
    /* Pairs with the acquire in shown_at. */
    atomic_store_explicit(&arrival->signature->shown, lane->epoch + 1, memory_order_release);
    if (status == WEFT_OK && arrival->whom != WEFT_I_FOR_NOBODY)
        status = weft_i_group_await(label, arrival->point, &lane->at_entry, timeout_ms,
                                    &arrival->meeting);
    if (status != WEFT_OK)
        return fail_entry(lane, label, arrival, status);
    lane->epoch++;
    /* Relaxed: see fabric/group/quarrel.c. */
    atomic_store_explicit(lane->entered, lane->epoch, memory_order_relaxed);
    lane->chain = arrival->digest;
    if (arrival->whom == WEFT_I_FOR_ALL || (arrival->whom >= 0 && lane->size == 2))
        lane->settled = lane->epoch; /* all are known to have come */
    return WEFT_OK;
}

/* The newest meeting of a point that this rank has come to, as its own words tell: for threads that
 * do not run the call. */
static uint32_t newest(const weft_i_point *point)
{
    uint32_t turns = point->turn_stride ? point->turns : 1, newest = 0;
    for (uint32_t turn = 0; turn < turns; turn++) {
        uint32_t epoch = weft_i_arrival_epoch(atomic_load_explicit(
            weft_i_point_turn(point, point->me, turn), memory_order_relaxed)); /* for messages */
        if (!turn || (int32_t)(epoch - newest) > 0)
            newest = epoch;
    }
    return newest;
}

static bool is_behind(const weft_i_point *point, int rank)
{
    uint32_t epoch = newest(point);
    uint64_t word = atomic_load_explicit(weft_i_point_turn(point, rank, epoch),
                                         memory_order_relaxed); /* for messages */
    return rank != point->me && !weft_i_arrived(word, epoch);
}

bool weft_i_lane_name_missing(const weft_i_lane *lane, const weft_group *group, char *out,
                              size_t bytes)
{
    weft_i_text list = {out, bytes, 0};
    out[0] = 0;
    for (int rank = 0; rank < lane->size && list.used + 8 < bytes; rank++)
        if (is_behind(&lane->entry, rank) || is_behind(&lane->steps, rank))
            weft_i_world_list(group->world, group->members[rank], &list);
    return list.used > 0;
}

typedef struct straggling {
    const weft_i_lane *lane;
    const weft_group *group;
} straggling;

/* Has everybody come to this sync, or died?  The helper thread of a rank that has left may still be
 * on its way. */
static bool are_out(void *arg)
{
    const straggling *who = arg;
    const weft_i_lane *lane = who->lane;
    for (int rank = 0; rank < lane->size; rank++) {
        uint32_t syncs =
            atomic_load_explicit(&weft_i_lane_head_of(lane, rank)->syncs, memory_order_acquire);
        if ((int32_t)(syncs - lane->syncs) < 0 &&
            weft_i_world_fate(who->group->world, who->group->members[rank]) != WEFT_ERR_PEER_DEAD)
            return false;
    }
    return true;
}

/*
 * Threads fold and copy straight from and to each other's tensors.  So a rank that breaks an
 * operation off keeps its own until slower ranks are out.  They are in the middle of a copy, and
 * the wait is as long as that.
 */
weft_status weft_i_lane_sync(weft_i_lane *lane, const weft_i_label *label, int64_t timeout_ms)
{
    weft_i_meeting meeting;
    bool threads = lane->cma == WEFT_I_CMA_THREADS;
    lane->syncs++;
    lane->steps.mode = weft_i_lane_mode(lane);
    if (threads) /* pairs with the acquire in `are_out` */
        atomic_store_explicit(&weft_i_lane_head_of(lane, lane->me)->syncs, lane->syncs,
                              memory_order_release);
    weft_status status = weft_i_group_meet(label, &lane->steps, SYNC_DIGEST, timeout_ms, &meeting);
    if (status < 0) /* the others are in the middle of it: there is no trying again */
        weft_i_group_spoil(label->group, status);
    straggling who = {lane, label->group};
    if (status < 0 && threads)
        weft_i_wait_until(are_out, &who, WEFT_I_NEVER);
    return status;
}
