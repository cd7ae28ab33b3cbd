/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection as the server sees it: a stranger until it has shown the token, then a client with
 * requests that wait and queue elements on their way to it.  Runs in the server's thread only.
 */
#ifndef WEFT_STORE_PEER_H
#define WEFT_STORE_PEER_H

#include "store/link.h"
#include "store/map.h"
#include "store/server.h"

#include <pthread.h>

enum {
    WEFT_I_STORE_UNSENT = 64 * 1024 * 1024, /* of all peers: above it those rest that have not
                                                    read all of theirs */
    WEFT_I_STORE_UNSENT_ALL =
        256 * 1024 * 1024,                     /* above it no request is answered until it drains */
    WEFT_I_STORE_PEER_UNSENT = 1024 * 1024,    /* of one peer: who does not read costs one answer */
    WEFT_I_STORE_LARGE = 64 * 1024,            /* a frame above it needs a share of ... */
    WEFT_I_STORE_LARGE_ALL = 64 * 1024 * 1024, /* ... this, unless it is the only one */
    WEFT_I_STORE_WAITING = 4096                /* requests of one peer that wait */
};

typedef struct weft_i_store_waiting weft_i_store_waiting; /* a request that waits for keys */
typedef struct weft_i_store_granted weft_i_store_granted; /* a popped element until its receipt */
typedef struct weft_i_store_testament
    weft_i_store_testament; /* what is to be appended when the peer goes */

typedef enum weft_i_store_peer_state {
    WEFT_I_STORE_PEER_NEW,     /* owes us a hello */
    WEFT_I_STORE_PEER_PROVING, /* owes us a proof */
    WEFT_I_STORE_PEER_KNOWN,   /* sends frames */
    WEFT_I_STORE_PEER_GONE     /* to be freed at the end of the step */
} weft_i_store_peer_state;

typedef struct weft_i_store_peer {
    struct weft_i_store_peer *next,
        **link; /* list of strangers or proving (oldest first), of the known, or of the gone */
    weft_i_store_server *server;
    weft_i_store_peer_state state;
    weft_i_store_link line;
    weft_i_store_greeting hello; /* while it is a stranger */
    weft_i_store_transcript transcript;
    int64_t since;     /* ns: when a stranger came; since when a known one has not read */
    int64_t heard;     /* ns: when bytes of it last came */
    uint32_t interest; /* what epoll watches */
    bool paused;       /* not read until budgets allow */
    size_t unsent;     /* as counted in server->unsent */
    size_t reserved;   /* as counted in server->reserved */
    size_t waiting_count;
    weft_i_store_waiting *waiting;
    weft_i_store_granted *granted; /* newest first */
    weft_i_store_testament *will;
} weft_i_store_peer;

typedef struct weft_i_store_peers {
    weft_i_store_peer *first, **end;
    size_t count;
} weft_i_store_peers;

struct weft_i_store_server {
    atomic_int references; /* relaxed up, acq_rel down: the last one sees what the others did */
    int epoll, wake, listener;
    bool accepting;       /* the listener is watched; off for a moment when descriptors run out */
    int64_t accept_again; /* ns */
    bool has_token;
    uint8_t token[WEFT_I_KEYED_BYTES];
    int64_t patience; /* ns */
    weft_i_store_map map;
    weft_i_store_peers strangers, proving, known, gone;
    atomic_size_t clients; /* relaxed: known.count, for other threads to see */
    size_t unsent, reserved, paused, waiting, granted;
    pthread_t thread;
    bool threaded;                            /* has a thread; from here on under the roll's lock */
    struct weft_i_store_server *next, **link; /* on the roll of servers that have a thread */
    unsigned generation;                      /* of forks: whose thread it is */
    atomic_bool stop; /* release by whoever ends the thread, acquire in its loop */
};

/*
 * Looks at what a new connection has said before it costs anything: whether it may become a peer.
 * If not it has been told why, where it speaks our language, and its descriptor is closed.
 */
bool weft_i_store_peer_screen(const weft_i_store_server *server, int fd);

/* Takes over the descriptor, also on failure (then it is closed and the peer NULL). */
weft_i_store_peer *weft_i_store_peer_new(weft_i_store_server *server, int fd);
/* Ends the connection: what waits is forgotten, what was not received goes back.  Freed later. */
void weft_i_store_peer_drop(weft_i_store_peer *peer, const char *why);
/* Reads and acts on what came. */
void weft_i_store_peer_read(weft_i_store_peer *peer);
/* Acts on what was read already: after a pause. */
void weft_i_store_peer_act(weft_i_store_peer *peer);
void weft_i_store_peer_flush(weft_i_store_peer *peer);
/* Whether closing the connection now takes nothing away that was said to it. */
bool weft_i_store_peer_may_close(const weft_i_store_peer *peer);
/* Tries a request again whose key came. */
void weft_i_store_peer_retry(weft_i_store_server *server, weft_i_store_waiter *waiter);

void weft_i_store_peers_add(weft_i_store_peers *list, weft_i_store_peer *peer);
void weft_i_store_peers_remove(weft_i_store_peers *list, weft_i_store_peer *peer);

#endif
