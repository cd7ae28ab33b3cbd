/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/dial.c */
/*
 * How a client greets a store's server, which a thread plays by hand: every answer it may give, and
 * what the client says then; and a system that fails the client at any call.
 */
#include "fault.h"
#include "store_raw.h"

#include "store/dial.h"
#include "weft/version.h"

#include <errno.h>
#include <linux/tcp.h>
#include <pthread.h>

enum {
    WELCOMES,
    WRONG_VERSION,
    REFUSES_VERSION,
    REFUSES_TOKEN,
    REFUSES_OTHERWISE,
    SKIPS_TO_WELCOME,
    IS_FOREIGN,
    IS_SHORT_AND_FOREIGN,
    WRONG_PROOF,
    REFUSES_PROOF,
    CHANGES_ITS_RELEASE,
    CHALLENGES_TWICE,
    CASES
};

typedef struct door {
    int fd, port, how;
    int came; /* connections */
    pthread_t thread;
    weft_i_store_greeting hello, proof; /* of the last one */
    bool was_closed;                    /* by the client, after our last word */
} door;

static weft_i_store_greeting say(unsigned kind)
{
    return (weft_i_store_greeting){
        .version = WEFT_I_STORE_VERSION, .kind = (uint16_t)kind, .release = "3.2.1"};
}

static void challenge_it(door *d, int fd)
{
    weft_i_store_greeting challenge = say(WEFT_I_STORE_CHALLENGE);
    weft_i_store_transcript said;
    uint8_t token[WEFT_I_KEYED_BYTES];
    weft_i_keyed_parse(TOKEN, token);
    memset(challenge.nonce, 9, sizeof challenge.nonce);
    weft_i_store_transcript_set(&said, &d->hello, &challenge);
    if (weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, challenge.proof) < 0)
        return;
    challenge.proof[31] ^= d->how == WRONG_PROOF;
    raw_greet(fd, &challenge);
    if (d->how == WRONG_PROOF)
        return;
    d->proof = raw_greeting(fd);
    weft_i_store_greeting last = say(d->how == CHALLENGES_TWICE ? WEFT_I_STORE_CHALLENGE
                                     : d->how == REFUSES_PROOF  ? WEFT_I_STORE_REFUSAL
                                                                : WEFT_I_STORE_WELCOME);
    last.status = d->how == REFUSES_PROOF ? WEFT_ERR_AUTH : WEFT_OK;
    if (d->how == CHANGES_ITS_RELEASE)
        last.release[0] = '4';
    raw_greet(fd, &last);
}

static void answer_it(door *d, int fd)
{
    weft_i_store_greeting out = say(WEFT_I_STORE_REFUSAL);
    switch (d->how) {
    case IS_FOREIGN:
        raw_send(fd, "HTTP/1.1 400 Bad\r\nRequest and much more", 38);
        return;
    case IS_SHORT_AND_FOREIGN:
        raw_send(fd, "no\1way", 6);
        return;
    case WRONG_VERSION:
        out.kind = WEFT_I_STORE_CHALLENGE;
        out.version = 77;
        break;
    case REFUSES_VERSION:
        out.status = WEFT_ERR_VERSION;
        break;
    case REFUSES_TOKEN:
        out.status = WEFT_ERR_AUTH;
        break;
    case REFUSES_OTHERWISE:
        out.status = WEFT_ERR_LIMIT;
        break;
    case SKIPS_TO_WELCOME:
        out.kind = WEFT_I_STORE_WELCOME;
        break;
    default:
        challenge_it(d, fd);
        return;
    }
    raw_greet(fd, &out);
}

static void *keep_door(void *argument)
{
    door *d = argument;
    int fd;
    while ((fd = accept(d->fd, NULL, NULL)) >= 0) {
        d->came++;
        d->hello = raw_greeting(fd);
        if (d->hello.kind == WEFT_I_STORE_HELLO)
            answer_it(d, fd);
        d->was_closed = is_closed(fd);
        close(fd);
    }
    return NULL;
}

static void door_open(door *d, int how)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof where;
    *d = (door){.how = how, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    CHECK(!bind(d->fd, (struct sockaddr *)&where, sizeof where) && !listen(d->fd, 64));
    CHECK(!getsockname(d->fd, (struct sockaddr *)&where, &length));
    d->port = ntohs(where.sin_port);
    CHECK(!pthread_create(&d->thread, NULL, keep_door, d));
}

