/* SPDX-License-Identifier: Apache-2.0 */
/* Where the hosts of a launch meet.  See meeting_point.h. */
#include "launch/meeting_point.h"

#include "base/report/status.h"
#include "base/report/text.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

typedef struct weft_i_meeting_caller caller;

/* ---- the first host ---- */

/* On all interfaces, of both families where the kernel has both. */
static int bind_any(int port)
{
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_ANY)}};
    int no = 0, yes = 1;
    int fd = WEFT_OS->socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (!WEFT_OS->setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) &&
            !WEFT_OS->bind(fd, (struct sockaddr *)&six, sizeof six))
            return fd;
        WEFT_OS->close(fd);
    }
    fd = WEFT_OS->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!WEFT_OS->bind(fd, (struct sockaddr *)&four, sizeof four))
        return fd;
    int error = errno;
    WEFT_OS->close(fd);
    errno = error;
    return -1;
}

int weft_i_meeting_free_port(void)
{
    int fd = bind_any(0);
    int port = fd < 0 ? 0 : weft_i_os_port_of(fd);
    if (fd >= 0)
        WEFT_OS->close(fd);
    return port;
}

weft_status weft_i_meeting_point_open(weft_i_meeting_point *point)
{
    *point = (weft_i_meeting_point){.listener = -1};
    for (int i = 0; i < WEFT_I_MEETING_CALLERS; i++)
        point->callers[i].fd = -1;
    WEFT_TRY(weft_i_keyed_load());
    point->listener = bind_any(0);
    if (point->listener < 0)
        return weft_i_fail_errno(errno, "launch: a port for the hosts to meet at");
    point->port = weft_i_os_port_of(point->listener);
    if (!WEFT_OS->listen(point->listener, WEFT_I_MEETING_CALLERS))
        return WEFT_OK;
    weft_status status = weft_i_fail_errno(errno, "launch: listening at port %d", point->port);
    weft_i_meeting_point_close(point);
    return status;
}

static void hang_up(caller *who)
{
    if (who->fd >= 0)
        WEFT_OS->close(who->fd);
    who->fd = -1;
}

void weft_i_meeting_point_close(weft_i_meeting_point *point)
{
    if (point->listener < 0)
        return;
    WEFT_OS->close(point->listener);
    point->listener = -1;
    for (int i = 0; i < WEFT_I_MEETING_CALLERS; i++)
        hang_up(&point->callers[i]);
}

size_t weft_i_meeting_point_poll(const weft_i_meeting_point *point, struct pollfd *fds)
{
    size_t count = 0;
    if (point->listener < 0)
        return 0;
    fds[count++] = (struct pollfd){.fd = point->listener, .events = POLLIN};
    for (int i = 0; i < WEFT_I_MEETING_CALLERS; i++)
        if (point->callers[i].fd >= 0)
            fds[count++] = (struct pollfd){.fd = point->callers[i].fd, .events = POLLIN};
    return count;
}

/* Strangers may fill the table: then the next caller takes a place from one of them. */
static void accept_caller(weft_i_meeting_point *point)
{
    int fd = WEFT_OS->accept(point->listener, false), at = 0;
    if (fd < 0)
        return;
    while (at < WEFT_I_MEETING_CALLERS - 1 && point->callers[at].fd >= 0)
        at++;
    hang_up(&point->callers[at]);
    point->callers[at] = (caller){.fd = fd};
}

