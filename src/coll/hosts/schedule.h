/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules: which host exchanges what with which other one, step by step, as plain numbers.
 *
 * All reduce goes by recursive doubling.  Hosts that are neighbours join their partials first, so
 * the sum is the tree of kernels/fold/fold_hosts.h, and the same on all hosts.  With a number of
 * hosts that is no power of two, the second of each of the first pairs gives its partial to the
 * first one and gets the result at the end.
 *
 * A broadcast goes down a binomial tree from the root's host.
 */
#ifndef WEFT_COLL_SCHEDULE_H
#define WEFT_COLL_SCHEDULE_H

#include <stdbool.h>

typedef enum weft_i_step_act {
    WEFT_I_STEP_GIVE, /* what is here to the peer */
    WEFT_I_STEP_TAKE, /* what the peer has, in the place of what is here */
    WEFT_I_STEP_JOIN, /* what the peer has, to what is here */
    WEFT_I_STEP_SWAP  /* gives and joins at the same time */
} weft_i_step_act;

typedef struct weft_i_step {
    weft_i_step_act act;
    int peer;   /* a host */
    bool first; /* of two that are joined, what is here is the first */
} weft_i_step;

enum { WEFT_I_STEPS = 34 }; /* no schedule has more */

/* What host `me` of `hosts` does; returns the number of steps. */
int weft_i_schedule_all_reduce(int hosts, int me, weft_i_step steps[WEFT_I_STEPS]);

/* The same where the result is only needed on host `root`: that of all others is not complete. */
int weft_i_schedule_reduce(int hosts, int me, int root, weft_i_step steps[WEFT_I_STEPS]);

int weft_i_schedule_broadcast(int hosts, int me, int root, weft_i_step steps[WEFT_I_STEPS]);

#endif
