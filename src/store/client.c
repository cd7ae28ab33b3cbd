/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that lives in a server: one connection, any number of threads.
 *
 * Requests carry ids and are answered in any order, so a call that waits for a key keeps no other
 * waiting.  There is no reader thread: of the threads that wait for an answer one leads, reads the
 * socket and hands answers to their owners; when it has its own it passes the lead on.  A lone
 * caller thus does its own read (no hand-over between threads, no thread to start and stop in every
 * rank), and one descriptor serves all, where a connection per blocked call would need as many as
 * there are blocked threads.
 */
#include "store/client.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "store/dial.h"
#include "store/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LAST_READS = 64 }; /* of a connection that cannot be written to any more */

/* A call under way, on the stack of its thread. */
typedef struct slot {
    struct slot *next, **link;
    uint64_t id;
    bool done;
    bool pushing;       /* waits for room to send, so cannot be called to lead */
    weft_status status; /* of the transport */
    const weft_i_store_request *request;
    weft_i_store_answer *answer;
    pthread_cond_t turn; /* done, or its turn to lead */
} slot;

typedef struct client {
    weft_store store;
    weft_i_store_server *server; /* if it runs in this process */
    weft_i_store_dial dial;
    pthread_mutex_t lock; /* everything below */
    weft_i_store_link line;
    slot *slots;
    bool led; /* some thread reads the socket */
    weft_status broken;
    uint64_t last_id;
} client;