static ssize_t receive(int fd, void *bytes, size_t count)
{
    struct iovec piece = {bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return WEFT_OS->recvmsg(fd, &message, MSG_DONTWAIT);
}

static ssize_t send_all(int fd, const void *bytes, size_t count)
{
    struct iovec piece = {(void *)bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return WEFT_OS->sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What proves that the first host has the secret: a tag of the caller's nonce. */
static bool sign(const uint8_t *secret, const uint8_t *nonce, uint8_t tag[WEFT_I_KEYED_BYTES])
{
    uint8_t text[16 + WEFT_I_MEETING_NONCE] = "meeting point";
    memcpy(text + 16, nonce, WEFT_I_MEETING_NONCE);
    return weft_i_keyed_sign(secret, text, sizeof text, tag) == WEFT_OK;
}

static void hear(caller *who, const uint8_t *secret)
{
    uint8_t tag[WEFT_I_KEYED_BYTES];
    ssize_t n = receive(who->fd, who->nonce + who->used, sizeof who->nonce - who->used);
    if (n < 0 && errno == EAGAIN)
        return;
    who->used += n > 0 ? (size_t)n : 0;
    if (n > 0 && who->used < sizeof who->nonce)
        return;
    /* The caller closes first, so that the port is free at once. */
    if (n <= 0 || !sign(secret, who->nonce, tag) || send_all(who->fd, tag, sizeof tag) < 0)
        hang_up(who);
    who->used = 0;
}

void weft_i_meeting_point_take(weft_i_meeting_point *point, const uint8_t *secret,
                               const struct pollfd *fds, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (int at = 0; fds[i].revents && at < WEFT_I_MEETING_CALLERS; at++)
            if (point->callers[at].fd == fds[i].fd) {
                hear(&point->callers[at], secret);
                break;
            }
    if (count && fds[0].revents)
        accept_caller(point);
}

/* ---- the others ---- */

/* One address that is tried. */
typedef struct attempt {
    int fd; /* -1: over */
    bool sent, reached;
    size_t used;
    uint8_t tag[WEFT_I_KEYED_BYTES];
    const char *why;
} attempt;

static void start(attempt *it, const char *address, int port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    *it = (attempt){.fd = -1, .why = "is no address"};
    if (WEFT_OS->getaddrinfo(address, service, &hints, &found) || !found)
        return;
    it->fd = WEFT_OS->socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    it->why = "timed out";
    if (it->fd >= 0 && WEFT_OS->connect(it->fd, found->ai_addr, found->ai_addrlen) &&
        errno != EINPROGRESS) {
        it->why = strerror(errno);
        WEFT_OS->close(it->fd);
        it->fd = -1;
    }
    WEFT_OS->freeaddrinfo(found);
}

static void finish(attempt *it, bool reached, const char *why)
{
    it->reached = reached;
    it->why = why;
    WEFT_OS->close(it->fd);
    it->fd = -1;
}

static void go_on(attempt *it, const uint8_t *nonce, const uint8_t *wanted)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (!it->sent) {
        if (WEFT_OS->getsockopt(it->fd, SOL_SOCKET, SO_ERROR, &error, &length) || error ||
            send_all(it->fd, nonce, WEFT_I_MEETING_NONCE) != WEFT_I_MEETING_NONCE) {
            finish(it, false, strerror(error ? error : errno));
            return;
        }
        it->sent = true;
        return;
    }
    ssize_t n = receive(it->fd, it->tag + it->used, sizeof it->tag - it->used);
    if (n < 0 && errno == EAGAIN)
        return;
    it->used += n > 0 ? (size_t)n : 0;
    if (n <= 0)
        finish(it, false, "somebody else listens there");
    else if (it->used == sizeof it->tag)
        finish(it, weft_i_keyed_equal(it->tag, wanted), "somebody else listens there");
}

static size_t gather(const attempt *all, int count, struct pollfd *fds)
{
    size_t open = 0;
    for (int i = 0; i < count; i++)
        if (all[i].fd >= 0)
            fds[open++] =
                (struct pollfd){.fd = all[i].fd, .events = (short)(all[i].sent ? POLLIN : POLLOUT)};
    return open;
}

static void try_all(attempt *all, int count, const uint8_t *nonce, const uint8_t *wanted, int ms)
{
    struct pollfd fds[WEFT_I_NET_ADDRESSES];
    int64_t until = weft_i_os_deadline(ms);
    size_t open;
    while ((open = gather(all, count, fds)) && WEFT_OS->clock_ns() < until) {
        if (WEFT_OS->poll(fds, open, (int)weft_i_os_ms_until(until) + 1) < 0)
            break;
        size_t at = 0;
        for (int i = 0; i < count && at < open; i++) {
            if (all[i].fd != fds[at].fd)
                continue;
            if (fds[at++].revents)
                go_on(&all[i], nonce, wanted);
        }
        /* One that answers is enough; others that are only slow would cost seconds. */
        for (int i = 0; i < count; i++)
            if (all[i].reached && until > WEFT_OS->clock_ns() + 200000000)
                until = WEFT_OS->clock_ns() + 200000000;
    }
}

uint32_t weft_i_meeting_reach(const uint8_t *secret, char (*addresses)[WEFT_I_NET_TEXT], int count,
                              int port, int ms, char why[WEFT_I_MEETING_WHY])
{
    attempt all[WEFT_I_NET_ADDRESSES];
    uint8_t nonce[WEFT_I_MEETING_NONCE], wanted[WEFT_I_KEYED_BYTES];
    weft_i_text text = {why, WEFT_I_MEETING_WHY, 0};
    uint32_t reached = 0;
    *why = 0;
    if (weft_i_keyed_load() < 0 || WEFT_OS->random_bytes(nonce, sizeof nonce) ||
        !sign(secret, nonce, wanted)) {
        snprintf(why, WEFT_I_MEETING_WHY, "%s", weft_last_error());
        return 0;
    }
    count = count < WEFT_I_NET_ADDRESSES ? count : WEFT_I_NET_ADDRESSES;
    for (int i = 0; i < count; i++)
        start(&all[i], addresses[i], port);
    try_all(all, count, nonce, wanted, ms);
    for (int i = 0; i < count; i++) {
        reached |= all[i].reached ? UINT32_C(1) << i : 0;
        if (!all[i].reached && text.used < WEFT_I_MEETING_WHY)
            weft_i_text_put(&text, "%s%s: %s", text.used ? ", " : "", addresses[i], all[i].why);
        if (all[i].fd >= 0)
            WEFT_OS->close(all[i].fd);
    }
    return reached;
}
