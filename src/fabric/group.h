/* SPDX-License-Identifier: Apache-2.0 */
/* A group from the inside: its members, its board, and the two ways its ranks meet: barriers and
 * exchanges. */
#ifndef WEFT_FABRIC_GROUP_H
#define WEFT_FABRIC_GROUP_H

#include "base/status.h"
#include "fabric/limit.h"
#include "fabric/lineage.h"
#include "fabric/world.h"
#include "tensor/device.h"
#include "tensor/scope.h"
#include "weft/group.h"

#include <pthread.h>

typedef struct weft_i_creation {
    weft_i_key ranks;
    uint32_t times;
} weft_i_creation;

enum {
    WEFT_I_GROUP_NAME = 64,                   /* bytes of a name or description, with its end */
    WEFT_I_GROUP_TAG = WEFT_I_GROUP_NAME + 8, /* of a stored tag: "user:" or "ptd:" before it */
};

/* "all_reduce of 7 f32, sum": see fabric/given.h. */
typedef void (*weft_i_given_teller)(uint64_t what, uint64_t count, char *out, size_t bytes);

struct weft_group {
    weft_i_object object;
    /* What every collective looks at, in as few cache lines as it can be: */
    weft_i_world *world;
    int rank, size;
    uint32_t id;           /* for the flight record: 0 is the world */
    bool local;            /* all members on this host */
    atomic_bool destroyed; /* release by weft_group_destroy, acquire by every call */
    int64_t timeout_ms;
    weft_i_board *board;    /* NULL: members on several hosts, exchanges go through the store */
    weft_i_lineage lineage; /* what it was made from */
    uint64_t sequence;      /* collectives and exchanges begun so far */
    /* Whose call is on its board and on its lane now: the thread's, 0: nobody's.  They find programs
     * that break the rule of one thread at a time, see weft_i_group_enter. */
    _Atomic uintptr_t on_board, on_lane;
    atomic_bool told_shared;  /* that the rule was broken is in the log; relaxed: a mark */
    _Atomic uint32_t entries; /* on its lane so far; relaxed: written by whoever runs a call */
    uint32_t compared;        /* those that members compared at their last barrier, or all saw */
    _Atomic uint32_t posted;  /* collectives that are not over; relaxed up, release down */
    /* Objects that live as long as the group, made by floors above: */
    void *lane;                          /* what its collectives meet on (coll/lane.c) */
    void *carriers[WEFT_I_DEVICE_KINDS]; /* who carries them instead (coll/carrier.c) */
    /* Of the one of them whose library has carried a collective, what a call looks at (coll/lines.h):
     * the next one may take the fast path (coll/fast.h).  NULL: it may not.  Release, acquire by
     * calls. */
    _Atomic(void *) fast;
    void *coalesce; /* calls that are collected instead of run (coll/coalesce.c) */
    /* The rest: */
    weft_group *parent; /* held, so that a child outlives nothing it needs; NULL for the world and
                           for tagged groups, which the world group holds */
    int *members;       /* world ranks */
    weft_i_key key;     /* equal on all members, unique in the job */
    weft_i_key parent_key; /* zero for the world */
    weft_i_key list;       /* of the parent and the members: known before the group is made */
    bool making;           /* weft_group_new is under way */
    weft_group *made_from; /* its parent, meanwhile; NULL while it shrinks */
    bool old_quarrel;      /* that one had ended by a mismatch, as this rank knew before */
    uint32_t times;        /* groups made of this list before */
    char description[WEFT_I_GROUP_NAME];
    /* What the registry reads and writes, under its lock: */
    char name[WEFT_I_GROUP_NAME];
    char tag[WEFT_I_GROUP_TAG]; /* "user:<tag>" or "ptd:<name>" */
    bool named;                 /* its name was given, not derived */
    bool untagged;              /* found under the empty tag */
    bool for_mesh;              /* may serve other meshes, unless this rank has revoked it */
    bool published, told, held_by_world;
    weft_i_segment *board_segment; /* NULL for the world, whose board lies in the job segment */
    uint32_t registrations;        /* rendezvous in this group so far (symm/registration.c) */
    uint64_t round, swept;         /* of exchanges through the store, see exchange_store.c */
    uint32_t shrinks;              /* decisions about the dead so far, see group_shrink.c */
    uint32_t agreements;           /* that this rank knows the outcome of, see group_agree.c */
    struct weft_i_event *event;    /* what tells of the members' ends; NULL until it is asked for */
    weft_i_creation *creations;    /* how often each rank list was made a group of */
    size_t creation_count;
    const char *making_for;     /* what the user called meanwhile; NULL: nothing that needs it */
    bool making_lane;           /* its exchanges are about making its lane (coll/lane.c) */
    bool making_entry;          /* it is made for a collective, which will be its first entry */
    const weft_group *lane_for; /* it is made for whoever makes it; NULL: for a call of its own */
    const char *shown_op; /* what the board says that we call: a name that stays where it is */
    /* Its device runs collectives that nobody calls, so that this rank does not know how many they
     * are (fabric/given.h).  Relaxed: for this rank alone. */
    atomic_bool replays;
    /* Names what a member has given to its device; NULL: nobody can have.  Relaxed: a constant. */
    _Atomic(weft_i_given_teller) tell_given;
    /* As `lane`, made by floors above: */
    void *workspace[WEFT_I_DEVICE_KINDS]; /* its scratch memory (symm/workspace.c) */
    void *slots[WEFT_I_DEVICE_KINDS];     /* where partial products meet, likewise */
    uint32_t scatters;                    /* how many times they did; equal on all members */
    void *shards[WEFT_I_DEVICE_KINDS];    /* where shards are shown to the others, likewise */
    uint32_t gathers;
};

