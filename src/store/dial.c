/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting and shaking hands.  An attempt ends in one of three ways: connected; try again (nobody
 * listens yet, the server dropped us for want of room); or never (wrong token, other version, not a
 * store), which is told at once.
 */
#include "store/dial.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "weft/version.h"

#include <ctype.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* WEFT_OK: connected.  WEFT_IN_PROGRESS: try again, `why` says what happened.  Negative: never. */
typedef struct attempt {
    const weft_i_store_dial *dial;
    int64_t deadline;
    weft_i_store_link line;
    int64_t span;    /* ns that one attempt may take */
    int64_t longest; /* when one ends whose hello lies in the server's queue */
    int error;       /* errno of the last thing that went wrong, 0 if it was not a call */
    char where[WEFT_I_STORE_ADDRESS_TEXT];
    char why[160];
} attempt;

/*
 * A connection that the kernel of a busy host dropped must not hold us for the second after which
 * ours tries again: the first attempts are short, the later ones have the server's patience.  So
 * has one whose hello has arrived: it stands in the server's queue, and a new one would stand
 * behind all who came since.
 */
static const int64_t first_span = 100000000;                           /* ns */
static const int64_t first_pause = 1000000, longest_pause = 100000000; /* ns between attempts */

static weft_status again(attempt *a, const char *what, int error)
{
    a->error = error;
    snprintf(a->why, sizeof a->why, "%s%s%s", what, error ? ": " : "",
             error ? strerror(error) : "");
    return WEFT_IN_PROGRESS;
}

static int ms_left(int64_t deadline)
{
    if (deadline == WEFT_I_NEVER)
        return -1;
    int64_t left = deadline - WEFT_OS->clock_ns();
    left = left <= 0 ? 0 : (left + 999999) / 1000000;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

/* Has the server's kernel taken all that we have said?  It does so for a connection that is in the
 * queue, and for none that it had no room for. */
static bool is_queued(const attempt *a)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    return a->dial->has_token && /* over TCP */
           WEFT_OS->getsockopt(a->line.fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           !info.tcpi_unacked;
}

/* Waits for the socket; IN_PROGRESS when the attempt's time is up. */
static weft_status wait_for(attempt *a, short events)
{
    struct pollfd watched = {.fd = a->line.fd, .events = events};
    int ready = WEFT_OS->poll(&watched, 1, ms_left(a->deadline));
    if (ready == 0 && events == POLLIN && a->deadline < a->longest && is_queued(a)) {
        a->deadline = a->longest;
        ready = WEFT_OS->poll(&watched, 1, ms_left(a->deadline));
    }
    if (ready > 0)
        return WEFT_OK;
    if (ready < 0)
        return weft_i_fail_errno(errno, "store %s: poll", a->dial->name);
    return again(a, "something accepts connections there but does not greet", 0);
}

/* ---- greetings ---- */

static void sign_greeting(weft_i_store_greeting *greeting)
{
    greeting->version = WEFT_I_STORE_VERSION;
    snprintf(greeting->release, sizeof greeting->release, "%s", WEFT_VERSION);
}

static weft_status say(attempt *a, weft_i_store_greeting *greeting)
{
    sign_greeting(greeting);
    if (weft_i_store_link_greet(&a->line, greeting) < 0)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "store %s: no memory to connect", a->dial->name);
    for (;;) {
        if (weft_i_store_link_flush(&a->line) < 0)
            return again(a, "the connection closed during the handshake", 0);
        if (!weft_i_store_link_unsent(&a->line))
            return WEFT_OK;
        weft_status status = wait_for(a, POLLOUT);
        if (status != WEFT_OK)
            return status;
    }
}

