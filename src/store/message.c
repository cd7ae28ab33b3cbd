/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of the store's records, on top of base/wire.  Layouts are drawn in
 * docs/store.md. */
#include "store/message.h"

#include "base/os/os.h"

#include <string.h>

enum {
    GREETING_MAGIC = 0x54464557, /* "WEFT" */
    FRAME_MAGIC = 0x31534657,    /* "WFS1" */
    REQUEST_FIXED = 24,
    ANSWER_FIXED = 16
};

void weft_i_store_greeting_encode(const weft_i_store_greeting *greeting,
                                  uint8_t out[WEFT_I_STORE_GREETING_BYTES])
{
    weft_i_wire_writer to = weft_i_wire_write(out, WEFT_I_STORE_GREETING_BYTES);
    weft_i_wire_put_head(&to, GREETING_MAGIC, greeting->version);
    weft_i_wire_put_u16(&to, greeting->kind);
    weft_i_wire_put_u32(&to, (uint32_t)greeting->status);
    weft_i_wire_put_zero(&to, 4);
    weft_i_wire_put_text(&to, greeting->release, sizeof greeting->release);
    weft_i_wire_put_bytes(&to, greeting->nonce, sizeof greeting->nonce);
    weft_i_wire_put_bytes(&to, greeting->proof, sizeof greeting->proof);
}

static bool is_zero(const uint8_t bytes[WEFT_I_KEYED_BYTES])
{
    static const uint8_t zero[WEFT_I_KEYED_BYTES];
    return memcmp(bytes, zero, sizeof zero) == 0;
}

static bool unused_is_zero(const weft_i_store_greeting *greeting)
{
    bool nonce = greeting->kind == WEFT_I_STORE_HELLO || greeting->kind == WEFT_I_STORE_CHALLENGE;
    bool proof = greeting->kind >= WEFT_I_STORE_HELLO && greeting->kind <= WEFT_I_STORE_PROOF;
    return greeting->kind >= WEFT_I_STORE_HELLO && greeting->kind <= WEFT_I_STORE_REFUSAL &&
           (nonce || is_zero(greeting->nonce)) && (proof || is_zero(greeting->proof)) &&
           (greeting->kind == WEFT_I_STORE_REFUSAL || greeting->status == WEFT_OK);
}

bool weft_i_store_greeting_decode(const uint8_t bytes[WEFT_I_STORE_GREETING_BYTES],
                                  weft_i_store_greeting *out)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, WEFT_I_STORE_GREETING_BYTES);
    out->version = weft_i_wire_get_head(&from, GREETING_MAGIC);
    out->kind = weft_i_wire_get_u16(&from);
    out->status = (int32_t)weft_i_wire_get_u32(&from);
    weft_i_wire_get_zero(&from, 4);
    weft_i_wire_get_text(&from, out->release, sizeof out->release);
    weft_i_wire_get_bytes(&from, out->nonce, sizeof out->nonce);
    weft_i_wire_get_bytes(&from, out->proof, sizeof out->proof);
    /* A greeting of another version may use its fields otherwise; it is refused by its version, not
     * as garbage. */
    return weft_i_wire_done(&from) && (out->version != WEFT_I_STORE_VERSION || unused_is_zero(out));
}

void weft_i_store_head_encode(const weft_i_store_head *head, uint8_t out[WEFT_I_STORE_HEAD_BYTES])
{
    weft_i_wire_writer to = weft_i_wire_write(out, WEFT_I_STORE_HEAD_BYTES);
    weft_i_wire_put_u32(&to, FRAME_MAGIC);
    weft_i_wire_put_u32(&to, head->payload_bytes);
    weft_i_wire_put_u64(&to, head->sequence);
    weft_i_wire_put_u64(&to, head->id);
}

bool weft_i_store_head_decode(const uint8_t bytes[WEFT_I_STORE_HEAD_BYTES], weft_i_store_head *out)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, WEFT_I_STORE_HEAD_BYTES);
    uint32_t magic = weft_i_wire_get_u32(&from);
    out->payload_bytes = weft_i_wire_get_u32(&from);
    out->sequence = weft_i_wire_get_u64(&from);
    out->id = weft_i_wire_get_u64(&from);
    return weft_i_wire_done(&from) && magic == FRAME_MAGIC &&
           out->payload_bytes <= WEFT_I_STORE_MESSAGE_BYTES;
}

