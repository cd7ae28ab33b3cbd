/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/server.c */
/*
 * The event loop of a store's server: how long it sleeps, whom it lets in when descriptors run out,
 * whom it loses patience with, and how its thread ends.  On a clock of the test's own.
 */
#include "store_steps.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

enum { MS = 1000000 };

/* ---- how long it sleeps ---- */

static int sleeps_for(int timeout_ms)
{
    last_timeout = -99;
    weft_i_store_server_step(server, timeout_ms);
    return last_timeout;
}

TEST(test_store_server_sleeps)
{
    client c;
    serve(NULL);
    CHECK_INT(sleeps_for(5000), 5000);
    CHECK_INT(sleeps_for(0), 0);
    CHECK_INT(sleeps_for(-1), -1);
    attach(&c); /* a stranger, which has a while to speak */
    int patience = (int)(server->patience / MS);
    CHECK(patience > 20);
    CHECK_INT(sleeps_for(-1), patience);
    CHECK_INT(sleeps_for(patience), patience);
    CHECK_INT(sleeps_for(patience + 1), patience);
    CHECK_INT(sleeps_for(patience - 1), patience - 1);
    now += 1;
    CHECK_INT(sleeps_for(-1), patience); /* rounded up */
    now += MS - 1;
    CHECK_INT(sleeps_for(-1), patience - 1);
    server->unsent = WEFT_I_STORE_UNSENT; /* somebody does not read: it looks more often */
    CHECK_INT(sleeps_for(-1), 10);
    CHECK_INT(sleeps_for(9), 9);
    server->unsent--;
    CHECK_INT(sleeps_for(-1), patience - 1);
    server->unsent = 0;
    now += (int64_t)(patience - 1) * MS - 1;
    CHECK_INT(sleeps_for(-1), 1);
    CHECK_INT(server->strangers.count, 1);
    now += 1;
    CHECK_INT(sleeps_for(-1), 0); /* its time is over, and so is it */
    CHECK_INT(server->strangers.count, 0);
    CHECK_INT(sleeps_for(-1), -1);
    CHECK(is_gone(&c));
    detach(&c);
    nothing_left();
    stop();
}

static int64_t slept;

static void note_sleep(int64_t ns)
{
    slept += ns;
}

static int no_epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    (void)fd, (void)events, (void)most, (void)timeout_ms;
    return errno = EBADF, -1;
}

/* The program has closed the server's descriptors: it does not spin. */
TEST(test_store_server_without_epoll)
{
    serve(NULL);
    table.epoll_wait = no_epoll_wait;
    table.sleep_ns = note_sleep;
    weft_i_store_server_step(server, 5000);
    CHECK_INT(slept, MS);
    table.epoll_wait = test_epoll_wait;
    weft_i_store_server_step(server, 5000);
    CHECK_INT(slept, MS);
    stop();
}

/* ---- whom it lets in ---- */

static int accepts, accept_error, first_good, tuned;
static int theirs[64];

/* The listener has something to say for ever; who comes is the test's. */
static int scripted_accept(int fd, bool blocking)
{
    int fds[2];
    (void)fd;
    CHECK(!blocking);
    if (++accepts < first_good)
        return errno = ECONNABORTED, -1;
    if (accept_error)
        return errno = accept_error, -1;
    CHECK(accepts < 64 && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    theirs[accepts] = fds[0];
    return fds[1];
}

static int note_setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    (void)fd, (void)value, (void)length;
    tuned += level == IPPROTO_TCP && option == TCP_NODELAY;
    return 0;
}

static void serve_at_a_door(const uint8_t *with)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(!bind(door, (struct sockaddr *)&at, length) && !listen(door, 4));
    CHECK(!getsockname(door, (struct sockaddr *)&at, &length));
    theirs[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!connect(theirs[0], (struct sockaddr *)&at, length)); /* never taken in */
    CHECK_OK(weft_i_nofork_add(door));
    serve(with);
    stop();
    weft_i_os_now = &table;
    server = weft_i_store_server_new(door, with);
    CHECK(server && server->accepting);
    table.accept = scripted_accept;
    table.setsockopt = note_setsockopt;
    accepts = accept_error = first_good = tuned = 0;
}

