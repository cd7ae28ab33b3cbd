/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store whose data is in a server. */
#ifndef WEFT_FABRIC_STORE_CLIENT_H
#define WEFT_FABRIC_STORE_CLIENT_H

#include "fabric/store_dial.h"
#include "fabric/store_server.h"

/*
 * Connects and makes the store.  Takes over the caller's reference to `server` (NULL: it runs
 * elsewhere), also on failure.  NULL and an error.
 */
weft_store *weft_i_store_client_new(const weft_i_store_dial *dial, weft_i_store_server *server,
                                    int64_t deadline);

/* A client over a connected non-blocking socket, as if hands had been shaken without a token: tests
 * play the server.  Takes over the socket, also on failure: NULL and an error. */
weft_store *weft_i_store_client_adopt(int fd);

#endif