/*
 * The number of the group of `key`, from which its name is made unless it was given one.  31 bits
 * of the key: a program with many groups hardly ever meets one twice (of 16 bits two of 64 groups
 * have the same in three jobs of a hundred).  Never 0, which is the world.
 */
static inline uint32_t weft_i_group_number(weft_i_key key)
{
    return (uint32_t)key.word[0] | UINT32_C(0x80000000);
}

/* What a rank is doing while it waits, for messages. */
typedef struct weft_i_label {
    const weft_group *group;
    const char *op;
    int channel; /* -1: none */
} weft_i_label;

/* The world group around a world that has met; takes the world over, also on failure. */
weft_group *weft_i_group_of_world(weft_i_world *world);

/* A group without peers: its board is there to be revoked, and nobody meets on it. */
weft_status weft_i_group_open_fake(weft_group *group);

/* WEFT_OK if the group can be used by this rank now. */
weft_status weft_i_group_usable(const weft_group *group);

/* The limit in force, the one rule of weft/limit.h: the argument, else the thread's innermost, else
 * the group's own. */
static inline int64_t weft_i_group_limit(const weft_group *group, int64_t timeout_ms)
{
    return weft_i_limit_of(timeout_ms, group->timeout_ms);
}

static inline bool weft_i_group_is_destroyed(const weft_group *group)
{
    /* Pairs with the release in weft_i_group_mark_destroyed. */
    return atomic_load_explicit(&group->destroyed, memory_order_acquire);
}

/* Would weft_i_group_usable say WEFT_OK?  In line, for calls that are over in 100 ns. */
static inline bool weft_i_group_is_usable(const weft_group *group)
{
    const weft_i_world *world = group->world;
    /* Pairs with weft_i_world_leave. */
    return world && !atomic_load_explicit(&world->finished, memory_order_acquire) &&
           weft_i_os_is_generation(world->generation) && !weft_i_group_is_destroyed(group);
}

/* Ends the group on this rank; members of the same host, who may wait for us, see it. */
void weft_i_group_mark_destroyed(weft_group *group);