static void leave_the_door(void)
{
    stop();
    for (int i = 0; i <= accepts && i < 64; i++)
        if (theirs[i] > 0)
            close(theirs[i]);
    memset(theirs, 0, sizeof theirs);
}

/* So many in a step and no more; who gave up meanwhile is no reason to stop. */
TEST(test_store_server_lets_in)
{
    serve_at_a_door(NULL);
    weft_i_store_server_step(server, 0);
    CHECK_INT(accepts, 16);
    CHECK_INT(server->strangers.count, 16);
    CHECK_INT(tuned, 0); /* not over TCP */
    first_good = accepts + 4;
    weft_i_store_server_step(server, 0);
    CHECK_INT(accepts, 32);
    CHECK_INT(server->strangers.count, 16 + 13);
    accept_error = EAGAIN; /* that was all */
    weft_i_store_server_step(server, 0);
    CHECK_INT(accepts, 33);
    CHECK_INT(server->strangers.count, 16 + 13);
    CHECK(server->accepting);
    leave_the_door();
    serve_at_a_door(token);
    weft_i_store_server_step(server, 0);
    CHECK_INT(tuned, 16);
    leave_the_door();
}

/* Descriptors are short: a stranger gives one back, and the listener is left alone for ten
 * milliseconds, not longer. */
TEST(test_store_server_rests)
{
    serve_at_a_door(NULL);
    weft_i_store_server_step(server, 0);
    accept_error = EMFILE;
    weft_i_store_server_step(server, 0);
    CHECK_INT(accepts, 17);
    CHECK_INT(server->strangers.count, 15);
    CHECK(!server->accepting);
    CHECK_INT(server->accept_again, now + 10 * MS);
    CHECK_INT(sleeps_for(-1), 10);
    CHECK_INT(sleeps_for(5000), 10);
    CHECK_INT(accepts, 17); /* not asked meanwhile */
    now += 10 * MS - 1;
    CHECK_INT(sleeps_for(-1), 1);
    CHECK(!server->accepting);
    now += 1;
    CHECK_INT(sleeps_for(-1), 0);
    CHECK(server->accepting);
    CHECK_INT(accepts, 17);
    accept_error = 0;
    weft_i_store_server_step(server, 0);
    CHECK_INT(accepts, 33);
    CHECK_INT(server->strangers.count, 31);
    leave_the_door();
}

/* ---- whom it loses patience with ---- */

