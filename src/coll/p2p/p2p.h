/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point from the inside: a send or receive is a request, requests that are posted together
 * a bundle, and what a rank knows of the requests and rings between it and the others its p2p.
 * p2p.c has the requests' lives, p2p_send.c and p2p_recv.c move their bytes, p2p_call.c has the
 * public functions.
 */
#ifndef WEFT_COLL_P2P_H
#define WEFT_COLL_P2P_H

#include "base/os/assert.h"
#include "coll/lane/call.h"
#include "weft/p2p.h"

typedef struct weft_i_bundle weft_i_bundle;

struct weft_i_p2p_request {
    weft_group *group;
    weft_i_lane *lane;
    weft_i_coll_kind kind; /* WEFT_I_SEND or WEFT_I_RECV */
    weft_dtype dtype;
    weft_device device;
    int peer;   /* WEFT_ANY: the first that comes */
    int op;     /* its number in a batch */
    int source; /* of a receive that has met its message; -1 */
    int tag;
    uint32_t digest; /* of dtype and count: the same at both ends */
    char *data;
    size_t bytes, done;
    weft_tensor *tensor; /* held while posted */
    int64_t limit_ms;
    int64_t deadline;       /* of work that nobody waits for any more; 0: somebody may */
    uint64_t order;         /* of posting */
    uint32_t rts;           /* its number in the ring */
    bool rts_sent;          /* a send: its RTS stands */
    bool doomed;            /* found hopeless; ends unless it arrives now */
    bool begun;             /* bytes have moved, and the peer counts on the others */
    _Atomic int32_t status; /* WEFT_IN_PROGRESS until it is over: release by whoever ends it,
                               acquire by whoever waits for it */
    char *message;          /* why it failed; NULL: no memory for it */
    weft_i_bundle *bundle;
    weft_i_p2p_request *next;
};

/* Requests posted together; one handle is about them all. */
struct weft_i_bundle {
    weft_i_object *owner; /* posted work, held while requests are under way; NULL: on a stack */
    int count, left;      /* requests; those under way, guarded by the lock of requests */
    weft_i_p2p_request *requests;
    weft_i_bundle *next; /* among those whose end is to be told, and orphans */
    weft_work_done
        on_done; /* told of the end, once; NULL: nobody.  Guarded by the lock of requests,
                               of collectives by their queue's */
    void *argument;
};

/* A message that came before its receive and had to make way for another. */
typedef struct weft_i_kept {
    struct weft_i_kept *next;
    uint64_t bytes, done;
    uint32_t digest;
    int tag;
    bool rts_sent;
    weft_i_ring_piece rts; /* where it lies, if an RTS was sent */
    char data[];
} weft_i_kept;

/* A member on another host: p2p_remote.c. */
typedef struct weft_i_p2p_far weft_i_p2p_far;

/* What this rank knows of one other: guarded by the lock of requests. */
typedef struct weft_i_p2p_peer {
    int rank;
    bool busy; /* in the list of peers with requests */
    struct weft_i_p2p_peer *next_busy;
    weft_i_p2p_far *far; /* NULL: on this host, where it has the ring's other end */
    /* out: */
    weft_i_ring *out_ring;
    uint32_t sent, gone;              /* slots; those known to be taken */
    uint64_t used, freed;             /* bytes of the room, ever */
    uint64_t ends[WEFT_I_RING_SLOTS]; /* of the room used by each slot and those before */
    weft_i_p2p_request *sends, **last_send;
    weft_i_p2p_request *rts[WEFT_I_RING_RTS_MAX];
    int rts_count;
    /* in: */
    weft_i_ring *in_ring;
    _Atomic uint32_t taken; /* slots; relaxed: written under the lock, a hint without it */
    weft_i_p2p_request *receives, **last_receive; /* that wait for a message of this peer */
    weft_i_p2p_request *taking;     /* has met its message, which is not all there yet */
    weft_i_kept *kept, **last_kept; /* messages, oldest first */
    weft_i_kept *keeping;           /* the last of them is not all there yet */
    bool broken;                    /* a message was refused or given up: no more */
} weft_i_p2p_peer;

