/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the ranks of a job, on this machine or on several hosts, and watches them until they end.
 * This is what `weft run` does, for programs that launch themselves.  The ranks run a program (argv), or a function in
 * forked children.  See docs/run.md.
 */
#ifndef WEFT_LAUNCH_H
#define WEFT_LAUNCH_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_LAUNCH_SIGNALS = 1,     /* forward SIGINT, SIGTERM ... of this process to the ranks */
    WEFT_LAUNCH_QUIET = 2,       /* do not report failures on standard error */
    WEFT_LAUNCH_NO_PREFIX = 4,   /* lines without the prefix "[rank] " */
    WEFT_LAUNCH_TEE = 8,         /* with log_dir: write output to the terminal as well */
    WEFT_LAUNCH_NO_CAPTURE = 16, /* ranks write directly to this process's standard streams */
    WEFT_LAUNCH_BIND = 32        /* bind each rank to one core, round-robin */
};

enum {
    WEFT_LAUNCH_RANKS_MAX = 1024, /* on a host */
    WEFT_LAUNCH_HOST_LOST = 122,
    WEFT_LAUNCH_OUTPUT_LOST = 123,
    WEFT_LAUNCH_TIMED_OUT = 124
};

/* How a command is run on a host, unless weft_launch_opts say otherwise: %h is the host. */
#define WEFT_LAUNCH_RSH "ssh -x -o BatchMode=yes -o ConnectTimeout=15 %h"

/* How a job ended, for callers that need more than its exit status. */
typedef struct weft_launch_end {
    int first_rank;  /* the rank that failed first, -1 if none did */
    int exit_code;   /* its exit code, -1 if a signal ended it */
    int signal;      /* the signal that ended it, 0 if none */
    int timed_out;   /* 1: the job's deadline passed */
    int interrupted; /* the signal to this process that ended the job, 0 if none */
    int restarts;    /* how often all ranks were restarted */
} weft_launch_end;

typedef struct weft_launch_opts {
    size_t size; /* of this struct: set by WEFT_LAUNCH_OPTS_INIT */
    int ranks;
    unsigned flags;    /* WEFT_LAUNCH_... */
    char *const *argv; /* the program (searched in PATH) and its arguments, NULL at the end; or */
    int (*body)(int rank, void *arg); /* a function, whose result is the rank's exit code */
    void *arg;
    const char *const *env; /* NAME=VALUE to add or replace, NULL at the end; may be NULL */
    const char *log_dir;    /* folder for rank_<r>.out and .err, made if missing, or NULL */
    int64_t timeout_ms;     /* of the whole job; none if negative */
    int max_restarts;       /* how often to start all ranks again after a failure, at most */
    weft_launch_end *end;   /* filled if not NULL */
    /* "a:4,b:4": the hosts and how many ranks each gets, `ranks` where it does not say; or the lines
     * of a hosts file.  NULL: all ranks are here. */
    const char *hosts;
    const char *rsh;  /* what runs a command on a host; NULL: WEFT_LAUNCH_RSH */
    const char *weft; /* the weft command on the hosts; NULL: "weft", from the PATH there */
} weft_launch_opts;

#define WEFT_LAUNCH_OPTS_INIT                                                                  \
    {                                                                                          \
        sizeof(weft_launch_opts), 1, 0, NULL, NULL, NULL, NULL, NULL, -1, 0, NULL, NULL, NULL, \
            NULL                                                                               \
    }

/*
 * Runs the job and returns its exit status: 0; or that of the rank that failed first (128 + the
 * signal if one ended it); 124 if the deadline passed; 123 if all ranks succeeded but some of their
 * output could not be written; 122 if a host, or the way to it, was lost.  A negative result is a weft_status: the job could not be started or
 * watched, and no rank is left.  Blocks until every rank has ended.  Not collective.
 *
 * When a rank fails, the others have WEFT_KILL_GRACE to end by themselves.  Then they get SIGTERM,
 * and later SIGKILL.  Each rank is the leader of its own process group, and dies with the thread
 * that called this function.  With WEFT_LAUNCH_SIGNALS the calling thread blocks the signals
 * meanwhile; other threads of the program must block them too.
 *
 * With `hosts`, `weft run --join` is started on each through the remote shell, and does there what
 * this function does here.  Ranks are then programs; they work in the folder of the caller, with its
 * settings of weft and UCX (WEFT_..., UCX_...), `env`, and else the environment of the remote shell.
 */
WEFT_API int weft_launch(const weft_launch_opts *opts);

/*
 * What `weft run --join` does on a host of a job: starts ranks as the weft_launch that called it
 * through a remote shell tells it on standard input, and answers on standard output.  0 or a
 * weft_status.  Blocks until all ranks of this host have ended, which they do at once if that
 * launcher goes away.  Not collective.
 */
WEFT_API int weft_launch_join(void);

#ifdef __cplusplus
}
#endif

#endif