TEST(test_store_server_loses_patience)
{
    static const struct {
        size_t unsent, all, reserved; /* of one client, of all, of its large request */
        int64_t age;                  /* beyond the patience, ns */
        bool paused, goes;
    } cases[] = {
        {WEFT_I_STORE_PEER_UNSENT, WEFT_I_STORE_PEER_UNSENT, 0, 0, true, true},
        {WEFT_I_STORE_PEER_UNSENT, WEFT_I_STORE_PEER_UNSENT, 0, -1, true, false},
        {WEFT_I_STORE_PEER_UNSENT, WEFT_I_STORE_PEER_UNSENT, 0, 0, false, false},
        {WEFT_I_STORE_PEER_UNSENT - 1, WEFT_I_STORE_PEER_UNSENT, 0, 0, true, false},
        {1, WEFT_I_STORE_UNSENT, 0, 0, false, true},
        {1, WEFT_I_STORE_UNSENT, 0, 0, true, true},
        {1, WEFT_I_STORE_UNSENT - 1, 0, 0, true, false},
        {1, WEFT_I_STORE_UNSENT - 1, 0, 0, false, false},
        {1, WEFT_I_STORE_UNSENT, 0, -1, false, false},
        {0, WEFT_I_STORE_UNSENT, 0, 0, false, false},
        {0, 0, 1, 0, true, true},
        {0, 0, 1, -1, true, false},
        {0, 0, 1, 0, false, false},
        {0, 0, 0, 0, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client c, d;
        serve(NULL);
        join(&c);
        weft_i_store_peer *peer = server->known.first;
        join(&d); /* does nothing wrong */
        bool rests = cases[i].paused && cases[i].unsent;
        if (rests) /* it has asked for more: the beginning of a request */
            CHECK(write(c.line.fd, "", 1) == 1);
        weft_i_store_server_step(server, 0);
        peer->unsent = cases[i].unsent;
        peer->reserved = server->reserved = cases[i].reserved;
        server->unsent = cases[i].all;
        server->paused = cases[i].paused;
        peer->paused = rests;
        peer->since = peer->heard = now - server->patience - cases[i].age;
        weft_i_store_server_step(server, 0);
        if ((server->known.count == 1) != cases[i].goes)
            FAIL("case %zu: %zu are left", i, server->known.count);
        CHECK(!is_gone(&d));
        if (!cases[i].goes)
            peer->unsent = peer->reserved = peer->paused = 0;
        else
            CHECK_INT(server->unsent, cases[i].all - cases[i].unsent);
        server->unsent = server->reserved = server->paused = 0;
        detach(&c);
        detach(&d);
        step();
        nothing_left();
        stop();
    }
}

/* ---- its thread ---- */

/* The listener is the server's also when there is no memory for one; 0 is a number like others. */
TEST(test_store_server_without_memory)
{
    for (int zero = 0; zero < 2; zero++) {
        int kept = dup(0), door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(kept > 0 && door > 0);
        if (zero)
            CHECK(dup2(door, 0) == 0 && !close(door));
        door = zero ? 0 : door;
        CHECK_OK(weft_i_nofork_add(door));
        fault_arm(1);
        weft_i_store_server *none = weft_i_store_server_new(door, NULL);
        CHECK(fault_disarm());
        bool closed = fcntl(door, F_GETFD) < 0;
        CHECK(dup2(kept, 0) == 0 && !close(kept));
        CHECK(!none && closed);
        CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_MEMORY);
        weft_clear_error();
    }
}

static atomic_int joins, writes, yields, farewells; /* relaxed: they count */
static int failing_writes;
static _Atomic int64_t clock_now;

static void note_join(pthread_t thread)
{
    joins++;
    weft_i_os_linux.thread_join(thread);
}

static void note_yield(void)
{
    yields++;
}

static ssize_t bad_write(int fd, const void *bytes, size_t count)
{
    if (writes++ < failing_writes)
        return errno = EAGAIN, -1;
    return weft_i_os_linux.write(fd, bytes, count);
}

/* Who has no thread is not waited for. */
TEST(test_store_server_without_thread)
{
    serve(NULL);
    table.thread_join = note_join;
    table.write = bad_write;
    stop();
    CHECK_INT(joins, 0);
    CHECK_INT(writes, 0);
}

static int no_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    (void)thread, (void)body, (void)argument;
    return EAGAIN;
}

TEST(test_store_server_cannot_start)
{
    serve(NULL);
    table.thread_create = no_thread;
    table.thread_join = note_join;
    CHECK_STATUS(weft_i_store_server_start(server), WEFT_ERR_LIMIT);
    CHECK_CONTAINS(weft_last_error(), "store: cannot start the server's thread");
    weft_clear_error();
    stop();
    CHECK_INT(joins, 0);
}

/* The wake-up of the thread is tried again, and when it cannot be had the thread looks by itself. */
TEST(test_store_server_is_woken)
{
    static const struct {
        int failing, writes;
    } cases[] = {{0, 1}, {3, 4}, {1000, 100}};
    for (int i = 0; i < 3; i++) {
        serve(NULL);
        table.clock_ns = weft_i_os_linux.clock_ns;
        table.epoll_wait = weft_i_os_linux.epoll_wait;
        table.thread_join = note_join;
        table.write = bad_write;
        table.yield = note_yield;
        joins = writes = yields = 0;
        failing_writes = cases[i].failing;
        CHECK_OK(weft_i_store_server_start(server));
        weft_i_store_server_hold(server);
        weft_i_store_server_drop(server, false);
        CHECK_INT(joins, 0); /* somebody still has it */
        stop();
        CHECK_INT(joins, 1);
        CHECK_INT(writes, cases[i].writes);
        CHECK_INT(yields, cases[i].writes - (cases[i].failing < 100));
    }
}

