/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of a launch: all ranks started once and seen through to their end.  A restart is
 * another attempt.  Whatever happens, when weft_i_attempt_run returns no process of the attempt is
 * left.
 */
#ifndef WEFT_LAUNCH_ATTEMPT_H
#define WEFT_LAUNCH_ATTEMPT_H

#include "fabric/world/job.h"
#include "launch/cause.h"
#include "launch/host_list.h"
#include "launch/launch_env.h"
#include "launch/lines.h"
#include "launch/stdin.h"
#include "launch/uplink.h"
#include "weft/launch.h"

/* How hard we press the ranks to end.  It only ever grows. */
typedef enum weft_i_press {
    WEFT_I_PRESS_NONE,
    WEFT_I_PRESS_GRACE, /* a rank failed: the others may end by themselves */
    WEFT_I_PRESS_TERM,  /* SIGTERM sent */
    WEFT_I_PRESS_KILL   /* SIGKILL sent */
} weft_i_press;

/* A rank's process. */
typedef struct weft_i_child {
    pid_t process; /* 0: not started */
    int pidfd;     /* -1 once its end is known */
    bool reaped;
    int64_t linger_until; /* after its end: how long what it started may still write to its pipes */
} weft_i_child;

typedef struct weft_i_attempt {
    const weft_launch_opts *opts;
    const sigset_t *mask; /* blocked signals of the ranks */
    int signal_fd;        /* -1: signals are not ours to pass on */
    int restarts;         /* attempts before this one */
    int64_t deadline;     /* of the job */
    int64_t grace_ns;
    weft_i_seating place;          /* of the ranks here among all; no world: they are all */
    weft_i_uplink *uplink;         /* to the launcher that started this one; NULL: none did */
    const weft_i_host_list *hosts; /* where the ranks are; NULL: all here */
    struct weft_i_fleet *fleet;    /* if there are hosts: what reaches them */

    weft_i_segment *job;
    weft_i_launch_env env;
    weft_i_lines lines;
    weft_i_stdin input;
    weft_i_child *children;
    weft_i_ending *endings;
    struct pollfd *fds;
    int null_fd;

    int unreaped, ends; /* children left; endings counted so far */
    weft_i_press press;
    int64_t press_until;
    int64_t wake_at; /* the loop turns at this time, whatever happens */
    bool timed_out;
    bool output_lost; /* after _close: not all of the ranks' output could be written */
    int64_t kills;    /* for want of memory, as the kernel counted them before the ranks started */
    int interrupted;  /* the first signal that asked us to end, 0: none */
    int64_t second_one_kills; /* until then another SIGINT means SIGKILL */
} weft_i_attempt;

/* Takes everything the attempt needs but starts nothing; on failure nothing is held. */
weft_status weft_i_attempt_open(weft_i_attempt *attempt);

/* Starts the ranks and waits for their end.  An error means that they could not be started or
 * watched. */
weft_status weft_i_attempt_run(weft_i_attempt *attempt);

/*
 * Writes out what is left of the output, until a signal says to stop or the job's time is up; then
 * gives everything back.  A reader that does not read gets no more time after either.
 */
void weft_i_attempt_close(weft_i_attempt *attempt);

/* The ranks, wherever they are, get a signal; are pressed to end, ever harder; and what each does is
 * told. */
void weft_i_attempt_signal(weft_i_attempt *attempt, int signal);
void weft_i_attempt_press(weft_i_attempt *attempt, weft_i_press press);
void weft_i_attempt_tell_states(weft_i_attempt *attempt);

/* Signals to the launcher, and what the clock asks of a job wherever its ranks are. */
void weft_i_attempt_take_signals(weft_i_attempt *attempt);
void weft_i_attempt_take_clock(weft_i_attempt *attempt, int64_t now);
bool weft_i_attempt_wants_end(const weft_i_attempt *attempt);
int weft_i_attempt_time_left(const weft_i_attempt *attempt); /* as poll takes it */

/* Writes the traces (WEFT_TRACE) of ranks that could not do it: those that ended in the job. */
void weft_i_attempt_write_traces(weft_i_attempt *attempt);

/* What a rank was doing, from its flight record, oldest first: at most `count` lines; false if there
 * is nothing.  The second tells it on standard error. */
bool weft_i_attempt_record_text(weft_i_attempt *attempt, int rank, size_t count, char *out,
                                size_t bytes);
bool weft_i_attempt_tell_record(weft_i_attempt *attempt, int rank, const char *title, size_t count);

#endif
