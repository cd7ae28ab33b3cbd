/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank holds of its job: its rank_record, its peers, its descriptor server and watch
 * thread.  Made by meeting (meet.c), shared by all groups of the rank, torn down by weft_finish;
 * the memory goes with the last group.
 */
#ifndef WEFT_FABRIC_WORLD_H
#define WEFT_FABRIC_WORLD_H

#include "base/os/assert.h"
#include "base/report/loss.h"
#include "base/report/text.h"
#include "fabric/world/job.h"
#include "fabric/world/own_groups.h"
#include "fabric/world/watch.h"
#include "weft/store.h"

#include <pthread.h>

typedef struct weft_i_peer {
    weft_i_rank_record *rank_record; /* NULL: on another host */
    char fdpass[64];
    char host[65];
    char store[64]; /* where its store's server is, in use or in reserve; empty: none (news.h) */
    _Atomic int
        gone; /* a weft_i_fate that was told through the store; relaxed: nothing hangs on it */
    /* The numbers of its refusals that we have acted on; relaxed: read and written by us alone. */
    _Atomic uint16_t heard[WEFT_I_JOB_REFUSALS];
} weft_i_peer;

typedef struct weft_i_world {
    atomic_int references; /* relaxed up, acq_rel down */
    int rank, size;
    int local_rank, local_size;
    weft_i_sharing sharing;
    weft_i_key key; /* identity of the job, equal on all ranks */
    weft_i_segment *job;
    weft_i_rank_record *mine;
    weft_i_peer *peers; /* by world rank */
    weft_i_fdpass *fdpass;
    weft_i_watch *watch; /* process ranks only */
    weft_store *store;   /* how remote ranks are reached; NULL when all are local */
    bool own_store;      /* found by weft_init, not given by the caller */
    bool told, wills;    /* the others are told when this rank goes; by the store itself */
    struct weft_i_store_server *standby; /* in reserve; NULL: none, or it is the store's own */
    pthread_mutex_t moving;              /* held by whoever looks for another server */
    atomic_int server;                   /* relaxed: the rank whose server is in use */
    atomic_uint
        moves; /* to another server; release by whoever moves, acquire by whoever compares */
    int64_t timeout_ms; /* default deadline of operations */
    int64_t warn_ns;    /* a wait that takes longer is told; WEFT_I_NEVER: never */
    weft_i_wait_mode mode;
    int cores;            /* that the ranks of this host may use, all together; 0: not counted */
    unsigned generation;  /* of forks: see weft_i_os_generation */
    atomic_bool finished; /* release by weft_finish, acquire by every call */
    atomic_uint groups;   /* relaxed: numbers for the flight record */
    bool fake;            /* this rank pretends: there are no peers (symm/fake.c) */
    bool mute;            /* collectives are an error */
    const void *carrier;  /* the backend that runs its collectives itself; NULL: the lanes do */
    weft_i_registry registry;
    struct weft_i_remote *remote; /* messages to other hosts (remote.h); NULL: none */
    struct weft_i_lifeline
        *lifeline;        /* what is known of their lives (lifeline.h); NULL: the store tells */
    char remote_why[160]; /* why there are none between its hosts; empty: it has one host */
    struct weft_i_sentinel *sentinel; /* tells idle ranks of lost members; see group_event.h */
    weft_i_losses losses;             /* of its groups, whichever thread met them */
    struct weft_i_world *next;        /* of the process; see weft_i_world_group */
    atomic_int unwaited;  /* relaxed: results of posted operations that nobody has waited for yet */
    atomic_int under_way; /* posted collectives; release when one is over, acquire by weft_finish */
} weft_i_world;

/* An empty world for `size` ranks with room for its peers. */
weft_status weft_i_world_new(int rank, int size, weft_i_world **out);

/* Takes a place in the job segment (held by the world from now on): rank_record, descriptor server,
 * watch thread; then is HERE.  On failure the record says so. */
weft_status weft_i_world_enter(weft_i_world *world, weft_i_segment *job, weft_i_fdpass *fdpass,
                               int local_rank);

/* Tells the peers that the rank of this slot will not enter. */
void weft_i_world_tell_failed(weft_i_rank_record *rank_record);

/* Chooses how to wait, when everybody's address can be read. */
void weft_i_world_count_cores(weft_i_world *world);

/*
 * Called by weft_finish while the peers still take this rank for one that is here: what its devices
 * do for them comes to its end, within a bound.  Backends register from a constructor.
 */
void weft_i_world_before_leaving(void (*farewell)(const weft_i_world *world));
void weft_i_world_say_farewell(const weft_i_world *world);

/* Leaves the job in order.  Harmless if it never entered. */
void weft_i_world_leave(weft_i_world *world);

/* The world group of this process; NULL if it has none, or several.  For what can only be one in a
 * process.  Borrowed: the caller's rank must not leave meanwhile. */
weft_group *weft_i_world_group(void);
void weft_i_world_forget(weft_i_world *world); /* it is going */
/* All of them: those of ranks that died in a simulator, where their memory is gone. */
void weft_i_world_forget_all(void);

weft_i_world *weft_i_world_hold(weft_i_world *world);
void weft_i_world_drop(weft_i_world *world);

/* WEFT_OK, or WEFT_ERR_STATE: after weft_finish, in a forked child, and for NULL (a stand-in). */
weft_status weft_i_world_usable(const weft_i_world *world);

/* Whether `rank` can still take part: WEFT_OK, or PEER_DEAD or PEER_LEFT without a message. */
weft_status weft_i_world_fate(const weft_i_world *world, int rank);

/* Is its process stopped, as far as is known?  For messages. */
bool weft_i_world_is_stopped(const weft_i_world *world, int rank);

/* How long a wait may take until it is told of, in ns: `begin` is kept for the caller, 0 before the
 * first look.  True once. */
static inline bool weft_i_world_is_late(const weft_i_world *world, int64_t *begin, int64_t now)
{
    WEFT_ASSERT(*begin >= -1);
    if (*begin == 0)
        *begin = now;
    if (*begin < 0 || now - *begin < world->warn_ns)
        return false;
    *begin = -1; /* told */
    return true;
}

/* The same with a message that starts with `what`. */
weft_status weft_i_world_lost(const weft_i_world *world, int rank, const char *what);

/* "rank 3 (stopped ...; its last operation: ...)" for messages. */
void weft_i_world_describe(const weft_i_world *world, int rank, char *out, size_t bytes);
/* The same behind what the text holds. */
void weft_i_world_put(const weft_i_world *world, int rank, weft_i_text *out);
/* One more of those in a list of them, which begins empty. */
void weft_i_world_list(const weft_i_world *world, int rank, weft_i_text *list);

#endif
