/* SPDX-License-Identifier: Apache-2.0 */
/* The server of a store, driven step by step on a clock of the test's own, with clients played by
 * hand: who is let in, who waits, what is owed to whom, what each costs, and who has to go when. */
#include "fault.h"
#include "harness.h"

#include "base/nofork.h"
#include "store/peer.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_i_os table;
static int64_t now = 1000000000;
static int last_timeout;
static const uint8_t token[WEFT_I_KEYED_BYTES] = {9, 8, 7};

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

static void serve(const uint8_t *with)
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

static void step(void)
{
    for (int i = 0; i < 3; i++)
        weft_i_store_server_step(server, 5000);
}

static void stop(void)
{
    weft_i_store_server_drop(server, false);
    weft_i_os_now = &weft_i_os_linux;
}

/* ---- a client ---- */

typedef struct client {
    weft_i_store_link line;
    uint64_t id;
} client;

static weft_i_store_greeting greeting_of(weft_i_store_greeting_kind kind)
{
    return (weft_i_store_greeting){
        .version = WEFT_I_STORE_VERSION, .kind = (uint16_t)kind, .release = "1.2.3"};
}

static void attach(client *c)
{
    int fds[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    *c = (client){0};
    weft_i_store_link_open(&c->line, fds[0]);
    CHECK_OK(weft_i_nofork_add(fds[0]));
    weft_i_store_server_adopt(server, fds[1]);
}

static void detach(client *c)
{
    weft_i_store_link_close(&c->line, false);
}

static void greet(client *c, const weft_i_store_greeting *greeting)
{
    CHECK_OK(weft_i_store_link_greet(&c->line, greeting));
    CHECK_OK(weft_i_store_link_flush(&c->line));
    step();
}

/* The kind of greeting that came; 0: none, -1: the connection is closed. */
static int heard(client *c, weft_i_store_greeting *out)
{
    weft_status status = weft_i_store_link_fill(&c->line, 1 << 20);
    int got = weft_i_store_link_greeting(&c->line, out);
    CHECK(got >= 0);
    return got ? out->kind : status < 0 ? -1 : 0;
}

static bool is_gone(client *c)
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

static void join(client *c)
{
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO), out;
    attach(c);
    greet(c, &hello);
    CHECK_INT(heard(c, &out), WEFT_I_STORE_WELCOME);
}

static uint64_t ask(client *c, weft_i_store_op op, const char *key, weft_i_view value,
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
static int answer_to(client *c, uint64_t id, char *text)
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

static void expect(client *c, uint64_t id, const char *text)
{
    char got[64];
    CHECK_INT(answer_to(c, id, got), WEFT_OK);
    if (strcmp(got, text))
        FAIL("the answer is \"%s\", not \"%s\"", got, text);
}

static void set(client *c, const char *key, const char *value)
{
    expect(c, ask(c, WEFT_I_STORE_SET, key, TEXT(value), 0, false), "");
}

static void push(client *c, const char *key, const char *value)
{
    expect(c, ask(c, WEFT_I_STORE_PUSH, key, TEXT(value), 0, false), "");
}

static void nothing_left(void)
{
    weft_i_store_census census = weft_i_store_server_census(server);
    CHECK_INT(census.peers, 0);
    CHECK_INT(census.waiting, 0);
    CHECK_INT(census.granted, 0);
    CHECK_INT(census.unsent, 0);
    CHECK(!server->reserved && !server->paused);
}

/* ---- who is let in ---- */

TEST(test_store_peer_hello)
{
    client c, d;
    weft_i_store_greeting out;
    serve(NULL);
    attach(&c);
    step();
    CHECK_INT(weft_i_store_server_census(server).strangers, 1);
    CHECK_INT(heard(&c, &out), 0); /* the server waits for the client's word */
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO);
    greet(&c, &hello);
    CHECK_INT(heard(&c, &out), WEFT_I_STORE_WELCOME);
    CHECK(out.version == WEFT_I_STORE_VERSION && out.release[0]);
    CHECK_INT(weft_i_store_server_census(server).strangers, 0);
    CHECK_INT(weft_i_store_server_census(server).peers, 1);
    greet(&c, &hello); /* a greeting is no frame */
    CHECK(is_gone(&c));
    for (int kind = WEFT_I_STORE_CHALLENGE; kind <= WEFT_I_STORE_REFUSAL; kind++) {
        weft_i_store_greeting wrong = greeting_of((weft_i_store_greeting_kind)kind);
        attach(&d);
        greet(&d, &wrong);
        CHECK_INT(heard(&d, &out), -1);
        detach(&d);
    }
    attach(&d);
    hello.version++;
    greet(&d, &hello);
    CHECK_INT(heard(&d, &out), WEFT_I_STORE_REFUSAL);
    CHECK_INT(out.status, WEFT_ERR_VERSION);
    CHECK(is_gone(&d));
    nothing_left();
    detach(&c);
    detach(&d);
    stop();
}

