/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the store's protocol: a non-blocking socket, bytes read but not yet understood,
 * bytes to be sent, and the keys that sign each frame.  Used by client and server alike.  Never
 * blocks; both sides word their own errors.
 */
#ifndef WEFT_STORE_LINK_H
#define WEFT_STORE_LINK_H

#include "store/message.h"

typedef struct weft_i_store_buffer {
    uint8_t *bytes;
    size_t start, end, capacity; /* bytes[start..end) are waiting */
} weft_i_store_buffer;

typedef struct weft_i_store_link {
    int fd;
    bool is_signed; /* frames end with a tag */
    uint8_t send_key[WEFT_I_KEYED_BYTES], receive_key[WEFT_I_KEYED_BYTES];
    uint64_t sent, received; /* frames: the sequence numbers */
    uint64_t flushed;        /* bytes the kernel took, ever */
    weft_i_store_buffer in, out;
} weft_i_store_link;

typedef struct weft_i_store_frame {
    uint64_t id;
    const uint8_t *payload; /* until the next fill */
    size_t bytes;
} weft_i_store_frame;

/* What the two sides prove and derive from token and nonces. */
typedef enum weft_i_store_purpose {
    WEFT_I_STORE_SERVER_PROOF = 1,
    WEFT_I_STORE_CLIENT_PROOF,
    WEFT_I_STORE_TO_SERVER_KEY,
    WEFT_I_STORE_TO_CLIENT_KEY,
    WEFT_I_STORE_HELLO_PROOF
} weft_i_store_purpose;

/* The two greetings that everything is derived from, as they were on the wire; the challenge
 * without its proof. */
typedef struct weft_i_store_transcript {
    uint8_t hello[WEFT_I_STORE_GREETING_BYTES], challenge[WEFT_I_STORE_GREETING_BYTES];
} weft_i_store_transcript;

void weft_i_store_transcript_set(weft_i_store_transcript *transcript,
                                 const weft_i_store_greeting *hello,
                                 const weft_i_store_greeting *challenge);

/*
 * HMAC(token, purpose | version | transcript): bound to its role, so that it cannot be reflected;
 * to fresh nonces of both sides, so that it cannot be replayed; and to every byte both said, so
 * that nothing can be changed on the way.
 */
weft_status weft_i_store_link_derive(const uint8_t token[WEFT_I_KEYED_BYTES],
                                     weft_i_store_purpose purpose,
                                     const weft_i_store_transcript *transcript,
                                     uint8_t out[WEFT_I_KEYED_BYTES]);

/* The proof that a hello carries; its own proof field does not count. */
weft_status weft_i_store_link_hello_proof(const uint8_t token[WEFT_I_KEYED_BYTES],
                                          const weft_i_store_greeting *hello,
                                          uint8_t out[WEFT_I_KEYED_BYTES]);

void weft_i_store_link_open(weft_i_store_link *link, int fd);
/* Frees the buffers and forgets the keys; closes the socket unless `forked`. */
void weft_i_store_link_close(weft_i_store_link *link, bool forked);

/* Queues a greeting.  NO_MEMORY. */
weft_status weft_i_store_link_greet(weft_i_store_link *link, const weft_i_store_greeting *greeting);
/* 1: `out` is the next greeting; 0: not all of it is here; PROTOCOL: these bytes are none. */
int weft_i_store_link_greeting(weft_i_store_link *link, weft_i_store_greeting *out);

/*
 * Queues a frame: begin() gives room for the payload, commit() signs it.  NULL if memory ran out;
 * then nothing is queued.  commit() fails with NO_MEMORY only if the hash did, and takes the frame
 * back.
 */
uint8_t *weft_i_store_link_begin(weft_i_store_link *link, uint64_t id, size_t payload_bytes);
weft_status weft_i_store_link_commit(weft_i_store_link *link, size_t payload_bytes);

/* Sends what the kernel takes.  OK, or UNREACHABLE. */
weft_status weft_i_store_link_flush(weft_i_store_link *link);
static inline size_t weft_i_store_link_unsent(const weft_i_store_link *link)
{
    return link->out.end - link->out.start;
}

/*
 * Reads what is there, a few KiB or the rest of one large frame.  OK (perhaps nothing new),
 * UNREACHABLE (closed or broken), NO_MEMORY.  `limit` bounds the buffer: strangers get little.
 */
weft_status weft_i_store_link_fill(weft_i_store_link *link, size_t limit);

/* 1: `out` is the next frame; 0: not all of it is here; PROTOCOL, or AUTH if its tag is wrong. */
int weft_i_store_link_next(weft_i_store_link *link, weft_i_store_frame *out);

/* Bytes the frame at the front needs in all, once its head is here; else 0. */
size_t weft_i_store_link_wants(const weft_i_store_link *link);

#endif
