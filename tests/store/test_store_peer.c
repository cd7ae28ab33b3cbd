/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/peer.c */
/* The server of a store and its clients: who is let in, who waits, what is owed to whom, and who
 * has to go when. */
#include "store_steps.h"

#include "store/address.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

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

/* One that has gone already, or whose words cannot be read, is not let in, whatever failed before. */
TEST(test_store_peer_screen_of_the_gone)
{
    int fds[2];
    serve(token);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    close(fds[0]);
    errno = EAGAIN;
    CHECK(!weft_i_store_peer_screen(server, fds[1]));
    CHECK(fcntl(fds[1], F_GETFD) < 0);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC); /* no socket */
    CHECK(!weft_i_store_peer_screen(server, file));
    CHECK(fcntl(file, F_GETFD) < 0);
    stop();
}

static int accepted;

static int counting_accept(int fd, bool blocking)
{
    int got = weft_i_os_linux.accept(fd, blocking);
    accepted += got >= 0;
    return got;
}

static void knock(client *c, const weft_i_store_addresses *door, const weft_i_store_greeting *hello)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(!connect(fd, (const struct sockaddr *)&door->list[0].where, door->list[0].length));
    *c = (client){0};
    weft_i_store_link_open(&c->line, fd);
    CHECK_OK(weft_i_nofork_add(fd));
    CHECK_OK(weft_i_store_link_greet(&c->line, hello));
    CHECK_OK(weft_i_store_link_flush(&c->line));
}

/* Steps of the server until it says something to the client, at most `most`. */
static int steps_until(client *c, weft_i_store_greeting *out, int most)
{
    for (int steps = 1; steps <= most; steps++) {
        weft_i_store_server_step(server, 0);
        if (heard(c, out) > 0)
            return steps;
    }
    return most + 1;
}

/*
 * In a storm of strangers a rank waits for those that came before it, and from then on for no more
 * than one small batch of them at each word: the hello is answered in the step that takes it in,
 * the proof and every request in the next one.
 */
