/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of a store: one thread, one event loop, all data in one map that no other thread touches.
 * The loop is a sequence of steps, so that tests and the fuzzer can drive it without a thread.
 */
#ifndef WEFT_STORE_SERVER_H
#define WEFT_STORE_SERVER_H

#include "base/share/keyed.h"
#include "store/store.h"

typedef struct weft_i_store_server weft_i_store_server;

enum {
    /* connections that have not shown the token; the oldest goes first.  Those whose hello carries
     * a right proof have places of their own, which nobody else can take from them. */
    WEFT_I_STORE_STRANGERS = 64,
    WEFT_I_STORE_PROVING = 1024,
    WEFT_I_STORE_STRANGER_BYTES = 512 /* read buffer of one */
};

/*
 * A server with one reference.  Takes over the listening socket (-1: none), also on failure.  With
 * `token` clients must know it; without they must have this process's user id.  NULL and an error.
 */
weft_i_store_server *weft_i_store_server_new(int listener, const uint8_t *token);

/* Starts the thread. */
weft_status weft_i_store_server_start(weft_i_store_server *server);

void weft_i_store_server_hold(weft_i_store_server *server);
/* The last drop ends the thread, after its last answers have arrived, and frees everything; in a
 * forked child only memory.  When the process exits the threads that still run end likewise. */
void weft_i_store_server_drop(weft_i_store_server *server, bool forked);

/* Whether nobody is connected but clients of this process, each of which holds a reference. */
bool weft_i_store_server_is_alone(const weft_i_store_server *server);

/* One round of the loop: waits at most `timeout_ms` for something to do, and does it. */
void weft_i_store_server_step(weft_i_store_server *server, int timeout_ms);

/* Takes a connected non-blocking socket as if it had been accepted. */
void weft_i_store_server_adopt(weft_i_store_server *server, int fd);

/* What a server holds; only for the thread that drives it. */
typedef struct weft_i_store_census {
    size_t peers, strangers, keys, bytes, waiting, granted, unsent;
} weft_i_store_census;
weft_i_store_census weft_i_store_server_census(const weft_i_store_server *server);

#endif