static void door_close(door *d)
{
    shutdown(d->fd, SHUT_RDWR);
    CHECK(!pthread_join(d->thread, NULL));
    close(d->fd);
}

static void said(door *d, weft_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void said(door *d, weft_status status, const char *format, ...)
{
    char rest[300], wanted[400];
    va_list args;
    va_start(args, format);
    vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    snprintf(wanted, sizeof wanted, "store tcp 127.0.0.1:%d: %s", d->port, rest);
    if (weft_last_status() != status || strcmp(weft_last_error(), wanted) != 0)
        FAIL("it says %d \"%s\", not %d \"%s\"", weft_last_status(), weft_last_error(), status,
             wanted);
    weft_clear_error();
}

static void judge(door *d)
{
    char where[32];
    snprintf(where, sizeof where, "127.0.0.1:%d", d->port);
    switch (d->how) {
    case WRONG_VERSION:
        said(d, WEFT_ERR_VERSION,
             "its server speaks protocol 77 (weft 3.2.1), this process protocol %d (weft %s)",
             WEFT_I_STORE_VERSION, WEFT_VERSION);
        break;
    case REFUSES_VERSION:
        said(d, WEFT_ERR_VERSION,
             "its server speaks protocol %d (weft 3.2.1), this process protocol %d (weft %s)",
             WEFT_I_STORE_VERSION, WEFT_I_STORE_VERSION, WEFT_VERSION);
        break;
    case REFUSES_TOKEN:
    case REFUSES_PROOF:
        said(d, WEFT_ERR_AUTH, "its server refused the token of this process");
        break;
    case REFUSES_OTHERWISE:
        said(d, WEFT_ERR_PROTOCOL, "an unexpected greeting (%d)", WEFT_I_STORE_REFUSAL);
        break;
    case SKIPS_TO_WELCOME:
        said(d, WEFT_ERR_AUTH, "its server does not ask for a token, this process has one");
        break;
    case CHALLENGES_TWICE:
        said(d, WEFT_ERR_PROTOCOL, "an unexpected greeting (%d)", WEFT_I_STORE_CHALLENGE);
        break;
    case IS_FOREIGN:
        said(d, WEFT_ERR_UNREACHABLE,
             "a foreign service listens at %s: it answers \"HTTP/1.1 400 Bad..Reques\", not as a "
             "weft store",
             where);
        break;
    case IS_SHORT_AND_FOREIGN:
        said(d, WEFT_ERR_UNREACHABLE,
             "a foreign service listens at %s: it answers \"no.way\", not as a weft store", where);
        break;
    case WRONG_PROOF:
        said(d, WEFT_ERR_AUTH,
             "the server at %s does not have this job's token: another job's store, or an impostor",
             where);
        break;
    case CHANGES_ITS_RELEASE:
        said(d, WEFT_ERR_AUTH, "the server's greetings contradict each other");
        break;
    }
}

TEST(test_store_dial_answers)
{
    uint8_t token[WEFT_I_KEYED_BYTES], expected[WEFT_I_KEYED_BYTES];
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    CHECK(weft_i_keyed_parse(TOKEN, token));
    for (int how = 0; how < CASES; how++) {
        OPEN();
        door d;
        door_open(&d, how);
        weft_store *s = weft_store_tcp_connect(NULL, d.port, TOKEN, 20000);
        if ((s != NULL) != (how == WELCOMES))
            FAIL("case %d: %s", how, weft_last_error());
        if (!s)
            judge(&d);
        else
            weft_release(s);
        door_close(&d);
        CHECK_INT(d.came, 1); /* a verdict is not asked for twice */
        CHECK(d.was_closed);
        CHECK_OK(weft_i_store_link_hello_proof(token, &d.hello, expected));
        CHECK(weft_i_keyed_equal(expected, d.hello.proof));
        CHECK(d.hello.version == WEFT_I_STORE_VERSION && !strcmp(d.hello.release, WEFT_VERSION));
        if (how == WELCOMES)
            CHECK(d.proof.kind == WEFT_I_STORE_PROOF && d.proof.version == WEFT_I_STORE_VERSION &&
                  !strcmp(d.proof.release, WEFT_VERSION));
        CLOSE();
    }
}

/* Two hellos of one client have nothing in common but the token. */
TEST(test_store_dial_nonces_differ)
{
    OPEN();
    door d;
    door_open(&d, REFUSES_TOKEN);
    CHECK(!weft_store_tcp_connect(NULL, d.port, TOKEN, 20000));
    weft_clear_error();
    weft_i_store_greeting first = d.hello;
    CHECK(!weft_store_tcp_connect(NULL, d.port, TOKEN, 20000));
    weft_clear_error();
    door_close(&d);
    CHECK(memcmp(first.nonce, d.hello.nonce, sizeof first.nonce) != 0);
    CHECK(memcmp(first.proof, d.hello.proof, sizeof first.proof) != 0);
    CLOSE();
}

/* A connect to a free port of this host can meet itself.  That is no server: one more try. */
static struct sockaddr_in target;
static int meetings;

static int meet_itself(int fd, struct sockaddr *where, socklen_t *length)
{
    if (meetings-- <= 0)
        return weft_i_os_linux.getsockname(fd, where, length);
    memcpy(where, &target, sizeof target);
    *length = sizeof target;
    return 0;
}

/* Connects where the first `times` sockets say that their own address is `address`; how many came. */
static int come_meeting(in_addr_t address, int times)
{
    door d;
    door_open(&d, WELCOMES);
    target = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)d.port), .sin_addr = {htonl(address)}};
    weft_i_os table = weft_i_os_linux;
    table.getsockname = meet_itself;
    weft_i_os_now = &table;
    meetings = times;
    weft_store *s = weft_store_tcp_connect("127.0.0.1", d.port, TOKEN, 20000);
    weft_i_os_now = &weft_i_os_linux;
    if (!s)
        FAIL("%s", weft_last_error());
    weft_release(s);
    door_close(&d);
    return d.came;
}