static int64_t thread_clock(void)
{
    return clock_now;
}

static void thread_sleep(int64_t ns)
{
    CHECK_INT(ns, 200000);
    farewells++;
    clock_now += ns;
}

static ssize_t unread(int fd, struct msghdr *message, int flags)
{
    return flags & MSG_PEEK ? 1 : weft_i_os_linux.recvmsg(fd, message, flags);
}

static int under_way(int fd, int level, int name, void *value, socklen_t *length)
{
    if (level != IPPROTO_TCP || name != TCP_INFO)
        return weft_i_os_linux.getsockopt(fd, level, name, value, length);
    memset(value, 1, *length);
    return 0;
}

/* At its end it waits for its last answers to arrive, for a second and no longer. */
TEST(test_store_server_says_farewell)
{
    for (int pending = 0; pending < 2; pending++) {
        client c;
        serve(NULL);
        join(&c);
        clock_now = now;
        table.clock_ns = thread_clock;
        table.epoll_wait = weft_i_os_linux.epoll_wait;
        table.sleep_ns = thread_sleep;
        table.recvmsg = pending ? unread : weft_i_os_linux.recvmsg;
        table.getsockopt = under_way;
        farewells = 0;
        CHECK_OK(weft_i_store_server_start(server));
        stop();
        CHECK_INT(farewells, pending ? 5000 : 0);
        CHECK(is_gone(&c));
        detach(&c);
    }
}

/* What is asked before the end is answered. */
TEST(test_store_server_last_words)
{
    client c;
    serve(NULL);
    join(&c);
    weft_i_view key = {"k", 1}, value = {"v", 1};
    weft_i_store_request request = {
        .op = WEFT_I_STORE_SET, .keys = 1, .key = &key, .values = 1, .value = &value};
    table.clock_ns = weft_i_os_linux.clock_ns;
    table.epoll_wait = weft_i_os_linux.epoll_wait;
    atomic_store(&server->stop, true); /* the thread ends before its first step */
    size_t bytes = weft_i_store_request_bytes(&request);
    weft_i_store_request_encode(&request, weft_i_store_link_begin(&c.line, ++c.id, bytes), bytes);
    CHECK_OK(weft_i_store_link_commit(&c.line, bytes));
    CHECK_OK(weft_i_store_link_flush(&c.line));
    CHECK_OK(weft_i_store_server_start(server));
    weft_i_store_server_drop(server, false);
    weft_i_store_frame frame;
    CHECK_OK(weft_i_store_link_fill(&c.line, 1 << 20));
    CHECK_INT(weft_i_store_link_next(&c.line, &frame), 1);
    CHECK_INT(frame.id, c.id);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(is_gone(&c));
    detach(&c);
}

/* Nobody else is connected: clients of this process hold a reference each. */
TEST(test_store_server_is_alone)
{
    client c, d;
    serve(NULL);
    CHECK(weft_i_store_server_is_alone(server));
    join(&c);
    CHECK(weft_i_store_server_is_alone(server)); /* that may be the one who holds it */
    join(&d);
    CHECK(!weft_i_store_server_is_alone(server));
    weft_i_store_server_hold(server);
    CHECK(weft_i_store_server_is_alone(server));
    weft_i_store_server_drop(server, false);
    CHECK(!weft_i_store_server_is_alone(server));
    detach(&d);
    step();
    CHECK(weft_i_store_server_is_alone(server));
    detach(&c);
    step();
    nothing_left();
    stop();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* strangers are the point here */
    return harness_main(argc, argv);
}
