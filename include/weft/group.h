/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of ranks.  weft_init meets the other ranks of the job and returns the world group.
 * Everything else starts from it.  A rank is a process (started by `weft run`, torchrun, mpirun,
 * srun, or by hand) or a thread (weft_spawn).  The code is the same.
 *
 * One thread at a time may use a group.  Different threads may use different groups.
 */
#ifndef WEFT_GROUP_H
#define WEFT_GROUP_H

#include "weft/status.h"
#include "weft/store.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_group weft_group;

/* How to meet.  Start from WEFT_INIT_OPTS; zero fields mean "as the environment says". */
typedef struct weft_init_opts {
    size_t size;       /* of this struct */
    weft_store *store; /* meet through this store; needs rank and world_size */
    int rank, world_size;
    int64_t meet_timeout_ms; /* how long to wait for all ranks; 0: WEFT_MEET_TIMEOUT */
    int64_t timeout_ms;      /* default limit of operations; 0: WEFT_TIMEOUT */
} weft_init_opts;

/* weft_init_opts opts = WEFT_INIT_OPTS; */
#define WEFT_INIT_OPTS                        \
    {                                         \
        sizeof(weft_init_opts), 0, 0, 0, 0, 0 \
    }

/*
 * Meets the other ranks and returns the world group.  All ranks of the job call it, and it blocks
 * until all have.  If `opts` is NULL, the environment says everything; a program that no launcher
 * started is a world of one rank.  On failure it returns NULL, and a message is logged and kept for
 * weft_last_error; it lists the ranks that are missing.
 */
WEFT_API weft_group *weft_init(const weft_init_opts *opts);

/*
 * Leaves the job.  Returns 0, or the negated status of this thread's first error since weft_init; if
 * it had none, of the first error in another thread of the rank that lost a group.  The error is
 * logged unless it has been already, so `return weft_finish(world);` is a good end of main.  A try
 * that found nothing (a limit of 0, a name or key that does not exist) does not count as an error,
 * and weft_clear_error takes back the errors of its thread.
 *
 * Collectives that this rank has posted end first, each within its own time limit.  Apart from that
 * the call is local and does not block, with one exception: in a job of several hosts, the rank
 * that serves the store waits until the others have left or died, for WEFT_TIMEOUT at most.  Peers
 * that still wait for this rank get WEFT_ERR_PEER_LEFT.  If the world is NULL, the error that made
 * it NULL is reported.
 */
WEFT_API int weft_finish(weft_group *world);

/* The number of this rank in the group, and how many ranks the group has.  For NULL, -1. */
WEFT_API int weft_rank(const weft_group *group);
WEFT_API int weft_size(const weft_group *group);

/* The same among the ranks of the group on this host. */
WEFT_API int weft_local_rank(const weft_group *group);
WEFT_API int weft_local_size(const weft_group *group);

/*
 * The name of the group, the same on all members.  The world is "0".  A group without a given name
 * is named after its parent, its world ranks, and how often a group was made of them before:
 * "0/0-3", then "0/0-3#1".  The text is valid as long as the group.
 */
WEFT_API const char *weft_group_name(const weft_group *group);

/* What the group is for, as its maker said.  "undefined" if that was not said; "mesh_<dim>" for the
 * groups of a mesh. */
WEFT_API const char *weft_group_description(const weft_group *group);

/* The group's tag; "ptd:<name>" for a group made without one. */
WEFT_API const char *weft_group_tag(const weft_group *group);

/* The world ranks of all members, in the order of the group.  There are weft_size of them, valid as
 * long as the group. */
WEFT_API const int *weft_group_ranks(const weft_group *group);

/* How many collectives and barriers this rank has begun in the group, including the one that made
 * the group.  Between operations all members have the same number. */
WEFT_API uint64_t weft_group_sequence(const weft_group *group);

/* The world rank of a member, and the rank in the group of a world rank.  -1 if there is none. */
WEFT_API int weft_group_world_rank(const weft_group *group, int rank);
WEFT_API int weft_group_rank_of(const weft_group *group, int world_rank);

