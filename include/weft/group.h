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
 * which it then also logs: `return weft_finish(world);` is a fit end of main.  Local, never blocks;
 * peers that still wait for this rank get WEFT_ERR_PEER_LEFT.  A NULL world is fine: the error that
 * made it NULL is reported.
 */
WEFT_API int weft_finish(weft_group *world);

/* This rank's place in the group, and the number of its ranks; -1 for NULL. */
WEFT_API int weft_rank(const weft_group *group);
WEFT_API int weft_size(const weft_group *group);

/* Place among, and number of, the ranks on this host. */
WEFT_API int weft_local_rank(const weft_group *group);
WEFT_API int weft_local_size(const weft_group *group);

/* "0" for the world.  Valid as long as the group. */
WEFT_API const char *weft_group_name(const weft_group *group);

/* World rank of a member, or -1; and the other way round. */
WEFT_API int weft_group_world_rank(const weft_group *group, int rank);
WEFT_API int weft_group_rank_of(const weft_group *group, int world_rank);

/* Default time limit of the group's operations. */
WEFT_API int64_t weft_group_timeout(const weft_group *group);
WEFT_API weft_status weft_group_set_timeout(weft_group *group, int64_t timeout_ms);

/*
 * Makes a group of the given ranks of `parent`, in the given order.  Collective over those ranks
 * only, which must make groups of the same ranks in the same order; others may call it too and get
 * NULL without an error.  `name` may be NULL.
 */
WEFT_API weft_group *weft_group_new(weft_group *parent, const int *ranks, int count,
                                    const char *name);

/*
 * Splits `parent`: ranks with the same `color` form a group, ordered by `key`, then rank.
 * Collective over `parent`. A negative color gives NULL without an error.
 */
WEFT_API weft_group *weft_group_split(weft_group *parent, int color, int key);

/* Returns when all ranks of the group have called it.  On WEFT_ERR_TIMEOUT it may be called again.
 */
WEFT_API weft_status weft_group_barrier(weft_group *group, int64_t timeout_ms);

/* Ends every wait of every rank in this group with WEFT_ERR_REVOKED, now and later.  Local, never
 * blocks. */
WEFT_API weft_status weft_group_revoke(weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