/* The handshake with a token, changed in one thing at a time. */
TEST(test_store_peer_token)
{
    enum { RIGHT, HELLO, VERSION, RELEASE, PROOF, PURPOSE, AGAIN, CASES };
    for (int how = 0; how < CASES; how++) {
        client c;
        weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO), challenge, out;
        weft_i_store_greeting proof = greeting_of(WEFT_I_STORE_PROOF);
        weft_i_store_transcript said;
        uint8_t expected[WEFT_I_KEYED_BYTES];
        serve(token);
        attach(&c);
        CHECK_OK(weft_i_store_link_hello_proof(token, &hello, hello.proof));
        hello.proof[0] ^= how == HELLO;
        greet(&c, &hello);
        int got = heard(&c, &challenge);
        if (how == HELLO) {
            CHECK_INT(got, WEFT_I_STORE_REFUSAL);
            CHECK_INT(challenge.status, WEFT_ERR_AUTH);
        } else {
            CHECK_INT(got, WEFT_I_STORE_CHALLENGE);
            CHECK_INT(weft_i_store_server_census(server).strangers, 1);
            weft_i_store_transcript_set(&said, &hello, &challenge);
            CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, expected));
            CHECK(weft_i_keyed_equal(expected, challenge.proof));
            CHECK_OK(weft_i_store_link_derive(
                token, how == PURPOSE ? WEFT_I_STORE_SERVER_PROOF : WEFT_I_STORE_CLIENT_PROOF,
                &said, proof.proof));
            proof.proof[31] ^= how == PROOF;
            proof.version = (uint16_t)(proof.version + (how == VERSION));
            proof.release[0] = how == RELEASE ? '7' : proof.release[0];
            greet(&c, how == AGAIN ? &hello : &proof);
            got = heard(&c, &out);
            if (how == RIGHT) {
                CHECK_INT(got, WEFT_I_STORE_WELCOME);
                c.line.is_signed = true;
                CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_TO_SERVER_KEY, &said,
                                                  c.line.send_key));
                CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_TO_CLIENT_KEY, &said,
                                                  c.line.receive_key));
                set(&c, "k", "v");
                expect(&c, ask(&c, WEFT_I_STORE_GET, "k", NOTHING, 0, false), "v");
                c.line.send_key[0] ^= 1;
                ask(&c, WEFT_I_STORE_GET, "k", NOTHING, 0, false);
            } else if (how == AGAIN)
                CHECK_INT(got, -1);
            else {
                CHECK_INT(got, WEFT_I_STORE_REFUSAL);
                CHECK_INT(out.status, WEFT_ERR_AUTH);
            }
        }
        CHECK(is_gone(&c));
        nothing_left();
        detach(&c);
        stop();
    }
}

