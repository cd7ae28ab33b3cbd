/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of a store's server.  One thread owns everything in weft_i_store_server except
 * `references` and `stop`.  A step ends with no finished work left over: woken requests are
 * answered as far as the budgets of unsent bytes allow, peers that fell silent too long are gone,
 * and dropped peers are freed.
 */
#include "store/server.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "store/address.h"
#include "store/peer.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>

enum {
    EVENTS = 64,
    ACCEPTS = 16, /* in a step: whoever was let in waits for so many strangers at most */
    LOOK_MS = 100 /* the thread looks for its end so often, should its wake-up be closed */
};
static const int64_t accept_pause =
    10000000; /* ns between looks at the listener while descriptors are short */
static const int64_t farewell = 1000000000; /* ns for the last answers to arrive */

/* ---- connections ---- */

static void watch_listener(weft_i_store_server *server, bool on)
{
    struct epoll_event event = {.events = on ? (uint32_t)EPOLLIN : 0u,
                                .data.ptr = &server->listener};
    if (WEFT_OS->epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listener, &event) == 0)
        server->accepting = on;
}

static weft_i_store_peer *adopt(weft_i_store_server *server, int fd)
{
    if (server->strangers.count >= WEFT_I_STORE_STRANGERS)
        weft_i_store_peer_drop(server->strangers.first, "newer strangers came");
    return weft_i_store_peer_new(server, fd);
}

void weft_i_store_server_adopt(weft_i_store_server *server, int fd)
{
    adopt(server, fd);
}

/* Descriptors or memory are short: give a stranger's back, and look again in a moment instead of
 * spinning. */
static void rest(weft_i_store_server *server)
{
    weft_i_store_peer *least =
        server->strangers.first ? server->strangers.first : server->proving.first;
    if (least)
        weft_i_store_peer_drop(least, "descriptors or memory ran out");
    server->accept_again = WEFT_OS->clock_ns() + accept_pause;
    watch_listener(server, false);
}

static void accept_some(weft_i_store_server *server)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = WEFT_OS->accept(server->listener, false);
        if (fd >= 0) {
            if (!weft_i_store_peer_screen(server, fd))
                continue;
            if (server->has_token)
                weft_i_store_address_tune(fd);
            weft_i_store_peer *peer = adopt(server, fd);
            if (peer) /* it has said hello already: clients speak first */
                weft_i_store_peer_read(peer);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != ECONNABORTED) {
            weft_i_log(WEFT_LOG_INFO, "store: accept failed (errno %d); trying again", errno);
            rest(server);
            return;
        }
    }
}

/* ---- the parts of a step ---- */

static void act_on(weft_i_store_server *server, const struct epoll_event *event)
{
    if (event->data.ptr == &server->listener)
        return; /* last of all */
    if (event->data.ptr == &server->wake) {
        uint64_t count;
        (void)!WEFT_OS->read(server->wake, &count, sizeof count);
        return;
    }
    weft_i_store_peer *peer = event->data.ptr;
    if (peer->state != WEFT_I_STORE_PEER_GONE && (event->events & EPOLLOUT))
        weft_i_store_peer_flush(peer);
    if (peer->paused && (event->events & (EPOLLHUP | EPOLLERR)))
        weft_i_store_peer_drop(peer, "it closed the connection");
    if (peer->state != WEFT_I_STORE_PEER_GONE && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        weft_i_store_peer_read(peer);
}

static void answer_woken(weft_i_store_server *server)
{
    while (server->unsent < WEFT_I_STORE_UNSENT_ALL) {
        weft_i_store_waiter *waiter = weft_i_store_map_ready(&server->map);
        if (!waiter)
            return;
        weft_i_store_peer_retry(server, waiter);
    }
}

/* Peers that rested for want of budget.  Acting on a peer can end that peer, no other. */
static void resume_paused(weft_i_store_server *server)
{
    for (weft_i_store_peer *peer = server->known.first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->paused)
            weft_i_store_peer_act(peer);
    }
}

