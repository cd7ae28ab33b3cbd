/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/client.c, store/server.c, store/peer.c */
/*
 * Frames that lie, made from seeds: to a server from its clients, and to a client from its server.
 * Most of a frame is right, so that the lie is reached: a wrong count, a length that is too large
 * or ends elsewhere, an op that does not exist, a sequence out of order, an answer to nobody's
 * question, a cut.  Nothing may crash, leak or be believed, and an honest client notices nothing.
 *
 * WEFT_FUZZ_FRAMES says how many frames each test sends (default 20000), WEFT_FUZZ_SEED where the
 * seeds begin.  A broken promise prints its seed: WEFT_FUZZ_SEED=that WEFT_FUZZ_FRAMES=1 is that
 * conversation alone.
 */
#include "fuzz.h"
#include "harness.h"

#include "base/os/os.h"
#include "store/client.h"
#include "store/server.h"
#include "weft/scope.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_MOST = 4096, CONVERSATION = 16, KEYS_MOST = 5 };

static uint64_t seed_now, state;

#undef PROMISE
#define PROMISE(condition_)                                                          \
    do {                                                                             \
        if (!(condition_))                                                           \
            FAIL("%s is false; WEFT_FUZZ_SEED=%llu WEFT_FUZZ_FRAMES=1", #condition_, \
                 (unsigned long long)seed_now);                                      \
    } while (0)