/* What is looked at before a connection costs anything. */
TEST(test_store_peer_screen)
{
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO);
    uint8_t right[WEFT_I_STORE_GREETING_BYTES], wrong[sizeof right], other[sizeof right];
    serve(token);
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, hello.proof));
    weft_i_store_greeting_encode(&hello, right);
    hello.proof[3] ^= 1;
    weft_i_store_greeting_encode(&hello, wrong);
    hello.version++;
    weft_i_store_greeting_encode(&hello, other);
    uint8_t odd[sizeof right];
    memcpy(odd, right, sizeof odd);
    odd[12] = 1;
    struct {
        const void *bytes;
        size_t count;
        bool in, told;
    } cases[] = {{right, 0, true, false},
                 {right, 1, true, false},
                 {right, sizeof right - 1, true, false},
                 {right, sizeof right, true, false},
                 {wrong, sizeof wrong, false, true},
                 {other, sizeof other, true, false},
                 {odd, sizeof odd, false, false},
                 {"G", 1, false, false},
                 {"WEFU", 4, false, false},
                 {"WEX", 3, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fds[2];
        uint8_t answer[200];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
        CHECK(write(fds[0], cases[i].bytes, cases[i].count) == (ssize_t)cases[i].count);
        bool in = weft_i_store_peer_screen(server, fds[1]);
        if (in != cases[i].in)
            FAIL("case %zu: %d", i, in);
        ssize_t got = read(fds[0], answer, sizeof answer);
        if (cases[i].told) {
            weft_i_store_greeting no;
            CHECK(got == sizeof right && weft_i_store_greeting_decode(answer, &no));
            CHECK(no.kind == WEFT_I_STORE_REFUSAL && no.status == WEFT_ERR_AUTH);
            CHECK(no.version == WEFT_I_STORE_VERSION && no.release[0]);
        } else
            CHECK(got <= 0);
        CHECK_INT(fcntl(fds[1], F_GETFD) >= 0, in); /* who is not in has been closed */
        if (in) {
            CHECK(read(fds[1], answer, sizeof answer) ==
                  (cases[i].count ? (ssize_t)cases[i].count : -1));
            close(fds[1]);
        }
        close(fds[0]);
    }
    stop();
}

/* Strangers and those who prove have their places; the oldest gives way. */
TEST(test_store_peer_places)
{
    enum { STRANGERS = WEFT_I_STORE_STRANGERS };
    client c[STRANGERS + 1];
    serve(NULL);
    for (int i = 0; i < STRANGERS; i++)
        attach(&c[i]);
    step();
    CHECK_INT(weft_i_store_server_census(server).strangers, STRANGERS);
    CHECK(!is_gone(&c[0]));
    attach(&c[STRANGERS]);
    step();
    CHECK_INT(weft_i_store_server_census(server).strangers, STRANGERS);
    CHECK(is_gone(&c[0]) && !is_gone(&c[1]) && !is_gone(&c[STRANGERS]));
    for (int i = 0; i <= STRANGERS; i++)
        detach(&c[i]);
    step();
    nothing_left();
    stop();
}

TEST(test_store_peer_patience)
{
    client c, d;
    serve(token);
    int64_t patience = server->patience;
    CHECK_INT(patience, 5000000000);
    weft_i_store_server_step(server, 70);
    CHECK_INT(last_timeout, 70);
    attach(&c);
    weft_i_store_server_step(server, -1);
    CHECK_INT(last_timeout, 5000);
    weft_i_store_server_step(server, 4999);
    CHECK_INT(last_timeout, 4999);
    now += patience - 1500000;
    weft_i_store_server_step(server, -1);
    CHECK_INT(last_timeout, 2); /* rounded up: not before its time */
    now += 1499999;
    step();
    CHECK(!is_gone(&c));
    CHECK_INT(last_timeout, 1);
    now++;
    step();
    CHECK(is_gone(&c));
    detach(&c);
    /* a proof has its own time */
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO), out;
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, hello.proof));
    attach(&c);
    now += patience - 1;
    greet(&c, &hello);
    CHECK_INT(heard(&c, &out), WEFT_I_STORE_CHALLENGE);
    attach(&d);
    weft_i_store_server_step(server, -1);
    CHECK_INT(last_timeout, 5000);
    now += 1000000000;
    weft_i_store_server_step(server, -1);
    CHECK_INT(last_timeout, 4000);
    now += patience - 1000000001;
    step();
    CHECK(!is_gone(&c) && !is_gone(&d));
    now++;
    step();
    CHECK(is_gone(&c) && is_gone(&d));
    nothing_left();
    detach(&c);
    detach(&d);
    stop();
}

