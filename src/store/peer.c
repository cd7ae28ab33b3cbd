/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of one connection.  Before the token is shown it holds one small buffer and
 * answers with greetings only; afterwards its requests are applied in order.  Every failure of one
 * peer ends that peer alone.
 */
#include "store/peer.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/os_look.h"
#include "base/share/segment.h"
#include "weft/version.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

struct weft_i_store_waiting {
    weft_i_store_waiter waiter; /* first: the map hands us back a pointer to it */
    weft_i_store_waiting *next, **link;
    weft_i_store_peer *peer;
    uint64_t id;
    size_t bytes;
    weft_i_store_request request;
    void *space;
    uint8_t payload[];
};

struct weft_i_store_granted {
    weft_i_store_granted *next;
    uint64_t id;
    weft_i_store_item *item;
    size_t bytes; /* as counted in the map while on its way */
    size_t key_bytes;
    char key[];
};

struct weft_i_store_testament {
    size_t key_bytes, bytes; /* bytes: of the value, which follows the key */
    char key[];
};

void weft_i_store_peers_add(weft_i_store_peers *list, weft_i_store_peer *peer)
{
    if (!list->first)
        list->end = &list->first;
    peer->next = NULL;
    peer->link = list->end;
    *list->end = peer;
    list->end = &peer->next;
    list->count++;
}

void weft_i_store_peers_remove(weft_i_store_peers *list, weft_i_store_peer *peer)
{
    *peer->link = peer->next;
    if (peer->next)
        peer->next->link = peer->link;
    else
        list->end = peer->link;
    list->count--;
}

/* ---- accounts ---- */

static void count_unsent(weft_i_store_peer *peer)
{
    size_t now = weft_i_store_link_unsent(&peer->line);
    if (peer->state == WEFT_I_STORE_PEER_KNOWN && !peer->unsent && now)
        peer->since = WEFT_OS->clock_ns();
    peer->server->unsent += now - peer->unsent;
    peer->unsent = now;
}

static void release_large(weft_i_store_peer *peer)
{
    peer->server->reserved -= peer->reserved;
    peer->reserved = 0;
}

static void set_paused(weft_i_store_peer *peer, bool paused)
{
    if (paused != peer->paused)
        peer->server->paused += paused ? 1 : (size_t)-1;
    peer->paused = paused;
}

/* Whether the next request may be answered now; if not, and there is one, the peer rests until it has
 * read, or others have.  Who has read everything does not wait for those who do not. */
static bool within_budget(weft_i_store_peer *peer)
{
    size_t all = peer->unsent ? WEFT_I_STORE_UNSENT : WEFT_I_STORE_UNSENT_ALL;
    bool ok = peer->server->unsent < all && peer->unsent < WEFT_I_STORE_PEER_UNSENT;
    set_paused(peer, !ok && peer->line.in.start != peer->line.in.end);
    return ok;
}

/* Whether the frame under way may be read into memory now. */
static bool may_read(weft_i_store_peer *peer)
{
    weft_i_store_server *server = peer->server;
    size_t wants =
        peer->state == WEFT_I_STORE_PEER_KNOWN ? weft_i_store_link_wants(&peer->line) : 0;
    if (wants <= WEFT_I_STORE_LARGE || peer->reserved)
        return true;
    if (server->reserved && server->reserved + wants > WEFT_I_STORE_LARGE_ALL) {
        set_paused(peer, true);
        return false;
    }
    server->reserved += peer->reserved = wants;
    peer->heard = WEFT_OS->clock_ns(); /* while it rested it was we who did not listen */
    return true;
}

static void watch(weft_i_store_peer *peer)
{
    uint32_t wanted =
        (peer->paused ? 0u : (uint32_t)EPOLLIN) | (peer->unsent ? (uint32_t)EPOLLOUT : 0u);
    if (peer->state == WEFT_I_STORE_PEER_GONE || wanted == peer->interest)
        return;
    struct epoll_event event = {.events = wanted, .data.ptr = peer};
    if (WEFT_OS->epoll_ctl(peer->server->epoll, EPOLL_CTL_MOD, peer->line.fd, &event) != 0)
        weft_i_store_peer_drop(peer, "epoll failed");
    else
        peer->interest = wanted;
}

/* ---- coming and going ---- */

static bool same_user(int fd)
{
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    return WEFT_OS->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.uid == (uid_t)weft_i_os_user();
}

