/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's wire over UCX: one library object ("context") and worker, and an endpoint for each peer that
 * was ever written to.  One lock around all of it, since the worker serves one thread at a time; it is
 * recursive, because what UCX calls back may send.
 */
#ifndef WEFT_UCX_WIRE_H
#define WEFT_UCX_WIRE_H

#include "library.h"

#include "transport/piece.h"
#include "transport/transport.h"

#include <pthread.h>

enum {
    WEFT_I_UCX_MESSAGE = 1, /* ids of active messages */
    WEFT_I_UCX_PIECE = 2,
    WEFT_I_UCX_PIECES = 64,        /* under way, of all streams */
    WEFT_I_UCX_STREAM_PIECES = 16, /* of one */
    WEFT_I_UCX_ADDRESS_HEAD = 8    /* before UCX's own address and keys */
};

typedef enum weft_i_ucx_life {
    WEFT_I_UCX_UNKNOWN, /* no address yet, or dropped */
    WEFT_I_UCX_KNOWN,
    WEFT_I_UCX_USED,  /* has an endpoint */
    WEFT_I_UCX_FAULTY /* UCX has given it up; its endpoint is still there */
} weft_i_ucx_life;

typedef struct weft_i_ucx_peer {
    weft_i_ucp_ep ep;
    void *address; /* UCX's part */
    weft_i_ucx_life life;
    bool told;               /* on_fault was called */
    weft_i_ucs_status fault; /* why */
    int under_way;           /* requests of UCX */
    struct weft_i_ucx_wire *wire;
} weft_i_ucx_peer;

/* One piece of a stream, as UCX needs it until it is gone. */
typedef struct weft_i_ucx_slice {
    struct weft_i_ucx_slice *next; /* free */
    struct weft_i_ucx_wire *wire;
    weft_i_sent *stream;
    unsigned char head[WEFT_I_PIECE_HEAD_BYTES];
} weft_i_ucx_slice;

typedef struct weft_i_ucx_far {
    struct weft_i_ucx_far *next, **before;
    weft_i_ucp_rkey key; /* NULL: its peer was dropped */
    int peer;
    uint64_t base;
    size_t bytes;
} weft_i_ucx_far;

typedef struct weft_i_ucx_wire {
    const weft_i_ucx *ucx;
    weft_i_transport_opts opts;
    pthread_mutex_t lock;
    weft_i_ucp_library library;
    weft_i_ucp_worker worker;
    int door, closing; /* endpoints */
    bool rdma, cuda;
    bool shown;  /* somebody may know its address */
    bool faults; /* there are some to tell */
    bool inside; /* of UCX's progress, which must not be entered twice */
    uint64_t strays;
    weft_i_expected expected;
    weft_i_sent *streams; /* with bytes that are not submitted yet, the oldest first */
    weft_i_ucx_slice *free;
    weft_i_ucx_far *far;
    struct weft_i_ucx_wire *next; /* among those at rest (transport.c) */
    int64_t rested_at;
    unsigned generation; /* of forks */
    void *mine;          /* the address */
    size_t mine_bytes;
    weft_i_ucx_slice slices[WEFT_I_UCX_PIECES];
    weft_i_ucx_peer peers[];
} weft_i_ucx_wire;

static inline void weft_i_ucx_enter(weft_i_ucx_wire *wire)
{
    pthread_mutex_lock(&wire->lock);
}

static inline void weft_i_ucx_leave(weft_i_ucx_wire *wire)
{
    pthread_mutex_unlock(&wire->lock);
}

/* peers.c: a peer that can be written to, with an endpoint. */
weft_status weft_i_ucx_peer_of(weft_i_ucx_wire *wire, int rank, weft_i_ucx_peer **out);
size_t weft_i_ucx_address(void *wire, void *out, size_t bytes);
weft_status weft_i_ucx_connect(void *wire, int rank, const void *address, size_t bytes);
void weft_i_ucx_drop(void *wire, int rank);
/* Tells the faults that UCX has reported. */
int weft_i_ucx_tell_faults(weft_i_ucx_wire *wire);

/* Parameters that let `call` know what became of `user`. */
weft_i_ucp_request_params weft_i_ucx_told(void (*call)(void *, weft_i_ucs_status, void *),
                                          void *user);
/* What a call of UCX for `sent` has given, as a status of the table. */
weft_status weft_i_ucx_begun(weft_i_ucx_wire *wire, int rank, const void *result, const char *what);
/* The `call` of those that a weft_i_sent stands for. */
void weft_i_ucx_ended(void *request, weft_i_ucs_status status, void *sent);

/* moves.c */
weft_status weft_i_ucx_listen(weft_i_ucx_wire *wire);
weft_status weft_i_ucx_send(void *wire, int peer, const weft_i_head *head, const void *data,
                            size_t bytes, weft_i_sent *sent);
weft_status weft_i_ucx_expect(void *wire, int peer, uint64_t tag, void *to, size_t bytes,
                              weft_i_sent *sent);
weft_status weft_i_ucx_stream(void *wire, int peer, uint64_t tag, const void *from, size_t bytes,
                              weft_i_sent *sent);
/* Submits pieces of streams while there is room. */
int weft_i_ucx_pump(weft_i_ucx_wire *wire);
/* Ends the streams to a peer, and what is expected of it. */
void weft_i_ucx_abandon(weft_i_ucx_wire *wire, int peer);

/* far.c */
weft_status weft_i_ucx_map(void *wire, void *base, size_t bytes, void *key, size_t *key_bytes,
                           void **mapped);
void weft_i_ucx_unmap(void *wire, void *mapped);
weft_status weft_i_ucx_far_reach(void *wire, int peer, const void *key, size_t key_bytes,
                                 void **far);
void weft_i_ucx_far_leave(void *wire, void *far);
weft_status weft_i_ucx_put(void *wire, void *far, size_t at, const void *from, size_t bytes,
                           weft_i_sent *sent);
weft_status weft_i_ucx_get(void *wire, void *far, size_t at, void *to, size_t bytes,
                           weft_i_sent *sent);
weft_status weft_i_ucx_flush(void *wire, int peer, weft_i_sent *sent);
/* A peer is dropped: its keys are of no use any more. */
void weft_i_ucx_far_forget(weft_i_ucx_wire *wire, int peer);

extern const weft_i_transport weft_i_ucx_transport;

#endif
