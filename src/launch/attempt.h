/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of a launch: all ranks started once and seen through to their end.  A restart is
 * another attempt.  Whatever happens, when weft_i_attempt_run returns no process of the attempt is
 * left.
 */
#ifndef WEFT_LAUNCH_ATTEMPT_H
#define WEFT_LAUNCH_ATTEMPT_H

#include "fabric/job.h"
#include "launch/cause.h"
#include "launch/launch_env.h"
#include "launch/lines.h"
#include "launch/stdin.h"
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

/* Writes the traces (WEFT_TRACE) of ranks that could not do it: those that ended in the job. */
void weft_i_attempt_write_traces(weft_i_attempt *attempt);

/* What a rank was doing, from its flight record: at most `count` lines to standard error. */
void weft_i_attempt_tell_record(weft_i_attempt *attempt, int rank, size_t count);

#endif
