/* SPDX-License-Identifier: Apache-2.0 */
/* A store's server driven step by step on a clock of the test's own, with clients played by hand.
 */
#ifndef WEFT_TESTS_STORE_STEPS_H
#define WEFT_TESTS_STORE_STEPS_H

#include "fault.h"
#include "harness.h"

#include "base/machine/nofork.h"
#include "store/peer.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_i_os table;
static int64_t now = 1000000000;
static int last_timeout;
__attribute__((unused)) static const uint8_t token[WEFT_I_KEYED_BYTES] = {9, 8, 7};

static int64_t test_clock(void)
{
    return now;
}

static int test_epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    last_timeout = timeout_ms;
    return weft_i_os_linux.epoll_wait(fd, events, most, 0); /* nothing happens but what we do */
}

static weft_i_store_server *server;

static inline void serve(const uint8_t *with)
{
    if (with && weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    table.epoll_wait = test_epoll_wait;
    weft_i_os_now = &table;
    server = weft_i_store_server_new(-1, with);
    CHECK(server);
}

static inline void step(void)
{
    for (int i = 0; i < 3; i++)
        weft_i_store_server_step(server, 5000);
}

static inline void stop(void)
{
    weft_i_store_server_drop(server, false);
    weft_i_os_now = &weft_i_os_linux;
}

/* ---- a client ---- */

typedef struct client {
    weft_i_store_link line;
    uint64_t id;
} client;

static inline weft_i_store_greeting greeting_of(weft_i_store_greeting_kind kind)
{
    return (weft_i_store_greeting){
        .version = WEFT_I_STORE_VERSION, .kind = (uint16_t)kind, .release = "1.2.3"};
}

static inline void attach(client *c)
{
    int fds[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    *c = (client){0};
    weft_i_store_link_open(&c->line, fds[0]);
    CHECK_OK(weft_i_nofork_add(fds[0]));
    weft_i_store_server_adopt(server, fds[1]);
}

static inline void detach(client *c)
{
    weft_i_store_link_close(&c->line, false);
}

static inline void greet(client *c, const weft_i_store_greeting *greeting)
{
    CHECK_OK(weft_i_store_link_greet(&c->line, greeting));
    CHECK_OK(weft_i_store_link_flush(&c->line));
    step();
}

/* The kind of greeting that came; 0: none, -1: the connection is closed. */
static inline int heard(client *c, weft_i_store_greeting *out)
{
    weft_status status = weft_i_store_link_fill(&c->line, 1 << 20);
    int got = weft_i_store_link_greeting(&c->line, out);
    CHECK(got >= 0);
    return got ? out->kind : status < 0 ? -1 : 0;
}

static inline bool is_gone(client *c)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < 100 && status == WEFT_OK; i++) {
        size_t before = c->line.in.end;
        status = weft_i_store_link_fill(&c->line, 64 << 20);
        if (c->line.in.end == before)
            break;
    }
    return status == WEFT_ERR_UNREACHABLE;
}

static inline void join(client *c)
{
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO), out;
    attach(c);
    greet(c, &hello);
    CHECK_INT(heard(c, &out), WEFT_I_STORE_WELCOME);
}

static inline uint64_t ask(client *c, weft_i_store_op op, const char *key, weft_i_view value,
                           int64_t number, bool may_block)
{
    weft_i_view name = {key, key ? strlen(key) : 0};
    weft_i_store_request request = {.op = op,
                                    .may_block = may_block,
                                    .keys = key ? 1 : 0,
                                    .key = &name,
                                    .values = value.data ? 1 : 0,
                                    .value = &value,
                                    .number = number};
    size_t bytes = weft_i_store_request_bytes(&request);
    uint8_t *payload = weft_i_store_link_begin(&c->line, ++c->id, bytes);
    CHECK(payload);
    weft_i_store_request_encode(&request, payload, bytes);
    CHECK_OK(weft_i_store_link_commit(&c->line, bytes));
    CHECK_OK(weft_i_store_link_flush(&c->line));
    step();
    return c->id;
}

#define TEXT(text_) ((weft_i_view){(text_), strlen(text_)})
#define NOTHING     ((weft_i_view){NULL, 0})

/* The next answer: its status; 1 if there is none. */
static inline int answer_to(client *c, uint64_t id, char *text)
{
    weft_i_store_frame frame;
    weft_i_store_answer answer;
    int got;
    while (!(got = weft_i_store_link_next(&c->line, &frame))) {
        size_t before = c->line.in.end;
        if (weft_i_store_link_fill(&c->line, 32 << 20) < 0 || c->line.in.end == before)
            return 1;
        step();
    }
    CHECK_INT(got, 1);
    CHECK_INT(frame.id, id);
    CHECK_OK(weft_i_store_answer_decode(frame.payload, frame.bytes, &answer));
    if (text)
        snprintf(text, 64, "%.*s", answer.values ? (int)answer.one.bytes : 0,
                 answer.values ? (const char *)answer.one.data : "");
    int status = answer.status;
    weft_i_store_answer_clear(&answer);
    return status;
}

static inline void expect(client *c, uint64_t id, const char *text)
{
    char got[64];
    CHECK_INT(answer_to(c, id, got), WEFT_OK);
    if (strcmp(got, text))
        FAIL("the answer is \"%s\", not \"%s\"", got, text);
}

static inline void set(client *c, const char *key, const char *value)
{
    expect(c, ask(c, WEFT_I_STORE_SET, key, TEXT(value), 0, false), "");
}

static inline void push(client *c, const char *key, const char *value)
{
    expect(c, ask(c, WEFT_I_STORE_PUSH, key, TEXT(value), 0, false), "");
}

static inline void nothing_left(void)
{
    weft_i_store_census census = weft_i_store_server_census(server);
    CHECK_INT(census.peers, 0);
    CHECK_INT(census.waiting, 0);
    CHECK_INT(census.granted, 0);
    CHECK_INT(census.unsent, 0);
    CHECK(!server->reserved && !server->paused);
}

#endif
