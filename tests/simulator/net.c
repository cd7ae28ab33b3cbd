/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets.  What one end sends lies in a queue of the other with the moment at which it arrives;
 * the end of a connection travels behind the bytes.  As in Linux: a Unix connection stands at once
 * or there is no room (a blocking caller then waits without limit); one over TCP takes its time,
 * and is tried again after a second where the listener has no room; a socket closed with unread
 * bytes resets the connection; what arrived before a reset can still be read.
 */
#include "simulator/kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>

enum {
    FIRST_PORT = 40000,
    RETRY_NS = 1000 * 1000 * 1000, /* a lost SYN; twice as long each time */
    TEAR = 5,                      /* one call in so many takes a part only */
    RESETS = 4000                  /* one call in so many finds its connection broken */
};

static int64_t latency_of(const object *one)
{
    int64_t most = sim_kernel.plan.latency_ns ? sim_kernel.plan.latency_ns : 1000000;
    if (one->domain == AF_UNIX)
        most /= 100;
    if (!weft_i_sim_below(50))
        most *= 10;
    return (int64_t)weft_i_sim_below((uint64_t)most);
}

static size_t buffer_bytes(void)
{
    return sim_kernel.plan.buffer ? sim_kernel.plan.buffer : 200000;
}

/* ---- what travels ---- */

static packet *post(object *to, packet_kind kind, size_t bytes)
{
    packet *made = calloc(1, sizeof *made + bytes);
    if (!made)
        sim_unsupported("running out of memory");
    made->kind = kind;
    made->bytes = bytes;
    made->arrives = weft_i_sim_now() + latency_of(to);
    if (made->arrives < to->last_arrives)
        made->arrives = to->last_arrives;
    to->last_arrives = made->arrives;
    *to->last = made;
    to->last = &made->next;
    to->queued += bytes;
    return made;
}

static void take_first(object *from)
{
    packet *gone = from->first;
    from->first = gone->next;
    if (!from->first)
        from->last = &from->first;
    from->queued -= gone->bytes;
    if (gone->passed)
        sim_object_drop(gone->passed);
    free(gone);
}

static bool has_arrived(const object *at)
{
    return at->first && at->first->arrives <= weft_i_sim_now();
}

/* Which of those who wait to be accepted comes first; NULL: none. */
static object **first_shown(object *listener)
{
    object **at = &listener->pending;
    while (*at && listener->defers && !has_arrived(*at) && (*at)->settles > weft_i_sim_now())
        at = &(*at)->next_pending;
    return *at ? at : NULL;
}

static bool has_unread(const object *at)
{
    return at->first && at->first->kind == DATA;
}

/* The other end is told, and on its own from now on. */
static void part(object *one, bool reset)
{
    object *other = one->peer;
    if (!other)
        return;
    one->peer = other->peer = NULL;
    post(other, reset ? RESET : END, 0);
}

void sim_net_last_closed(object *one)
{
    object *waiting = one->pending;
    one->pending = NULL;
    while (waiting) { /* nobody will accept them */
        object *next = waiting->next_pending;
        part(waiting, true);
        sim_object_drop(waiting);
        waiting = next;
    }
    if (one->kind == PIPE_READ && one->peer) {
        one->peer->peer = NULL;
        one->peer = NULL;
    } else {
        part(one, has_unread(one));
    }
}

unsigned sim_net_events(const object *one)
{
    unsigned events = 0;
    if (one->state == LISTENING)
        return first_shown((object *)(uintptr_t)one) ? POLLIN : 0;
    if (one->kind == SOCKET && (one->state == FRESH || one->state == BOUND))
        return POLLOUT | POLLHUP;
    if (one->state == CONNECTING)
        return 0;
    if (one->state == BROKEN)
        return POLLIN | POLLOUT | POLLERR | POLLHUP;
    if (one->kind == PIPE_WRITE)
        return !one->peer ? POLLERR : one->peer->queued < one->peer->limit ? POLLOUT : 0;
    if (has_arrived(one)) {
        events |= one->kind == PIPE_READ && one->first->kind == END ? POLLHUP : POLLIN;
        if (one->first->kind == RESET)
            events |= POLLERR | POLLHUP;
        else if (one->first->kind == END && one->domain == AF_UNIX)
            events |= POLLHUP;
    }
    if (one->kind == SOCKET && (!one->peer || one->peer->queued < one->peer->limit))
        events |= POLLOUT;
    return events;
}

