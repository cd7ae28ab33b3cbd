/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running jobs of this machine, looked at from outside: which ranks live, what each is doing, and
 * whom it waits for.  `weft info --job` shows all of it.  To look disturbs nobody: the job's shared
 * page is opened read-only, and a job that hangs, or is stopped, shows as much as one that runs.
 */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one look at a job saw.  It does not change; look again to see more. */
typedef struct weft_job weft_job;

typedef struct weft_job_info {
    int process;      /* made the job's page: its launcher, its first rank, or the one in whose
                         threads the ranks run */
    int ranks;        /* on this machine */
    int threads;      /* 1: the ranks are threads of `process` */
    char program[64]; /* file name of the ranks' program; empty if it cannot be told */
} weft_job_info;

typedef enum weft_job_state {
    WEFT_JOB_AWAITED, /* has not called weft_init yet, or is in it */
    WEFT_JOB_ALIVE,
    WEFT_JOB_STOPPED, /* by a signal or a debugger */
    WEFT_JOB_SILENT,  /* gives no sign of life, but is not stopped: it gets no processor time */
    WEFT_JOB_LEFT,    /* weft_finish, or returned from its function */
    WEFT_JOB_FAILED,  /* its weft_init failed */
    WEFT_JOB_DEAD     /* died, or exited without weft_finish */
} weft_job_state;

typedef struct weft_job_op {
    char name[16];    /* "all_reduce"; empty: there is no such operation */
    char group[60];   /* name of its group; empty if it cannot be told */
    char part_of[16]; /* the operation it is a part of: a collective's first use of a group makes
                         memory for it; empty: none */
    uint64_t number;  /* of the rank's operations so far, from 1 */
    uint64_t turn;    /* of the group's, as all its members count them; 0: not counted */
    uint64_t bytes;
    int64_t begun_ns; /* how long ago it began, to about 0.1 s unless WEFT_TRACE is set */
    int peer;         /* rank in the group it deals with; -1: none */
    int channel;      /* -1: none */
    int status;       /* once it has finished: its weft_status */
} weft_job_op;

typedef struct weft_job_rank {
    int rank;    /* in the world; its place on this machine as long as it is awaited */
    int process; /* 0 as long as it is awaited */
    weft_job_state state;
    int64_t silent_ns; /* since its last sign of life; 0 where ranks are threads */
    weft_job_op now;   /* the operation it is in */
    weft_job_op last;  /* the last one that it finished */
} weft_job_rank;

/*
 * Looks at every job of this user on this machine, in the order of their processes.  Stores the
 * first `room` in `out` (owned by the scope) and returns how many there are, or a negative
 * weft_status.  Local; reads /proc.
 */
WEFT_API int weft_job_list(weft_job **out, int room);

/*
 * Looks at the job that `process` is a rank of, or has launched.  Owned by the scope.  Local; reads
 * /proc.  NULL and WEFT_ERR_NOT_FOUND if there is none, WEFT_ERR_IO if the process may not be
 * looked at, WEFT_ERR_VERSION if the job runs another weft whose page has another layout.
 */
WEFT_API weft_job *weft_job_open(int process);

/* Fills `out` with what is known of the whole job; of rank `index`, 0 to ranks - 1.  Local.
 * WEFT_ERR_INVALID_ARG if there is no such rank. */
WEFT_API weft_status weft_job_describe(const weft_job *job, weft_job_info *out);
WEFT_API weft_status weft_job_describe_rank(const weft_job *job, int index, weft_job_rank *out);

/*
 * Whom rank `index` waits for in the operation it is in: those of its group, on this machine, that
 * have not entered that operation, or the peer.  Stores the first `room` indices in `out` and
 * returns how many there are, or a negative weft_status.  Local.
 */
WEFT_API int weft_job_missing(const weft_job *job, int index, int *out, int room);

/* "alive", "stopped", ... */
WEFT_API const char *weft_job_state_name(weft_job_state state);

#ifdef __cplusplus
}
#endif

#endif
