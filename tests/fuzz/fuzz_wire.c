/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/message.c */
/* Bytes -> decode -> encode, for every record of the store's protocol: no crash, and what is
 * accepted encodes to itself. */
#include "fuzz.h"

#include "base/os/os.h"
#include "store/message.h"

#include <string.h>

static void greeting(const uint8_t *bytes, size_t count)
{
    weft_i_store_greeting record;
    uint8_t again[WEFT_I_STORE_GREETING_BYTES];
    if (count != sizeof again || !weft_i_store_greeting_decode(bytes, &record))
        return;
    weft_i_store_greeting_encode(&record, again);
    PROMISE(!memcmp(bytes, again, sizeof again));
}

static void head(const uint8_t *bytes, size_t count)
{
    weft_i_store_head record;
    uint8_t again[WEFT_I_STORE_HEAD_BYTES];
    if (count != sizeof again || !weft_i_store_head_decode(bytes, &record))
        return;
    PROMISE(record.payload_bytes <= WEFT_I_STORE_MESSAGE_BYTES);
    weft_i_store_head_encode(&record, again);
    PROMISE(!memcmp(bytes, again, sizeof again));
}

static void request(const uint8_t *bytes, size_t count)
{
    weft_i_store_request record;
    void *space;
    weft_status status = weft_i_store_request_decode(bytes, count, &record, &space);
    PROMISE(status == WEFT_OK || status == WEFT_ERR_PROTOCOL);
    if (status < 0)
        return;
    for (size_t i = 0; i < record.keys; i++)
        PROMISE(record.key[i].bytes <= WEFT_STORE_KEY_BYTES);
    PROMISE(weft_i_store_request_bytes(&record) == count);
    uint8_t *again = malloc(count);
    PROMISE(again);
    weft_i_store_request_encode(&record, again, count);
    PROMISE(!memcmp(bytes, again, count));
    free(again);
    WEFT_OS->free(space);
}

static void answer(const uint8_t *bytes, size_t count)
{
    weft_i_store_answer record;
    weft_status status = weft_i_store_answer_decode(bytes, count, &record);
    PROMISE(status == WEFT_OK || status == WEFT_ERR_PROTOCOL);
    if (status < 0)
        return;
    PROMISE(weft_i_store_answer_bytes(&record) == count);
    uint8_t *again = malloc(count);
    PROMISE(again);
    weft_i_store_answer_encode(&record, again, count);
    PROMISE(!memcmp(bytes, again, count));
    free(again);
    weft_i_store_answer_clear(&record);
}

/* The first byte chooses the record. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static void (*const records[])(const uint8_t *, size_t) = {greeting, head, request, answer};
    if (count)
        records[bytes[0] % 4](bytes + 1, count - 1);
    return 0;
}