/* What happens with the last reference to a group: group_end.c. */
void weft_i_group_free(weft_i_object *object);

/* A group object with room for its members; holds the world. */
weft_group *weft_i_group_allocate(weft_i_world *world, int size);

/* Whether all members are on this host. */
bool weft_i_group_all_local(const weft_group *group);

/* How weft_i_group_make makes a group beyond what the caller's options say. */
typedef struct weft_i_making {
    weft_group_opts opts;
    int first;        /* without a list: the first of `count` consecutive ranks */
    bool shrinks;     /* takes the place of the parent, which may be revoked */
    bool unlisted;    /* not found under the empty tag */
    bool for_mesh;    /* may serve other meshes too */
    int64_t limit_ms; /* of the making; WEFT_DEFAULT: as any call of the new group */
} weft_i_making;

/* WEFT_OK and a copy, whatever version of the struct the caller has; NULL gives the defaults. */
weft_status weft_i_group_copy_opts(const weft_group_opts *given, weft_group_opts *out);

/* weft_group_new_with, of which all other ways of making a group are made.  Without ranks, `count`
 * consecutive ones, or (0) all of the parent. */
weft_group *weft_i_group_make(weft_group *parent, const int *ranks, int count,
                              const weft_i_making *how);

/* WEFT_OK if the ranks are distinct and in the parent. */
weft_status weft_i_group_check_ranks(const weft_group *parent, const int *ranks, int count);

/* The stored form of a caller's tag: "user:<tag>", a known prefix stays; "" for NULL and "". */
weft_status weft_i_group_store_tag(const char *tag, char out[WEFT_I_GROUP_TAG]);

/* One line of WEFT_DEBUG=INFO. */
void weft_i_group_log_made(const weft_group *group);

weft_status weft_i_group_refuse_limit(const char *what, int64_t timeout_ms);

/* WEFT_ERR_INVALID_ARG for a number that is no time limit. */
static inline weft_status weft_i_group_check_limit(const char *what, int64_t timeout_ms)
{
    return timeout_ms >= WEFT_DEFAULT ? WEFT_OK : weft_i_group_refuse_limit(what, timeout_ms);
}

/* Can member `rank` still take part?  Also looks at the revoked flag.  The first without a message.
 */
weft_status weft_i_group_fate(const weft_group *group, int rank);
weft_status weft_i_group_lost(const weft_i_label *call, int rank);

/* Has member `rank` died, left the job or destroyed the group?  Whatever became of the group. */
weft_status weft_i_group_member_fate(const weft_group *group, int rank);

/* The word of some member, `*who`, that it cannot take part in making this group, if we have not
 * acted on it yet; 0: there is none.  One such word ends the making for all. */
uint64_t weft_i_group_new_refusal(const weft_group *group, int *who);

/* Whether a member has refused to take part in making this local group.  Afterwards its words count
 * as heard: they are no news for the next try. */
bool weft_i_group_hear_refusals(const weft_group *group);

/* 1 + the rank that revoked the group, or 0.  Pairs with the release in weft_i_group_end_board. */
static inline uint32_t weft_i_group_revoker(const weft_group *group)
{
    return group->board ? atomic_load_explicit(&group->board->revoked, memory_order_acquire) : 0;
}

/* Has it been revoked, or broken off, or was a group revoked that it was made from? */
static inline bool weft_i_group_has_ended(const weft_group *group)
{
    return weft_i_group_revoker(group) || weft_i_lineage_recalled(&group->lineage);
}

/* Was it, or a group that it was made from, revoked by somebody's weft_group_revoke? */
static inline bool weft_i_group_is_recalled(const weft_group *group)
{
    return weft_i_board_is_recalled(group->board) || weft_i_lineage_recalled(&group->lineage);
}

/* WEFT_OK, or WEFT_ERR_REVOKED, or what ended the group, with a message. */
weft_status weft_i_group_tell_revoked(const weft_i_label *call);