/* ---- names ---- */

static bool same_name(const object *one, int host, const struct sockaddr *name, socklen_t bytes)
{
    if (one->domain != name->sa_family)
        return false;
    if (name->sa_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)&one->name,
                                 *b = (const struct sockaddr_in *)name;
        return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
    }
    return one->host == host && one->name_bytes == bytes && !memcmp(&one->name, name, bytes);
}

static object *listener_at(int host, const struct sockaddr *name, socklen_t bytes, bool bound)
{
    for (int i = 0; i < NAMED; i++) {
        object *one = sim_kernel.named[i];
        if (one && (one->state == LISTENING || bound) && same_name(one, host, name, bytes))
            return one;
    }
    return NULL;
}

static void set_name(object *one, const struct sockaddr *name, socklen_t bytes)
{
    memcpy(&one->name, name, bytes);
    one->name_bytes = bytes;
    if (name->sa_family == AF_INET)
        one->port = ntohs(((const struct sockaddr_in *)name)->sin_port);
}

static void give_port(object *one)
{
    struct sockaddr_in *name = (struct sockaddr_in *)&one->name;
    if (one->domain != AF_INET || one->port)
        return;
    one->port = FIRST_PORT + sim_kernel.next_port++ % 20000;
    name->sin_family = AF_INET;
    name->sin_port = htons((uint16_t)one->port);
    if (!one->name_bytes)
        name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    one->name_bytes = sizeof *name;
}

/* ---- making and binding ---- */

static object *new_socket(int domain, int type)
{
    object *made = sim_object_new(SOCKET);
    made->domain = domain;
    made->type = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    made->nonblocking = type & SOCK_NONBLOCK;
    made->limit = buffer_bytes();
    made->host = sim_here()->own.host;
    made->user = sim_here()->own.user;
    made->process = weft_i_sim_rank();
    return made;
}

static int net_socket(int domain, int type, int protocol)
{
    sim_call();
    if (protocol || (domain != AF_UNIX && domain != AF_INET))
        sim_unsupported("this kind of socket");
    return sim_fd_new(new_socket(domain, type));
}

static int net_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    sim_call();
    object *one = sim_object_of_kind(fd, SOCKET);
    if (!one)
        return -1;
    bool any = address->sa_family == AF_INET && !((const struct sockaddr_in *)address)->sin_port;
    if (!any && listener_at(one->host, address, length, true)) {
        errno = EADDRINUSE;
        return -1;
    }
    set_name(one, address, length);
    one->state = BOUND;
    sim_list_add(sim_kernel.named, one);
    give_port(one);
    return 0;
}

static int net_listen(int fd, int backlog)
{
    sim_call();
    object *one = sim_object_of_kind(fd, SOCKET);
    if (!one)
        return -1;
    int most = sim_kernel.plan.somaxconn ? sim_kernel.plan.somaxconn : 4096;
    one->backlog = backlog < most ? backlog : most;
    one->state = LISTENING;
    return 0;
}

/* ---- connecting ---- */

static bool is_full(const object *listener)
{
    return listener->pending_count > listener->backlog;
}

/* Both ends stand; the server's waits to be accepted. */
static void establish(object *one, object *listener)
{
    object *other = sim_object_new(SOCKET);
    other->domain = one->domain;
    other->type = one->type;
    other->limit = one->limit;
    other->host = listener->host;
    other->user = listener->user;
    other->process = listener->process;
    set_name(other, (const struct sockaddr *)&listener->name, listener->name_bytes);
    other->settles = weft_i_sim_now() + (listener->defers ? RETRY_NS : 0);
    other->peer = one;
    other->peer_user = one->user;
    one->peer = other;
    one->peer_user = listener->user;
    one->state = other->state = CONNECTED;
    if (listener->pending)
        listener->last_pending->next_pending = other;
    else
        listener->pending = other;
    listener->last_pending = other;
    listener->pending_count++;
    give_port(one);
}