static weft_status say_broken(const client *c)
{
    if (c->broken == WEFT_ERR_UNREACHABLE)
        return weft_i_fail(c->broken,
                           "store %s: the server is gone: it ended, died or dropped this client",
                           c->store.name);
    return weft_i_fail(
        c->broken, "store %s: the server sent bytes that are not ours; the connection is closed",
        c->store.name);
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int poll_ms(int64_t deadline)
{
    if (deadline == WEFT_I_NEVER)
        return -1;
    int64_t left = deadline - WEFT_OS->clock_ns();
    left = left <= 0 ? 0 : (left + 999999) / 1000000;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

/* ---- under the lock ---- */

static void break_all(client *c, weft_status status)
{
    if (c->broken)
        return;
    c->broken = status;
    for (slot *s = c->slots; s; s = s->next) {
        if (s->done)
            continue; /* it has its answer, and its thread only has to wake */
        s->done = true;
        s->status = status;
        pthread_cond_signal(&s->turn);
    }
}

static weft_status enqueue(client *c, uint64_t id, const weft_i_store_request *request,
                           size_t bytes)
{
    uint8_t *payload = weft_i_store_link_begin(&c->line, id, bytes);
    if (!payload)
        return WEFT_ERR_NO_MEMORY;
    weft_i_store_request_encode(request, payload, bytes);
    return weft_i_store_link_commit(&c->line, bytes);
}

static void hand_over(client *c, const weft_i_store_frame *frame)
{
    slot *s = c->slots;
    while (s && (s->id != frame->id || s->done))
        s = s->next;
    if (!s)
        return; /* its caller gave up and said so */
    uint8_t *copy = WEFT_OS->alloc(frame->bytes + 1);
    s->status = WEFT_ERR_NO_MEMORY;
    if (copy) {
        memcpy(copy, frame->payload, frame->bytes);
        s->status = weft_i_store_answer_decode(copy, frame->bytes, s->answer);
        s->answer->memory = copy;
        /* Whoever asked takes as many values as it asked for, and looks no further. */
        if (s->status == WEFT_OK && !weft_i_store_answer_fits(s->answer, s->request))
            s->status = WEFT_ERR_PROTOCOL;
    }
    s->done = true;
    pthread_cond_signal(&s->turn);
    if (s->status == WEFT_ERR_PROTOCOL)
        break_all(c, WEFT_ERR_PROTOCOL);
}

/* Reads what is there.  Only memory can be short without ending the connection. */
static weft_status read_some(client *c)
{
    weft_status status = weft_i_store_link_fill(&c->line, (size_t)2 * WEFT_I_STORE_MESSAGE_BYTES);
    weft_i_store_frame frame;
    int got = 0;
    while (!c->broken && (got = weft_i_store_link_next(&c->line, &frame)) == 1)
        hand_over(c, &frame);
    if (got < 0)
        break_all(c, WEFT_ERR_PROTOCOL);
    if (status == WEFT_ERR_UNREACHABLE)
        break_all(c, status);
    return status == WEFT_ERR_NO_MEMORY ? status : WEFT_OK;
}

/* Whoever cannot send any more can still read: the server's last answers are here already. */
static void flush(client *c)
{
    weft_status status = weft_i_store_link_flush(&c->line);
    for (int left = LAST_READS; status < 0 && !c->broken && left; left--)
        read_some(c);
    if (status < 0)
        break_all(c, status);
}

/* One-way words about an earlier request.  Without memory for them the connection must go: the
 * server would be wrong. */
static void tell(client *c, weft_i_store_op op, uint64_t id)
{
    weft_i_store_request request = {.op = op, .number = (int64_t)id};
    if (c->broken)
        return;
    if (enqueue(c, 0, &request, weft_i_store_request_bytes(&request)) < 0)
        break_all(c, WEFT_ERR_UNREACHABLE);
    else
        flush(c);
}

/* Waits for the socket without the lock; what arrived is handed out. */
static weft_status lead(client *c, int64_t deadline)
{
    struct pollfd watched = {.fd = c->line.fd, .events = POLLIN};
    if (weft_i_store_link_unsent(&c->line))
        watched.events |= POLLOUT;
    c->led = true;
    pthread_mutex_unlock(&c->lock);
    int ready = WEFT_OS->poll(&watched, 1, poll_ms(deadline));
    int error = errno;
    pthread_mutex_lock(&c->lock);
    c->led = false;
    if (ready < 0)
        return error == ENOMEM ? WEFT_ERR_NO_MEMORY : WEFT_ERR_IO;
    if (watched.revents & POLLOUT)
        flush(c);
    if (watched.revents & (POLLIN | POLLHUP | POLLERR))
        return read_some(c);
    return WEFT_OK;
}

/*
 * Somebody else reads, but our bytes are not all out: wait for room ourselves.  If nobody reads any
 * more, all others are here too, sending; then no answer is under way that could block the server,
 * so this cannot lock up.
 */
static void push(client *c, slot *s, int64_t deadline)
{
    struct pollfd watched = {.fd = c->line.fd, .events = POLLOUT};
    s->pushing = true;
    pthread_mutex_unlock(&c->lock);
    WEFT_OS->poll(&watched, 1, poll_ms(deadline));
    pthread_mutex_lock(&c->lock);
    s->pushing = false;
    if (!c->broken)
        flush(c);
}

static void follow(client *c, slot *s, int64_t deadline)
{
    if (deadline == WEFT_I_NEVER) {
        pthread_cond_wait(&s->turn, &c->lock);
        return;
    }
    struct timespec end = timespec_of(deadline);
    pthread_cond_timedwait(&s->turn, &c->lock, &end);
}

static weft_status await(client *c, slot *s, uint64_t sent_at, int64_t deadline)
{
    while (!s->done) {
        if (WEFT_OS->clock_ns() >= deadline)
            return WEFT_ERR_TIMEOUT;
        if (!c->led)
            WEFT_TRY(lead(c, deadline));
        else if (c->line.flushed < sent_at)
            push(c, s, deadline);
        else
            follow(c, s, deadline);
    }
    return s->status;
}

static void enter(client *c, slot *s)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->turn, &clock);
    pthread_condattr_destroy(&clock);
    s->next = c->slots;
    s->link = &c->slots;
    if (s->next)
        s->next->link = &s->next;
    c->slots = s;
}

static void leave(client *c, slot *s)
{
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    pthread_cond_destroy(&s->turn);
    for (slot *other = c->slots; !c->led && other; other = other->next)
        if (!other->done && !other->pushing) {
            pthread_cond_signal(&other->turn); /* somebody has to read from now on */
            break;
        }
}

/* ---- the kind ---- */

static weft_status exchange(client *c, const weft_i_store_request *request, size_t bytes,
                            int64_t deadline, weft_i_store_answer *answer)
{
    slot s = {.id = ++c->last_id, .request = request, .answer = answer};
    if (enqueue(c, s.id, request, bytes) < 0)
        return WEFT_ERR_NO_MEMORY;
    uint64_t sent_at = c->line.flushed + weft_i_store_link_unsent(&c->line);
    enter(c, &s);
    flush(c);
    weft_status status = await(c, &s, sent_at, deadline);
    leave(c, &s);
    if (status < 0 && status != WEFT_ERR_UNREACHABLE && status != WEFT_ERR_PROTOCOL)
        tell(c, WEFT_I_STORE_CANCEL, s.id);
    else if (request->op == WEFT_I_STORE_POP && status == WEFT_OK && answer->status == WEFT_OK)
        tell(c, WEFT_I_STORE_TAKEN, s.id);
    return status;
}