/* The time limit of the group's operations, unless another applies: weft/limit.h has the rule. */
WEFT_API int64_t weft_group_timeout(const weft_group *group);
WEFT_API weft_status weft_group_set_timeout(weft_group *group, int64_t timeout_ms);

/*
 * Makes a group of the given ranks of `parent`, in the given order.  Those ranks call it, with the
 * same ranks; if they make several groups, all make them in the same order.  Other ranks may call it
 * too and get NULL without an error.  `name` may be NULL.
 */
WEFT_API weft_group *weft_group_new(weft_group *parent, const int *ranks, int count,
                                    const char *name);

/* How to make a group.  Start from WEFT_GROUP_OPTS_INIT; zero fields mean the default. */
typedef struct weft_group_opts {
    size_t size;             /* of this struct */
    const char *name;        /* at most 63 characters, no '/'; default: derived */
    const char *tag;         /* at most 63 characters, or NULL */
    const char *description; /* at most 63 characters */
    int64_t timeout_ms;      /* limit of its operations; 0: the parent's */
    int sorted;              /* members in the order of their world ranks, not as listed */
} weft_group_opts;

/* weft_group_opts opts = WEFT_GROUP_OPTS_INIT; */
#define WEFT_GROUP_OPTS_INIT                   \
    {                                          \
        sizeof(weft_group_opts), 0, 0, 0, 0, 0 \
    }

/*
 * As weft_group_new, with options.  If `ranks` is NULL, all ranks of the parent are meant.  Returns
 * NULL and WEFT_ERR_EXISTS if this rank has a group of that name, WEFT_ERR_MISMATCH if the members
 * give different names or tags, and WEFT_ERR_TIMEOUT, naming them, if some do not arrive.
 *
 * Without a tag the group is always new.  With one, a group that this rank has under the tag, with
 * the same ranks in any order, is returned instead.  A tagged group belongs to the job, not to a
 * scope: it lives as long as the world group and must not be released.
 */
WEFT_API weft_group *weft_group_new_with(weft_group *parent, const int *ranks, int count,
                                         const weft_group_opts *opts);

/* Makes groups of `block` consecutive ranks of `parent` and returns the one that the caller is in.
 * The ranks of a block call it together.  `block` must divide the size of the parent.  `opts` may be
 * NULL. */
WEFT_API weft_group *weft_group_new_blocks(weft_group *parent, int block,
                                           const weft_group_opts *opts);

/* A list of ranks. */
typedef struct weft_rank_list {
    const int *ranks;
    int count;
} weft_rank_list;

/*
 * Makes a group of each list of ranks of `parent` and returns the one that the caller is in, or NULL
 * without an error if it is in none.  The ranks of a list call it together.  No rank may be in two
 * lists.
 */
WEFT_API weft_group *weft_group_new_lists(weft_group *parent, const weft_rank_list *lists,
                                          int count, const weft_group_opts *opts);

/* The same, but all ranks of `parent` call it.  They give the same lists, or all of them get
 * WEFT_ERR_MISMATCH.  weft_group_find does not find such a group under the empty tag. */
WEFT_API weft_group *weft_group_split_lists(weft_group *parent, const weft_rank_list *lists,
                                            int count, const weft_group_opts *opts);

/*
 * Splits `parent`.  All its ranks call it.  Ranks that give the same `color` form a group, ordered by
 * `key`, then by rank.  A rank that gives a negative color gets NULL without an error.
 */
WEFT_API weft_group *weft_group_split(weft_group *parent, int color, int key);

/*
 * Makes a stand-in: a group that has a name and a size, but no ranks.  Operations on meta tensors
 * move nothing, so a stand-in is enough for them.  Anything else with it fails with WEFT_ERR_STATE.
 * Local.
 */
WEFT_API weft_group *weft_group_stand_in(const char *name, int size);

/* Returns when all ranks of the group have called it.  After WEFT_ERR_TIMEOUT it may be called
 * again. */
WEFT_API weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms);

/*
 * Ends every wait in this group with WEFT_ERR_REVOKED, on every rank, now and later.  The same
 * holds for all groups made from it, or being made from it, except those made by weft_group_shrink.
 * After that only weft_group_shrink and weft_group_agree work with the group.  The call is local
 * and never blocks.  The others learn of it within milliseconds.
 */