typedef struct dialling {
    object *one;
    const struct sockaddr *address;
    socklen_t length;
} dialling;

static bool has_room(void *arg)
{
    const dialling *wanted = arg;
    const object *listener = listener_at(wanted->one->host, wanted->address, wanted->length, false);
    return !listener || !is_full(listener);
}

static int connect_unix(object *one, const struct sockaddr *address, socklen_t length)
{
    dialling wanted = {one, address, length};
    int64_t deadline = one->patience ? weft_i_sim_now() + one->patience : WEFT_I_NEVER;
    for (;;) {
        object *listener = listener_at(one->host, address, length, false);
        if (!listener || listener->type != one->type) {
            errno = listener ? EPROTOTYPE : ECONNREFUSED;
            return -1;
        }
        if (!is_full(listener)) {
            establish(one, listener);
            return 0;
        }
        if (one->nonblocking) {
            errno = EAGAIN;
            return -1;
        }
        if (!weft_i_sim_wait(has_room, &wanted, deadline)) {
            errno = one->patience ? EAGAIN : ECONNREFUSED;
            return -1;
        }
    }
}

/* A try of a TCP connection ends, or is put off. */
static void settle(object *one)
{
    object *listener =
        listener_at(one->host, (const struct sockaddr *)&one->name, one->name_bytes, false);
    if (!listener) {
        one->error = ECONNREFUSED;
        one->state = BROKEN;
    } else if (is_full(listener)) {
        one->settles = weft_i_sim_now() + one->pause;
        one->pause *= 2;
    } else {
        one->name_bytes = 0; /* of its own from now on */
        one->port = 0;
        establish(one, listener);
    }
}

static bool has_settled(void *arg)
{
    return ((const object *)arg)->state != CONNECTING;
}

static int connect_tcp(object *one, const struct sockaddr *address, socklen_t length)
{
    set_name(one, address, length);
    one->state = CONNECTING;
    one->pause = RETRY_NS;
    one->settles = weft_i_sim_now() + latency_of(one);
    if (one->settles < sim_kernel.settle_at)
        sim_kernel.settle_at = one->settles;
    if (one->nonblocking) {
        errno = EINPROGRESS;
        return -1;
    }
    weft_i_sim_wait(has_settled, one, WEFT_I_NEVER);
    errno = one->error;
    one->error = 0;
    return one->state == CONNECTED ? 0 : -1;
}

static int net_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    sim_call();
    object *one = sim_object_of_kind(fd, SOCKET);
    if (!one)
        return -1;
    if (one->state == CONNECTED || one->state == CONNECTING) {
        errno = one->state == CONNECTED ? EISCONN : EALREADY;
        return -1;
    }
    return one->domain == AF_UNIX ? connect_unix(one, address, length)
                                  : connect_tcp(one, address, length);
}

static bool has_caller(void *arg)
{
    return first_shown(arg) != NULL;
}

static object *last_of(object *list)
{
    while (list && list->next_pending)
        list = list->next_pending;
    return list;
}

static int net_accept(int fd, bool blocking)
{
    sim_call();
    object *listener = sim_object_of_kind(fd, SOCKET);
    if (!listener)
        return -1;
    if (!listener->nonblocking)
        weft_i_sim_wait(has_caller, listener, WEFT_I_NEVER);
    object **at = first_shown(listener);
    if (!at) {
        errno = EAGAIN;
        return -1;
    }
    if (!sim_fd_room()) {
        errno = EMFILE;
        return -1;
    }
    object *one = *at;
    *at = one->next_pending;
    if (listener->last_pending == one)
        listener->last_pending = last_of(listener->pending);
    listener->pending_count--;
    one->next_pending = NULL;
    one->nonblocking = !blocking;
    if (!one->peer && one->domain == AF_INET && !weft_i_sim_below(4)) {
        sim_object_drop(one);
        errno = ECONNABORTED;
        return -1;
    }
    return sim_fd_new(one);
}