static weft_status say_foreign(const attempt *a)
{
    char shown[25];
    size_t held = a->line.in.end - a->line.in.start, count = held < 24 ? held : 24;
    for (size_t i = 0; i < count; i++)
        shown[i] = (char)(isprint(a->line.in.bytes[a->line.in.start + i])
                              ? a->line.in.bytes[a->line.in.start + i]
                              : '.');
    shown[count] = 0;
    return weft_i_fail(
        WEFT_ERR_UNREACHABLE,
        "store %s: a foreign service listens at %s: it answers \"%s\", not as a weft store",
        a->dial->name, a->where, shown);
}

static weft_status say_version(const attempt *a, const weft_i_store_greeting *theirs)
{
    return weft_i_fail(
        WEFT_ERR_VERSION,
        "store %s: its server speaks protocol %u (weft %s), this process protocol %d (weft %s)",
        a->dial->name, theirs->version, theirs->release, WEFT_I_STORE_VERSION, WEFT_VERSION);
}

static weft_status judge(attempt *a, const weft_i_store_greeting *heard, unsigned wanted)
{
    if (heard->version != WEFT_I_STORE_VERSION)
        return say_version(a, heard);
    if (heard->kind == wanted)
        return WEFT_OK;
    if (heard->kind == WEFT_I_STORE_REFUSAL && heard->status == WEFT_ERR_AUTH)
        return weft_i_fail(WEFT_ERR_AUTH, "store %s: its server refused the token of this process",
                           a->dial->name);
    if (heard->kind == WEFT_I_STORE_REFUSAL && heard->status == WEFT_ERR_VERSION)
        return say_version(a, heard);
    if (heard->kind == WEFT_I_STORE_WELCOME)
        return weft_i_fail(WEFT_ERR_AUTH,
                           "store %s: its server does not ask for a token, this process has one",
                           a->dial->name);
    if (heard->kind == WEFT_I_STORE_CHALLENGE && !a->dial->has_token)
        return weft_i_fail(WEFT_ERR_AUTH,
                           "store %s: its server asks for a token, this process has none",
                           a->dial->name);
    return weft_i_fail(WEFT_ERR_PROTOCOL, "store %s: an unexpected greeting (%u)", a->dial->name,
                       heard->kind);
}

static weft_status hear(attempt *a, unsigned wanted, weft_i_store_greeting *out)
{
    for (;;) {
        int got = weft_i_store_link_greeting(&a->line, out);
        if (got < 0)
            return say_foreign(a);
        if (got == 1)
            return judge(a, out, wanted);
        weft_status status = wait_for(a, POLLIN);
        if (status != WEFT_OK)
            return status;
        status = weft_i_store_link_fill(&a->line, 4096);
        if (status == WEFT_ERR_NO_MEMORY)
            return weft_i_fail(status, "store %s: no memory to connect", a->dial->name);
        if (status < 0)
            return again(a, "the connection closed during the handshake", 0);
    }
}

/* Mutual proof: neither side sends the token, and neither goes on before the other has shown that
 * it knows it. */
static weft_status prove(attempt *a, const weft_i_store_greeting *hello)
{
    const uint8_t *token = a->dial->token;
    weft_i_store_greeting challenge, welcome, proof = {.kind = WEFT_I_STORE_PROOF};
    weft_i_store_transcript said;
    uint8_t expected[WEFT_I_KEYED_BYTES];
    weft_status status = hear(a, WEFT_I_STORE_CHALLENGE, &challenge);
    if (status != WEFT_OK)
        return status;
    weft_i_store_transcript_set(&said, hello, &challenge);
    WEFT_TRY(weft_i_store_link_derive(token, WEFT_I_STORE_SERVER_PROOF, &said, expected));
    if (!weft_i_keyed_equal(expected, challenge.proof))
        return weft_i_fail(
            WEFT_ERR_AUTH,
            "store %s: the server at %s does not have this job's token: another job's store, or "
            "an impostor",
            a->dial->name, a->where);
    WEFT_TRY(weft_i_store_link_derive(token, WEFT_I_STORE_CLIENT_PROOF, &said, proof.proof));
    status = say(a, &proof);
    if (status == WEFT_OK)
        status = hear(a, WEFT_I_STORE_WELCOME, &welcome);
    if (status != WEFT_OK)
        return status;
    if (strcmp(welcome.release, challenge.release) != 0)
        return weft_i_fail(WEFT_ERR_AUTH, "store %s: the server's greetings contradict each other",
                           a->dial->name);
    WEFT_TRY(weft_i_store_link_derive(token, WEFT_I_STORE_TO_SERVER_KEY, &said, a->line.send_key));
    WEFT_TRY(
        weft_i_store_link_derive(token, WEFT_I_STORE_TO_CLIENT_KEY, &said, a->line.receive_key));
    a->line.is_signed = true;
    return WEFT_OK;
}