/* A client that was let in may be silent for as long as it likes. */
TEST(test_store_peer_silence_of_clients)
{
    client c;
    serve(NULL);
    join(&c);
    now += 1000000000000;
    weft_i_store_server_step(server, 123);
    CHECK_INT(last_timeout, 123);
    set(&c, "k", "v");
    CHECK_INT(weft_i_store_server_census(server).peers, 1);
    CHECK(weft_i_store_server_is_alone(server)); /* one client, one reference */
    client d;
    join(&d);
    CHECK(!weft_i_store_server_is_alone(server));
    detach(&c);
    detach(&d);
    step();
    nothing_left();
    stop();
}

/* ---- requests that wait ---- */

TEST(test_store_peer_waits)
{
    client c, d;
    serve(NULL);
    join(&c);
    join(&d);
    CHECK_INT(answer_to(&c, ask(&c, WEFT_I_STORE_GET, "a", NOTHING, 0, false), NULL),
              WEFT_ERR_NOT_FOUND);
    CHECK_INT(weft_i_store_server_census(server).bytes, 0);
    uint64_t a = ask(&c, WEFT_I_STORE_GET, "a", NOTHING, 0, true);
    uint64_t b = ask(&c, WEFT_I_STORE_GET, "b", NOTHING, 0, true);
    uint64_t e = ask(&d, WEFT_I_STORE_GET, "a", NOTHING, 0, true);
    CHECK_INT(weft_i_store_server_census(server).waiting, 3);
    size_t held = weft_i_store_server_census(server).bytes;
    CHECK(held > 0);
    CHECK_INT(answer_to(&c, a, NULL), 1);
    uint64_t sets = ask(&d, WEFT_I_STORE_SET, "b", TEXT("two"), 0, false);
    CHECK_INT(answer_to(&d, sets, NULL), WEFT_OK);
    expect(&c, b, "two");
    CHECK_INT(weft_i_store_server_census(server).waiting, 2);
    ask(&c, WEFT_I_STORE_CANCEL, NULL, NOTHING, (int64_t)b, false); /* answered already */
    CHECK_INT(weft_i_store_server_census(server).waiting, 2);
    ask(&c, WEFT_I_STORE_CANCEL, NULL, NOTHING, (int64_t)a, false);
    CHECK_INT(weft_i_store_server_census(server).waiting, 1);
    set(&c, "a", "one");
    expect(&d, e, "one");
    CHECK_INT(answer_to(&c, a, NULL), 1); /* nobody waits for it any more */
    CHECK_INT(weft_i_store_server_census(server).waiting, 0);
    expect(&c, ask(&c, WEFT_I_STORE_DELETE, "a", NOTHING, 0, false), "");
    expect(&c, ask(&c, WEFT_I_STORE_DELETE, "b", NOTHING, 0, false), "");
    CHECK_INT(weft_i_store_server_census(server).bytes, 0);
    ask(&d, WEFT_I_STORE_GET, "x", NOTHING, 0, true);
    ask(&d, WEFT_I_STORE_POP, "y", NOTHING, 0, true);
    ask(&d, WEFT_I_STORE_GET, "z", NOTHING, 0, true);
    CHECK_INT(weft_i_store_server_census(server).waiting, 3);
    detach(&d); /* what it waited for is forgotten */
    step();
    CHECK_INT(weft_i_store_server_census(server).waiting, 0);
    CHECK_INT(weft_i_store_server_census(server).bytes, 0);
    push(&c, "y", "stays");
    expect(&c, ask(&c, WEFT_I_STORE_POP, "y", NOTHING, 0, false), "stays");
    detach(&c);
    step();
    nothing_left();
    stop();
}