weft_i_store_peer *weft_i_store_peer_new(weft_i_store_server *server, int fd)
{
    if (weft_i_nofork_add(fd) < 0) {
        WEFT_OS->close(fd);
        return NULL;
    }
    weft_i_store_peer *peer = WEFT_OS->alloc(sizeof *peer);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (!peer || WEFT_OS->epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        weft_i_log(WEFT_LOG_INFO, "store: a connection was turned away: %s",
                   peer ? "epoll failed" : "no memory");
        WEFT_OS->free(peer);
        weft_i_nofork_close(fd);
        return NULL;
    }
    weft_i_store_link_open(&peer->line, fd);
    peer->server = server;
    peer->interest = EPOLLIN;
    peer->since = WEFT_OS->clock_ns();
    weft_i_store_peers_add(&server->strangers, peer);
    return peer;
}

static void forget_waiting(weft_i_store_waiting *waiting)
{
    weft_i_store_peer *peer = waiting->peer;
    weft_i_store_map_unhang(&peer->server->map, &waiting->waiter);
    *waiting->link = waiting->next;
    if (waiting->next)
        waiting->next->link = waiting->link;
    peer->server->map.bytes -= waiting->bytes;
    peer->server->waiting--;
    peer->waiting_count--;
    WEFT_OS->free(waiting->space);
    WEFT_OS->free(waiting);
}

/* Takes the grant at `place` off the list; gives its element back to the queue unless it was
 * received. */
static void settle(weft_i_store_peer *peer, weft_i_store_granted **place, bool received)
{
    weft_i_store_granted *granted = *place;
    *place = granted->next;
    peer->server->map.bytes -= granted->bytes;
    peer->server->granted--;
    if (received)
        weft_i_store_map_drop(granted->item);
    else
        weft_i_store_map_put_back(&peer->server->map,
                                  (weft_i_view){granted->key, granted->key_bytes}, granted->item);
    WEFT_OS->free(granted);
}

static size_t will_bytes(const weft_i_store_testament *will)
{
    return sizeof *will + will->key_bytes + will->bytes;
}

static void forget_will(weft_i_store_peer *peer)
{
    if (peer->will)
        peer->server->map.bytes -= will_bytes(peer->will);
    WEFT_OS->free(peer->will);
    peer->will = NULL;
}

/* Takes the place of an earlier one, or fails and leaves that. */
static weft_status keep_will(weft_i_store_peer *peer, weft_i_view key, weft_i_view value)
{
    weft_i_store_map *map = &peer->server->map;
    if (!value.bytes) {
        forget_will(peer);
        return WEFT_OK;
    }
    weft_i_store_testament *will = NULL;
    if (map->bytes + sizeof *will + key.bytes + value.bytes > map->limit)
        return WEFT_ERR_LIMIT;
    will = WEFT_OS->alloc(sizeof *will + key.bytes + value.bytes);
    if (!will)
        return WEFT_ERR_NO_MEMORY;
    forget_will(peer);
    will->key_bytes = key.bytes;
    will->bytes = value.bytes;
    memcpy(will->key, key.data, key.bytes);
    memcpy(will->key + key.bytes, value.data, value.bytes);
    map->bytes += will_bytes(will);
    peer->will = will;
    return WEFT_OK;
}

static void execute_will(weft_i_store_peer *peer)
{
    weft_i_store_testament *will = peer->will;
    if (!will)
        return;
    weft_i_view key = {will->key, will->key_bytes},
                value = {will->key + will->key_bytes, will->bytes};
    weft_i_store_request append = {
        .op = WEFT_I_STORE_APPEND, .keys = 1, .key = &key, .values = 1, .value = &value};
    weft_i_store_answer answer;
    weft_i_store_outcome outcome;
    peer->server->map.bytes -= will_bytes(will); /* its place is taken by what it says */
    peer->will = NULL;
    weft_i_store_map_apply(&peer->server->map, &append, NULL, &answer, &outcome);
    if (answer.status < 0)
        weft_i_log(WEFT_LOG_WARN, "store: the last will of a client is lost: %s",
                   weft_strerror(answer.status));
    weft_i_store_answer_clear(&answer);
    WEFT_OS->free(will);
}

static weft_i_store_peers *list_of(const weft_i_store_peer *peer)
{
    weft_i_store_server *server = peer->server;
    return peer->state == WEFT_I_STORE_PEER_KNOWN     ? &server->known
           : peer->state == WEFT_I_STORE_PEER_PROVING ? &server->proving
                                                      : &server->strangers;
}