typedef struct weft_i_p2p {
    size_t room; /* of each ring */
    struct weft_i_hosts
        *hosts; /* of a group that spans some, once this is open; NULL: it does not */
    uint64_t posted;
    atomic_int under_way; /* requests; relaxed: written under the lock, a hint without it */
    atomic_int waiters;   /* threads that wait for requests; relaxed, as above */
    atomic_int in_vain;   /* waits in a row for which looking for long did not help: p2p.c */
    weft_i_p2p_request *any, **last_any; /* receives from whoever comes first */
    int turn;                            /* whose messages they look at first */
    weft_i_p2p_peer *busy;               /* peers with requests */
    _Atomic(weft_i_bundle *) orphans;    /* over, and held by nobody else or to be told; relaxed */
    weft_i_p2p_peer pairs[];
} weft_i_p2p;

/*
 * The lock of requests.  Not a mutex: giving it back is a plain store, which does not wait until
 * what we have just written has reached the other core.
 */
void weft_i_p2p_lock_slowly(weft_i_lane *lane);

static inline bool weft_i_p2p_try_lock(weft_i_lane *lane)
{
    /* Pairs with the release in weft_i_p2p_unlock. */
    return !atomic_exchange_explicit(&lane->p2p_lock, true, memory_order_acquire);
}

static inline void weft_i_p2p_lock(weft_i_lane *lane)
{
    if (!weft_i_p2p_try_lock(lane))
        weft_i_p2p_lock_slowly(lane);
}

static inline void weft_i_p2p_unlock(weft_i_lane *lane)
{
    WEFT_ASSERT(atomic_load_explicit(&lane->p2p_lock, memory_order_relaxed)); /* ours */
    /* Pairs with the acquire in weft_i_p2p_try_lock. */
    atomic_store_explicit(&lane->p2p_lock, false, memory_order_release);
}

/* How it stands.  After WEFT_OK the bytes received are seen. */
static inline weft_status weft_i_p2p_request_status(const weft_i_p2p_request *request)
{
    /* Pairs with the release in weft_i_p2p_request_end. */
    return (weft_status)atomic_load_explicit(&request->status, memory_order_acquire);
}

/* The request as a call: for messages, and for backends that carry calls themselves. */
weft_i_coll weft_i_p2p_as_coll(const weft_i_p2p_request *request);

/* Has such a backend carry it. */
void weft_i_p2p_request_carry(weft_i_p2p_request *request);

/* The first request that failed; NULL: none has. */
const weft_i_p2p_request *weft_i_bundle_failed(const weft_i_bundle *bundle);

/* ---- under the lock of requests ---- */

/* Tells that a request is over.  It is in no list any more, and if nobody owns it nothing may touch
 * it after this. */
void weft_i_p2p_request_end(weft_i_p2p_request *request, weft_status status);

/* The same with the thread's last error. */
void weft_i_p2p_request_end_failed(weft_i_p2p_request *request);

/* Wakes `rank`, which may sleep for something we did. */
void weft_i_p2p_wake(const weft_i_lane *lane, int rank);

/* Moves the sends to a peer, and the messages from it, as far as they go. */
void weft_i_p2p_send(weft_i_lane *lane, weft_i_p2p_peer *pair);
void weft_i_p2p_receive(weft_i_lane *lane, weft_i_p2p_peer *pair);

/* A receive takes the oldest message that was kept for it, if there is one. */
bool weft_i_p2p_take_kept(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request);

/* Takes an RTS back: nobody reads the request's memory after this.  False: it was taken before. */
bool weft_i_p2p_withdraw(const weft_i_lane *lane, weft_i_p2p_peer *pair,
                         const weft_i_p2p_request *request);

static inline uint32_t weft_i_p2p_taken(const weft_i_p2p_peer *pair)
{
    /* Relaxed: under the lock, or a hint. */
    return atomic_load_explicit(&pair->taken, memory_order_relaxed);
}

/* Lists of requests, oldest first. */
static inline void weft_i_p2p_request_append(weft_i_p2p_request ***last,
                                             weft_i_p2p_request *request)
{
    WEFT_ASSERT(!**last); /* the end of the list */
    request->next = NULL;
    **last = request;
    *last = &request->next;
}