TEST(test_store_peer_waits_are_bounded)
{
    client c;
    serve(NULL);
    join(&c);
    for (int i = 0; i < WEFT_I_STORE_WAITING; i++) {
        weft_i_view name = {"k", 1};
        weft_i_store_request get = {
            .op = WEFT_I_STORE_GET, .may_block = true, .keys = 1, .key = &name};
        size_t bytes = weft_i_store_request_bytes(&get);
        weft_i_store_request_encode(&get, weft_i_store_link_begin(&c.line, ++c.id, bytes), bytes);
        CHECK_OK(weft_i_store_link_commit(&c.line, bytes));
        CHECK_OK(weft_i_store_link_flush(&c.line));
        if (i % 64 == 63)
            step();
    }
    step();
    CHECK_INT(weft_i_store_server_census(server).waiting, WEFT_I_STORE_WAITING);
    CHECK_INT(answer_to(&c, ask(&c, WEFT_I_STORE_GET, "k", NOTHING, 0, true), NULL),
              WEFT_ERR_LIMIT);
    CHECK_INT(weft_i_store_server_census(server).waiting, WEFT_I_STORE_WAITING);
    detach(&c);
    step();
    nothing_left();
    /* and by memory, to the byte */
    join(&c);
    ask(&c, WEFT_I_STORE_GET, "k", NOTHING, 0, true);
    size_t needed = weft_i_store_server_census(server).bytes;
    ask(&c, WEFT_I_STORE_CANCEL, NULL, NOTHING, (int64_t)c.id, false);
    CHECK_INT(server->map.bytes, 0);
    size_t before = server->map.limit, cost = 0;
    for (server->map.limit = 1; server->map.limit < needed; server->map.limit++) {
        uint64_t id = ask(&c, WEFT_I_STORE_GET, "k", NOTHING, 0, true);
        if (server->waiting) {
            ask(&c, WEFT_I_STORE_CANCEL, NULL, NOTHING, (int64_t)id, false);
            cost = server->map.limit;
            break;
        }
        CHECK_INT(answer_to(&c, id, NULL), WEFT_ERR_LIMIT);
    }
    weft_i_view name = {"k", 1};
    weft_i_store_request get = {.op = WEFT_I_STORE_GET, .may_block = true, .keys = 1, .key = &name};
    CHECK(cost > weft_i_store_request_bytes(&get) && cost < needed);
    server->map.limit = before;
    detach(&c);
    step();
    nothing_left();
    stop();
}

/* ---- elements on their way ---- */

TEST(test_store_peer_receipts)
{
    client c, d;
    serve(NULL);
    join(&c);
    join(&d);
    push(&c, "q", "1");
    push(&c, "q", "2");
    push(&c, "q", "3");
    size_t bytes = weft_i_store_server_census(server).bytes;
    uint64_t one = ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false);
    expect(&c, one, "1");
    uint64_t two = ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false);
    expect(&c, two, "2");
    CHECK_INT(weft_i_store_server_census(server).granted, 2);
    CHECK_INT(weft_i_store_server_census(server).bytes, bytes);      /* they still cost */
    ask(&d, WEFT_I_STORE_TAKEN, NULL, NOTHING, (int64_t)one, false); /* not its own */
    ask(&c, WEFT_I_STORE_TAKEN, NULL, NOTHING, (int64_t)two + 1, false);
    CHECK_INT(weft_i_store_server_census(server).granted, 2);
    ask(&c, WEFT_I_STORE_TAKEN, NULL, NOTHING, (int64_t)one, false);
    CHECK_INT(weft_i_store_server_census(server).granted, 1);
    CHECK(weft_i_store_server_census(server).bytes < bytes);
    ask(&c, WEFT_I_STORE_CANCEL, NULL, NOTHING, (int64_t)two, false); /* back to the front */
    CHECK_INT(weft_i_store_server_census(server).granted, 0);
    uint64_t again = ask(&d, WEFT_I_STORE_POP, "q", NOTHING, 0, false);
    expect(&d, again, "2");
    detach(&d); /* dies with it */
    step();
    uint64_t after = ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false);
    expect(&c, after, "2");
    ask(&c, WEFT_I_STORE_TAKEN, NULL, NOTHING, (int64_t)after, false);
    after = ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false);
    expect(&c, after, "3");
    ask(&c, WEFT_I_STORE_TAKEN, NULL, NOTHING, (int64_t)after, false);
    CHECK_INT(weft_i_store_server_census(server).bytes, 0);
    CHECK_INT(answer_to(&c, ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false), NULL),
              WEFT_ERR_EMPTY);
    detach(&c);
    step();
    nothing_left();
    stop();
}

