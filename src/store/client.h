/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store whose data is in a server. */
#ifndef WEFT_STORE_CLIENT_H
#define WEFT_STORE_CLIENT_H

#include "store/dial.h"
#include "store/server.h"

/*
 * Connects and makes the store.  Takes over the caller's reference to `server` (NULL: it runs
 * elsewhere), also on failure.  NULL and an error.
 */
weft_store *weft_i_store_client_new(const weft_i_store_dial *dial, weft_i_store_server *server,
                                    int64_t deadline);

/* Is it a store of this kind? */
bool weft_i_store_client_is(const weft_store *store);
/* Does its server run in this process? */
bool weft_i_store_client_serves(const weft_store *store);
/* Has its connection ended? */
bool weft_i_store_client_is_broken(weft_store *store);

/*
 * Where others can reach a server in this process, for a store over TCP: that of the store itself,
 * or one in reserve, made now, with the same token, on the address from which this process reached
 * the store's.  `standby` is that one, to be dropped by the caller, or stays NULL.  An empty
 * address for a store on a Unix socket.
 */
weft_status weft_i_store_client_stand_by(weft_store *store, weft_i_store_server **standby,
                                         char address[WEFT_I_STORE_ADDRESS_TEXT]);

/* The address from which this process reaches the store, with port 0; the server's, where that is in this
 * process.  False if the store is not over TCP. */
bool weft_i_store_client_here(weft_store *store, weft_i_store_address *out);

/* The host of its server is silent: what is asked from now on, and under way, ends with UNREACHABLE as
 * soon as the kernel has tried once more. */
void weft_i_store_client_doubt(weft_store *store);

/*
 * Connects a broken client to the server at an address that weft_i_store_client_stand_by gave.  One
 * attempt: see weft_i_store_dial_once.  Calls under way have ended with UNREACHABLE.
 */
weft_status weft_i_store_client_redial(weft_store *store, const char *address, int64_t deadline);

/* Waits until all connections to the server in this process but its own have ended. */
void weft_i_store_client_await_alone(weft_store *store, int64_t deadline);

/* weft_store_tcp_connect, which logs `notice` if the server has not been reached at `notice_at`; NULL: it
 * logs nothing. */
weft_store *weft_i_store_tcp_connect(const char *address, int port, const char *token,
                                     int64_t timeout_ms, const char *notice, int64_t notice_at);

/* The user whose process listens on an abstract Unix socket, as the kernel knows it; -1: nobody
 * does, or too many try to connect. */
int weft_i_store_unix_owner(const char *name);

/* A client over a connected non-blocking socket, as if hands had been shaken without a token: tests
 * play the server.  Takes over the socket, also on failure: NULL and an error. */
weft_store *weft_i_store_client_adopt(int fd);

#endif