static weft_status check_user(attempt *a)
{
    struct ucred server = {0};
    socklen_t length = sizeof server;
    if (WEFT_OS->getsockopt(a->line.fd, SOL_SOCKET, SO_PEERCRED, &server, &length) != 0)
        return weft_i_fail_errno(errno, "store %s: cannot read the server's user", a->dial->name);
    if (server.uid != (uid_t)weft_i_os_user())
        return weft_i_fail(WEFT_ERR_AUTH, "store %s: the socket belongs to user %u, not to %u",
                           a->dial->name, (unsigned)server.uid, (unsigned)weft_i_os_user());
    return WEFT_OK;
}

static weft_status shake_hands(attempt *a)
{
    weft_i_store_greeting hello = {.kind = WEFT_I_STORE_HELLO}, welcome;
    if (!a->dial->has_token)
        WEFT_TRY(check_user(a));
    else if (WEFT_OS->random_bytes(hello.nonce, sizeof hello.nonce) != 0)
        return weft_i_fail_errno(errno, "store %s: no random bytes", a->dial->name);
    sign_greeting(&hello);
    if (a->dial->has_token)
        WEFT_TRY(weft_i_store_link_hello_proof(a->dial->token, &hello, hello.proof));
    weft_status status = say(a, &hello);
    if (status != WEFT_OK)
        return status;
    return a->dial->has_token ? prove(a, &hello) : hear(a, WEFT_I_STORE_WELCOME, &welcome);
}

/* ---- connecting ---- */

/*
 * A connect to a free port of this host can meet itself: the kernel may choose that very port as
 * the source and then sees a simultaneous open.  The "connection" would block the real server's
 * bind.
 */
static bool met_itself(const attempt *a, const weft_i_store_address *address)
{
    weft_i_store_address own = {.length = sizeof own.where};
    return address->where.ss_family != AF_UNIX &&
           WEFT_OS->getsockname(a->line.fd, (struct sockaddr *)&own.where, &own.length) == 0 &&
           own.where.ss_family == address->where.ss_family &&
           weft_i_store_address_port(&own) == weft_i_store_address_port(address) &&
           own.length == address->length && memcmp(&own.where, &address->where, own.length) == 0;
}

