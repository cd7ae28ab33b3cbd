/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of the store's protocol, as bytes.  Two layers: greetings, of one fixed size, that
 * strangers exchange until both know that the other has the token; then frames, each a head and one
 * request or answer.  Decoding accepts exactly what encoding writes, so that re-encoding a decoded
 * record gives the same bytes (tests/fuzz/fuzz_wire.c).
 */
#ifndef WEFT_STORE_MESSAGE_H
#define WEFT_STORE_MESSAGE_H

#include "base/share/keyed.h"
#include "store/store.h"

enum {
    WEFT_I_STORE_VERSION = 2, /* of the protocol; another one is refused */
    WEFT_I_STORE_GREETING_BYTES = 96,
    WEFT_I_STORE_HEAD_BYTES = 24
};

typedef enum weft_i_store_greeting_kind {
    WEFT_I_STORE_HELLO = 1, /* client: version, nonce, a first proof; it may be a repeated one, so
                               it is enough to be listened to, not to be let in */
    WEFT_I_STORE_CHALLENGE, /* server: version, nonce, proof that it has the token */
    WEFT_I_STORE_PROOF,     /* client: proof that it has the token */
    WEFT_I_STORE_WELCOME,   /* server: frames may follow */
    WEFT_I_STORE_REFUSAL    /* server: why not, then it closes */
} weft_i_store_greeting_kind;

typedef struct weft_i_store_greeting {
    uint16_t version;
    uint16_t kind;
    int32_t status;   /* of a refusal */
    char release[16]; /* weft's version, for messages */
    uint8_t nonce[WEFT_I_KEYED_BYTES];
    uint8_t proof[WEFT_I_KEYED_BYTES];
} weft_i_store_greeting;

void weft_i_store_greeting_encode(const weft_i_store_greeting *greeting,
                                  uint8_t out[WEFT_I_STORE_GREETING_BYTES]);
/* False if the bytes are no greeting of any version of weft. */
bool weft_i_store_greeting_decode(const uint8_t bytes[WEFT_I_STORE_GREETING_BYTES],
                                  weft_i_store_greeting *out);

typedef struct weft_i_store_head {
    uint32_t payload_bytes;
    uint64_t
        sequence; /* of this direction, from 0: a frame cannot be repeated, dropped or reordered */
    uint64_t id;  /* of the request; its answer carries the same */
} weft_i_store_head;

void weft_i_store_head_encode(const weft_i_store_head *head, uint8_t out[WEFT_I_STORE_HEAD_BYTES]);
bool weft_i_store_head_decode(const uint8_t bytes[WEFT_I_STORE_HEAD_BYTES], weft_i_store_head *out);

/* Bytes of the encoded request, or SIZE_MAX if it is over WEFT_I_STORE_MESSAGE_BYTES. */
size_t weft_i_store_request_bytes(const weft_i_store_request *request);
void weft_i_store_request_encode(const weft_i_store_request *request, uint8_t *out, size_t bytes);
/*
 * Checks every limit and that the op has the keys and values it needs.  The views point into
 * `bytes`; the arrays of views are one block, `*space`, that the caller frees.  PROTOCOL or
 * NO_MEMORY, without a message.
 */
weft_status weft_i_store_request_decode(const uint8_t *bytes, size_t count,
                                        weft_i_store_request *out, void **space);

size_t weft_i_store_answer_bytes(const weft_i_store_answer *answer);
void weft_i_store_answer_encode(const weft_i_store_answer *answer, uint8_t *out, size_t bytes);
/* Whether the answer is one that the request can have: as many values as were asked for, none with
 * an error, an error that servers have, no negative count. */
bool weft_i_store_answer_fits(const weft_i_store_answer *answer,
                              const weft_i_store_request *request);
/* The views point into `bytes`; the array belongs to the answer. */
weft_status weft_i_store_answer_decode(const uint8_t *bytes, size_t count,
                                       weft_i_store_answer *out);

#endif
