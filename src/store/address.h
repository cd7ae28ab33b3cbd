/* SPDX-License-Identifier: Apache-2.0 */
/* Where a store's server listens: names and numbers turned into socket addresses, and back into
 * text. */
#ifndef WEFT_STORE_ADDRESS_H
#define WEFT_STORE_ADDRESS_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { WEFT_I_STORE_ADDRESSES = 8, WEFT_I_STORE_ADDRESS_TEXT = 128 };

typedef struct weft_i_store_address {
    socklen_t length;
    struct sockaddr_storage where;
} weft_i_store_address;

/* All a name may stand for, tried in order. */
typedef struct weft_i_store_addresses {
    int count;
    weft_i_store_address list[WEFT_I_STORE_ADDRESSES];
} weft_i_store_addresses;

/* Resolves a host name or number, NULL or empty for 127.0.0.1.  INVALID_ARG (port, wildcard),
 * UNREACHABLE (unknown). */
weft_status weft_i_store_address_tcp(const char *host, int port, weft_i_store_addresses *out);

/* An abstract Unix socket.  INVALID_ARG if the name is empty or too long. */
weft_status weft_i_store_address_unix(const char *name, weft_i_store_addresses *out);

/* "127.0.0.1:29500", "[::1]:29500" or "@name". */
const char *weft_i_store_address_text(const weft_i_store_address *address,
                                      char out[WEFT_I_STORE_ADDRESS_TEXT]);

/* Reads such a text of a TCP address, without looking names up.  False on anything else. */
bool weft_i_store_address_read(const char *text, weft_i_store_address *out);

/* The port of a TCP address, 0 of others. */
int weft_i_store_address_port(const weft_i_store_address *address);

/* Lets the kernel choose the port. */
void weft_i_store_address_any_port(weft_i_store_address *address);

/* A non-blocking listening socket on the first address that can be bound; `bound` is what it got.
 * -1 and an error. */
int weft_i_store_address_listen(const weft_i_store_addresses *addresses,
                                weft_i_store_address *bound);

/* Small messages go at once, a vanished host is noticed.  Best effort: a socket without these
 * options works too. */
void weft_i_store_address_tune(int fd);

#endif
