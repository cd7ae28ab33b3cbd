/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running jobs on this machine, seen from outside: which ranks are alive, what each one is doing,
 * and which ranks it waits for.  `weft info --job` shows all of it.  Looking at a job does not
 * disturb it: the job's shared page is opened read-only.  A job that hangs or is stopped shows as
 * much as one that runs.
 */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A snapshot of a job.  It does not change; take another one to see more. */
typedef struct weft_job weft_job;

typedef struct weft_job_info {
    int process;      /* the process that made the job's page: the launcher, the first rank, or
                         the one whose threads are the ranks */
    int ranks;        /* on this machine */
    int threads;      /* 1: the ranks are threads of `process` */
    char program[64]; /* file name of the ranks' program; empty if unknown */
} weft_job_info;

typedef enum weft_job_state {
    WEFT_JOB_AWAITED, /* has not called weft_init yet, or is in it */
    WEFT_JOB_ALIVE,
    WEFT_JOB_STOPPED, /* by a signal or a debugger */
    WEFT_JOB_SILENT,  /* no sign of life, but not stopped: it gets no processor time */
    WEFT_JOB_LEFT,    /* called weft_finish, or returned from its function */
    WEFT_JOB_FAILED,  /* its weft_init failed */
    WEFT_JOB_DEAD     /* died, or exited without weft_finish */
} weft_job_state;

typedef struct weft_job_op {
    char name[16];    /* "all_reduce"; empty if there is no such operation */
    char group[60];   /* name of its group; empty if unknown */
    char part_of[16]; /* the operation it is a part of, or empty: the first collective of a
                         group, for example, sets up its memory */
    uint64_t number;  /* counts the rank's operations, from 1 */
    uint64_t turn;    /* counts the group's operations, the same on all members, or 0 */
    int on_device;    /* 1: the group's device carries it, which counts its operations apart */
    uint64_t bytes;
    int64_t begun_ns; /* how long ago it began, to about 0.1 s unless WEFT_TRACE is set */
    int peer;         /* the other rank in the group, or -1 */
    int channel;      /* or -1 */
    int status;       /* its weft_status, once it has finished */
} weft_job_op;

typedef struct weft_job_rank {
    int rank;    /* in the world; while awaited, its position on this machine */
    int process; /* 0 while it is awaited */
    weft_job_state state;
    int64_t silent_ns;     /* time since its last sign of life; 0 if the ranks are threads */
    weft_job_op now;       /* its current operation */
    weft_job_op last;      /* the last one it finished */
    uint64_t begun;        /* operations begun so far, their steps counted too */
    int recent;            /* how many of the newest of those were looked at, at most 128 ... */
    int recent_calls;      /* ... how many of them are calls of the program, not steps of one ... */
    uint64_t recent_bytes; /* ... and the bytes of those calls */
} weft_job_rank;

/*
 * Takes a snapshot of every job of this user on this machine, in the order of their processes.
 * Stores the first `room` of them in `out` (owned by the scope) and returns how many there are, or
 * a negative weft_status.  Local; reads /proc.
 */
WEFT_API int weft_job_list(weft_job **out, int room);

/*
 * Takes a snapshot of the job that `process` is a rank of, or has launched.  The scope owns it.
 * Local; reads /proc.  Returns NULL and WEFT_ERR_NOT_FOUND if there is no such job, WEFT_ERR_IO if
 * the process may not be inspected, WEFT_ERR_VERSION if the job runs a version of weft whose page
 * has another layout.
 */
WEFT_API weft_job *weft_job_open(int process);

/* Describes the whole job, or rank `index` of it, from 0 to ranks - 1.  Local.
 * WEFT_ERR_INVALID_ARG if there is no such rank. */
WEFT_API weft_status weft_job_describe(const weft_job *job, weft_job_info *out);
WEFT_API weft_status weft_job_describe_rank(const weft_job *job, int index, weft_job_rank *out);

/*
 * Finds the ranks that rank `index` waits for in its current operation: the members of its group on
 * this machine that have not entered that operation, or the peer.  Stores the first `room` indices
 * in `out` and returns how many there are, or a negative weft_status.  Local.
 */
WEFT_API int weft_job_missing(const weft_job *job, int index, int *out, int room);

/* "alive", "stopped", ... */
WEFT_API const char *weft_job_state_name(weft_job_state state);

#ifdef __cplusplus
}
#endif

#endif
