/* SPDX-License-Identifier: Apache-2.0 */
/* A pair: this rank and one on another host.  For remote.c alone. */
#ifndef WEFT_FABRIC_PAIR_H
#define WEFT_FABRIC_PAIR_H

#include "fabric/world/remote.h"
#include "transport/order.h"

enum { WEFT_I_PAIR_NONCE = 16, WEFT_I_PAIR_PROOF = 32 };

/* What both know before they speak. */
typedef struct weft_i_pair_facts {
    uint8_t secret[WEFT_I_KEYED_BYTES]; /* of the job */
    weft_i_key job;
    int rank, other;
    unsigned char nonce[WEFT_I_PAIR_NONCE], other_nonce[WEFT_I_PAIR_NONCE];
} weft_i_pair_facts;

typedef struct weft_i_pair {
    uint64_t cookie_in, cookie_out;
    uint8_t proof_in[WEFT_I_PAIR_PROOF], proof_out[WEFT_I_PAIR_PROOF];
    uint32_t number; /* of the next message to it */
    bool written;    /* its HELLO has gone out */
    bool proven;     /* the other's has come */
    bool cut;        /* nothing is sent any more */
    bool left;       /* the other has left the job */
    bool answered;   /* and has taken all that we sent */
    bool faulty;     /* the transport cannot reach it */
    weft_i_order order;
} weft_i_pair;

/* A pair that is ready to be written to.  WEFT_ERR_NO_MEMORY; what weft_i_keyed_sign says. */
weft_status weft_i_pair_new(const weft_i_pair_facts *facts, weft_i_pair **out);
void weft_i_pair_free(weft_i_pair *pair);

/* Is this the other's HELLO? */
bool weft_i_pair_is_hello(const weft_i_pair *pair, const void *data, size_t bytes);

#endif
