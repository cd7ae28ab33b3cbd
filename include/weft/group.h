/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of ranks.  weft_init() meets the other ranks of the job and returns the world group;
 * everything else hangs off it.  A rank is a process (started by `weft run`, torchrun, mpirun,
 * srun, or by hand) or a thread (weft_spawn); the code is the same.
 *
 * One thread at a time may use a group; different groups may be used by different threads.
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
 * Meets the other ranks and returns the world group.  Collective over the job; blocks until all are
 * there.  NULL opts: everything from the environment; a program started without any launcher is a
 * world of one.  On failure NULL, and the message lists the ranks that are missing.
 */
WEFT_API weft_group *weft_init(const weft_init_opts *opts);

/*
 * Leaves the job and returns 0, or the negated status of this thread's first error since weft_init,
 * or else of the first that lost a group in another thread of the rank; logs it unless the log has
 * it: `return weft_finish(world);` is a fit end of main.  A try that found nothing (a limit of 0, a
 * name or key that is not there) is no error, and weft_clear_error takes back those of its thread.
 * Collectives that
 * this rank has posted end first, each within its own time limit; otherwise local, never blocks,
 * except between hosts: the rank that serves the store waits there until the others have left or
 * died, at most as long as an operation may take (WEFT_TIMEOUT).
 * Peers that still wait for this rank get WEFT_ERR_PEER_LEFT.  A NULL world is fine: the error that
 * made it NULL is reported.
 */
WEFT_API int weft_finish(weft_group *world);

/* This rank's place in the group, and the number of its ranks; -1 for NULL. */
WEFT_API int weft_rank(const weft_group *group);
WEFT_API int weft_size(const weft_group *group);

/* Place among, and number of, the ranks on this host. */
WEFT_API int weft_local_rank(const weft_group *group);
WEFT_API int weft_local_size(const weft_group *group);

/*
 * "0" for the world; else the given name, or one that follows from the parent's name, the world
 * ranks and how often a group was made of them: "0/0-3", "0/0-3#1".  Equal on all members.  Valid
 * as long as the group.
 */
WEFT_API const char *weft_group_name(const weft_group *group);

/* What the group is for, in words: as given, "undefined" if not; "mesh_<dim>" for those of meshes.
 */
WEFT_API const char *weft_group_description(const weft_group *group);

/* The group's tag; "ptd:<name>" for a group made without one. */
WEFT_API const char *weft_group_tag(const weft_group *group);

/* World ranks of all members in group order: weft_size of them, valid as long as the group. */
WEFT_API const int *weft_group_ranks(const weft_group *group);

/* How many collectives and barriers this rank has begun in the group, counting the one that made
 * it.  Equal on all members between operations. */
WEFT_API uint64_t weft_group_sequence(const weft_group *group);

/* World rank of a member, or -1; and the other way round. */
WEFT_API int weft_group_world_rank(const weft_group *group, int rank);
WEFT_API int weft_group_rank_of(const weft_group *group, int world_rank);

/* Default time limit of the group's operations; see weft/limit.h for the rule. */
WEFT_API int64_t weft_group_timeout(const weft_group *group);
WEFT_API weft_status weft_group_set_timeout(weft_group *group, int64_t timeout_ms);

/*
 * Makes a group of the given ranks of `parent`, in the given order.  Collective over those ranks
 * only, which must make groups of the same ranks in the same order; others may call it too and get
 * NULL without an error.  `name` may be NULL.
 */
WEFT_API weft_group *weft_group_new(weft_group *parent, const int *ranks, int count,
                                    const char *name);

/* How to make a group.  Start from WEFT_GROUP_OPTS_INIT; zero fields mean the default. */
typedef struct weft_group_opts {
    size_t size;             /* of this struct */
    const char *name;        /* at most 63 characters, no '/'; default: derived */
    const char *tag;         /* at most 63 characters; default: none */
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
 * As weft_group_new, with options.  NULL ranks: all of the parent's.  WEFT_ERR_EXISTS if a group of
 * this rank has the name already; WEFT_ERR_MISMATCH if members give different names or tags;
 * WEFT_ERR_TIMEOUT, naming the ranks that are missing.
 *
 * With a tag, a group of this rank with that tag and the same ranks, in whatever order, is returned
 * instead of a new one.  A tagged group belongs to the job, not to a scope: it lives until the
 * world group goes and must not be released.  Without a tag the group is always new.
 */
WEFT_API weft_group *weft_group_new_with(weft_group *parent, const int *ranks, int count,
                                         const weft_group_opts *opts);

/* Makes groups of `block` consecutive ranks of `parent` and returns the caller's.  Collective over
 * each block.  The block must divide the parent's size.  `opts` may be NULL. */
WEFT_API weft_group *weft_group_new_blocks(weft_group *parent, int block,
                                           const weft_group_opts *opts);

/* One of several lists of ranks. */
typedef struct weft_rank_list {
    const int *ranks;
    int count;
} weft_rank_list;

/*
 * Makes a group of each list of ranks of `parent` and returns the caller's, or NULL without an
 * error if it is in none.  Collective over each list.  A rank may be in one list only.
 */
WEFT_API weft_group *weft_group_new_lists(weft_group *parent, const weft_rank_list *lists,
                                          int count, const weft_group_opts *opts);

/* The same, but collective over `parent`: all give the same lists, or all get WEFT_ERR_MISMATCH.  A
 * group made by splitting is not found under the empty tag. */
WEFT_API weft_group *weft_group_split_lists(weft_group *parent, const weft_rank_list *lists,
                                            int count, const weft_group_opts *opts);

/*
 * Splits `parent`: ranks with the same `color` form a group, ordered by `key`, then rank.
 * Collective over `parent`. A negative color gives NULL without an error.
 */
WEFT_API weft_group *weft_group_split(weft_group *parent, int color, int key);

/*
 * The name and the size of a group without the group: what operations on meta tensors need, which
 * move nothing and so need no ranks.  Local; anything else with it fails with WEFT_ERR_STATE.
 */
WEFT_API weft_group *weft_group_stand_in(const char *name, int size);

/* Returns when all ranks of the group have called it.  On WEFT_ERR_TIMEOUT it may be called again.
 */
WEFT_API weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms);