/* An element that goes back wakes the next who waits. */
TEST(test_store_peer_returned_element_wakes)
{
    client c, d;
    serve(NULL);
    join(&c);
    join(&d);
    push(&c, "q", "1");
    expect(&c, ask(&c, WEFT_I_STORE_POP, "q", NOTHING, 0, false), "1");
    uint64_t waits = ask(&d, WEFT_I_STORE_POP, "q", NOTHING, 0, true);
    CHECK_INT(answer_to(&d, waits, NULL), 1);
    detach(&c);
    step();
    expect(&d, waits, "1");
    CHECK_INT(weft_i_store_server_census(server).granted, 1);
    detach(&d);
    step();
    CHECK_INT(weft_i_store_server_census(server).keys, 1);
    nothing_left();
    stop();
}

/* ---- wills ---- */

TEST(test_store_peer_wills)
{
    client c, d;
    serve(NULL);
    join(&d);
    for (int how = 0; how < 4; how++) {
        join(&c);
        expect(&c, ask(&c, WEFT_I_STORE_WILL, "will", TEXT("first"), 0, false), "");
        size_t bytes = weft_i_store_server_census(server).bytes;
        CHECK(bytes >= strlen("willfirst"));
        if (how == 1)
            expect(&c, ask(&c, WEFT_I_STORE_WILL, "other", TEXT("x"), 0, false), "");
        if (how == 2)
            expect(&c, ask(&c, WEFT_I_STORE_WILL, "will", ((weft_i_view){"", 0}), 0, false), "");
        if (how == 2)
            CHECK_INT(weft_i_store_server_census(server).bytes, 0);
        if (how == 3) {
            size_t limit = server->map.limit;
            server->map.limit = bytes + 10;
            CHECK_INT(
                answer_to(&c, ask(&c, WEFT_I_STORE_WILL, "will", TEXT("longer"), 0, false), NULL),
                WEFT_ERR_LIMIT);
            server->map.limit = limit;
        }
        CHECK_INT(weft_i_store_server_census(server).keys, 0);
        detach(&c);
        step();
        const char *key = how == 1 ? "other" : "will";
        CHECK_INT(weft_i_store_server_census(server).keys, how != 2);
        if (how != 2) {
            expect(&d, ask(&d, WEFT_I_STORE_GET, key, NOTHING, 0, false), how == 1 ? "x" : "first");
            ask(&d, WEFT_I_STORE_DELETE, key, NOTHING, 0, false);
            answer_to(&d, d.id, NULL);
        }
        CHECK_INT(weft_i_store_server_census(server).bytes, 0);
    }
    /* to the byte */
    join(&c);
    expect(&c, ask(&c, WEFT_I_STORE_WILL, "w", TEXT("12"), 0, false), "");
    size_t bytes = weft_i_store_server_census(server).bytes, limit = server->map.limit;
    expect(&c, ask(&c, WEFT_I_STORE_WILL, "w", ((weft_i_view){"", 0}), 0, false), "");
    server->map.limit = bytes - 1;
    CHECK_INT(answer_to(&c, ask(&c, WEFT_I_STORE_WILL, "w", TEXT("12"), 0, false), NULL),
              WEFT_ERR_LIMIT);
    server->map.limit = bytes;
    expect(&c, ask(&c, WEFT_I_STORE_WILL, "w", TEXT("12"), 0, false), "");
    server->map.limit = limit;
    uint64_t waits = ask(&d, WEFT_I_STORE_GET, "w", NOTHING, 0, true);
    detach(&c);
    step();
    expect(&d, waits, "12"); /* a will wakes like any change */
    detach(&d);
    step();
    nothing_left();
    stop();
}