TEST(test_store_peer_rounds_in_a_storm)
{
    enum { BEFORE = 200, BEHIND = 100, BATCH = 16 };
    static client strangers[BEFORE + BEHIND];
    client rank;
    weft_i_store_greeting hello = greeting_of(WEFT_I_STORE_HELLO), wrong = hello, challenge, out;
    weft_i_store_greeting proof = greeting_of(WEFT_I_STORE_PROOF);
    weft_i_store_transcript said;
    weft_i_store_addresses door = {0};
    weft_i_store_address bound;
    char name[64];
    serve(token);
    stop();
    snprintf(name, sizeof name, "weft-test-rounds-%d", (int)getpid());
    CHECK_OK(weft_i_store_address_unix(name, &door));
    weft_i_os_now = &table;
    table.accept = counting_accept;
    server = weft_i_store_server_new(weft_i_store_address_listen(&door, &bound), token);
    CHECK(server);
    CHECK_OK(weft_i_store_link_hello_proof(token, &hello, hello.proof));
    for (int i = 0; i < BEFORE; i++)
        knock(&strangers[i], &door, &wrong);
    knock(&rank, &door, &hello);
    for (int i = BEFORE; i < BEFORE + BEHIND; i++)
        knock(&strangers[i], &door, &wrong);
    CHECK_INT(steps_until(&rank, &challenge, BEFORE), BEFORE / BATCH + 1);
    CHECK_INT(challenge.kind, WEFT_I_STORE_CHALLENGE);
    CHECK(accepted > BEFORE && accepted <= BEFORE + BATCH);
    CHECK_INT(weft_i_store_server_census(server).peers, 1);
    weft_i_store_transcript_set(&said, &hello, &challenge);
    CHECK_OK(weft_i_store_link_derive(token, WEFT_I_STORE_CLIENT_PROOF, &said, proof.proof));
    CHECK_OK(weft_i_store_link_greet(&rank.line, &proof));
    CHECK_OK(weft_i_store_link_flush(&rank.line));
    int before = accepted;
    CHECK_INT(steps_until(&rank, &out, 3), 1);
    CHECK_INT(out.kind, WEFT_I_STORE_WELCOME);
    CHECK_INT(accepted - before, BATCH);
    detach(&rank);
    for (int i = 0; i < BEFORE + BEHIND; i++)
        detach(&strangers[i]);
    for (int i = 0; i < BEHIND; i++)
        weft_i_store_server_step(server, 0);
    CHECK_INT(accepted, BEFORE + 1 + BEHIND);
    nothing_left();
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
    weft_i_store_server_step(server, -1); /* the proof is all it waits for */
    CHECK_INT(last_timeout, 5000);
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

/* A connection on which something was said that nobody has read is not closed while what we said
 * is under way: closing would take that back. */
TEST(test_store_peer_may_close)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    static char many[1 << 16];
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), theirs, small = 4096;
    CHECK(door >= 0 && !bind(door, (struct sockaddr *)&at, length) && !listen(door, 1));
    CHECK(!getsockname(door, (struct sockaddr *)&at, &length));
    theirs = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!setsockopt(theirs, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    CHECK(!connect(theirs, (struct sockaddr *)&at, length));
    weft_i_store_peer peer = {.line = {.fd = accept4(door, NULL, NULL, SOCK_NONBLOCK)}};
    CHECK(peer.line.fd >= 0 && weft_i_store_peer_may_close(&peer));
    peer.unsent = 1;
    CHECK(!weft_i_store_peer_may_close(&peer));
    peer.unsent = 0;
    while (write(peer.line.fd, many, sizeof many) > 0) /* more than the other end has room for */
        continue;
    CHECK(weft_i_store_peer_may_close(&peer)); /* the kernel goes on sending */
    CHECK(write(theirs, "x", 1) == 1);
    struct pollfd unread = {.fd = peer.line.fd, .events = POLLIN};
    CHECK_INT(poll(&unread, 1, 20000), 1);
    CHECK(!weft_i_store_peer_may_close(&peer));
    CHECK(!shutdown(peer.line.fd, SHUT_WR));
    while (read(theirs, many, sizeof many) > 0)
        continue;
    bool may = weft_i_store_peer_may_close(&peer);
    for (int ms = 0; ms < 20000 && !may; ms++) { /* until the last word that it came is here */
        usleep(1000);
        may = weft_i_store_peer_may_close(&peer);
    }
    CHECK(may);
    close(theirs);
    close(peer.line.fd);
    close(door);
}

/* The kernel's answers to the two questions that decide it, one by one. */
static ssize_t unread;
static struct tcp_info under_way;
static int asked;

static ssize_t peek(int fd, struct msghdr *message, int flags)
{
    (void)fd;
    CHECK_INT(flags, MSG_PEEK);
    CHECK_INT(message->msg_iovlen, 1);
    CHECK_INT(message->msg_iov->iov_len, 1);
    return unread;
}

static int tell_under_way(int fd, int level, int name, void *value, socklen_t *length)
{
    (void)fd;
    CHECK(level == IPPROTO_TCP && name == TCP_INFO && *length == sizeof under_way);
    asked++;
    memcpy(value, &under_way, sizeof under_way);
    return 0;
}

TEST(test_store_peer_may_close_by_the_book)
{
    weft_i_store_peer peer = {.line = {.fd = -1}};
    table = weft_i_os_linux;
    table.recvmsg = peek;
    table.getsockopt = tell_under_way;
    weft_i_os_now = &table;
    under_way.tcpi_unacked = 1;
    unread = -1; /* nothing there */
    CHECK(weft_i_store_peer_may_close(&peer));
    unread = 0; /* the other end has closed: nothing can be reset */
    CHECK(weft_i_store_peer_may_close(&peer));
    CHECK_INT(asked, 0);
    unread = 1;
    CHECK(!weft_i_store_peer_may_close(&peer));
    under_way.tcpi_unacked = 0;
    CHECK(weft_i_store_peer_may_close(&peer));
    under_way.tcpi_notsent_bytes = 1;
    CHECK(!weft_i_store_peer_may_close(&peer));
    CHECK_INT(asked, 3);
    weft_i_os_now = &weft_i_os_linux;
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

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* strangers are the point here */
    return harness_main(argc, argv);
}