static void sow(uint64_t seed)
{
    seed_now = seed;
    state = (seed + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t draw(uint64_t below)
{
    state ^= state << 13; /* xorshift: the same sequence on every machine */
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static bool one_in(uint64_t times)
{
    return draw(times) == 0;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* A number near `right`, or one of those that break things. */
static uint32_t lie_about(uint32_t right)
{
    static const uint32_t favourites[] = {
        0,     1,     2,     0x7fffffff, 0x80000000,    0xffffffff,
        65535, 65536, 65537, 8 << 20,    (8 << 20) + 1, 16 << 20};
    return one_in(2) ? right + (uint32_t)draw(9) - 4
                     : favourites[draw(sizeof favourites / sizeof *favourites)];
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* One change to a frame of `bytes`: often at a field that means something. */
static size_t spoil(uint8_t *frame, size_t bytes, size_t fixed)
{
    static const size_t head_fields[] = {0, 4, 8, 16};
    size_t at = WEFT_I_STORE_HEAD_BYTES;
    switch (draw(7)) {
    case 0: /* the head: magic, length, sequence, id */
        at = head_fields[draw(4)];
        break;
    case 1: /* op, status, counts */
        at += 4 * draw(fixed / 4);
        break;
    case 2: /* the first length */
        at += fixed;
        break;
    case 3: /* anywhere */
        at = draw(bytes);
        frame[at] = (uint8_t)draw(256);
        return bytes;
    case 4: /* one bit */
        frame[draw(bytes)] ^= (uint8_t)(1u << draw(8));
        return bytes;
    case 5: /* shorter than it says */
        return draw(bytes);
    default: { /* longer, and it says so */
        size_t more = 1 + draw(64);
        if (bytes + more > FRAME_MOST)
            return bytes;
        memset(frame + bytes, (int)draw(256), more);
        put32(frame + 4, get32(frame + 4) + (uint32_t)more);
        return bytes + more;
    }
    }
    if (at + 4 <= bytes)
        put32(frame + at, lie_about(get32(frame + at)));
    return bytes;
}

static size_t frame_of(uint8_t *out, const uint8_t *payload, size_t bytes, uint64_t sequence,
                       uint64_t id)
{
    weft_i_store_head head = {.payload_bytes = (uint32_t)bytes, .sequence = sequence, .id = id};
    weft_i_store_head_encode(&head, out);
    memcpy(out + WEFT_I_STORE_HEAD_BYTES, payload, bytes);
    return WEFT_I_STORE_HEAD_BYTES + bytes;
}

static void draw_views(weft_i_view *views, size_t count, bool keys)
{
    static char letters[512];
    memset(letters, 'k', sizeof letters);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = one_in(8) ? draw(sizeof letters) : draw(5);
        views[i] = (weft_i_view){letters, bytes || !keys ? bytes : 1};
    }
}

/* ---- to the server ---- */

static size_t request_frame(uint8_t *out, uint64_t sequence)
{
    static const uint8_t keys_of[WEFT_I_STORE_OPS] = {[WEFT_I_STORE_CHECK] = KEYS_MOST,
                                                      [WEFT_I_STORE_WAIT] = KEYS_MOST,
                                                      [WEFT_I_STORE_MULTI_GET] = KEYS_MOST,
                                                      [WEFT_I_STORE_MULTI_SET] = KEYS_MOST};
    uint8_t payload[FRAME_MOST];
    weft_i_view key[KEYS_MOST], value[KEYS_MOST];
    weft_i_store_request r = {.op = (weft_i_store_op)(1 + draw(WEFT_I_STORE_OPS - 1)),
                              .may_block = one_in(2),
                              .key = key,
                              .value = value,
                              .number = (int64_t)draw(32)};
    r.keys = keys_of[r.op] ? draw(KEYS_MOST + 1)
                           : r.op != WEFT_I_STORE_CANCEL && r.op != WEFT_I_STORE_TAKEN;
    r.values = r.op == WEFT_I_STORE_MULTI_SET     ? r.keys
               : r.op == WEFT_I_STORE_COMPARE_SET ? 2
               : r.op == WEFT_I_STORE_SET || r.op == WEFT_I_STORE_APPEND ||
                       r.op == WEFT_I_STORE_PUSH || r.op == WEFT_I_STORE_WILL
                   ? 1
                   : 0;
    draw_views(key, r.keys, true);
    draw_views(value, r.values, false);
    size_t bytes = weft_i_store_request_bytes(&r);
    if (bytes > FRAME_MOST - 256)
        return 0;
    weft_i_store_request_encode(&r, payload, bytes);
    return frame_of(out, payload, bytes, sequence, draw(8));
}

typedef struct guest {
    int fd;
    uint64_t sequence;
} guest;

static guest enter(weft_i_store_server *server)
{
    int fds[2];
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting hello = {.version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    weft_i_store_server_adopt(server, fds[0]);
    weft_i_store_greeting_encode(&hello, bytes);
    CHECK(send(fds[1], bytes, sizeof bytes, 0) == sizeof bytes);
    weft_i_store_server_step(server, 0);
    CHECK(recv(fds[1], bytes, sizeof bytes, 0) == sizeof bytes);
    return (guest){.fd = fds[1]};
}

/* The honest one: its value is what it was. */
static void honest(weft_i_store_server *server, guest *g, weft_i_store_op op)
{
    uint8_t frame[256], payload[128], answer[256];
    weft_i_view key = {"honest", 6}, value = {"value", 5};
    weft_i_store_request r = {
        .op = op, .keys = 1, .key = &key, .values = op == WEFT_I_STORE_SET, .value = &value};
    size_t bytes = weft_i_store_request_bytes(&r);
    weft_i_store_request_encode(&r, payload, bytes);
    bytes = frame_of(frame, payload, bytes, g->sequence++, 7);
    PROMISE(send(g->fd, frame, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    weft_i_store_server_step(server, 0);
    ssize_t got = recv(g->fd, answer, sizeof answer, 0);
    PROMISE(got == WEFT_I_STORE_HEAD_BYTES + 16 + (op == WEFT_I_STORE_GET ? 9 : 0));
    PROMISE(op != WEFT_I_STORE_GET || !memcmp(answer + got - 5, "value", 5));
}

static uint64_t lie_to_server(weft_i_store_server *server)
{
    static uint8_t sink[1 << 16];
    uint8_t frame[2 * FRAME_MOST];
    guest liar = enter(server);
    uint64_t sent = 0;
    for (; sent < CONVERSATION; sent++) {
        size_t bytes = request_frame(frame, liar.sequence++);
        if (bytes && one_in(4))
            bytes = spoil(frame, bytes, 24);
        if (send(liar.fd, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        weft_i_store_server_step(server, 0);
        while (recv(liar.fd, sink, sizeof sink, MSG_DONTWAIT) > 0)
            ;
        weft_i_store_census now = weft_i_store_server_census(server);
        PROMISE(now.bytes <= 1 << 20 && now.strangers == 0 && now.peers <= 2);
    }
    close(liar.fd);
    weft_i_store_server_step(server, 0);
    weft_i_store_server_step(server, 0);
    return sent + (sent == 0);
}

TEST(test_fuzz_frames_to_the_server)
{
    uint64_t frames = number_of("WEFT_FUZZ_FRAMES", 20000), sent = 0;
    setenv("WEFT_STORE_MEMORY", "1M", 1);
    weft_i_store_server *server = weft_i_store_server_new(-1, NULL);
    CHECK(server);
    guest witness = enter(server);
    for (uint64_t seed = number_of("WEFT_FUZZ_SEED", 1); sent < frames; seed++) {
        sow(seed);
        honest(server, &witness, WEFT_I_STORE_SET);
        sent += lie_to_server(server);
        honest(server, &witness, WEFT_I_STORE_GET);
        weft_i_store_census after = weft_i_store_server_census(server);
        PROMISE(after.peers == 1 && !after.waiting && !after.granted && !after.unsent);
        if (after.bytes > 900000) { /* full: start over, so that setting succeeds */
            close(witness.fd);
            weft_i_store_server_drop(server, false);
            server = weft_i_store_server_new(-1, NULL);
            CHECK(server);
            witness = enter(server);
        }
    }
    close(witness.fd);
    weft_i_store_server_drop(server, false);
    unsetenv("WEFT_STORE_MEMORY");
}

/* ---- to the client ---- */

/* An answer that may be right for the call that comes, or for another one. */
static size_t answer_frame(uint8_t *out, uint64_t sequence, uint64_t id)
{
    static const weft_status statuses[] = {
        WEFT_OK, WEFT_OK, WEFT_OK, WEFT_ERR_NOT_FOUND, WEFT_ERR_TYPE, WEFT_ERR_LIMIT};
    uint8_t payload[FRAME_MOST];
    weft_i_view value[8];
    weft_i_store_answer a = {.status = statuses[draw(6)],
                             .number = (int64_t)draw(4) - 1,
                             .values = one_in(3) ? draw(8) : draw(2) * 3,
                             .value = value};
    if (one_in(2))
        a.values = 1;
    draw_views(value, a.values, false);
    size_t bytes = weft_i_store_answer_bytes(&a);
    if (bytes > FRAME_MOST - 256)
        return 0;
    weft_i_store_answer_encode(&a, payload, bytes);
    return frame_of(out, payload, bytes, sequence, one_in(8) ? id + draw(3) - 1 : id);
}

static uint64_t bytes_seen; /* read, so that AddressSanitizer sees what is not there */

enum { ASKED = 3 };

/* One call of any kind, and how many values it has to give. */
static weft_status call_any(weft_store *s, weft_store_value *values, size_t *asked, size_t *count)
{
    static const char *const keys[ASKED] = {"a", "b", "c"};
    int64_t total = 0;
    bool truth = false;
    *asked = 0;
    switch (draw(10)) {
    case 0:
        return weft_store_set(s, "a", "v", 1);
    case 1:
        *asked = 1;
        return weft_store_get(s, "a", 1, values);
    case 2:
        return weft_store_add(s, "a", 1, &total);
    case 3:
        *asked = 1;
        return weft_store_compare_set(s, "a", "x", 1, "y", 1, &truth, values);
    case 4:
        return weft_store_check(s, ASKED, keys, &truth);
    case 5:
        return weft_store_wait(s, ASKED, keys, 1);
    case 6:
        *asked = ASKED;
        return weft_store_multi_get(s, ASKED, keys, 1, values);
    case 7:
        *asked = 1;
        return weft_store_queue_pop(s, "a", 1, values);
    case 8:
        return weft_store_queue_len(s, "a", count);
    default:
        return weft_store_num_keys(s, count);
    }
}

/* What a call gives is whole, and what lies behind its results is untouched. */
static weft_status call(weft_store *s)
{
    enum { CANARY = 0x5a };
    struct {
        weft_store_value value[ASKED];
        unsigned char canary[256];
    } got = {0};
    size_t count = 0, asked;
    memset(got.canary, CANARY, sizeof got.canary);
    weft_status status = call_any(s, got.value, &asked, &count);
    PROMISE(count <= INT64_MAX); /* no negative one in disguise */
    for (size_t i = 0; i < sizeof got.canary; i++)
        PROMISE(got.canary[i] == CANARY);
    for (size_t i = 0; i < ASKED; i++) {
        PROMISE((got.value[i].data != NULL) == (status == WEFT_OK && i < asked));
        for (size_t byte = 0; byte < got.value[i].bytes; byte++) /* all of it can be read */
            bytes_seen += ((unsigned char *)got.value[i].data)[byte];
        weft_store_value_clear(&got.value[i]);
    }
    return status;
}

/* The answers lie in the socket before they are asked for, so one thread plays both sides. */
static uint64_t lie_to_client(void)
{
    static uint8_t sink[1 << 16];
    uint8_t frame[2 * FRAME_MOST];
    int fds[2];
    uint64_t calls = 0;
    bool broken = false;
    CHECK_OK(weft_scope_open());
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    weft_store *s = weft_i_store_client_adopt(fds[0]);
    CHECK(s);
    CHECK_OK(weft_store_set_timeout(s, 1));
    for (; calls < CONVERSATION && !broken; calls++) {
        size_t bytes = answer_frame(frame, calls, calls + 1);
        if (bytes && one_in(4))
            bytes = spoil(frame, bytes, 16);
        (void)!send(fds[1], frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        weft_status status = call(s);
        PROMISE(status <= 0 && weft_status_scope(status) != WEFT_SCOPE_BUG);
        broken = status == WEFT_ERR_PROTOCOL || status == WEFT_ERR_TIMEOUT;
        PROMISE(status != WEFT_ERR_PROTOCOL || call(s) == WEFT_ERR_PROTOCOL); /* stays broken */
        while (recv(fds[1], sink, sizeof sink, MSG_DONTWAIT) > 0)
            ;
    }
    close(fds[1]);
    CHECK_OK(weft_scope_close());
    weft_clear_error();
    return calls;
}

TEST(test_fuzz_frames_to_the_client)
{
    uint64_t frames = number_of("WEFT_FUZZ_FRAMES", 20000), sent = 0;
    for (uint64_t seed = number_of("WEFT_FUZZ_SEED", 1); sent < frames; seed++) {
        sow(seed);
        sent += lie_to_client();
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