static bool pressed(const weft_i_store_server *server)
{
    return server->paused || server->unsent >= WEFT_I_STORE_UNSENT;
}

/* How long a client may leave its answers unread: a tenth of the patience where everybody waits. */
static bool reads_nothing(const weft_i_store_peer *peer, int64_t now)
{
    const weft_i_store_server *server = peer->server;
    bool all_wait = server->unsent >= WEFT_I_STORE_UNSENT_ALL;
    bool matters = server->unsent >= WEFT_I_STORE_UNSENT ||
                   (peer->paused && peer->unsent >= WEFT_I_STORE_PEER_UNSENT);
    int64_t patience = all_wait ? server->patience / 10 : server->patience;
    return peer->unsent && matters && now - peer->since >= patience;
}

/* Strangers have `patience` to show the token; clients that do not read have as long. */
static void lose_patience(weft_i_store_server *server)
{
    int64_t now = WEFT_OS->clock_ns();
    weft_i_store_peers *waiting[] = {&server->strangers, &server->proving};
    for (int i = 0; i < 2; i++)
        while (waiting[i]->first && now - waiting[i]->first->since >= server->patience)
            weft_i_store_peer_drop(waiting[i]->first, "it did not show the token in time");
    for (weft_i_store_peer *peer = server->known.first, *next; peer && pressed(server);
         peer = next) {
        next = peer->next;
        if (reads_nothing(peer, now))
            weft_i_store_peer_drop(peer, "it does not read its answers");
        else if (peer->reserved && now - peer->heard >= server->patience)
            weft_i_store_peer_drop(peer, "it stopped in the middle of a large request");
    }
}

static void bury(weft_i_store_server *server)
{
    while (server->gone.first) {
        weft_i_store_peer *peer = server->gone.first;
        weft_i_store_peers_remove(&server->gone, peer);
        WEFT_OS->free(peer);
    }
}

/* How long the loop may sleep, at most `timeout_ms`. */
static int sleep_ms(const weft_i_store_server *server, int timeout_ms)
{
    int64_t until = WEFT_I_NEVER, now = WEFT_OS->clock_ns();
    if (server->strangers.first)
        until = server->strangers.first->since + server->patience;
    if (server->proving.first && server->proving.first->since + server->patience < until)
        until = server->proving.first->since + server->patience;
    if (!server->accepting && server->listener >= 0 && server->accept_again < until)
        until = server->accept_again;
    if (pressed(server) && now + accept_pause < until)
        until = now + accept_pause;
    if (until == WEFT_I_NEVER)
        return timeout_ms;
    int64_t left = until <= now ? 0 : (until - now + 999999) / 1000000;
    if (timeout_ms >= 0 && left > timeout_ms)
        return timeout_ms;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

void weft_i_store_server_step(weft_i_store_server *server, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int count = WEFT_OS->epoll_wait(server->epoll, events, EVENTS, sleep_ms(server, timeout_ms));
    if (count < 0) /* the program has closed what is not its own: do not spin until the end */
        WEFT_OS->sleep_ns(1000000);
    for (int i = 0; i < count; i++)
        act_on(server, &events[i]);
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr == &server->listener)
            accept_some(server);
    answer_woken(server);
    if (server->paused)
        resume_paused(server);
    lose_patience(server);
    answer_woken(server);
    if (server->listener >= 0 && !server->accepting && WEFT_OS->clock_ns() >= server->accept_again)
        watch_listener(server, true);
    bury(server);
    atomic_store_explicit(&server->clients, server->known.count, memory_order_relaxed);
}

/* ---- life ---- */

static bool register_fd(weft_i_store_server *server, int fd, void *mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};
    return WEFT_OS->epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* A descriptor of the server that a forked child closes; -1 stays -1. */