void weft_i_store_peer_drop(weft_i_store_peer *peer, const char *why)
{
    weft_i_store_server *server = peer->server;
    if (peer->state == WEFT_I_STORE_PEER_GONE)
        return;
    bool known = peer->state == WEFT_I_STORE_PEER_KNOWN;
    weft_i_log(known ? WEFT_LOG_TRACE : WEFT_LOG_INFO, "store: %s left: %s",
               known ? "a client" : "a stranger", why);
    while (peer->waiting)
        forget_waiting(peer->waiting);
    while (peer->granted)
        settle(peer, &peer->granted, false);
    execute_will(peer);
    set_paused(peer, false);
    release_large(peer);
    server->unsent -= peer->unsent;
    weft_i_store_link_close(&peer->line, false); /* closing takes it out of epoll too */
    weft_i_store_peers_remove(list_of(peer), peer);
    peer->state = WEFT_I_STORE_PEER_GONE;
    weft_i_store_peers_add(&server->gone, peer);
}

void weft_i_store_peer_flush(weft_i_store_peer *peer)
{
    uint64_t before = peer->line.flushed;
    if (weft_i_store_link_flush(&peer->line) < 0) {
        weft_i_store_peer_drop(peer, "it closed the connection");
        return;
    }
    if (peer->state == WEFT_I_STORE_PEER_KNOWN && peer->unsent && peer->line.flushed != before)
        peer->since = WEFT_OS->clock_ns();
    count_unsent(peer);
    watch(peer);
}

/* Is there something that it said and we have not read? */
static bool has_unread(const weft_i_store_peer *peer)
{
    char byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return WEFT_OS->recvmsg(peer->line.fd, &message, MSG_PEEK) > 0;
}

/* Closing with bytes unread resets a TCP connection, and what is under way to the peer is lost. */
bool weft_i_store_peer_may_close(const weft_i_store_peer *peer)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (peer->unsent)
        return false;
    return !has_unread(peer) ||
           WEFT_OS->getsockopt(peer->line.fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
           (!info.tcpi_unacked && !info.tcpi_notsent_bytes);
}

/* ---- greetings ---- */

static void sign_greeting(weft_i_store_greeting *greeting)
{
    greeting->version = WEFT_I_STORE_VERSION;
    snprintf(greeting->release, sizeof greeting->release, "%s", WEFT_VERSION);
}

static void greet(weft_i_store_peer *peer, weft_i_store_greeting *greeting)
{
    sign_greeting(greeting);
    if (weft_i_store_link_greet(&peer->line, greeting) < 0)
        weft_i_store_peer_drop(peer, "no memory to greet it");
    else
        weft_i_store_peer_flush(peer);
}

static void refuse(weft_i_store_peer *peer, weft_status status, const char *why)
{
    weft_i_store_greeting refusal = {.kind = WEFT_I_STORE_REFUSAL, .status = status};
    greet(peer, &refusal);
    weft_i_store_peer_drop(peer, why);
}

static void admit(weft_i_store_peer *peer)
{
    weft_i_store_greeting welcome = {.kind = WEFT_I_STORE_WELCOME};
    weft_i_store_peers_remove(list_of(peer), peer);
    weft_i_store_peers_add(&peer->server->known, peer);
    peer->state = WEFT_I_STORE_PEER_KNOWN;
    greet(peer, &welcome);
}

static bool hello_is_ours(const weft_i_store_server *server, const weft_i_store_greeting *hello)
{
    uint8_t expected[WEFT_I_KEYED_BYTES];
    return weft_i_store_link_hello_proof(server->token, hello, expected) == WEFT_OK &&
           weft_i_keyed_equal(expected, hello->proof);
}

static bool turn_away(int fd)
{
    WEFT_OS->close(fd);
    return false;
}