/* ---- sending ---- */

static size_t bytes_of(const struct msghdr *message)
{
    size_t bytes = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        bytes += message->msg_iov[i].iov_len;
    return bytes;
}

static void copy_from(const struct msghdr *message, unsigned char *to, size_t bytes)
{
    for (size_t i = 0; i < message->msg_iovlen && bytes; i++) {
        size_t some = message->msg_iov[i].iov_len < bytes ? message->msg_iov[i].iov_len : bytes;
        memcpy(to, message->msg_iov[i].iov_base, some);
        to += some;
        bytes -= some;
    }
}

static object *passed_by(const struct msghdr *message)
{
    int fd;
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    if (!head)
        return NULL;
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof fd))
        sim_unsupported("this control message");
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    object *passed = sim_object_of(fd);
    return passed ? sim_object_hold(passed) : NULL;
}

static size_t some_of(size_t bytes)
{
    return bytes > 1 && sim_kernel.plan.tears && !weft_i_sim_below(TEAR)
               ? 1 + (size_t)weft_i_sim_below(bytes)
               : bytes;
}

static bool may_send(void *arg)
{
    const object *one = arg;
    return !one->peer || one->peer->queued < one->peer->limit;
}

/* A send where the other end is gone: TCP does not know yet, and learns by this. */
static ssize_t send_into_nothing(object *one, size_t bytes)
{
    if (one->domain == AF_UNIX || one->broken) {
        errno =
            one->kind == SOCKET && one->domain == AF_UNIX && one->first && one->first->kind == RESET
                ? ECONNRESET
                : EPIPE;
        return -1;
    }
    bool told = false;
    for (const packet *p = one->first; p; p = p->next)
        told |= p->kind == RESET;
    if (!told)
        post(one, RESET, 0);
    return (ssize_t)bytes;
}

static void maybe_reset(object *one)
{
    if (sim_kernel.plan.resets && one->domain == AF_INET && one->peer &&
        !weft_i_sim_below(RESETS)) {
        object *other = one->peer;
        part(one, true);
        post(one, RESET, 0);
        weft_i_sim_note(other->number);
    }
}

ssize_t sim_net_send(object *one, const struct msghdr *message, int flags)
{
    size_t bytes = bytes_of(message);
    if (one->state != CONNECTED) {
        errno = one->error ? one->error : one->broken ? EPIPE : ENOTCONN;
        one->error = 0;
        return -1;
    }
    maybe_reset(one);
    bool waits = !one->nonblocking && !(flags & MSG_DONTWAIT);
    if (waits && !may_send(one))
        weft_i_sim_wait(may_send, one, WEFT_I_NEVER);
    if (!one->peer)
        return send_into_nothing(one, bytes);
    size_t room = one->peer->queued < one->peer->limit ? one->peer->limit - one->peer->queued : 0;
    if (!room || (one->type == SOCK_SEQPACKET && room < bytes)) {
        errno = EAGAIN;
        return -1;
    }
    if (one->type != SOCK_SEQPACKET)
        bytes = some_of(bytes < room ? bytes : room);
    packet *made = post(one->peer, DATA, bytes);
    copy_from(message, made->data, bytes);
    made->passed = message->msg_control ? passed_by(message) : NULL;
    return (ssize_t)bytes;
}

static ssize_t net_sendmsg(int fd, const struct msghdr *message, int flags)
{
    sim_call();
    object *one = sim_object_of_kind(fd, SOCKET);
    return one ? sim_net_send(one, message, flags) : -1;
}

/* ---- receiving ---- */

static size_t copy_to(struct msghdr *message, const unsigned char *from, size_t bytes)
{
    size_t done = 0;
    for (size_t i = 0; i < message->msg_iovlen && done < bytes; i++) {
        size_t left = bytes - done;
        size_t some = message->msg_iov[i].iov_len < left ? message->msg_iov[i].iov_len : left;
        memcpy(message->msg_iov[i].iov_base, from + done, some);
        done += some;
    }
    return done;
}