/* ---- budgets ---- */

/* A client that does not read its answers is paused at its own limit, is not read any further, and
 * goes when its patience is over; one that reads a little stays. */
TEST(test_store_peer_unread_answers)
{
    client c, d;
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    join(&c);
    join(&d);
    weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &request, NULL, &answer, &outcome);
    CHECK_INT(answer.status, WEFT_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(server->paused, 0);
        ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    }
    CHECK(server->unsent > 31 << 20 && server->unsent < 32 << 20); /* a little is in the socket */
    CHECK_INT(server->unsent, server->known.first->unsent);
    CHECK_INT(server->paused, 0);
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    CHECK(server->unsent > 39 << 20);
    CHECK_INT(server->paused, 1);
    size_t unsent = server->unsent;
    ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false); /* stays where it is */
    CHECK_INT(server->unsent, unsent);
    set(&d, "k", "v");           /* others are served */
    CHECK_INT(last_timeout, 10); /* and the server looks often, while somebody rests */
    now += server->patience - 1;
    step();
    CHECK_INT(server->known.count, 2);
    for (int i = 0; i < 200; i++) /* reads a little: its time begins anew */
        CHECK_OK(weft_i_store_link_fill(&c.line, 64 << 20));
    step();
    CHECK(server->unsent < unsent);
    now += server->patience - 1;
    step();
    CHECK_INT(server->known.count, 2);
    now++;
    step();
    CHECK_INT(server->known.count, 1);
    CHECK_INT(server->unsent, 0);
    CHECK_INT(server->paused, 0);
    set(&d, "k", "w");
    detach(&c);
    detach(&d);
    step();
    nothing_left();
    stop();
    free(big);
}

/* The same peer goes on when it has read: the request that rested is answered. */
TEST(test_store_peer_goes_on)
{
    client c;
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    join(&c);
    weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &request, NULL, &answer, &outcome);
    uint64_t first = c.id + 1;
    for (int i = 0; i < 6; i++)
        ask(&c, WEFT_I_STORE_GET, "big", NOTHING, 0, false);
    CHECK_INT(server->paused, 1);
    for (int i = 0; i < 6; i++) {
        char text[64];
        CHECK_INT(answer_to(&c, first + (uint64_t)i, text), WEFT_OK);
    }
    step();
    CHECK_INT(server->paused, 0);
    CHECK_INT(server->unsent, 0);
    set(&c, "k", "v");
    detach(&c);
    step();
    nothing_left();
    stop();
    free(big);
}

/* Large requests under way at once have a share of memory; one that stops in the middle goes when
 * others wait for it. */
