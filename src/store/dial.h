/* SPDX-License-Identifier: Apache-2.0 */
/* How a client reaches its server: where, with which token, and the handshake until both trust each
 * other. */
#ifndef WEFT_STORE_DIAL_H
#define WEFT_STORE_DIAL_H

#include "store/address.h"
#include "store/link.h"

typedef struct weft_i_store_dial {
    weft_i_store_addresses addresses;
    bool has_token;
    uint8_t token[WEFT_I_KEYED_BYTES];
    int port;
    char name[WEFT_I_STORE_ADDRESS_TEXT + 8]; /* "tcp 127.0.0.1:29500" */
    const char *notice; /* logged once if it has not been reached at `notice_at`; NULL: nothing */
    int64_t notice_at;
} weft_i_store_dial;

/*
 * Connects and shakes hands, again and again with a short pause until `deadline`.  AUTH, VERSION
 * and a foreign service end it at once.  On success `line` is ready for frames.
 */
weft_status weft_i_store_dial_connect(const weft_i_store_dial *dial, int64_t deadline,
                                      weft_i_store_link *line);

/* One attempt.  WEFT_IN_PROGRESS: somebody is there but does not answer yet, or memory of the
 * kernel is short; negative: nobody of ours. */
weft_status weft_i_store_dial_once(const weft_i_store_dial *dial, int64_t deadline,
                                   weft_i_store_link *line);

/* Does the host at this address (as weft_i_store_address_text writes it) say that nobody listens
 * there?  Not if it says nothing before the deadline. */
bool weft_i_store_dial_is_refused(const char *address, int64_t deadline);

/* Overwrites the token. */
void weft_i_store_dial_forget(weft_i_store_dial *dial);

#endif