static weft_status open_socket(attempt *a, const weft_i_store_address *address)
{
    int fd = WEFT_OS->socket(address->where.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return weft_i_fail_errno(errno, "store %s: cannot make a socket", a->dial->name);
    weft_status status = weft_i_nofork_add(fd);
    if (status < 0) {
        WEFT_OS->close(fd);
        return status;
    }
    weft_i_store_link_open(&a->line, fd);
    return WEFT_OK;
}

static weft_status reach(attempt *a, const weft_i_store_address *address)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (WEFT_OS->connect(a->line.fd, (const struct sockaddr *)&address->where, address->length) !=
        0) {
        if (errno == ENOMEM || errno == ENFILE || errno == EMFILE)
            return weft_i_fail_errno(errno, "store %s: connect", a->dial->name);
        if (errno != EINPROGRESS)
            return again(a, "connect", errno);
        weft_status status = wait_for(a, POLLOUT);
        if (status == WEFT_IN_PROGRESS)
            return again(a, "connect", ETIMEDOUT);
        if (status < 0)
            return status;
        if (WEFT_OS->getsockopt(a->line.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
            error = errno;
        if (error)
            return again(a, "connect", error);
    }
    return met_itself(a, address) ? again(a, "connect", ECONNREFUSED) : WEFT_OK;
}

static weft_status try_once(attempt *a, const weft_i_store_address *address, int64_t deadline)
{
    int64_t now = WEFT_OS->clock_ns(), until = now + a->span;
    int64_t longest =
        now + weft_i_env_number_or_default(WEFT_I_ENV_STORE_PATIENCE) * INT64_C(1000000);
    a->deadline = until < deadline ? until : deadline;
    a->longest = longest < deadline ? longest : deadline;
    weft_i_store_address_text(address, a->where);
    WEFT_TRY(open_socket(a, address));
    weft_status status = reach(a, address);
    if (status == WEFT_OK) {
        if (a->dial->has_token)
            weft_i_store_address_tune(a->line.fd);
        status = shake_hands(a);
    }
    if (status != WEFT_OK)
        weft_i_store_link_close(&a->line, false);
    return status;
}

weft_status weft_i_store_dial_connect(const weft_i_store_dial *dial, int64_t deadline,
                                      weft_i_store_link *line)
{
    int64_t patience = weft_i_env_number_or_default(WEFT_I_ENV_STORE_PATIENCE) * 1000000;
    attempt a = {.dial = dial, .span = first_span < patience ? first_span : patience};
    int64_t pause = first_pause, notice_at = dial->notice ? dial->notice_at : WEFT_I_NEVER;
    for (;;) {
        for (int i = 0; i < dial->addresses.count; i++) {
            weft_status status = try_once(&a, &dial->addresses.list[i], deadline);
            if (status == WEFT_OK)
                *line = a.line;
            if (status <= 0)
                return status;
        }
        int64_t now = WEFT_OS->clock_ns();
        if (now >= deadline)
            return weft_i_fail(WEFT_ERR_UNREACHABLE,
                               "store %s: cannot be reached before the deadline: %s", dial->name,
                               a.why);
        if (now >= notice_at) {
            weft_i_log(WEFT_LOG_WARN, "%s", dial->notice);
            notice_at = WEFT_I_NEVER;
        }
        /* The low bits of the clock spread ranks that started together. */
        int64_t nap = pause + now % pause;
        WEFT_OS->sleep_ns(nap < deadline - now ? nap : deadline - now);
        pause = pause * 2 < longest_pause ? pause * 2 : longest_pause;
        a.span = a.span * 2 < patience ? a.span * 2 : patience;
    }
}

weft_status weft_i_store_dial_once(const weft_i_store_dial *dial, int64_t deadline,
                                   weft_i_store_link *line)
{
    attempt a = {.dial = dial,
                 .span = weft_i_env_number_or_default(WEFT_I_ENV_STORE_PATIENCE) * 1000000};
    weft_status status = try_once(&a, &dial->addresses.list[0], deadline);
    if (status == WEFT_OK)
        *line = a.line;
    if (status == WEFT_IN_PROGRESS && a.error == ECONNREFUSED)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "store at %s: nobody listens", a.where);
    return status;
}

bool weft_i_store_dial_is_refused(const char *address, int64_t deadline)
{
    weft_i_store_dial dial = {.name = "probe"};
    attempt a = {.dial = &dial, .deadline = deadline};
    weft_i_errors before;
    if (!weft_i_store_address_read(address, &dial.addresses.list[0]))
        return false;
    weft_i_errors_save(&before);
    bool refused = false;
    if (open_socket(&a, &dial.addresses.list[0]) == WEFT_OK) {
        refused = reach(&a, &dial.addresses.list[0]) != WEFT_OK && a.error == ECONNREFUSED;
        weft_i_store_link_close(&a.line, false);
    }
    weft_i_errors_restore(&before);
    return refused;
}

void weft_i_store_dial_forget(weft_i_store_dial *dial)
{
    weft_i_keyed_forget(dial->token, sizeof dial->token);
}