static int guarded(int fd)
{
    if (fd < 0 || weft_i_nofork_add(fd) == WEFT_OK)
        return fd;
    WEFT_OS->close(fd);
    errno = ENOMEM;
    return -1;
}

/*
 * In a forked child the descriptors are closed already, and the lists are as they were when fork
 * copied them, perhaps in the middle of a change by the thread that does not exist here: the child
 * leaves that memory alone.
 */
static void free_server(weft_i_store_server *server, bool forked)
{
    if (forked)
        return;
    while (server->strangers.first)
        weft_i_store_peer_drop(server->strangers.first, "the server ends");
    while (server->proving.first)
        weft_i_store_peer_drop(server->proving.first, "the server ends");
    while (server->known.first)
        weft_i_store_peer_drop(server->known.first, "the server ends");
    bury(server);
    int fds[] = {server->listener, server->wake, server->epoll};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            weft_i_nofork_close(fds[i]);
    weft_i_store_map_close(&server->map);
    weft_i_keyed_forget(server->token, sizeof server->token);
    WEFT_OS->free(server);
}

weft_i_store_server *weft_i_store_server_new(int listener, const uint8_t *token)
{
    weft_i_store_server *server = WEFT_OS->alloc(sizeof *server);
    if (!server) {
        if (listener >= 0)
            weft_i_nofork_close(listener);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "store: no memory for a server");
    }
    server->listener = listener;
    server->patience = weft_i_env_number_or_default(WEFT_I_ENV_STORE_PATIENCE) * 1000000;
    server->has_token = token != NULL;
    for (size_t i = 0; token && i < sizeof server->token; i++)
        server->token[i] = token[i];
    atomic_init(&server->references, 1);
    size_t limit = (size_t)weft_i_env_number_or_default(WEFT_I_ENV_STORE_MEMORY);
    weft_status status = weft_i_store_map_open(&server->map, limit);
    errno = ENOMEM;
    server->epoll = guarded(WEFT_OS->epoll_create());
    server->wake = server->epoll < 0 ? -1 : guarded(WEFT_OS->eventfd(0));
    server->accepting = true;
    if (status == WEFT_OK && server->wake >= 0 &&
        register_fd(server, server->wake, &server->wake) &&
        (listener < 0 || register_fd(server, listener, &server->listener)))
        return server;
    weft_i_fail_errno(errno, "store: cannot set up a server");
    free_server(server, false);
    return NULL;
}

/* Can all connections be closed so that everybody gets what was said? */
static bool all_may_close(weft_i_store_server *server)
{
    bool all = true;
    for (weft_i_store_peer *peer = server->known.first, *next; peer; peer = next) {
        next = peer->next;
        weft_i_store_peer_flush(peer);
        all &= peer->state == WEFT_I_STORE_PEER_GONE || weft_i_store_peer_may_close(peer);
    }
    bury(server);
    return all;
}

/*
 * What was asked before the end is answered, and the answers arrive: a socket closed with requests
 * unread resets the connection, and with it what is under way.  Nobody new comes in.
 */
static void say_farewell(weft_i_store_server *server)
{
    int64_t until = WEFT_OS->clock_ns() + farewell;
    if (server->listener >= 0)
        weft_i_nofork_close(server->listener);
    server->listener = -1;
    for (size_t steps = server->known.count / EVENTS + 1; steps; steps--)
        weft_i_store_server_step(server, 0);
    while (!all_may_close(server) && WEFT_OS->clock_ns() < until)
        WEFT_OS->sleep_ns(farewell / 5000);
}

static void *run(void *argument)
{
    weft_i_store_server *server = argument;
    while (!atomic_load_explicit(&server->stop,
                                 memory_order_acquire)) /* pairs with the release in end_thread */
        weft_i_store_server_step(server, LOOK_MS);
    say_farewell(server);
    return NULL;
}