/* ---- requests ---- */

/* How many keys and values an op takes, and how many values its answer has; MANY: any number of
 * keys, of values as many as keys.  COUNTS: the answer's number is a count or a truth. */
enum { MANY = 255, COUNTS = true };
static const struct {
    uint8_t keys, values, answers;
    bool counts;
} shapes[WEFT_I_STORE_OPS] = {
    [WEFT_I_STORE_SET] = {1, 1, 0, false},
    [WEFT_I_STORE_GET] = {1, 0, 1, false},
    [WEFT_I_STORE_ADD] = {1, 0, 0, false},
    [WEFT_I_STORE_COMPARE_SET] = {1, 2, 1, COUNTS},
    [WEFT_I_STORE_APPEND] = {1, 1, 0, false},
    [WEFT_I_STORE_CHECK] = {MANY, 0, 0, COUNTS},
    [WEFT_I_STORE_WAIT] = {MANY, 0, 0, false},
    [WEFT_I_STORE_DELETE] = {1, 0, 0, COUNTS},
    [WEFT_I_STORE_NUM_KEYS] = {1, 0, 0, COUNTS},
    [WEFT_I_STORE_MULTI_GET] = {MANY, 0, MANY, false},
    [WEFT_I_STORE_MULTI_SET] = {MANY, MANY, 0, false},
    [WEFT_I_STORE_PUSH] = {1, 1, 0, false},
    [WEFT_I_STORE_POP] = {1, 0, 1, false},
    [WEFT_I_STORE_LENGTH] = {1, 0, 0, COUNTS},
    [WEFT_I_STORE_CANCEL] = {0, 0, 0, false},
    [WEFT_I_STORE_TAKEN] = {0, 0, 0, false},
    [WEFT_I_STORE_WILL] = {1, 1, 0, false},
    [WEFT_I_STORE_CLOCK] = {1, 0, 1, COUNTS},
};

static bool shape_fits(unsigned op, size_t keys, size_t values)
{
    if (op < WEFT_I_STORE_SET || op >= WEFT_I_STORE_OPS || keys > WEFT_I_STORE_KEYS)
        return false;
    return (shapes[op].keys == MANY || keys == shapes[op].keys) &&
           values == (shapes[op].values == MANY ? keys : shapes[op].values);
}

size_t weft_i_store_request_bytes(const weft_i_store_request *request)
{
    size_t bytes = REQUEST_FIXED;
    for (size_t i = 0; i < request->keys; i++)
        bytes += weft_i_wire_blob_bytes(request->key[i].bytes);
    for (size_t i = 0; i < request->values; i++)
        bytes += weft_i_wire_blob_bytes(request->value[i].bytes);
    return bytes <= WEFT_I_STORE_MESSAGE_BYTES ? bytes : SIZE_MAX;
}

void weft_i_store_request_encode(const weft_i_store_request *request, uint8_t *out, size_t bytes)
{
    weft_i_wire_writer to = weft_i_wire_write(out, bytes);
    weft_i_wire_put_u8(&to, (uint8_t)request->op);
    weft_i_wire_put_u8(&to, request->may_block);
    weft_i_wire_put_zero(&to, 6);
    weft_i_wire_put_u32(&to, (uint32_t)request->keys);
    weft_i_wire_put_u32(&to, (uint32_t)request->values);
    weft_i_wire_put_u64(&to, (uint64_t)request->number);
    for (size_t i = 0; i < request->keys; i++)
        weft_i_wire_put_blob(&to, request->key[i]);
    for (size_t i = 0; i < request->values; i++)
        weft_i_wire_put_blob(&to, request->value[i]);
}

/* A key is text: not empty (except a prefix to count) and without a zero byte. */
static bool key_fits(unsigned op, weft_i_view key)
{
    return (key.bytes || op == WEFT_I_STORE_NUM_KEYS) && !memchr(key.data, 0, key.bytes);
}

