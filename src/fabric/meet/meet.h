/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting, in parts: where this rank stands (start.c), and meeting through a store
 * (meet_store.c). */
#ifndef WEFT_FABRIC_MEET_H
#define WEFT_FABRIC_MEET_H

#include "fabric/group/group.h"

/* What a launcher told this rank. */
typedef struct weft_i_start {
    const char *launcher; /* "weft run", "torchrun", ... ; NULL: none, the rank is alone */
    int rank, size;
    int local_rank, local_size; /* -1: not told */
    int hosts;                  /* of `weft run`; 0: not told */
    bool by_parent;             /* nothing but its parent process names its job */
    bool by_hand;               /* by a user who has set torchrun's variables */
    char master
        [256]; /* where rank 0 is, by a launcher that does not say it in MASTER_ADDR; else empty */
    int master_port;
    int job_fd;           /* inherited job page, or -1 */
    weft_i_segment *page; /* that page if the ranks of this host share it, and others are on
                                 * other hosts; else NULL */
    char job[128]; /* a name that all ranks of this job, and no other job of this user, know */
} weft_i_start;

/* Reads the variables of the known launchers, the nearest one first. */
weft_status weft_i_start_read(weft_i_start *out);

/* Has `look` called by every weft_init that has found its peers, to say what is wrong with settings
 * that only a higher floor can read.  There are few such functions, set before main. */
void weft_i_meet_then(void (*look)(void));

/* Meets through a store: addresses are exchanged, ranks of one host share a job page made by the
 * first of them. */
weft_status weft_i_meet_by_store(const weft_i_start *start, weft_i_world *world, weft_store *store,
                                 int64_t deadline);

/* Ranks on several hosts open wires to each other (fabric/world/remote.h), all of them or none. */
weft_status weft_i_meet_wires(weft_i_world *world, weft_store *store, int64_t deadline);

/* Compares the clock of this host with that of the store's server, for traces: nothing is lost if that
 * fails.  For at most a moment. */
void weft_i_meet_clock(weft_i_world *world);

/* Between slices of the wait for all: has a rank failed, or gone?  PEER_LEFT or PEER_DEAD. */
weft_status weft_i_meet_check(weft_i_world *world);

/* Whoever serves the store of a meeting that fails stays a moment, so that the others learn why from
 * their own addresses and not from a store that is gone. */
void weft_i_meet_see_others_off(weft_store *store, int64_t deadline);

/* The names, one after the other, under which ranks of one host may meet. */
enum { WEFT_I_MEET_NAME = 64, WEFT_I_MEET_NAMES = 64 };
void weft_i_meet_local_name(const weft_i_start *start, int number, char out[WEFT_I_MEET_NAME]);

/* Finds or makes the store of a job started by somebody else's launcher. */
weft_status weft_i_meet_find_store(const weft_i_start *start, int64_t deadline, weft_store **out);

#endif