static void end_thread(weft_i_store_server *server)
{
    uint64_t one = 1;
    atomic_store_explicit(&server->stop, true,
                          memory_order_release); /* pairs with the acquire in run() */
    for (int tries = 0; tries < 100 && WEFT_OS->write(server->wake, &one, sizeof one) < 0; tries++)
        WEFT_OS->yield();
    WEFT_OS->thread_join(server->thread);
}

/* ---- the roll: servers that have a thread, to be ended when the process exits ---- */

static pthread_mutex_t roll_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_i_store_server *roll;
static bool roll_is_kept;

static void lock_roll(void)
{
    pthread_mutex_lock(&roll_lock);
}

static void unlock_roll(void)
{
    pthread_mutex_unlock(&roll_lock);
}

/* The threads on the parent's roll do not exist in a child. */
static void empty_roll(void)
{
    roll = NULL;
    pthread_mutex_unlock(&roll_lock);
}

/* Takes the server off the roll.  Whether its thread is the caller's to end. */
static bool strike_off(weft_i_store_server *server)
{
    bool had = server->threaded && server->generation == weft_i_os_generation();
    server->threaded = false;
    if (!had)
        return false;
    *server->link = server->next;
    if (server->next)
        server->next->link = server->link;
    return true;
}

static bool hold_if_alive(weft_i_store_server *server)
{
    int references = atomic_load_explicit(&server->references, memory_order_relaxed);
    while (references &&
           !atomic_compare_exchange_weak_explicit(&server->references, &references, references + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return references != 0;
}

/* At exit: whoever drops the last reference at the same time ends its server itself. */
static void end_all(void)
{
    lock_roll();
    for (weft_i_store_server *server = roll, *next; server; server = next) {
        next = server->next;
        if (!hold_if_alive(server))
            continue;
        strike_off(server);
        unlock_roll();
        end_thread(server);
        weft_i_store_server_drop(server, false);
        lock_roll();
        next = roll;
    }
    unlock_roll();
}

static bool keep_roll(void)
{
    if (!roll_is_kept)
        roll_is_kept =
            weft_i_os_at_exit(end_all) && pthread_atfork(lock_roll, unlock_roll, empty_roll) == 0;
    return roll_is_kept;
}

static void enrol(weft_i_store_server *server)
{
    server->threaded = true;
    server->generation = weft_i_os_generation();
    server->next = roll;
    server->link = &roll;
    if (server->next)
        server->next->link = &server->next;
    roll = server;
}

weft_status weft_i_store_server_start(weft_i_store_server *server)
{
    lock_roll();
    int error = keep_roll() ? WEFT_OS->thread_create(&server->thread, run, server) : ENOMEM;
    if (!error)
        enrol(server);
    unlock_roll();
    return error ? weft_i_fail_errno(error, "store: cannot start the server's thread") : WEFT_OK;
}

void weft_i_store_server_hold(weft_i_store_server *server)
{
    atomic_fetch_add_explicit(&server->references, 1, memory_order_relaxed);
}

void weft_i_store_server_drop(weft_i_store_server *server, bool forked)
{
    if (!server || atomic_fetch_sub_explicit(&server->references, 1, memory_order_acq_rel) != 1)
        return;
    lock_roll();
    bool ours = strike_off(server);
    unlock_roll();
    if (ours && !forked)
        end_thread(server);
    free_server(server, forked);
}

bool weft_i_store_server_is_alone(const weft_i_store_server *server)
{
    return atomic_load_explicit(&server->clients, memory_order_relaxed) <=
           (size_t)atomic_load_explicit(&server->references, memory_order_relaxed);
}

weft_i_store_census weft_i_store_server_census(const weft_i_store_server *server)
{
    return (weft_i_store_census){
        .peers = server->strangers.count + server->proving.count + server->known.count,
        .strangers = server->strangers.count + server->proving.count,
        .keys = server->map.keys,
        .bytes = server->map.bytes,
        .waiting = server->waiting,
        .granted = server->granted,
        .unsent = server->unsent,
    };
}
