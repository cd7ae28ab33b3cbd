/* SPDX-License-Identifier: Apache-2.0 */
/* A group from the inside: its members, its board, and what becomes of both.  How its ranks meet is in
 * exchange.h. */
#ifndef WEFT_FABRIC_GROUP_H
#define WEFT_FABRIC_GROUP_H

#include "base/report/status.h"
#include "fabric/group/registry.h"
#include "fabric/world/limit.h"
#include "fabric/world/lineage.h"
#include "fabric/world/world.h"
#include "tensor/object/device.h"
#include "tensor/object/scope.h"
#include "weft/group.h"

#include <pthread.h>

typedef struct weft_i_creation {
    weft_i_key ranks;
    uint32_t times;
    bool failed; /* the last try, and the next one has the same key */
} weft_i_creation;

enum {
    WEFT_I_GROUP_NAME = 64,                   /* bytes of a name or description, with its end */
    WEFT_I_GROUP_TAG = WEFT_I_GROUP_NAME + 8, /* of a stored tag: "user:" or "ptd:" before it */
};

/* The collectives of a group, as far as those who meet on its board must know them: src/coll counts. */
typedef struct weft_i_group_calls {
    atomic_bool told_shared; /* that two threads were in calls is in the log; relaxed: a mark */
    /* Its device runs collectives that nobody calls, so that this rank does not know how many they
     * are (fabric/group/given.h).  Relaxed: for this rank alone. */
    atomic_bool replays;
    _Atomic uint32_t entries; /* on its lane so far; relaxed: written by whoever runs a call */
    uint32_t compared;        /* those that members compared at their last barrier, or all saw */
    _Atomic uint32_t posted;  /* collectives that are not over; relaxed up, release down */
} weft_i_group_calls;

/* What is there only while a group is made (group_new.c). */
typedef struct weft_i_birth {
    weft_i_key list;           /* of the parent and the members: known before the group is made */
    weft_group *from;          /* its parent; NULL while it shrinks */
    const weft_group *near_of; /* the group of whose members these are those of one host; NULL */
    bool under_way;            /* the members meet */
    bool old_quarrel;          /* the parent had ended by a mismatch, as this rank knew before */
    uint32_t times;            /* groups made of this list before */
} weft_i_birth;

/* Making the lane, on which its collectives meet: what the exchanges for it must know. */
typedef struct weft_i_lane_making {
    bool under_way;              /* exchanges are about it */
    bool enters;                 /* for a collective, which will be its first entry */
    const char *op;              /* what the user called; NULL: nothing that needs it */
    const weft_group *on_behalf; /* for whoever makes that group; NULL: for a call of its own */
} weft_i_lane_making;

/* Beside its name what the registry reads and writes, under its lock. */
typedef struct weft_i_listing {
    char description[WEFT_I_GROUP_NAME];
    char tag[WEFT_I_GROUP_TAG]; /* "user:<tag>" or "ptd:<name>" */
    weft_i_key parent_key;      /* zero for the world */
    bool named;                 /* its name was given, not derived */
    bool untagged;              /* found under the empty tag */
    bool for_mesh;              /* may serve other meshes, unless this rank has revoked it */
    bool published, told, held_by_world;
} weft_i_listing;

/* What single files note of a group, far from what calls look at. */
typedef struct weft_i_group_rest {
    weft_group *parent; /* held, so that a child outlives nothing it needs; NULL for the world and
                           for tagged groups, which the world group holds */
    weft_i_segment *board_segment; /* NULL for the world, whose board lies in the job segment */
    weft_i_lane_making lane_making;
    const char *shown_op; /* what the board says that we call: a name that stays where it is */
    struct weft_i_event *event; /* what tells of the members' ends; NULL until it is asked for */
    weft_i_creation *creations; /* how often each rank list was made a group of */
    size_t creation_count;
    uint64_t round, swept;  /* of exchanges through the store, see exchange_store.c */
    uint32_t registrations; /* rendezvous in this group so far (symm/registration.c) */
    uint32_t shrinks;       /* decisions about the dead so far, see group_shrink.c */
    uint32_t agreements;    /* that this rank knows the outcome of, see group_agree.c */
} weft_i_group_rest;

/* Floors above that keep a part of their own of a group, in the order in which these go. */
typedef enum weft_i_group_floor {
    WEFT_I_FLOOR_COALESCE, /* calls that are collected instead of run (coll/calls/coalesce.c) */
    WEFT_I_FLOOR_CARRIERS, /* who carries collectives instead of the lane (coll/device/carrier.h) */
    WEFT_I_FLOOR_SCRATCH,  /* its scratch memory (symm/workspace.c) */
    WEFT_I_GROUP_FLOORS
} weft_i_group_floor;