WEFT_API weft_status weft_group_revoke(weft_group *group);

/*
 * Agrees on `*flags`: each living member gets the bitwise and of the flags of all.  The living
 * members call it together, also after a death and after a revoke.  All get the same outcome,
 * whichever ranks die meanwhile:
 *
 *   WEFT_OK             all members took part
 *   WEFT_ERR_PEER_DEAD  a member has died
 *   WEFT_ERR_PEER_LEFT  a member has left the job or destroyed the group
 *
 * In all three cases `*flags` is agreed.  The message lists the same ranks of the group everywhere,
 * and the flags of a member that died meanwhile have counted for all or for none.
 *
 * WEFT_ERR_TIMEOUT names the members that live and have not called it.  It leaves `*flags` alone, as
 * any other error does.  The others have seen this rank's flags by then.  So if it calls again, it
 * goes on with the same agreement, and the flags of its first call count.
 */
WEFT_API weft_status weft_group_agree(weft_group *group, uint64_t *flags, int64_t timeout_ms);

/*
 * A descriptor for poll, select or epoll.  It becomes readable when a member of the group on this
 * host dies, leaves the job or destroys the group, and when the group ends: it, or one that it was
 * made from, is revoked, or an operation breaks off.  That takes milliseconds.  If it happened
 * before the call, the descriptor is readable at once.
 *
 * The descriptor is an eventfd, always the same one for a group.  Reading its 8 bytes gives the
 * number of such events since the last read, and makes it unreadable until the next.
 * weft_group_agree, or the next operation, says what they were.  Do not close it: it belongs to the
 * group and is closed by weft_group_destroy, with the group, or by weft_finish.
 */
WEFT_API weft_status weft_group_event_fd(weft_group *group, int *out_fd);

/*
 * Makes a group of the living members, in their order.  They call it together, also after a death
 * and after a revoke, and agree on the living.  Members that died or left the job are left out, and
 * no others.  Members that live, stopped ones too, are waited for; WEFT_ERR_TIMEOUT names those that
 * did not come.  A member that gives up then and leaves the job makes it WEFT_ERR_PEER_LEFT
 * for those whose limit passes a moment later.  In both cases it may be called again.
 */
WEFT_API weft_group *weft_group_shrink(weft_group *group);

/*
 * Ends the group, and all groups made from it, on this rank.  Their names and tags are free again.
 * Every later call with one of them, this call too, returns WEFT_ERR_STATE.  Destroying the world
 * ends all groups.  The call is local and never waits; ranks that wait for this one get
 * WEFT_ERR_PEER_LEFT.  The memory is freed with the scope, or by weft_release, as always.  NULL,
 * which ranks outside a group hold, is fine.
 */
WEFT_API weft_status weft_group_destroy(weft_group *group);

/*
 * Finding groups of this rank.  `any` is any group of the job, and ranks are world ranks.  These
 * functions are local and never block.  Do not release what they return: it has an owner.
 */

/* The world group of the job. */
WEFT_API weft_group *weft_group_world(weft_group *any);

/* How many groups this rank is in. */
WEFT_API int weft_group_count(weft_group *any);

/* The group of this name.  If there never was one on this rank, NULL and WEFT_ERR_NOT_FOUND; if it
 * was destroyed or released, NULL and WEFT_ERR_STATE. */
WEFT_API weft_group *weft_group_named(weft_group *any, const char *name);

/*
 * The oldest group with this tag and these ranks, in any order.  NULL without an error if there is
 * none.  The empty tag finds groups that were made without a tag, the world first.
 */
WEFT_API weft_group *weft_group_find(weft_group *any, const char *tag, const int *ranks, int count);

/*
 * Cuts `count` ranks into blocks of `stride` and returns the group of the block that this rank is
 * in.  If that block has no group yet, its members meet and make one; members of other blocks do
 * not wait.  It is an error if `count` is no multiple of `stride`, if this rank is in no block, or if
 * the tag is empty and nothing is found.
 */
WEFT_API weft_group *weft_group_find_or_new(weft_group *any, const char *tag, const int *ranks,
                                            int count, int stride);

#ifdef __cplusplus
}
#endif

#endif