static inline weft_status weft_i_group_check_revoked(const weft_i_label *call)
{
    return weft_i_group_has_ended(call->group) ? weft_i_group_tell_revoked(call) : WEFT_OK;
}

/* Makes the group's lane, on which its collectives meet; see coll/lane.c, which defines it.
 * Collective. */
weft_status weft_i_group_make_lane(weft_group *group);

/*
 * All members have come to a barrier: have they called the same collectives before it?  Those that
 * wait for nobody, as two do that both take themselves for the root of a broadcast, do not see it
 * themselves.  WEFT_ERR_MISMATCH, with both calls.
 */
weft_status weft_i_group_compare_entries(weft_group *group, const weft_i_label *call);
void weft_i_group_fetch_entries(const weft_group *group); /* while they come: it will be asked */

/*
 * For what a member makes the lane: 0: it does not; 1: for a call of this group; otherwise only to
 * help others on the way to a group that it makes from this one.  That is told by the new group:
 * its members who help must not take each other for somebody who needs the lane.
 */
static inline uint64_t weft_i_group_lane_need(const weft_group *made)
{
    return made ? made->list.word[0] | 2 : 1;
}

/* Tells the others for what this member makes the lane, or (0) that it does not any more. */
void weft_i_group_show_lane_need(const weft_group *group, uint64_t need);

/* WEFT_ERR_STATE in a fake world where collectives are errors. */
weft_status weft_i_group_check_mute(const weft_i_label *call);

weft_status weft_i_group_fail_shared(weft_group *group, const char *op);

/* Names the calling thread: by where a variable of its own lies, which every call reads. */
static inline uintptr_t weft_i_group_me(void)
{
    return (uintptr_t)&weft_i_limit;
}

static inline void weft_i_group_leave(_Atomic uintptr_t *door)
{
    atomic_store_explicit(door, 0, memory_order_release); /* pairs with weft_i_group_enter */
}

/* Is the call there one of this thread?  Relaxed: what this thread wrote, or not. */
static inline bool weft_i_group_is_inside(const _Atomic uintptr_t *door)
{
    return atomic_load_explicit(door, memory_order_relaxed) == weft_i_group_me();
}

/*
 * WEFT_ERR_STATE if another thread's call is at either door.  Two threads that come at the same
 * moment must not both get in, so this is an exchange: a load and a store would let them.  Acquire:
 * pairs with weft_i_group_leave, so that a thread sees what the one before it did.
 */
static inline weft_status weft_i_group_enter(weft_group *group, _Atomic uintptr_t *door,
                                             const char *op)
{
    uintptr_t me = weft_i_group_me(), here = 0;
    const _Atomic uintptr_t *side = door == &group->on_lane ? &group->on_board : &group->on_lane;
    bool taken = atomic_compare_exchange_strong_explicit(door, &here, me, memory_order_acquire,
                                                         memory_order_relaxed);
    /* Relaxed: it detects a mistake.  If both threads see each other, both are told. */
    uintptr_t there = atomic_load_explicit(side, memory_order_relaxed);
    if ((taken || here == me) && (!there || there == me))
        return WEFT_OK;
    if (taken)
        weft_i_group_leave(door);
    return weft_i_group_fail_shared(group, op);
}

/* The next error of this thread is about the group: it counts for the rank (base/loss.h). */
static inline void weft_i_group_concerns(const weft_group *group)
{
    weft_i_status_concern(group->world->rank, group->world->losses.id, group->id);
}

/* "rank 1 of 4 in group "0", barrier on channel 2"; also says that the next error is about it. */
void weft_i_label_text(const weft_i_label *call, char *out, size_t bytes);

/* The second half of weft_i_group_meet, after weft_i_group_check_revoked and weft_i_signal_come;
 * `stay` (quarrel.h) says where that is, NULL: in a place of its own. */
typedef struct weft_i_stay weft_i_stay;
weft_status weft_i_group_keep_vigil(const weft_i_label *call, weft_i_point *point,
                                    const weft_i_stay *stay, int64_t timeout_ms,
                                    weft_i_meeting *meeting);