static weft_status word(const client *c, const weft_i_store_request *request, weft_status status)
{
    char keys[640];
    weft_i_store_keys_text(request, keys, sizeof keys);
    switch (status) {
    case WEFT_OK:
        return WEFT_OK;
    case WEFT_ERR_UNREACHABLE:
    case WEFT_ERR_PROTOCOL:
        return weft_i_explain(say_broken(c), "%s(%s)", weft_i_store_op_name(request->op), keys);
    case WEFT_ERR_TIMEOUT:
        return weft_i_fail(status, "store %s: %s(%s): no answer before the deadline", c->store.name,
                           weft_i_store_op_name(request->op), keys);
    default:
        return weft_i_fail(status, "store %s: %s(%s): %s in this process", c->store.name,
                           weft_i_store_op_name(request->op), keys, weft_strerror(status));
    }
}

static weft_status perform(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer)
{
    client *c = (client *)store;
    size_t bytes = weft_i_store_request_bytes(request);
    if (bytes == SIZE_MAX) {
        answer->status = WEFT_ERR_LIMIT;
        return WEFT_OK;
    }
    pthread_mutex_lock(&c->lock);
    weft_status status = c->broken ? c->broken : exchange(c, request, bytes, deadline, answer);
    pthread_mutex_unlock(&c->lock);
    if (status < 0)
        weft_i_store_answer_clear(answer);
    if (status == WEFT_ERR_TIMEOUT && weft_i_store_waits(request)) {
        answer->status = status;
        return WEFT_OK;
    }
    return word(c, request, status);
}

static void close_client(weft_store *store, bool forked)
{
    client *c = (client *)store;
    weft_i_store_link_close(&c->line, forked);
    weft_i_store_server_drop(c->server, forked);
    weft_i_store_dial_forget(&c->dial);
    if (!forked)
        pthread_mutex_destroy(&c->lock);
}

static weft_store *copy_of(weft_store *store);

static const weft_i_store_kind kind = {.perform = perform, .clone = copy_of, .close = close_client};