TEST(test_store_dial_meets_itself)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    OPEN();
    CHECK_INT(come_meeting(INADDR_LOOPBACK, 2), 3);
    CLOSE();
}

/* The same port at another address of this host is another's: that is a server. */
TEST(test_store_dial_meets_another)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    OPEN();
    CHECK_INT(come_meeting(INADDR_LOOPBACK + 1, 1), 1);
    CLOSE();
}

TEST(test_store_dial_refused)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof where;
    char text[64];
    CHECK(!bind(fd, (struct sockaddr *)&where, sizeof where));
    CHECK(!getsockname(fd, (struct sockaddr *)&where, &length));
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(where.sin_port));
    int64_t soon = WEFT_OS->clock_ns() + INT64_C(5000000000);
    CHECK(weft_i_store_dial_is_refused(text, soon)); /* bound, but nobody listens */
    CHECK_INT(weft_last_status(), WEFT_OK);
    weft_i_store_dial dial = {.name = "x", .addresses.count = 1};
    weft_i_store_link line;
    char wanted[100];
    CHECK(weft_i_store_address_read(text, &dial.addresses.list[0]));
    CHECK_STATUS(weft_i_store_dial_once(&dial, soon, &line), WEFT_ERR_UNREACHABLE);
    snprintf(wanted, sizeof wanted, "store at %s: nobody listens", text);
    CHECK(!strcmp(weft_last_error(), wanted));
    weft_clear_error();
    CHECK(!listen(fd, 4));
    CHECK(!weft_i_store_dial_is_refused(text, soon));
    CHECK(!weft_i_store_dial_is_refused("no address", soon));
    CHECK_INT(weft_last_status(), WEFT_OK);
    close(fd);
}

/* Whatever fails: an error of this process, told at once, or one more try that succeeds; and no
 * descriptor is left. */
TEST(test_store_dial_without_means)
{
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    int told = 0;
    for (int n = 1; n < 60; n++) {
        OPEN();
        door d;
        door_open(&d, WELCOMES);
        fault_arm(n);
        weft_store *s = weft_store_tcp_connect(NULL, d.port, TOKEN, 3000);
        bool fired = fault_disarm();
        if (!s) {
            weft_status status = weft_last_status();
            if (status != WEFT_ERR_NO_MEMORY && status != WEFT_ERR_LIMIT && status != WEFT_ERR_IO &&
                status != WEFT_ERR_UNREACHABLE)
                FAIL("call %d (%s): %d: %s", n, fault_name, status, weft_last_error());
            CHECK(fired && weft_last_error()[0]);
            told++;
        }
        weft_clear_error();
        weft_release(s);
        door_close(&d);
        CLOSE();
        if (!fired)
            break;
    }
    CHECK(told >= 4);
}