/*
 * Ends every wait of every rank in this group with WEFT_ERR_REVOKED, now and later, and in all
 * groups that were made from it or are being made from it.  Only weft_group_shrink and
 * weft_group_agree still work with it, and groups that shrinking makes.  Local, never blocks; the
 * others hear of it within milliseconds.
 */
WEFT_API weft_status weft_group_revoke(weft_group *group);

/*
 * Agrees on `*flags`: the bitwise and over the members that live.  Collective over these, also
 * after a death and after a revoke.  The outcome is the same on all of them, whoever dies
 * meanwhile: WEFT_OK             all members took part; WEFT_ERR_PEER_DEAD  a member has died,
 * WEFT_ERR_PEER_LEFT: has left the job or destroyed the group; `*flags` is agreed all the same, and
 * the message lists the same ranks of the group everywhere.  Whether the flags of one that died
 * while it agreed have counted is the same for all. WEFT_ERR_TIMEOUT names those who live and have
 * not come, and leaves `*flags` alone; so does any other error.  Its flags are shown by then and
 * cannot be taken back: who calls again goes on with the same agreement, and the flags of the first
 * try count.
 */
WEFT_API weft_status weft_group_agree(weft_group *group, uint64_t *flags, int64_t timeout_ms);

/*
 * A descriptor for poll, select or epoll that becomes readable within milliseconds when a member of
 * the group on this host dies, leaves the job or destroys the group, or when the group ends (it, or
 * one it was made from, is revoked, or an operation breaks off); at once if that was before. Always
 * the same one for a group.  It is an eventfd: reading its 8 bytes gives the number of such events
 * since the last time and makes it unreadable until the next; weft_group_agree or the next call
 * tells what they were.  It belongs to the group: do not close it; it is closed by
 * weft_group_destroy, with the group, and by weft_finish.
 */
WEFT_API weft_status weft_group_event_fd(weft_group *group, int *out_fd);

/*
 * Makes a group of the members that live, in their order; they all agree on who that is.
 * Collective over the living members, also after a death and after a revoke.  A member that died or
 * left the job is left out, one that merely does not come is waited for: WEFT_ERR_TIMEOUT names it.
 */
WEFT_API weft_group *weft_group_shrink(weft_group *group);

/*
 * Ends the group and all groups made from it on this rank: their names and tags are free and every
 * call with them gives WEFT_ERR_STATE, this one too.  Destroying the world ends all.  Local, never
 * waits for others; those who still wait for this rank get WEFT_ERR_PEER_LEFT.  The memory goes
 * with the scope or weft_release as always.  NULL, which a rank outside the group holds, is fine.
 */
WEFT_API weft_status weft_group_destroy(weft_group *group);

/*
 * Finding groups of this rank; `any` is any group of the job, ranks are world ranks.  All are local
 * and never block.  What is found stays with its owner: it must not be released.
 */

/* The world group of the job. */
WEFT_API weft_group *weft_group_world(weft_group *any);

/* How many groups this rank is in. */
WEFT_API int weft_group_count(weft_group *any);

/* The group of this name.  NULL with WEFT_ERR_NOT_FOUND if there never was one on this rank, with
 * WEFT_ERR_STATE if it is destroyed or released. */
WEFT_API weft_group *weft_group_named(weft_group *any, const char *name);

/*
 * The oldest group with this tag and these ranks, in whatever order; NULL without an error if there
 * is none.  The empty tag finds groups made without a tag, the world first.
 */
WEFT_API weft_group *weft_group_find(weft_group *any, const char *tag, const int *ranks, int count);

/*
 * Of `count` ranks taken in blocks of `stride`, the group of the block this rank is in, made if it
 * is not there.  Only members of a block that has no group yet meet.  Errors: `count` no multiple
 * of `stride`, this rank in no block, or nothing found under the empty tag.
 */
WEFT_API weft_group *weft_group_find_or_new(weft_group *any, const char *tag, const int *ranks,
                                            int count, int stride);

#ifdef __cplusplus
}
#endif

#endif