/* The descriptor that came along gets a number here, if the caller has room for it. */
static void hand_out(object *one, struct msghdr *message)
{
    packet *first = one->first;
    struct cmsghdr *head = message->msg_control ? CMSG_FIRSTHDR(message) : NULL;
    if (first->passed && head && sim_fd_room()) {
        int fd = sim_fd_new(first->passed);
        first->passed = NULL;
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        message->msg_controllen = head->cmsg_len;
        return;
    }
    if (first->passed)
        message->msg_flags |= MSG_CTRUNC;
    message->msg_controllen = 0;
}

static bool has_news(void *arg)
{
    return sim_net_events(arg) & (POLLIN | POLLHUP | POLLERR);
}

static ssize_t take_data(object *one, struct msghdr *message)
{
    packet *first = one->first;
    size_t bytes = first->bytes - first->start;
    if (one->type != SOCK_SEQPACKET)
        bytes = some_of(bytes);
    size_t done = copy_to(message, first->data + first->start, bytes);
    hand_out(one, message);
    first->start += done;
    if (one->type == SOCK_SEQPACKET || first->start == first->bytes) {
        take_first(one);
    } else { /* `queued` counts what is left */
        one->queued -= done;
        memmove(first->data, first->data + first->start, first->bytes - first->start);
        first->bytes -= first->start;
        first->start = 0;
    }
    return (ssize_t)done;
}

ssize_t sim_net_receive(object *one, struct msghdr *message, int flags)
{
    message->msg_flags = 0;
    if (one->broken)
        return 0;
    if (one->kind == SOCKET && one->state != CONNECTED) {
        errno = one->error ? one->error : ENOTCONN;
        one->error = 0;
        return -1;
    }
    if (!one->nonblocking && !(flags & MSG_DONTWAIT))
        weft_i_sim_wait(has_news, one, WEFT_I_NEVER);
    if (!has_arrived(one)) {
        errno = EAGAIN;
        return -1;
    }
    if (one->first->kind == DATA && (flags & MSG_PEEK))
        return (ssize_t)copy_to(message, one->first->data, one->first->bytes);
    if (one->first->kind == DATA)
        return take_data(one, message);
    if (one->first->kind == RESET) {
        one->broken = true;
        one->state = BROKEN;
        errno = ECONNRESET;
        return -1;
    }
    return 0; /* the end stays */
}

static ssize_t net_recvmsg(int fd, struct msghdr *message, int flags)
{
    sim_call();
    object *one = sim_object_of_kind(fd, SOCKET);
    return one ? sim_net_receive(one, message, flags) : -1;
}

/* ---- options and addresses ---- */

static int net_getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
    const object *one = sim_object_of_kind(fd, SOCKET);
    if (!one)
        return -1;
    socklen_t bytes = one->name_bytes < *length ? one->name_bytes : *length;
    memcpy(address, &one->name, bytes);
    address->sa_family = (sa_family_t)one->domain;
    *length = one->name_bytes;
    return 0;
}

int sim_net_port(int fd)
{
    const object *one = sim_object_of_kind(fd, SOCKET);
    return one ? one->port : 0;
}

int sim_user_id(int user)
{
    return 1000 + user;
}

bool sim_net_same_user(int fd)
{
    const object *one = sim_object_of_kind(fd, SOCKET);
    return one && one->peer_user == sim_here()->own.user;
}

/* Has something that was sent not arrived yet? */
static bool is_under_way(const object *one)
{
    return one->peer && one->peer->first && one->peer->last_arrives > weft_i_sim_now();
}

