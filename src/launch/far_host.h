/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of the hosts of a launch, as the launcher that the user called sees it: the remote shell that
 * runs `weft run --join` there, and what is said through it.
 */
#ifndef WEFT_LAUNCH_FAR_HOST_H
#define WEFT_LAUNCH_FAR_HOST_H

#include "launch/host_list.h"
#include "launch/job_frame.h"
#include "launch/meeting_point.h"

typedef enum weft_i_far_state {
    WEFT_I_FAR_CALLED,  /* the shell runs */
    WEFT_I_FAR_GREETED, /* weft answered */
    WEFT_I_FAR_REACHED, /* it has tried to reach the first host */
    WEFT_I_FAR_RUNS,    /* its ranks may start */
    WEFT_I_FAR_OVER,    /* none of its ranks is left */
    WEFT_I_FAR_LOST     /* it ended, or fell silent, before that */
} weft_i_far_state;

typedef struct weft_i_far_host {
    const weft_i_named_host *host;
    weft_i_far_state state;
    pid_t process;           /* of the shell; 0: not started, or reaped */
    int pidfd, from, errors; /* its end, standard output and error; -1: closed */
    int status;              /* once it has been reaped */
    weft_i_frame_in in;
    weft_i_frame_out orders;
    bool began;              /* frames come; before that a shell may print */
    int64_t heard;           /* when something came */
    int64_t pinged, trip_ns; /* when its clock was asked for; the shortest way there and back */
    int64_t ahead_ns;        /* its clock less ours */
    int64_t end_by;          /* when the shell is ended by force; WEFT_I_NEVER: not at all */
    weft_i_hello_frame hello;
    uint32_t reached;
    char why[WEFT_I_MEETING_WHY];
    struct weft_i_far_line {
        char text[512];
        size_t used;
    } lines[2]; /* of its standard output before weft begins, and of its error: not complete yet */
    char last[512]; /* the last line that says something, rather of the second */
    bool complains; /* and is of the second */
} weft_i_far_host;

/* Starts the shell; `mask` is what its signals are blocked by. */
weft_status weft_i_far_host_start(weft_i_far_host *far, const char *rsh, const char *weft,
                                  const sigset_t *mask);

/* Takes complete lines of what the shell itself says, which is at `bytes`: `say` gets each. */
void weft_i_far_host_hear(weft_i_far_host *far, bool is_error, const char *bytes, size_t count,
                          void (*say)(void *arg, const weft_i_far_host *far, const char *line),
                          void *arg);

/* "ended with exit code 255: Permission denied (publickey)": how the shell ended, and why. */
void weft_i_far_host_text(const weft_i_far_host *far, char *out, size_t bytes);

/* Ends the shell and all in its group, and closes everything. */
void weft_i_far_host_close(weft_i_far_host *far);

#endif
