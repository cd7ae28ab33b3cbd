/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between hosts: the one table through which weft's protocols reach a library that moves bytes between
 * processes.  Backend ucx fills it; tests/transport/double.c fills it within one process, with delays,
 * other orders and losses.  Whatever the protocols promise must hold on both.
 *
 * A wire is what one rank has of it.  Operations return WEFT_OK when they are over, and then `done` is
 * not called; WEFT_IN_PROGRESS when `done` will be, by a later call of `progress`, `drop` or `close`;
 * or an error with a message, and then nothing has happened.  What an operation was given, `sent`
 * included, belongs to the wire until then.
 *
 * Any thread may call, one at a time gets in.  `done`, `on_message` and `on_fault` run in a thread that
 * is inside of such a call.  They may send, stream, expect, put and get; `on_fault` alone may drop; none
 * may close.
 */
#ifndef WEFT_TRANSPORT_TRANSPORT_H
#define WEFT_TRANSPORT_TRANSPORT_H

#include "transport/head.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operation under way.  The caller sets `done`, which may be NULL, and what is below is the wire's. */
typedef struct weft_i_sent {
    void (*done)(struct weft_i_sent *sent, weft_status status);
    struct weft_i_sent *next;
    void *wire;
    int peer;
    int pieces;         /* of a stream: under way */
    bool whole, queued; /* of a stream: nothing is left to submit; it waits for room */
    weft_status status; /* the first error */
    uint64_t tag;
    char *memory;
    size_t bytes, at; /* of a stream: submitted; of an expectation: arrived */
    uint64_t *seen;   /* of an expectation: the pieces that have arrived, a bit each */
    uint64_t few;     /* where `seen` points, if they are few */
    unsigned char head[WEFT_I_HEAD_BYTES];
} weft_i_sent;

enum {
    WEFT_I_TRANSPORT_ADDRESS_BYTES = 1024, /* an address has no more */
    WEFT_I_TRANSPORT_KEY_BYTES = 512       /* nor a key */
};

typedef struct weft_i_transport_opts {
    int rank, ranks;
    const char *interface; /* "eth0" or "eth0,eth1", read by `open` alone; NULL: any */
    /* `head` has WEFT_I_HEAD_BYTES, from anybody who can reach the address: it is to be read with
     * weft_i_head_read.  Both are gone when this returns. */
    void (*on_message)(void *arg, const void *head, const void *data, size_t bytes);
    /* Nothing reaches the peer any more; told once, and only of peers that were written to.  Its
     * operations end at the latest when it is dropped. */
    void (*on_fault)(void *arg, int peer, weft_status why, const char *text);
    void *arg;
} weft_i_transport_opts;

typedef struct weft_i_transport_facts {
    bool rdma;      /* its network moves memory without the target's processor */
    bool cuda;      /* it was built for memory of CUDA devices */
    size_t segment; /* the most data of a message */
} weft_i_transport_facts;

typedef struct weft_i_transport {
    const char *name;

    /* Above 0: usable here, and `reason` says what there is; 0: `reason` says why not. */
    int (*probe)(char *reason, size_t bytes);

    /* A wire that receives messages from now on, from whoever gets to know its address. */
    weft_status (*open)(const weft_i_transport_opts *opts, void **wire);
    /* How many bytes the address has; nothing is written if that is more than `bytes`. */
    size_t (*address)(void *wire, void *out, size_t bytes);
    /* Notes where a peer is, and returns at once: the connection is made when it is first used.  Again
     * after the peer was dropped. */
    weft_status (*connect)(void *wire, int peer, const void *address, size_t bytes);

    /* A message of at most a segment.  Messages to one peer may overtake each other (order.h). */
    weft_status (*send)(void *wire, int peer, const weft_i_head *head, const void *data,
                        size_t bytes, weft_i_sent *sent);

    /*
     * Data of any size into memory that waits for it.  `expect` comes first: a rank that expects tells
     * the other, which then streams.  What nobody expects is dropped and counted.  No two operations
     * under way between two ranks have one tag; tags are made so that a stranger cannot guess them.
     * Another size than was expected is WEFT_ERR_MISMATCH at the receiver.
     */
    weft_status (*expect)(void *wire, int peer, uint64_t tag, void *to, size_t bytes,
                          weft_i_sent *sent);
    weft_status (*stream)(void *wire, int peer, uint64_t tag, const void *from, size_t bytes,
                          weft_i_sent *sent);

    /*
     * One-sided transfers.  `map` opens memory to whoever has its key (of at most
     * WEFT_I_TRANSPORT_KEY_BYTES); `reach` makes of a peer's key what `put` and `get` take, until
     * `leave`, or until the peer is dropped.  Offsets are checked against the size that was mapped.  A
     * put that is over may not have arrived: `flush` is over when all before it have.
     */
    weft_status (*map)(void *wire, void *base, size_t bytes, void *key, size_t *key_bytes,
                       void **mapped);
    void (*unmap)(void *wire, void *mapped);
    weft_status (*reach)(void *wire, int peer, const void *key, size_t key_bytes, void **far);
    void (*leave)(void *wire, void *far);
    weft_status (*put)(void *wire, void *far, size_t at, const void *from, size_t bytes,
                       weft_i_sent *sent);
    weft_status (*get)(void *wire, void *far, size_t at, void *to, size_t bytes, weft_i_sent *sent);
    weft_status (*flush)(void *wire, int peer, weft_i_sent *sent);

    /* By force: every operation with the peer ends now, and none of them writes to anybody's memory
     * afterwards. */
    void (*drop)(void *wire, int peer);

    /* Moves what is under way; how much has happened, and 0 also if another thread is at it. */
    int (*progress)(void *wire);
    /* A descriptor that has something to read when `progress` is due, after `arm` said true; -1: none.
     * False: something is there already, or another thread is inside. */
    int (*door)(void *wire);
    bool (*arm)(void *wire);

    void (*facts)(void *wire, weft_i_transport_facts *out);
    /* How many messages and pieces nobody wanted. */
    uint64_t (*strays)(void *wire);
    /* Drops all peers.  No other thread is inside, and none comes. */
    void (*close)(void *wire);
} weft_i_transport;

static inline void weft_i_sent_end(weft_i_sent *sent, weft_status status)
{
    if (sent->done)
        sent->done(sent, status);
}

#endif
