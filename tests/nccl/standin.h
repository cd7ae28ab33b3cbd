/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnccl.so.2, over the software driver of tests/cuda: the same entry points, which
 * really move bytes between processes and threads, through a file that the ranks of a communicator
 * map.  Collectives run in the order of a stream.
 *
 *     model_install(); standin_install();      from now on dlopen finds both
 *     standin.version = 22700;
 *
 * It checks its caller: communicators are non-blocking, what is in progress must be polled to its
 * end before the next call, windows go before their memory does (standin_live).
 */
#ifndef WEFT_TESTS_NCCL_STANDIN_H
#define WEFT_TESTS_NCCL_STANDIN_H

/* What the next tests want of it.  All ranks of a process may wish the same at once. */
typedef struct standin_wishes {
    _Atomic int no_library;    /* libnccl.so.2 is not found */
    const char *_Atomic lacks; /* a function it does not have */
    _Atomic int version;       /* what it tells; 0: 22907 */
    const char *_Atomic fail;  /* this function fails ... */
    _Atomic int fail_with;     /* ... with this result */
    _Atomic int stuck;         /* what it is given stays in progress for ever */
    _Atomic int held;          /* 1 + the rank whose streams stay in what is done already */
    _Atomic int unread;        /* ncclCommDestroy does not return: a peer does not read */
    _Atomic int apart;         /* ranks do not reach each other's windows */
    _Atomic int error;         /* what ncclCommGetAsyncError tells from now on; 0: the truth */
} standin_wishes;
extern standin_wishes standin;

void standin_install(void);

/* Communicators, allocations and windows that live; 0 when everything was given back. */
int standin_live(void);

/* How often a function was called. */
int standin_calls(const char *name);

/* Groups that had more than one call. */
int standin_groups(void);

#endif