static inline weft_status weft_i_group_await(const weft_i_label *call, weft_i_point *point,
                                             const weft_i_stay *stay, int64_t timeout_ms,
                                             weft_i_meeting *meeting)
{
    weft_status status = weft_i_signal_look(point, meeting);
    if (status != WEFT_IN_PROGRESS)
        return status;
    return weft_i_group_keep_vigil(call, point, stay, timeout_ms, meeting); /* a longer wait */
}

/*
 * weft_i_signal_meet with a message for every failure but WEFT_ERR_MISMATCH, which the caller can
 * tell better, or by weft_i_group_mismatch; `meeting` names the culprit.
 */
static inline weft_status weft_i_group_meet(const weft_i_label *call, weft_i_point *point,
                                            uint32_t digest, int64_t timeout_ms,
                                            weft_i_meeting *meeting)
{
    meeting->culprit = -1;
    WEFT_TRY(weft_i_group_check_revoked(call));
    if (call->group->world->fake)
        return weft_i_group_check_mute(call);
    WEFT_TRY(weft_i_signal_come(point, digest, meeting));
    return weft_i_group_await(call, point, NULL, timeout_ms, meeting);
}

weft_status weft_i_group_mismatch(const weft_i_label *call, const weft_i_meeting *meeting);

/* For who meets on the board by itself (fabric/monitor.c): tells which operation this rank comes
 * with; makes the lane because another rank needs it, which only all together can; and tells both
 * calls after a mismatch there. */
void weft_i_group_show_op(weft_group *group, const char *op);
weft_status weft_i_group_help_make_lane(weft_group *group, int64_t deadline);

/* While a group is made: helps to make the lane of the group that it is made from, for as long as
 * one of its members needs that, which may give up and come here.  WEFT_ERR_TIMEOUT: the deadline
 * has passed. */
weft_status weft_i_group_help_above(weft_group *group, int64_t deadline);
weft_status weft_i_group_fail_quarrel(const weft_i_label *call, const weft_i_meeting *meeting);

/* weft_i_signal_settle with a message for every failure. */
weft_status weft_i_group_settle(const weft_i_label *call, weft_i_point *point,
                                const weft_i_stay *stay, uint32_t epoch, int64_t timeout_ms);

/*
 * All members show each other `bytes` (at most WEFT_I_NOTE_BYTES); `all` receives them in rank
 * order.  Collective. Members that exchange something else, by name or size, all get
 * WEFT_ERR_MISMATCH.  The second is for an operation's exchanges after its first: a rank that gives
 * the operation up in between may try it again, and those who wait here for it are told (see
 * base/signal.h).
 */
weft_status weft_i_group_exchange(weft_group *group, const char *what, const void *mine,
                                  size_t bytes, void *all, int64_t timeout_ms);
weft_status weft_i_group_exchange_later(weft_group *group, const char *what, const void *mine,
                                        size_t bytes, void *all, int64_t timeout_ms);

/* Marks the board as ended: revoked, or (`why` negative) because the group could not be made. */
void weft_i_group_end_board(const weft_group *group, weft_status why);

/* Revokes the group because an operation broke off in its middle.  All ranks get `why`, unless its
 * scope is less than the group: such an error is this rank's alone. */
void weft_i_group_spoil(const weft_group *group, weft_status why);

/*
 * Takes part in an exchange without reading the others' notes: how a rank that cannot go on tells
 * them so.  Keeps the thread's last error, which is the reason.
 */
void weft_i_group_show(weft_group *group, const char *what, const void *mine, size_t bytes);

static inline weft_i_record *weft_i_group_record(const weft_group *group)
{
    return group->world->mine ? &group->world->mine->record : NULL;
}

static inline weft_i_rank_record *weft_i_group_rank_record(const weft_group *group, int rank)
{
    return group->world->peers[group->members[rank]].rank_record;
}

#endif