static inline void weft_i_p2p_request_remove(weft_i_p2p_request **first, weft_i_p2p_request ***last,
                                             const weft_i_p2p_request *request)
{
    WEFT_ASSERT(request);
    while (*first != request)
        first = &(*first)->next;
    *first = request->next;
    if (!*first)
        *last = first;
}

/* ---- without it ---- */

/* Posts the requests of a bundle whose owner is set, and moves what can be moved. */
void weft_i_bundle_enqueue(weft_i_bundle *bundle);

/* Moves all requests of the lane as far as they go; true if some are still under way.  Any thread
 * of the rank may. */
bool weft_i_p2p_push(weft_i_lane *lane);

/* Are requests under way that no thread waits for? */
bool weft_i_p2p_is_left_alone(const weft_i_lane *lane);

/* Ends posted requests whose peer is lost, and those that nobody waits for and nobody takes. */
void weft_i_p2p_sort_out(weft_i_lane *lane);

/* Tells the end of requests, and drops the owners of those that ended when nobody else held them:
 * perhaps the last references to the group, and so to the lane. */
void weft_i_p2p_sweep(weft_i_lane *lane);

/* WEFT_IN_PROGRESS, or how its requests ended; without a message. */
weft_status weft_i_bundle_status(const weft_i_bundle *bundle);

/*
 * Pushes until all requests are over: WEFT_OK then, also if they failed.  WEFT_ERR_TIMEOUT: some
 * are still under way.
 */
weft_status weft_i_bundle_wait(weft_i_bundle *bundle, int64_t timeout_ms);

/* Ends requests that have not met their counterpart; WEFT_IN_PROGRESS if others are left. */
weft_status weft_i_bundle_cancel(weft_i_bundle *bundle);

/* How requests that are over ended, with the message of the first that failed. */
weft_status weft_i_bundle_outcome(const weft_i_bundle *bundle);

/* The same, and frees the messages of requests that nobody owns. */
weft_status weft_i_bundle_close(const weft_i_bundle *bundle);

/* Opens the group's lane for the requests of a bundle. */
weft_status weft_i_bundle_open_lane(const weft_i_bundle *bundle);

/* The same, and runs requests that nobody owns to their end, in the calling thread. */
weft_status weft_i_bundle_carry(weft_i_bundle *bundle);

/* ---- between hosts: p2p_remote.c ---- */

/* Makes ready for messages between hosts.  Waits for nobody. */
weft_status weft_i_p2p_open_hosts(weft_i_lane *lane, weft_group *group);
void weft_i_p2p_close_hosts(weft_i_p2p *p2p, int size);

/* Where `rank` sleeps; NULL: on another host.  And what is turned while this one waits; NULL: nothing. */
_Atomic uint32_t *weft_i_p2p_bell(const weft_i_lane *lane, int rank);
const weft_i_wheel *weft_i_p2p_wheel(const weft_i_lane *lane);
void weft_i_p2p_drive(const weft_i_lane *lane);

/* Sends the slots that are filled; are there some that could not be sent yet? */
void weft_i_p2p_send_slots(weft_i_p2p_peer *pair);
bool weft_i_p2p_is_behind(const weft_i_p2p_peer *pair);

/* A piece was taken out of the room; the sender is told once it is worth a message. */
void weft_i_p2p_count_piece(weft_i_p2p_peer *pair, size_t bytes);
void weft_i_p2p_tell_taken(const weft_i_lane *lane, weft_i_p2p_peer *pair);
/* As weft_i_ring.refused. */
void weft_i_p2p_tell_refused(const weft_i_p2p_peer *pair, uint64_t wanted);

/* ---- of tensors on a device: p2p_device.c ---- */

static inline bool weft_i_p2p_is_on_host(const weft_i_p2p_request *request)
{
    return weft_i_device_is_host(request->device);
}

/* What goes together is on one device; and on a device a receive names its source. */
weft_status weft_i_p2p_check_devices(const char *op, const weft_i_p2p_request *requests, int count);

/* Gives them to the group's carrier, or moves them through host memory. */
weft_status weft_i_p2p_run_on_device(weft_i_bundle *bundle, uint64_t number);

/* Gives posted ones to the carrier; `*coll` is the call. */
weft_status weft_i_p2p_post_on_device(weft_i_bundle *bundle, weft_i_coll *coll);

#endif
