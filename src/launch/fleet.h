/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attempt whose ranks are on several hosts: starts a launcher on each through a remote shell,
 * has them meet, and sees them through to their end.  What is told of it is told by launch.c, as of
 * ranks that are here.
 */
#ifndef WEFT_LAUNCH_FLEET_H
#define WEFT_LAUNCH_FLEET_H

#include "launch/attempt.h"
#include "launch/far_host.h"

typedef struct weft_i_fleet {
    weft_i_attempt *attempt;
    weft_i_host_list hosts; /* the caller's */
    weft_i_far_host *far;   /* one a host */
    char **records;         /* what each rank did last; NULL: nothing is known */
    int64_t *ended_at;      /* when each rank ended, by our clock; 0: it has not */
    struct pollfd *fds;
    size_t *ends; /* where the entries of each host begin, and the last end */
    int64_t start_by, silence_ns;
    bool runs, asked; /* all were told to start; rank 0 wants input */
    int lost;         /* the host that was lost first, -1: none */
    int64_t lost_at;
    char loss[768];    /* how */
    weft_status fault; /* why the ranks could not be started; its message is `loss` */
} weft_i_fleet;

/* As the parts of weft_i_attempt of the same name; _open fills `attempt->fleet` and its lines. */
weft_status weft_i_fleet_open(weft_i_attempt *attempt);
weft_status weft_i_fleet_start(weft_i_fleet *fleet);
weft_status weft_i_fleet_turn(weft_i_fleet *fleet);
int64_t weft_i_fleet_due(const weft_i_fleet *fleet);
void weft_i_fleet_signal(weft_i_fleet *fleet, int signal);
void weft_i_fleet_press(weft_i_fleet *fleet, weft_i_press press);
void weft_i_fleet_ask_states(weft_i_fleet *fleet);
void weft_i_fleet_kill(weft_i_fleet *fleet);
void weft_i_fleet_close(weft_i_fleet *fleet); /* NULL: nothing */

bool weft_i_fleet_record_text(const weft_i_fleet *fleet, int rank, char *out, size_t bytes);

/* Puts the ends of the ranks in the order in which they came, by one clock. */
void weft_i_fleet_sort_ends(weft_i_fleet *fleet);

/* Was a host lost before rank `first` (-1: none) failed? */
bool weft_i_fleet_lost_before(const weft_i_fleet *fleet, int first);

/* "host b (ranks 4-7)". */
void weft_i_fleet_host_text(const weft_i_fleet *fleet, int host, char *out, size_t bytes);

/* What a host says, and what follows from the clock and the state of all hosts: fleet_hear.c. */
weft_status weft_i_fleet_hear(weft_i_fleet *fleet, weft_i_far_host *far);
void weft_i_fleet_lose(weft_i_fleet *fleet, weft_i_far_host *far, weft_status status,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));
void weft_i_fleet_advance(weft_i_fleet *fleet);

#endif