/* At most 24 members (scripts/measure-house): what a floor above needs goes into its own part. */
struct weft_group {
    weft_i_object object;
    /* What every collective looks at, in as few cache lines as it can be: */
    weft_i_world *world;
    int rank, size;
    uint32_t id;           /* for the flight record: 0 is the world */
    bool local;            /* all members on this host: whether they meet, says symm/reach.h */
    atomic_bool destroyed; /* release by weft_group_destroy, acquire by every call */
    int64_t timeout_ms;
    weft_i_board
        *board; /* this host's, if there is a `hosts`.  NULL: exchanges go through the store */
    weft_i_lineage lineage; /* what it was made from */
    uint64_t sequence;      /* collectives and exchanges begun so far */
    /* Whose call is on its board and on its lane now: the thread's, 0: nobody's.  They find programs
     * that break the rule of one thread at a time, see weft_i_group_enter. */
    _Atomic uintptr_t on_board, on_lane;
    weft_i_group_calls calls;
    void *lane; /* an object that its collectives meet on (coll/lane/lane.c); NULL until then */
    /* Of the carrier whose library has carried a collective, what a call looks at
     * (coll/lane/lines.h): the next one may take the fast path (coll/device/fast.h).  NULL: it may
     * not.  Release, acquire by calls. */
    _Atomic(void *) fast;
    struct weft_i_hosts
        *hosts; /* of a group that spans some, and has a transport (hosts.h); else NULL */
    void *floor[WEFT_I_GROUP_FLOORS]; /* objects, dropped with the group; NULL: none */
    /* The rest: */
    int *members;                 /* world ranks */
    weft_i_key key;               /* equal on all members, unique in the job */
    char name[WEFT_I_GROUP_NAME]; /* under the registry's lock until it is published */
    weft_i_listing listing;
    weft_i_birth *birth; /* the maker's; NULL once it is made */
    weft_i_group_rest rest;
};

/* Its parent, while it is made but does not shrink; else NULL. */
static inline weft_group *weft_i_group_made_from(const weft_group *group)
{
    return group->birth ? group->birth->from : NULL;
}

/* Do its members meet to make it? */
static inline bool weft_i_group_is_made(const weft_group *group)
{
    return group->birth && group->birth->under_way;
}

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
    int first;                 /* without a list: the first of `count` consecutive ranks */
    bool shrinks;              /* takes the place of the parent, which may be revoked */
    bool unlisted;             /* not found under the empty tag */
    bool for_mesh;             /* may serve other meshes too */
    const weft_group *near_of; /* it has the members of that one on this host; NULL: not so */
    int64_t limit_ms;          /* of the making; WEFT_DEFAULT: as any call of the new group */
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
weft_status weft_i_group_lost(const weft_i_label *label, int rank);

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
weft_status weft_i_group_tell_revoked(const weft_i_label *label);

static inline weft_status weft_i_group_check_revoked(const weft_i_label *label)
{
    return weft_i_group_has_ended(label->group) ? weft_i_group_tell_revoked(label) : WEFT_OK;
}

/*
 * What fabric asks of the lane, on which the collectives of a group meet.  The floor that has lanes
 * brings this table with it, from a constructor; where it is not linked there are no collectives.
 */
typedef struct weft_i_lanes {
    /* Makes the group's lane.  Collective. */
    weft_status (*make)(weft_group *group);
    /*
     * All members have come to a barrier: have they called the same collectives before it?  Those
     * that wait for nobody, as two do that both take themselves for the root of a broadcast, do not
     * see it themselves.  WEFT_ERR_MISMATCH, with both calls.
     */
    weft_status (*compare)(weft_group *group, const weft_i_label *label);
    void (*fetch)(const weft_group *group); /* while they come: it will be asked */
    /* Names what a member has given to its device: "all_reduce of 7 f32, sum". */
    void (*tell_given)(uint64_t what, uint64_t count, char *out, size_t bytes);
} weft_i_lanes;

extern const weft_i_lanes *weft_i_lanes_table;

/*
 * Why a member is creating the lane.  0: it is not.  1: it needs the lane itself.  Otherwise: it only
 * helps the members of a child group, whose number this is.  Members of that group that help must not
 * take each other for members that need the lane.
 */
static inline uint64_t weft_i_group_lane_need(const weft_group *made)
{
    return made ? made->birth->list.word[0] | 2 : 1;
}

/* Tells the others why this member is creating the lane, or (0) that it is not any more. */
void weft_i_group_show_lane_need(const weft_group *group, uint64_t need);

/* WEFT_ERR_STATE in a fake world where collectives are errors. */
weft_status weft_i_group_check_mute(const weft_i_label *label);

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

/* The next error of this thread is about the group: it counts for the rank (base/report/loss.h). */
static inline void weft_i_group_concerns(const weft_group *group)
{
    weft_i_status_concern(group->world->rank, group->world->losses.id, group->id);
}

/* Marks the board as ended: revoked, or (`why` negative) because the group could not be made. */
void weft_i_group_end_board(const weft_group *group, weft_status why);

/* The same on this host alone, as member `who` has said. */
void weft_i_group_end_here(const weft_group *group, int who, weft_status why);

/* Revokes the group because an operation broke off in its middle.  All ranks get `why`, unless its
 * scope is less than the group: such an error is this rank's alone. */
void weft_i_group_spoil(const weft_group *group, weft_status why);

static inline weft_i_record *weft_i_group_record(const weft_group *group)
{
    return group->world->mine ? &group->world->mine->record : NULL;
}

static inline weft_i_rank_record *weft_i_group_rank_record(const weft_group *group, int rank)
{
    return group->world->peers[group->members[rank]].rank_record;
}

/* The first member of this fate, which is PEER_DEAD or PEER_LEFT; -1: there is none. */
int weft_i_group_of_fate(const weft_group *group, weft_status fate);
/* The same when another member says that there is one: who it is may come from another host a moment later
 * than that. */
int weft_i_group_find_lost(const weft_group *group, weft_status fate);

#endif