static int net_getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    object *one = sim_object_of_kind(fd, SOCKET);
    if (!one)
        return -1;
    if (level == SOL_SOCKET && option == SO_ERROR && *length == sizeof(int)) {
        memcpy(value, &one->error, sizeof(int));
        one->error = 0;
        return 0;
    }
    if (level == SOL_SOCKET && option == SO_PEERCRED && *length == sizeof(struct ucred)) {
        struct ucred who = {.uid = (uid_t)sim_user_id(one->peer_user)};
        memcpy(value, &who, sizeof who);
        return 0;
    }
    if (level == IPPROTO_TCP && option == TCP_INFO && *length == sizeof(struct tcp_info)) {
        struct tcp_info info = {.tcpi_unacked = is_under_way(one)};
        memcpy(value, &info, sizeof info);
        return 0;
    }
    sim_unsupported("this socket option");
}

static int net_setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    object *one = sim_object_of_kind(fd, SOCKET);
    struct timeval limit = {0};
    if (one && level == SOL_SOCKET && option == SO_SNDTIMEO && length == sizeof limit) {
        memcpy(&limit, value, sizeof limit);
        one->patience = limit.tv_sec * 1000000000LL + limit.tv_usec * 1000LL;
        return 0;
    }
    if (one && level == IPPROTO_TCP && option == TCP_DEFER_ACCEPT)
        one->defers = true;
    if (level != IPPROTO_TCP &&
        !(level == SOL_SOCKET &&
          (option == SO_KEEPALIVE || option == SO_REUSEADDR || option == SO_LINGER)))
        sim_unsupported("setting this socket option");
    return one ? 0 : -1;
}

/* Numbers only: there are no names to resolve. */
static int net_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                           struct addrinfo **out)
{
    (void)hints;
    struct sockaddr_in *address = calloc(1, sizeof *address + sizeof **out);
    if (!address)
        return EAI_MEMORY;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)atoi(service));
    if (inet_pton(AF_INET, host, &address->sin_addr) != 1) {
        free(address);
        return EAI_NONAME;
    }
    struct addrinfo *found = (struct addrinfo *)(void *)(address + 1);
    found->ai_family = AF_INET;
    found->ai_socktype = SOCK_STREAM;
    found->ai_addr = (struct sockaddr *)address;
    found->ai_addrlen = sizeof *address;
    *out = found;
    return 0;
}

static void net_freeaddrinfo(struct addrinfo *list)
{
    free(list->ai_addr);
}

static int no_socketpair(int domain, int type, int fds[2])
{
    (void)domain, (void)type, (void)fds;
    sim_unsupported("socketpair");
}

/* ---- time ---- */

void sim_net_pass(void)
{
    if (weft_i_sim_now() < sim_kernel.settle_at)
        return;
    sim_kernel.settle_at = WEFT_I_NEVER;
    for (object *one = sim_kernel.all; one; one = one->next) {
        if (one->kind != SOCKET || one->state != CONNECTING)
            continue;
        if (one->settles <= weft_i_sim_now())
            settle(one);
        if (one->state == CONNECTING && one->settles < sim_kernel.settle_at)
            sim_kernel.settle_at = one->settles;
    }
}

static int64_t sooner(int64_t a, int64_t b, int64_t after)
{
    return b > after && b < a ? b : a;
}

int64_t sim_net_next(void)
{
    int64_t next = WEFT_I_NEVER, now = weft_i_sim_now();
    for (const object *one = sim_kernel.all; one; one = one->next) {
        if (one->state == CONNECTING)
            next = sooner(next, one->settles, 0);
        next = sooner(next, one->settles, now);
        if (one->first)
            next = sooner(next, one->first->arrives, now);
    }
    return next;
}

void sim_net_fill(weft_i_os *table)
{
    table->socket = net_socket;
    table->socketpair = no_socketpair;
    table->bind = net_bind;
    table->listen = net_listen;
    table->accept = net_accept;
    table->connect = net_connect;
    table->sendmsg = net_sendmsg;
    table->recvmsg = net_recvmsg;
    table->getsockname = net_getsockname;
    table->getsockopt = net_getsockopt;
    table->setsockopt = net_setsockopt;
    table->getaddrinfo = net_getaddrinfo;
    table->freeaddrinfo = net_freeaddrinfo;
}
