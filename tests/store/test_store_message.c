/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/message.c */
/* The records of the store's protocol: what is accepted is exactly what may be written, field by
 * field and to the byte. */
#include "fault.h"
#include "harness.h"

#include "base/report/status.h"
#include "store/message.h"

static uint8_t bytes[1 << 16];

/* ---- greetings ---- */

static bool accepted(const weft_i_store_greeting *greeting)
{
    weft_i_store_greeting out;
    uint8_t again[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting_encode(greeting, bytes);
    if (!weft_i_store_greeting_decode(bytes, &out))
        return false;
    weft_i_store_greeting_encode(&out, again);
    CHECK(!memcmp(bytes, again, sizeof again));
    CHECK(out.version == greeting->version && out.kind == greeting->kind &&
          out.status == greeting->status && !strcmp(out.release, greeting->release) &&
          !memcmp(out.nonce, greeting->nonce, sizeof out.nonce) &&
          !memcmp(out.proof, greeting->proof, sizeof out.proof));
    return true;
}

TEST(test_store_message_greetings)
{
    for (unsigned kind = 0; kind < 8; kind++)
        for (unsigned parts = 0; parts < 8; parts++) {
            weft_i_store_greeting g = {
                .version = WEFT_I_STORE_VERSION, .kind = (uint16_t)kind, .release = "1.2.3"};
            bool nonce = parts & 1, proof = parts & 2, status = parts & 4;
            g.nonce[31] = nonce;
            g.proof[31] = proof;
            g.status = status ? WEFT_ERR_AUTH : 0;
            bool nonces = kind == WEFT_I_STORE_HELLO || kind == WEFT_I_STORE_CHALLENGE;
            bool proofs = nonces || kind == WEFT_I_STORE_PROOF;
            bool right = kind >= WEFT_I_STORE_HELLO && kind <= WEFT_I_STORE_REFUSAL &&
                         (nonces || !nonce) && (proofs || !proof) &&
                         (kind == WEFT_I_STORE_REFUSAL || !status);
            if (accepted(&g) != right)
                FAIL("kind %u, parts %u: accepted %d", kind, parts, !right);
            g.version = WEFT_I_STORE_VERSION + 1; /* uses its fields as it likes */
            CHECK(accepted(&g));
        }
}

/* A byte that no field owns, and the name of the protocol, must be as they are. */
TEST(test_store_message_greeting_bytes)
{
    weft_i_store_greeting hello = {
        .version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO, .release = "1.2.3"};
    weft_i_store_greeting_encode(&hello, bytes);
    CHECK(!memcmp(bytes, "WEFT", 4));
    for (size_t i = 0; i < WEFT_I_STORE_GREETING_BYTES; i++) {
        weft_i_store_greeting out;
        bytes[i] ^= 0x40;
        bool read = weft_i_store_greeting_decode(bytes, &out);
        bytes[i] ^= 0x40;
        bool magic = i < 4, kind = i == 6 || i == 7, status = i >= 8 && i < 12;
        bool zero = i >= 12 && i < 16, behind = i >= 22 && i < 32;
        if (read == (magic || kind || status || zero || behind))
            FAIL("byte %zu changed: read is %d", i, read);
    }
}

/* ---- frames ---- */

TEST(test_store_message_heads)
{
    weft_i_store_head head = {WEFT_I_STORE_MESSAGE_BYTES, 0x1122334455667788u, 0x99aabbccddeeff00u};
    weft_i_store_head out;
    weft_i_store_head_encode(&head, bytes);
    CHECK(weft_i_store_head_decode(bytes, &out));
    CHECK(out.payload_bytes == head.payload_bytes && out.sequence == head.sequence &&
          out.id == head.id);
    bytes[0] ^= 1;
    CHECK(!weft_i_store_head_decode(bytes, &out));
    head.payload_bytes++;
    weft_i_store_head_encode(&head, bytes);
    CHECK(!weft_i_store_head_decode(bytes, &out));
}

/* ---- requests ---- */

enum { ANY = 99 };
static const struct {
    size_t keys, values, answers;
    bool counts;
} wanted[WEFT_I_STORE_OPS] = {
    [WEFT_I_STORE_SET] = {1, 1, 0, false},
    [WEFT_I_STORE_GET] = {1, 0, 1, false},
    [WEFT_I_STORE_ADD] = {1, 0, 0, false},
    [WEFT_I_STORE_COMPARE_SET] = {1, 2, 1, true},
    [WEFT_I_STORE_APPEND] = {1, 1, 0, false},
    [WEFT_I_STORE_CHECK] = {ANY, 0, 0, true},
    [WEFT_I_STORE_WAIT] = {ANY, 0, 0, false},
    [WEFT_I_STORE_DELETE] = {1, 0, 0, true},
    [WEFT_I_STORE_NUM_KEYS] = {1, 0, 0, true},
    [WEFT_I_STORE_MULTI_GET] = {ANY, 0, ANY, false},
    [WEFT_I_STORE_MULTI_SET] = {ANY, ANY, 0, false},
    [WEFT_I_STORE_PUSH] = {1, 1, 0, false},
    [WEFT_I_STORE_POP] = {1, 0, 1, false},
    [WEFT_I_STORE_LENGTH] = {1, 0, 0, true},
    [WEFT_I_STORE_CANCEL] = {0, 0, 0, false},
    [WEFT_I_STORE_TAKEN] = {0, 0, 0, false},
    [WEFT_I_STORE_WILL] = {1, 1, 0, false},
    [WEFT_I_STORE_CLOCK] = {1, 0, 1, true},
};

/* Writes the request and reads it back: what the reader says. */
static weft_status exchange(const weft_i_store_request *request)
{
    weft_i_store_request out;
    void *space = bytes;
    size_t count = weft_i_store_request_bytes(request);
    CHECK(count <= sizeof bytes);
    weft_i_store_request_encode(request, bytes, count);
    weft_status status = weft_i_store_request_decode(bytes, count, &out, &space);
    if (status < 0) {
        CHECK(!space);
        return status;
    }
    CHECK(out.op == request->op && out.may_block == request->may_block &&
          out.keys == request->keys && out.values == request->values &&
          out.number == request->number);
    for (size_t i = 0; i < out.keys; i++)
        CHECK(out.key[i].bytes == request->key[i].bytes &&
              !memcmp(out.key[i].data, request->key[i].data, out.key[i].bytes));
    for (size_t i = 0; i < out.values; i++)
        CHECK(out.value[i].bytes == request->value[i].bytes &&
              !memcmp(out.value[i].data, request->value[i].data, out.value[i].bytes));
    WEFT_OS->free(space);
    for (size_t cut = 0; cut < count; cut++) { /* no part of it is a request */
        CHECK_INT(weft_i_store_request_decode(bytes, cut, &out, &space), WEFT_ERR_PROTOCOL);
        CHECK(!space);
    }
    bytes[count] = 0;
    CHECK_INT(weft_i_store_request_decode(bytes, count + 1, &out, &space), WEFT_ERR_PROTOCOL);
    return status;
}

TEST(test_store_message_requests)
{
    weft_i_view keys[4] = {{"a", 1}, {"bc", 2}, {"def", 3}, {"g", 1}};
    weft_i_view values[4] = {{"1", 1}, {"", 0}, {"\0x", 2}, {"4", 1}};
    for (unsigned op = 0; op <= WEFT_I_STORE_OPS + 1; op++)
        for (size_t k = 0; k < 4; k++)
            for (size_t v = 0; v < 4; v++) {
                weft_i_store_request request = {.op = (weft_i_store_op)op,
                                                .may_block = op & 1,
                                                .keys = k,
                                                .key = keys,
                                                .values = v,
                                                .value = values,
                                                .number = -5 - (int64_t)op};
                bool right = op >= WEFT_I_STORE_SET && op < WEFT_I_STORE_OPS &&
                             (wanted[op].keys == ANY || wanted[op].keys == k) &&
                             (wanted[op].values == ANY ? v == k : wanted[op].values == v);
                CHECK_INT(exchange(&request), right ? WEFT_OK : WEFT_ERR_PROTOCOL);
            }
}

TEST(test_store_message_keys)
{
    static char longest[WEFT_STORE_KEY_BYTES + 1];
    memset(longest, 'k', sizeof longest);
    static const struct {
        weft_i_view key;
        bool right, prefix;
    } cases[] = {{{"", 0}, false, true},
                 {{"a\0b", 3}, false, false},
                 {{"\0", 1}, false, false},
                 {{longest, WEFT_STORE_KEY_BYTES}, true, true},
                 {{longest, WEFT_STORE_KEY_BYTES + 1}, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_store_request get = {.op = WEFT_I_STORE_GET, .keys = 1, .key = &cases[i].key};
        weft_i_store_request count = {.op = WEFT_I_STORE_NUM_KEYS, .keys = 1, .key = &cases[i].key};
        size_t size = weft_i_store_request_bytes(&get);
        weft_i_store_request out;
        void *space;
        weft_i_store_request_encode(&get, bytes, size);
        weft_status status = weft_i_store_request_decode(bytes, size, &out, &space);
        CHECK_INT(status, cases[i].right ? WEFT_OK : WEFT_ERR_PROTOCOL);
        WEFT_OS->free(space);
        weft_i_store_request_encode(&count, bytes, size);
        status = weft_i_store_request_decode(bytes, size, &out, &space);
        CHECK_INT(status, cases[i].prefix ? WEFT_OK : WEFT_ERR_PROTOCOL);
        WEFT_OS->free(space);
    }
}

/* Truth is 0 or 1, and what is reserved is zero. */
TEST(test_store_message_fixed_bytes)
{
    weft_i_view key = {"k", 1};
    weft_i_store_request get = {.op = WEFT_I_STORE_GET, .may_block = true, .keys = 1, .key = &key};
    weft_i_store_request out;
    void *space;
    size_t size = weft_i_store_request_bytes(&get);
    weft_i_store_request_encode(&get, bytes, size);
    for (size_t i = 1; i < 8; i++) {
        uint8_t before = bytes[i];
        bytes[i] = 2;
        CHECK_INT(weft_i_store_request_decode(bytes, size, &out, &space), WEFT_ERR_PROTOCOL);
        bytes[i] = before;
    }
    CHECK_OK(weft_i_store_request_decode(bytes, size, &out, &space));
    WEFT_OS->free(space);
    fault_arm(1);
    weft_status status = weft_i_store_request_decode(bytes, size, &out, &space);
    CHECK(fault_disarm());
    CHECK_INT(status, WEFT_ERR_NO_MEMORY);
}

/* A request of as many keys as there may be, of one more, and of more than the bytes can hold. */
TEST(test_store_message_counts)
{
    weft_i_view *keys = malloc((WEFT_I_STORE_KEYS + 1) * sizeof *keys);
    uint8_t *large = malloc((WEFT_I_STORE_KEYS + 1) * 5 + 64);
    CHECK(keys && large);
    for (size_t i = 0; i <= WEFT_I_STORE_KEYS; i++)
        keys[i] = (weft_i_view){"k", 1};
    for (size_t more = 0; more < 2; more++) {
        weft_i_store_request wait = {
            .op = WEFT_I_STORE_WAIT, .keys = WEFT_I_STORE_KEYS + more, .key = keys};
        weft_i_store_request out;
        void *space;
        size_t size = weft_i_store_request_bytes(&wait);
        weft_i_store_request_encode(&wait, large, size);
        weft_status status = weft_i_store_request_decode(large, size, &out, &space);
        CHECK_INT(status, more ? WEFT_ERR_PROTOCOL : WEFT_OK);
        WEFT_OS->free(space);
    }
    weft_i_store_request wait = {.op = WEFT_I_STORE_WAIT, .keys = 2, .key = keys}, out;
    void *space;
    size_t size = weft_i_store_request_bytes(&wait);
    weft_i_store_request_encode(&wait, large, size);
    large[8] = 3; /* says three keys, and ten bytes follow: not even worth an allocation */
    fault_arm(1);
    weft_status status = weft_i_store_request_decode(large, size, &out, &space);
    CHECK(!fault_disarm());
    CHECK_INT(status, WEFT_ERR_PROTOCOL);
    free(keys);
    free(large);
}

TEST(test_store_message_largest_request)
{
    weft_i_view key = {"k", 1};
    size_t rest = WEFT_I_STORE_MESSAGE_BYTES - 24 - (4 + 1) - 2 * 4;
    for (size_t more = 0; more < 2; more++) {
        weft_i_view values[] = {{NULL, WEFT_STORE_VALUE_BYTES},
                                {NULL, rest - WEFT_STORE_VALUE_BYTES + more}};
        weft_i_store_request request = {
            .op = WEFT_I_STORE_COMPARE_SET, .keys = 1, .key = &key, .values = 2, .value = values};
        size_t size = weft_i_store_request_bytes(&request);
        CHECK(size == (more ? SIZE_MAX : (size_t)WEFT_I_STORE_MESSAGE_BYTES));
    }
}

/* ---- answers ---- */

static weft_status decode_answer(weft_status status, size_t values, int64_t number)
{
    weft_i_view array[4] = {{"a", 1}, {"", 0}, {"\0c", 2}, {"d", 1}};
    weft_i_store_answer in = {.status = status, .number = number, .values = values, .value = array};
    weft_i_store_answer out;
    size_t size = weft_i_store_answer_bytes(&in);
    weft_i_store_answer_encode(&in, bytes, size);
    weft_status got = weft_i_store_answer_decode(bytes, size, &out);
    if (got == WEFT_OK) {
        CHECK(out.status == status && out.values == values && out.number == number);
        for (size_t i = 0; i < values; i++)
            CHECK(out.value[i].bytes == array[i].bytes &&
                  !memcmp(out.value[i].data, array[i].data, array[i].bytes));
        weft_i_store_answer_clear(&out);
        for (size_t cut = 0; cut < size; cut++)
            CHECK_INT(weft_i_store_answer_decode(bytes, cut, &out), WEFT_ERR_PROTOCOL);
        bytes[size] = 0;
        CHECK_INT(weft_i_store_answer_decode(bytes, size + 1, &out), WEFT_ERR_PROTOCOL);
        CHECK(!out.array);
    }
    return got;
}

TEST(test_store_message_answers)
{
    for (size_t values = 0; values < 5; values++)
        CHECK_INT(decode_answer(WEFT_OK, values, -7), WEFT_OK);
    CHECK_INT(decode_answer(WEFT_ERR_NOT_FOUND, 0, 1), WEFT_OK);
    CHECK_INT(decode_answer((weft_status)1, 0, 0), WEFT_ERR_PROTOCOL);
    CHECK_INT(decode_answer((weft_status)-32000, 0, 0), WEFT_ERR_PROTOCOL);
    weft_i_store_answer out;
    CHECK_INT(decode_answer(WEFT_OK, 2, 0), WEFT_OK);
    size_t size = 16 + 5 + 4;
    bytes[4] = 3; /* says three values, and nine bytes follow */
    fault_arm(1);
    weft_status status = weft_i_store_answer_decode(bytes, size, &out);
    CHECK(!fault_disarm());
    CHECK_INT(status, WEFT_ERR_PROTOCOL);
    bytes[4] = 2;
    fault_arm(1);
    status = weft_i_store_answer_decode(bytes, size, &out);
    CHECK(fault_disarm());
    CHECK_INT(status, WEFT_ERR_NO_MEMORY);
}

TEST(test_store_message_answer_counts)
{
    uint8_t *large = calloc(1, 16 + 4 * (WEFT_I_STORE_KEYS + 1));
    weft_i_store_answer out;
    CHECK(large);
    for (uint32_t more = 0; more < 2; more++) {
        uint32_t values = WEFT_I_STORE_KEYS + more;
        for (int i = 0; i < 4; i++)
            large[4 + i] = (uint8_t)(values >> 8 * i);
        weft_status status = weft_i_store_answer_decode(large, 16 + 4 * (size_t)values, &out);
        CHECK_INT(status, more ? WEFT_ERR_PROTOCOL : WEFT_OK);
        if (!more)
            CHECK_INT(out.values, WEFT_I_STORE_KEYS);
        weft_i_store_answer_clear(&out);
    }
    free(large);
}

/* A client believes no answer that its request cannot have. */
TEST(test_store_message_answers_fit)
{
    for (unsigned op = WEFT_I_STORE_SET; op < WEFT_I_STORE_OPS; op++)
        for (size_t values = 0; values < 4; values++)
            for (int64_t number = -1; number < 2; number++) {
                weft_i_store_request request = {.op = (weft_i_store_op)op, .keys = 3};
                weft_i_store_answer answer = {.values = values, .number = number};
                bool right = values == (wanted[op].answers == ANY ? 3 : wanted[op].answers) &&
                             (!wanted[op].counts || number >= 0);
                CHECK_INT(weft_i_store_answer_fits(&answer, &request), right);
                answer.status = WEFT_ERR_NOT_FOUND;
                CHECK_INT(weft_i_store_answer_fits(&answer, &request), !values);
            }
    static const weft_status said[] = {
        WEFT_ERR_NOT_FOUND,   WEFT_ERR_EMPTY,       WEFT_ERR_TYPE,        WEFT_ERR_LIMIT,
        WEFT_ERR_NO_MEMORY,   WEFT_ERR_INVALID_ARG, WEFT_ERR_UNSUPPORTED, WEFT_ERR_TIMEOUT,
        WEFT_ERR_UNREACHABLE, WEFT_ERR_AUTH,        WEFT_ERR_PROTOCOL,    WEFT_ERR_MISMATCH};
    weft_i_store_request get = {.op = WEFT_I_STORE_GET, .keys = 1};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        weft_i_store_answer answer = {.status = said[i]};
        CHECK_INT(weft_i_store_answer_fits(&answer, &get), i < 7);
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
