/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What proves a pair.  Both ranks have read each other's nonce at the meeting, so each works out at once
 * what the other will show, and nobody has to ask first.  The nonces are of this job alone: what was
 * overheard in an earlier one proves nothing.
 */
#include "pair.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"

#include <string.h>

enum { COOKIE = 1, PROOF = 2, SIGNED_BYTES = 4 + 16 + 4 + 4 + 2 * WEFT_I_PAIR_NONCE };

/* What `from` shows to `to`. */
static weft_status sign(const weft_i_pair_facts *facts, uint32_t purpose, bool outward,
                        uint8_t out[WEFT_I_KEYED_BYTES])
{
    unsigned char text[SIGNED_BYTES];
    weft_i_wire_writer to = weft_i_wire_write(text, sizeof text);
    weft_i_wire_put_u32(&to, purpose);
    weft_i_wire_put_u64(&to, facts->job.word[0]);
    weft_i_wire_put_u64(&to, facts->job.word[1]);
    weft_i_wire_put_u32(&to, (uint32_t)(outward ? facts->rank : facts->other));
    weft_i_wire_put_u32(&to, (uint32_t)(outward ? facts->other : facts->rank));
    weft_i_wire_put_bytes(&to, outward ? facts->nonce : facts->other_nonce, WEFT_I_PAIR_NONCE);
    weft_i_wire_put_bytes(&to, outward ? facts->other_nonce : facts->nonce, WEFT_I_PAIR_NONCE);
    WEFT_ASSERT(to.at == sizeof text);
    return weft_i_keyed_sign(facts->secret, text, to.at, out);
}

static weft_status sign_cookie(const weft_i_pair_facts *facts, bool outward, uint64_t *out)
{
    uint8_t hash[WEFT_I_KEYED_BYTES];
    WEFT_TRY(sign(facts, COOKIE, outward, hash));
    weft_i_wire_reader from = weft_i_wire_read(hash, sizeof hash);
    *out = weft_i_wire_get_u64(&from);
    *out += !*out; /* 0 is no cookie */
    return WEFT_OK;
}

static weft_status fill(const weft_i_pair_facts *facts, weft_i_pair *pair)
{
    WEFT_TRY(sign_cookie(facts, true, &pair->cookie_out));
    WEFT_TRY(sign_cookie(facts, false, &pair->cookie_in));
    WEFT_TRY(sign(facts, PROOF, true, pair->proof_out));
    return sign(facts, PROOF, false, pair->proof_in);
}

weft_status weft_i_pair_new(const weft_i_pair_facts *facts, weft_i_pair **out)
{
    weft_i_pair *pair = WEFT_OS->alloc(sizeof *pair);
    if (!pair)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for messages between ranks %d and %d",
                           facts->rank, facts->other);
    weft_status status = fill(facts, pair);
    if (status == WEFT_OK)
        *out = pair;
    else
        weft_i_pair_free(pair);
    return status;
}

void weft_i_pair_free(weft_i_pair *pair)
{
    if (!pair)
        return;
    weft_i_order_clear(&pair->order);
    weft_i_keyed_forget(pair, sizeof *pair);
    WEFT_OS->free(pair);
}

bool weft_i_pair_is_hello(const weft_i_pair *pair, const void *data, size_t bytes)
{
    return bytes == WEFT_I_PAIR_PROOF && weft_i_keyed_equal(pair->proof_in, data);
}