TEST(test_store_peer_large_requests)
{
    enum { MANY = 9 };
    client c[MANY];
    char *big = calloc(1, WEFT_STORE_VALUE_BYTES);
    CHECK(big);
    serve(NULL);
    for (int i = 0; i < MANY; i++)
        join(&c[i]);
    size_t whole = 0;
    for (int i = 0; i < MANY; i++) {
        weft_i_view key = {"big", 3}, value = {big, WEFT_STORE_VALUE_BYTES};
        weft_i_store_request set_big = {
            .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
        size_t bytes = weft_i_store_request_bytes(&set_big);
        uint8_t *payload = weft_i_store_link_begin(&c[i].line, ++c[i].id, bytes);
        weft_i_store_request_encode(&set_big, payload, bytes);
        CHECK_OK(weft_i_store_link_commit(&c[i].line, bytes));
        CHECK_OK(weft_i_store_link_flush(&c[i].line)); /* what the socket takes */
        step();
        whole = WEFT_I_STORE_HEAD_BYTES + bytes;
        if (i < 7)
            CHECK_INT(server->reserved, whole * (size_t)(i + 1));
    }
    CHECK_INT(server->reserved, whole * 7); /* 64 MiB hold seven of them, with their heads */
    CHECK_INT(server->paused, 2);
    now += server->patience - 1;
    for (int i = 1; i < MANY; i++)
        CHECK_OK(weft_i_store_link_flush(&c[i].line));
    step();
    CHECK_INT(server->known.count, MANY);
    now++; /* the first has said nothing since */
    step();
    CHECK(is_gone(&c[0]) && !is_gone(&c[1]));
    CHECK_INT(server->known.count, MANY - 1); /* and none of those who had to rest meanwhile */
    for (int round = 0; round < 4000 && server->map.keys + server->reserved; round++) {
        size_t left = 0;
        for (int i = 1; i < MANY; i++) {
            CHECK_OK(weft_i_store_link_flush(&c[i].line));
            left += weft_i_store_link_unsent(&c[i].line);
        }
        step();
        if (!left && !server->reserved)
            break;
    }
    CHECK_INT(server->reserved, 0);
    CHECK_INT(server->paused, 0);
    for (int i = 1; i < MANY; i++)
        CHECK_INT(answer_to(&c[i], c[i].id, NULL), WEFT_OK);
    for (int i = 0; i < MANY; i++)
        detach(&c[i]);
    step();
    nothing_left();
    stop();
    free(big);
}

/* Every allocation of every request may fail: the peer is told or dropped, and nothing is lost or
 * counted twice. */
TEST(test_store_peer_without_memory)
{
    int failed = 0;
    for (int n = 1; n < 40; n++) {
        client c, d;
        serve(NULL);
        join(&c);
        join(&d);
        push(&d, "q", "1");
        size_t bytes = weft_i_store_server_census(server).bytes;
        /* The client's own buffers are there already: what fails is the server's. */
        weft_i_view key = {"q", 1};
        weft_i_store_request pop = {.op = WEFT_I_STORE_POP, .keys = 1, .key = &key};
        size_t size = weft_i_store_request_bytes(&pop);
        weft_i_store_request_encode(&pop, weft_i_store_link_begin(&c.line, ++c.id, size), size);
        CHECK_OK(weft_i_store_link_commit(&c.line, size));
        CHECK_OK(weft_i_store_link_flush(&c.line));
        fault_arm(n);
        fault_table.clock_ns = test_clock;
        fault_table.epoll_wait = test_epoll_wait;
        fault_table.recvmsg = weft_i_os_linux.recvmsg;
        fault_table.sendmsg = weft_i_os_linux.sendmsg;
        step();
        bool fired = fault_disarm();
        weft_i_os_now = &table;
        step();
        char text[64] = "";
        int status = answer_to(&c, c.id, text);
        if (status == WEFT_OK)
            CHECK(!strcmp(text, "1"));
        CHECK(status == WEFT_OK || status == WEFT_ERR_NO_MEMORY || status == 1);
        CHECK_INT(weft_i_store_server_census(server).granted, status == WEFT_OK);
        detach(&c);
        step();
        CHECK_INT(weft_i_store_server_census(server).bytes, bytes); /* the element is back */
        expect(&d, ask(&d, WEFT_I_STORE_POP, "q", NOTHING, 0, false), "1");
        detach(&d);
        step();
        nothing_left();
        stop();
        failed += fired;
        if (!fired)
            break;
    }
    CHECK(failed > 1 && failed < 39);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* strangers are the point here */
    return harness_main(argc, argv);
}