weft_status weft_i_store_request_decode(const uint8_t *bytes, size_t count,
                                        weft_i_store_request *out, void **space)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, count);
    unsigned op = weft_i_wire_get_u8(&from), may_block = weft_i_wire_get_u8(&from);
    weft_i_wire_get_zero(&from, 6);
    size_t keys = weft_i_wire_get_u32(&from), values = weft_i_wire_get_u32(&from);
    int64_t number = (int64_t)weft_i_wire_get_u64(&from);
    *space = NULL;
    /* Every blob takes at least four bytes: counts that the record cannot hold never reach the
     * allocation. */
    if (from.bad || may_block > 1 || !shape_fits(op, keys, values) ||
        keys + values > weft_i_wire_left(&from) / 4)
        return WEFT_ERR_PROTOCOL;
    weft_i_view *views = *space = WEFT_OS->alloc((keys + values) * sizeof *views);
    if (!views)
        return WEFT_ERR_NO_MEMORY;
    for (size_t i = 0; i < keys; i++) {
        views[i] = weft_i_wire_get_blob(&from, WEFT_STORE_KEY_BYTES);
        from.bad |= !key_fits(op, views[i]);
    }
    for (size_t i = 0; i < values; i++)
        views[keys + i] = weft_i_wire_get_blob(&from, WEFT_STORE_VALUE_BYTES);
    if (!weft_i_wire_done(&from)) {
        WEFT_OS->free(views);
        *space = NULL;
        return WEFT_ERR_PROTOCOL;
    }
    *out = (weft_i_store_request){.op = op,
                                  .may_block = may_block,
                                  .keys = keys,
                                  .key = views,
                                  .values = values,
                                  .value = views + keys,
                                  .number = number};
    return WEFT_OK;
}

/* ---- answers ---- */

size_t weft_i_store_answer_bytes(const weft_i_store_answer *answer)
{
    size_t bytes = ANSWER_FIXED;
    for (size_t i = 0; i < answer->values; i++)
        bytes += weft_i_wire_blob_bytes(answer->value[i].bytes);
    return bytes;
}

void weft_i_store_answer_encode(const weft_i_store_answer *answer, uint8_t *out, size_t bytes)
{
    weft_i_wire_writer to = weft_i_wire_write(out, bytes);
    weft_i_wire_put_u32(&to, (uint32_t)answer->status);
    weft_i_wire_put_u32(&to, (uint32_t)answer->values);
    weft_i_wire_put_u64(&to, (uint64_t)answer->number);
    for (size_t i = 0; i < answer->values; i++)
        weft_i_wire_put_blob(&to, answer->value[i]);
}

/* What a server may say no with; the rest a client says itself. */
static bool is_refusal(weft_status status)
{
    switch (status) {
    case WEFT_ERR_NOT_FOUND:
    case WEFT_ERR_EMPTY:
    case WEFT_ERR_TYPE:
    case WEFT_ERR_LIMIT:
    case WEFT_ERR_NO_MEMORY:
    case WEFT_ERR_INVALID_ARG:
    case WEFT_ERR_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

bool weft_i_store_answer_fits(const weft_i_store_answer *answer,
                              const weft_i_store_request *request)
{
    if (answer->status < 0)
        return !answer->values && is_refusal(answer->status);
    size_t wanted = shapes[request->op].answers;
    return answer->values == (wanted == MANY ? request->keys : wanted) &&
           (!shapes[request->op].counts || answer->number >= 0);
}

weft_status weft_i_store_answer_decode(const uint8_t *bytes, size_t count, weft_i_store_answer *out)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, count);
    *out = (weft_i_store_answer){0};
    int32_t status = (int32_t)weft_i_wire_get_u32(&from);
    size_t values = weft_i_wire_get_u32(&from);
    out->number = (int64_t)weft_i_wire_get_u64(&from);
    if (from.bad || status > 0 || weft_status_scope((weft_status)status) == WEFT_SCOPE_BUG ||
        values > WEFT_I_STORE_KEYS || values > weft_i_wire_left(&from) / 4)
        return WEFT_ERR_PROTOCOL;
    out->status = (weft_status)status;
    if (!weft_i_store_answer_reserve(out, values))
        return WEFT_ERR_NO_MEMORY;
    for (size_t i = 0; i < values; i++)
        out->value[i] = weft_i_wire_get_blob(&from, WEFT_STORE_VALUE_BYTES);
    if (weft_i_wire_done(&from))
        return WEFT_OK;
    weft_i_store_answer_clear(out);
    return WEFT_ERR_PROTOCOL;
}