/* ---- a server that takes the connection and says nothing, on a clock of the test's own ---- */

static struct mute {
    int64_t now;
    int polls, timeouts[16];
    short events[16];
    int ready;   /* what poll returns: 0 after its time */
    int unacked; /* what the server's kernel has not taken; -1: it is not told */
    int infos;   /* how often that was asked */
    int connects, tuned, sends, send_error, random_error, ends[16];
    bool no_memory;
} mute;
static weft_i_os mute_table;

static int64_t mute_clock(void)
{
    return mute.now;
}

static void mute_sleep(int64_t ns)
{
    mute.now += ns;
}

static int mute_socket(int domain, int type, int protocol)
{
    int fds[2];
    (void)domain, (void)protocol;
    CHECK(mute.connects < 16);
    CHECK(!socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds));
    mute.ends[mute.connects] = fds[1];
    return fds[0];
}

static int mute_connect(int fd, const struct sockaddr *to, socklen_t length)
{
    (void)fd, (void)to, (void)length;
    mute.connects++;
    return 0;
}

static int mute_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    CHECK_INT(count, 1);
    if (mute.polls < 16) {
        mute.events[mute.polls] = fds->events;
        mute.timeouts[mute.polls++] = timeout_ms;
    }
    if (mute.ready < 0)
        return errno = ENOMEM, -1;
    if (!mute.ready)
        mute.now += (int64_t)timeout_ms * 1000000;
    return mute.ready;
}

static int mute_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    if (name == SO_PEERCRED)
        return weft_i_os_linux.getsockopt(fd, level, name, value, length);
    CHECK(level == IPPROTO_TCP && name == TCP_INFO && *length == sizeof(struct tcp_info));
    mute.infos++;
    ((struct tcp_info *)value)->tcpi_unacked = (uint32_t)mute.unacked;
    return mute.unacked < 0 ? -1 : 0;
}

static int mute_setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    (void)fd, (void)level, (void)value, (void)length;
    mute.tuned += level == IPPROTO_TCP && option == TCP_NODELAY;
    return 0;
}

static ssize_t mute_sendmsg(int fd, const struct msghdr *message, int flags)
{
    mute.sends++;
    if (mute.send_error) {
        errno = mute.send_error;
        mute.send_error = errno == EAGAIN ? 0 : errno; /* there is room the next time */
        return -1;
    }
    return weft_i_os_linux.sendmsg(fd, message, flags);
}

static int mute_random(void *bytes, size_t count)
{
    return mute.random_error ? (errno = EIO, -1) : weft_i_os_linux.random_bytes(bytes, count);
}

static void *mute_alloc(size_t bytes)
{
    return mute.no_memory && bytes >= 100 ? (errno = ENOMEM, NULL) : weft_i_os_linux.alloc(bytes);
}

static weft_i_store_dial mute_dial(bool with_token)
{
    weft_i_store_dial dial = {
        .addresses = {.count = 1}, .name = "there", .has_token = with_token, .token = {1, 2}};
    if (with_token && weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    CHECK(weft_i_store_address_read("127.0.0.1:9", &dial.addresses.list[0]));
    mute_table = weft_i_os_linux;
    mute_table.clock_ns = mute_clock;
    mute_table.sleep_ns = mute_sleep;
    mute_table.socket = mute_socket;
    mute_table.connect = mute_connect;
    mute_table.poll = mute_poll;
    mute_table.getsockopt = mute_getsockopt;
    mute_table.setsockopt = mute_setsockopt;
    mute_table.sendmsg = mute_sendmsg;
    mute_table.random_bytes = mute_random;
    mute_table.alloc = mute_alloc;
    mute = (struct mute){.now = 1000000000};
    weft_clear_error();
    return dial;
}

/* Dials for so long; the connections that it made are closed at its end. */
static weft_status dial_for(const weft_i_store_dial *dial, int ms)
{
    weft_i_store_link line;
    weft_i_os_now = &mute_table;
    weft_status status = weft_i_store_dial_connect(dial, mute.now + (int64_t)ms * 1000000, &line);
    weft_i_os_now = &weft_i_os_linux;
    for (int i = 0; i < mute.connects; i++) {
        char bytes[512];
        while (read(mute.ends[i], bytes, sizeof bytes) > 0)
            continue;
        CHECK_INT(read(mute.ends[i], bytes, 1), 0); /* the other end is closed */
        close(mute.ends[i]);
    }
    return status;
}

static void ends_with(weft_status got, weft_status wanted, const char *message)
{
    CHECK_INT(got, wanted);
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), message);
    weft_clear_error();
}