bool weft_i_store_peer_screen(const weft_i_store_server *server, int fd)
{
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    weft_i_store_greeting hello, no = {.kind = WEFT_I_STORE_REFUSAL, .status = WEFT_ERR_AUTH};
    if (!server->has_token)
        return same_user(fd) || turn_away(fd);
    ssize_t got = WEFT_OS->recvmsg(fd, &message, MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return true; /* has not spoken yet */
    if (got <= 0 || memcmp(bytes, "WEFT", got < 4 ? (size_t)got : 4) != 0)
        return turn_away(fd);
    if (got < (ssize_t)sizeof bytes)
        return true;
    if (!weft_i_store_greeting_decode(bytes, &hello))
        return turn_away(fd);
    if (hello.version != WEFT_I_STORE_VERSION || hello_is_ours(server, &hello))
        return true;
    sign_greeting(&no);
    weft_i_store_greeting_encode(&no, bytes);
    WEFT_OS->sendmsg(fd, &message, 0); /* fits any empty socket; who does not hear it is no loss */
    return turn_away(fd);
}

static void hear_hello(weft_i_store_peer *peer, const weft_i_store_greeting *hello)
{
    if (hello->version != WEFT_I_STORE_VERSION) {
        refuse(peer, WEFT_ERR_VERSION, "it speaks another version");
        return;
    }
    if (!peer->server->has_token) {
        admit(peer);
        return;
    }
    if (!hello_is_ours(peer->server, hello)) {
        refuse(peer, WEFT_ERR_AUTH, "its hello was not made with the job's token");
        return;
    }
    weft_i_store_greeting challenge = {.kind = WEFT_I_STORE_CHALLENGE};
    sign_greeting(&challenge);
    peer->hello = *hello;
    if (WEFT_OS->random_bytes(challenge.nonce, sizeof challenge.nonce) != 0) {
        weft_i_store_peer_drop(peer, "no random bytes");
        return;
    }
    weft_i_store_transcript_set(&peer->transcript, hello, &challenge);
    if (weft_i_store_link_derive(peer->server->token, WEFT_I_STORE_SERVER_PROOF, &peer->transcript,
                                 challenge.proof) < 0) {
        weft_i_store_peer_drop(peer, "no memory to challenge it");
        return;
    }
    if (peer->server->proving.count >= WEFT_I_STORE_PROVING)
        weft_i_store_peer_drop(peer->server->proving.first, "newer ones came");
    weft_i_store_peers_remove(&peer->server->strangers, peer);
    weft_i_store_peers_add(&peer->server->proving, peer);
    peer->state = WEFT_I_STORE_PEER_PROVING;
    peer->since = WEFT_OS->clock_ns();
    greet(peer, &challenge);
}

static void hear_proof(weft_i_store_peer *peer, const weft_i_store_greeting *proof)
{
    const uint8_t *token = peer->server->token;
    const weft_i_store_transcript *said = &peer->transcript;
    uint8_t expected[WEFT_I_KEYED_BYTES];
    if (proof->version != WEFT_I_STORE_VERSION ||
        strcmp(proof->release, peer->hello.release) != 0 ||
        weft_i_store_link_derive(token, WEFT_I_STORE_CLIENT_PROOF, said, expected) < 0 ||
        !weft_i_keyed_equal(expected, proof->proof)) {
        refuse(peer, WEFT_ERR_AUTH, "it does not have the job's token");
        return;
    }
    if (weft_i_store_link_derive(token, WEFT_I_STORE_TO_SERVER_KEY, said, peer->line.receive_key) <
            0 ||
        weft_i_store_link_derive(token, WEFT_I_STORE_TO_CLIENT_KEY, said, peer->line.send_key) <
            0) {
        weft_i_store_peer_drop(peer, "no memory for its keys");
        return;
    }
    admit(peer);
    peer->line.is_signed = true;
}

/* Whether there was a greeting to act on. */
static bool hear_greeting(weft_i_store_peer *peer)
{
    weft_i_store_greeting greeting;
    int got = weft_i_store_link_greeting(&peer->line, &greeting);
    if (got == 0)
        return false;
    if (got == 1 && peer->state == WEFT_I_STORE_PEER_NEW && greeting.kind == WEFT_I_STORE_HELLO)
        hear_hello(peer, &greeting);
    else if (got == 1 && peer->state == WEFT_I_STORE_PEER_PROVING &&
             greeting.kind == WEFT_I_STORE_PROOF)
        hear_proof(peer, &greeting);
    else
        weft_i_store_peer_drop(peer, "it does not speak our protocol");
    return true;
}

/* ---- requests ---- */

static bool send_answer(weft_i_store_peer *peer, uint64_t id, const weft_i_store_answer *answer)
{
    size_t bytes = weft_i_store_answer_bytes(answer);
    uint8_t *payload = bytes <= WEFT_I_STORE_MESSAGE_BYTES
                           ? weft_i_store_link_begin(&peer->line, id, bytes)
                           : NULL;
    if (!payload)
        return false;
    weft_i_store_answer_encode(answer, payload, bytes);
    if (weft_i_store_link_commit(&peer->line, bytes) < 0)
        return false;
    weft_i_store_peer_flush(peer);
    return true;
}

/* For answers without values.  A client that cannot even be told of an error must not wait for
 * ever: it is dropped. */
static void send_status(weft_i_store_peer *peer, uint64_t id, weft_status status)
{
    weft_i_store_answer answer = {.status = status};
    if (!send_answer(peer, id, &answer))
        weft_i_store_peer_drop(peer, "no memory to answer it");
}

/* Notes a popped element before it is sent, so that it can go back.  False, and back it is, if
 * memory ran out. */
static bool grant(weft_i_store_peer *peer, uint64_t id, weft_i_view key, weft_i_store_item *item)
{
    weft_i_store_server *server = peer->server;
    weft_i_store_granted *granted = WEFT_OS->alloc(sizeof *granted + key.bytes);
    if (!granted) {
        weft_i_store_map_put_back(&server->map, key, item);
        return false;
    }
    granted->id = id;
    granted->item = item;
    granted->bytes = sizeof *item + item->bytes;
    granted->key_bytes = key.bytes;
    memcpy(granted->key, key.data, key.bytes);
    granted->next = peer->granted;
    peer->granted = granted;
    server->granted++;
    server->map.bytes += granted->bytes;
    return true;
}

static void answer(weft_i_store_peer *peer, uint64_t id, const weft_i_store_request *request,
                   weft_i_store_answer *found, const weft_i_store_outcome *outcome)
{
    if (outcome->taken && !grant(peer, id, request->key[0], outcome->taken)) {
        send_status(peer, id, WEFT_ERR_NO_MEMORY);
        return;
    }
    if (send_answer(peer, id, found))
        return;
    if (outcome->taken)
        settle(peer, &peer->granted, false);
    send_status(peer, id, WEFT_ERR_NO_MEMORY);
}

/* Keeps a copy of a request whose keys are missing, and hangs it up. */
static void wait_for_keys(weft_i_store_peer *peer, const weft_i_store_frame *frame)
{
    weft_i_store_server *server = peer->server;
    size_t bytes = sizeof(weft_i_store_waiting) + frame->bytes;
    bool fits = peer->waiting_count < WEFT_I_STORE_WAITING &&
                server->map.bytes + bytes <= server->map.limit;
    weft_i_store_waiting *waiting = fits ? WEFT_OS->alloc(bytes) : NULL;
    if (!waiting) {
        send_status(peer, frame->id, fits ? WEFT_ERR_NO_MEMORY : WEFT_ERR_LIMIT);
        return;
    }
    memcpy(waiting->payload, frame->payload, frame->bytes);
    if (weft_i_store_request_decode(waiting->payload, frame->bytes, &waiting->request,
                                    &waiting->space) < 0) {
        WEFT_OS->free(waiting);
        send_status(peer, frame->id, WEFT_ERR_NO_MEMORY);
        return;
    }
    waiting->peer = peer;
    waiting->id = frame->id;
    waiting->bytes = bytes;
    waiting->next = peer->waiting;
    waiting->link = &peer->waiting;
    if (waiting->next)
        waiting->next->link = &waiting->next;
    peer->waiting = waiting;
    peer->waiting_count++;
    server->waiting++;
    server->map.bytes += bytes;
    weft_i_store_peer_retry(server, &waiting->waiter);
}

void weft_i_store_peer_retry(weft_i_store_server *server, weft_i_store_waiter *waiter)
{
    weft_i_store_waiting *waiting = (weft_i_store_waiting *)waiter;
    weft_i_store_answer found;
    weft_i_store_outcome outcome;
    weft_i_store_map_apply(&server->map, &waiting->request, waiter, &found, &outcome);
    if (outcome.blocked)
        return;
    weft_i_store_peer *peer = waiting->peer;
    answer(peer, waiting->id, &waiting->request, &found, &outcome);
    if (peer->state !=
        WEFT_I_STORE_PEER_GONE) /* a peer dropped on the way took its waiting requests along */
        forget_waiting(waiting);
    weft_i_store_answer_clear(&found);
}

static void cancel(weft_i_store_peer *peer, uint64_t id)
{
    for (weft_i_store_waiting *waiting = peer->waiting; waiting; waiting = waiting->next)
        if (waiting->id == id) {
            forget_waiting(waiting);
            return;
        }
}

static void settle_id(weft_i_store_peer *peer, uint64_t id, bool received)
{
    for (weft_i_store_granted **place = &peer->granted; *place; place = &(*place)->next)
        if ((*place)->id == id) {
            settle(peer, place, received);
            return;
        }
}

static bool may_wait(const weft_i_store_request *request, weft_status status)
{
    return weft_i_store_waits(request) &&
           (status == WEFT_ERR_NOT_FOUND || status == WEFT_ERR_EMPTY);
}

/* What ranks on other hosts compare their clocks with: ours, and a number for this host. */
static void tell_clock(weft_i_store_peer *peer, uint64_t id)
{
    char host[65];
    weft_i_os_host_id(host);
    uint64_t of = weft_i_key_of((weft_i_key){{0, 0}}, host, strlen(host)).word[0] | 1;
    weft_i_store_answer clock = {.values = 1, .one = {&of, sizeof of}};
    clock.value = &clock.one;
    clock.number = WEFT_OS->clock_ns();
    if (!send_answer(peer, id, &clock))
        send_status(peer, id, WEFT_ERR_NO_MEMORY);
}

static void hear_frame(weft_i_store_peer *peer, const weft_i_store_frame *frame)
{
    weft_i_store_request request;
    void *space;
    weft_status status =
        weft_i_store_request_decode(frame->payload, frame->bytes, &request, &space);
    if (status == WEFT_ERR_NO_MEMORY)
        send_status(peer, frame->id, status);
    else if (status < 0)
        weft_i_store_peer_drop(peer, "a malformed request");
    if (status < 0)
        return;
    if (request.op == WEFT_I_STORE_CANCEL || request.op == WEFT_I_STORE_TAKEN) {
        if (request.op == WEFT_I_STORE_CANCEL)
            cancel(peer, (uint64_t)request.number);
        settle_id(peer, (uint64_t)request.number, request.op == WEFT_I_STORE_TAKEN);
    } else if (request.op == WEFT_I_STORE_WILL) {
        send_status(peer, frame->id, keep_will(peer, request.key[0], request.value[0]));
    } else if (request.op == WEFT_I_STORE_CLOCK) {
        tell_clock(peer, frame->id);
    } else {
        weft_i_store_answer found;
        weft_i_store_outcome outcome;
        weft_i_store_map_apply(&peer->server->map, &request, NULL, &found, &outcome);
        if (may_wait(&request, found.status))
            wait_for_keys(peer, frame);
        else
            answer(peer, frame->id, &request, &found, &outcome);
        weft_i_store_answer_clear(&found);
    }
    WEFT_OS->free(space);
}

/* Whether there was a frame to act on. */
static bool hear(weft_i_store_peer *peer)
{
    weft_i_store_frame frame;
    if (!within_budget(peer))
        return false;
    int got = weft_i_store_link_next(&peer->line, &frame);
    if (got == 1) {
        release_large(peer);
        hear_frame(peer, &frame);
    } else if (got < 0)
        weft_i_store_peer_drop(peer, got == WEFT_ERR_AUTH ? "a frame with a wrong tag"
                                                          : "a malformed frame");
    return got == 1;
}

void weft_i_store_peer_act(weft_i_store_peer *peer)
{
    bool more = true;
    while (more && peer->state != WEFT_I_STORE_PEER_GONE)
        more = peer->state == WEFT_I_STORE_PEER_KNOWN ? hear(peer) : hear_greeting(peer);
    if (peer->state != WEFT_I_STORE_PEER_GONE && !peer->paused)
        may_read(peer);
    watch(peer);
}

void weft_i_store_peer_read(weft_i_store_peer *peer)
{
    size_t limit = peer->state == WEFT_I_STORE_PEER_KNOWN ? (size_t)2 * WEFT_I_STORE_MESSAGE_BYTES
                                                          : (size_t)WEFT_I_STORE_STRANGER_BYTES;
    weft_status status = weft_i_store_link_fill(&peer->line, limit);
    peer->heard = WEFT_OS->clock_ns();
    /* Without memory the bytes stay in the kernel; a client waits for better times, a stranger for
     * its deadline. */
    if (status == WEFT_ERR_UNREACHABLE)
        weft_i_store_peer_drop(peer, "it closed the connection");
    else
        weft_i_store_peer_act(peer);
}
