/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators: one of NCCL's for a group, non-blocking, made through the group's own exchange.
 *
 * NCCL knows no deadline and hangs when a rank is lost.  So the sentry looks after each communicator:
 * when a rank has died, the group has ended, NCCL tells of an error, or a call's limit has passed,
 * the communicator gets a verdict and is aborted, which ends its kernels and every call on it.
 */
#ifndef WEFT_NCCL_COMM_H
#define WEFT_NCCL_COMM_H

#include "backends/cuda/device/device.h"
#include "base/share/latch.h"
#include "base/share/wait.h"
#include "library.h"
#include "symm/backend.h"
#include "symm/sentry.h"

typedef struct weft_i_nccl_comm {
    /* What a call looks at, in as few cache lines as it can be: */
    weft_i_cuda_device *device;
    weft_i_post *post;
    atomic_int fate;               /* the verdict; see below */
    unsigned last_number;          /* of `last`, which may go, and another come at its address */
    atomic_uint_least64_t streams; /* a bit for each that carried its work; relaxed, as in team.h */

    /* Guards what follows up to the verdict, and each call of NCCL on `raw`; none of them blocks. */
    weft_i_latch lock;
    weft_i_nccl_raw raw; /* NULL: it has a verdict, or the rank has left */
    const char *op;      /* of the last call */
    weft_i_cuda_stream *last;
    bool inside;   /* a call is being made */
    bool enqueues; /* ... which gives something to a stream */
    uint64_t given, marked, reached;
    int64_t due, marked_due; /* deadlines of what is beyond the mark, and of what is before it */
    weft_i_cuda_mark mark;
    weft_i_nccl_raw doomed; /* of windows: what is still to be aborted */
    uint64_t needed;        /* of each member, by what waits here; the sentry's own */
    bool finalized;         /* nothing is under way any more, and nothing can be given to it */
    int64_t failing_since;  /* NCCL has told of an error whose cause may be a rank's death */

    /* The verdict.  `fate` is stored with release when the others are there; acquire in check. */
    int lost;                  /* the rank it is about; -1: none */
    weft_i_nccl_result result; /* what NCCL told; success if it was not asked */
    const char *late;          /* the call whose limit passed; NULL: none */
    atomic_bool told;          /* who waited for a stream knows already; relaxed */

    weft_i_wait_mode mode; /* of the wait until NCCL has enqueued a call */
    bool has_windows;      /* it is for windows */
    int rank, size;
    weft_i_key group, token;       /* the token is this communicator's own, equal on all members */
    struct weft_i_nccl_comm *next; /* of the process */
    int references;                /* under the lock of the list */
    struct weft_i_nccl_window_of *windows; /* under the lock of window.c */
    uint32_t registered;                   /* how many there have been */
} weft_i_nccl_comm;

/*
 * What a communicator is for.  Collectives and windows have one each: to end kernels of NCCL's that
 * hang, the first is aborted at once; but that would unmap windows under kernels of weft's.  So the
 * second, which never runs a kernel, is aborted when nothing uses its windows any more.
 */
typedef enum weft_i_nccl_use { WEFT_I_NCCL_COLLECTIVES, WEFT_I_NCCL_WINDOWS } weft_i_nccl_use;

/*
 * The group's communicator on this rank's device, made if there is none.  Collective over the
 * circle: all have it, or nobody; WEFT_ERR_UNSUPPORTED with the reason where NCCL cannot serve the
 * group.  Held for the caller.
 */
weft_status weft_i_nccl_comm_open(const weft_i_circle *circle, weft_i_nccl_use use,
                                  weft_i_nccl_comm **out);

void weft_i_nccl_comm_hold(weft_i_nccl_comm *comm);

/* Drops it.  With the last holder it goes: what is under way may take CLOSE_MS, then it is aborted.
 */
void weft_i_nccl_comm_close(weft_i_nccl_comm *comm);

/* The verdict: WEFT_OK, or why nothing works on it any more, with who and where. */
weft_status weft_i_nccl_comm_check(weft_i_nccl_comm *comm);

/* The same, after NCCL was asked: what has ended on a stream may have failed just now. */
weft_status weft_i_nccl_comm_ask(weft_i_nccl_comm *comm);

/*
 * Before and after calls of NCCL on `comm->raw`.  Between them the lock is held.  `leave` gives back
 * the lock and waits until NCCL has enqueued what it was given, at most until the limit;
 * `result` is what the calls gave.  Without a stream, a call of the host alone.
 */
weft_status weft_i_nccl_comm_enter(weft_i_nccl_comm *comm, weft_i_cuda_stream *stream,
                                   const char *op);
weft_status weft_i_nccl_comm_leave(weft_i_nccl_comm *comm, weft_i_nccl_result result,
                                   int64_t limit_ms);
/* As `enter`, by a thread that uses the device already (weft_i_cuda_is_used). */
weft_status weft_i_nccl_comm_take(weft_i_nccl_comm *comm, weft_i_cuda_stream *stream,
                                  const char *op);

/* ---- for watch.c, ending.c and comm.c ---- */

/* The first verdict stands.  Aborts the communicator, by a thread of its own. */
void weft_i_nccl_condemn(weft_i_nccl_comm *comm, weft_status status, int rank,
                         weft_i_nccl_result result, const char *late);

/* Aborts what is not a group's communicator yet, or no longer. */
void weft_i_nccl_abort(weft_i_nccl_comm *comm, weft_i_nccl_raw raw);

/* Destroys what has been finalized, and waits for that until `deadline`: NCCL may still have to send
 * what a peer has not received yet. */
void weft_i_nccl_destroy(weft_i_nccl_comm *comm, weft_i_nccl_raw raw, int64_t deadline);

weft_status weft_i_nccl_watch(const weft_i_circle *circle, weft_i_nccl_comm *comm);

/* How many aborts are under way, and how many calls this process's communicators were given.  For
 * tests. */
int weft_i_nccl_aborting(void);
uint64_t weft_i_nccl_given(void);

#endif