static const char silent[] =
    "store there: cannot be reached before the deadline: something accepts "
    "connections there but does not greet";

/* A hello that lies in the server's queue is waited for with the server's patience; one that was
 * not taken is said again after a tenth of a second. */
TEST(test_store_dial_silence)
{
    weft_i_store_dial dial = mute_dial(true);
    ends_with(dial_for(&dial, 1000), WEFT_ERR_UNREACHABLE, silent);
    CHECK(mute.connects == 1 && mute.infos == 1 && mute.tuned == 1);
    CHECK_INT(mute.polls, 2);
    CHECK_INT(mute.timeouts[0], 100);
    CHECK_INT(mute.timeouts[1], 900);
    CHECK(mute.events[0] == POLLIN && mute.events[1] == POLLIN);
    dial = mute_dial(true);
    ends_with(dial_for(&dial, 9000), WEFT_ERR_UNREACHABLE, silent);
    CHECK_INT(mute.timeouts[0], 100);
    CHECK_INT(mute.timeouts[1], 4900); /* the patience */
    dial = mute_dial(true);
    ends_with(dial_for(&dial, 100), WEFT_ERR_UNREACHABLE, silent);
    CHECK(mute.polls == 1 && mute.infos == 0 && mute.timeouts[0] == 100);
    for (int how = 0; how < 3; how++) { /* not taken, not told, not over TCP */
        dial = mute_dial(how != 2);
        mute.unacked = how == 0 ? 1 : how == 1 ? -1 : 0;
        ends_with(dial_for(&dial, 250), WEFT_ERR_UNREACHABLE, silent);
        CHECK_INT(mute.connects, 2);
        CHECK_INT(mute.polls, 2);
        CHECK_INT(mute.timeouts[0], 100);
        CHECK(mute.timeouts[1] > 100 && mute.timeouts[1] < 150);
        CHECK_INT(mute.infos, how == 2 ? 0 : 1); /* the second has no longer time to give */
        CHECK_INT(mute.tuned, how == 2 ? 0 : 2);
    }
}

TEST(test_store_dial_calls_fail)
{
    char wanted[200];
    weft_i_store_dial dial = mute_dial(true);
    mute.ready = -1;
    snprintf(wanted, sizeof wanted, "store there: poll: %s", strerror(ENOMEM));
    CHECK_STATUS(dial_for(&dial, 1000), WEFT_ERR_NO_MEMORY);
    CHECK_CONTAINS(weft_last_error(), wanted);
    CHECK_INT(mute.connects, 1);
    dial = mute_dial(true);
    mute.random_error = 1;
    CHECK(dial_for(&dial, 1000) < 0);
    CHECK_CONTAINS(weft_last_error(), "store there: no random bytes: ");
    CHECK(mute.connects == 1 && mute.sends == 0);
    dial = mute_dial(true);
    mute.no_memory = true;
    ends_with(dial_for(&dial, 1000), WEFT_ERR_NO_MEMORY, "store there: no memory to connect");
    CHECK(mute.connects == 1 && mute.sends == 0);
    dial = mute_dial(true);
    mute.send_error = EPIPE; /* tried again, up to the deadline */
    ends_with(
        dial_for(&dial, 10), WEFT_ERR_UNREACHABLE,
        "store there: cannot be reached before the deadline: the connection closed during the "
        "handshake");
    CHECK(mute.connects > 1 && mute.sends == mute.connects && mute.polls == 0);
    dial = mute_dial(true);
    mute.send_error = EAGAIN; /* no room: it is waited for, and then nobody answers */
    ends_with(dial_for(&dial, 100), WEFT_ERR_UNREACHABLE, silent);
    CHECK(mute.connects == 1 && mute.sends == 1);
    CHECK(mute.polls == 1 && mute.events[0] == POLLOUT);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