static client *make(const weft_i_store_dial *dial, weft_i_store_server *server)
{
    client *c = weft_i_store_new(&kind, sizeof *c, "%s", dial->name);
    if (!c) {
        weft_i_store_server_drop(server, false);
        return NULL;
    }
    c->server = server;
    c->dial = *dial;
    c->line.fd = -1;
    c->store.port = dial->port;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

weft_store *weft_i_store_client_adopt(int fd)
{
    weft_i_store_dial nowhere = {.name = "adopted"};
    if (weft_i_nofork_add(fd) < 0) {
        WEFT_OS->close(fd);
        return NULL;
    }
    client *c = make(&nowhere, NULL);
    if (!c) {
        weft_i_nofork_close(fd);
        return NULL;
    }
    weft_i_store_link_open(&c->line, fd);
    return &c->store;
}

weft_store *weft_i_store_client_new(const weft_i_store_dial *dial, weft_i_store_server *server,
                                    int64_t deadline)
{
    client *c = make(dial, server);
    if (!c)
        return NULL;
    weft_status status = weft_i_store_dial_connect(&c->dial, deadline, &c->line);
    c->dial.notice = NULL; /* the caller's, and for this time */
    if (status == WEFT_OK)
        return &c->store;
    weft_release(c);
    return NULL;
}

static weft_store *copy_of(weft_store *store)
{
    client *c = (client *)store;
    pthread_mutex_lock(&c->lock);
    weft_i_store_dial dial = c->dial;
    pthread_mutex_unlock(&c->lock);
    if (c->server)
        weft_i_store_server_hold(c->server);
    weft_store *copy =
        weft_i_store_client_new(&dial, c->server, weft_i_store_deadline(store, WEFT_DEFAULT));
    weft_i_store_dial_forget(&dial);
    return copy;
}

/* ---- another server ---- */

bool weft_i_store_client_is(const weft_store *store)
{
    return store->kind == &kind;
}

bool weft_i_store_client_serves(const weft_store *store)
{
    while (store->inner)
        store = store->inner;
    return weft_i_store_client_is(store) && ((const client *)store)->server;
}

bool weft_i_store_client_is_broken(weft_store *store)
{
    client *c = (client *)store;
    pthread_mutex_lock(&c->lock);
    bool broken = c->broken != WEFT_OK;
    pthread_mutex_unlock(&c->lock);
    return broken;
}

void weft_i_store_client_doubt(weft_store *store)
{
    client *c = (client *)store;
    unsigned soon_ms = 1;
    pthread_mutex_lock(&c->lock);
    if (c->dial.has_token && !c->broken)
        WEFT_OS->setsockopt(c->line.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &soon_ms, sizeof soon_ms);
    pthread_mutex_unlock(&c->lock);
}

bool weft_i_store_client_here(weft_store *store, weft_i_store_address *out)
{
    client *c = (client *)store;
    *out = (weft_i_store_address){.length = sizeof out->where};
    if (!c->dial.has_token)
        return false;
    if (c->server)
        *out = c->dial.addresses.list[0];
    else if (WEFT_OS->getsockname(c->line.fd, (struct sockaddr *)&out->where, &out->length) != 0)
        return false;
    weft_i_store_address_any_port(out);
    return true;
}

weft_status weft_i_store_client_stand_by(weft_store *store, weft_i_store_server **standby,
                                         char address[WEFT_I_STORE_ADDRESS_TEXT])
{
    client *c = (client *)store;
    weft_i_store_addresses here = {.count = 1};
    weft_i_store_address *own = &here.list[0];
    *address = 0;
    if (!c->dial.has_token)
        return WEFT_OK;
    if (c->server) {
        weft_i_store_address_text(&c->dial.addresses.list[0], address);
        return WEFT_OK;
    }
    own->length = sizeof own->where;
    if (WEFT_OS->getsockname(c->line.fd, (struct sockaddr *)&own->where, &own->length) != 0)
        return weft_i_fail_errno(errno, "store %s: cannot read our own address", c->store.name);
    weft_i_store_address_any_port(own);
    weft_i_store_address bound;
    int listener = weft_i_store_address_listen(&here, &bound);
    if (listener < 0)
        return weft_last_status();
    *standby = weft_i_store_server_new(listener, c->dial.token);
    if (!*standby)
        return weft_last_status();
    weft_status status = weft_i_store_server_start(*standby);
    if (status < 0) {
        weft_i_store_server_drop(*standby, false);
        *standby = NULL;
        return status;
    }
    weft_i_store_address_text(&bound, address);
    return WEFT_OK;
}

/* The last of those who were in a call has to be out before the connection changes. */
static void replace_line(client *c, const weft_i_store_dial *dial, const weft_i_store_link *line)
{
    pthread_mutex_lock(&c->lock);
    while (c->led || c->slots) {
        pthread_mutex_unlock(&c->lock);
        WEFT_OS->yield();
        pthread_mutex_lock(&c->lock);
    }
    weft_i_store_link_close(&c->line, false);
    c->line = *line;
    c->dial = *dial;
    c->broken = WEFT_OK;
    pthread_mutex_unlock(&c->lock);
}

weft_status weft_i_store_client_redial(weft_store *store, const char *address, int64_t deadline)
{
    client *c = (client *)store;
    weft_i_store_dial dial = c->dial;
    weft_i_store_link line;
    dial.addresses.count = 1;
    if (!weft_i_store_address_read(address, &dial.addresses.list[0]))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "store: \"%s\" is no address", address);
    snprintf(dial.name, sizeof dial.name, "tcp %s", address);
    weft_status status = weft_i_store_dial_once(&dial, deadline, &line);
    if (status == WEFT_OK)
        replace_line(c, &dial, &line);
    weft_i_store_dial_forget(&dial);
    return status;
}

void weft_i_store_client_await_alone(weft_store *store, int64_t deadline)
{
    client *c = (client *)store;
    while (weft_i_store_client_serves(store) && !weft_i_store_server_is_alone(c->server) &&
           WEFT_OS->clock_ns() < deadline)
        WEFT_OS->sleep_ns(1000000);
}
