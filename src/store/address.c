/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of stores.  A wildcard is refused here, before a socket exists, so that no path can
 * bind one. */
#include "store/address.h"

#include "base/machine/nofork.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

enum {
    BACKLOG = 4096
}; /* a thousand ranks come at once; the kernel cuts it to net.core.somaxconn */

static bool is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0.0.0.0 */
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(six) || memcmp(six, mapped, sizeof mapped) == 0;
}

static void collect(const struct addrinfo *found, weft_i_store_addresses *out)
{
    for (; found && out->count < WEFT_I_STORE_ADDRESSES; found = found->ai_next) {
        if (found->ai_family != AF_INET && found->ai_family != AF_INET6)
            continue;
        weft_i_store_address *address = &out->list[out->count++];
        *address = (weft_i_store_address){.length = found->ai_addrlen};
        memcpy(&address->where, found->ai_addr, found->ai_addrlen);
    }
}

weft_status weft_i_store_address_tcp(const char *host, int port, weft_i_store_addresses *out)
{
    if (!host || !*host)
        host = "127.0.0.1";
    if (port < 0 || port > 65535)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "store at %s: port %d is not in 0..65535", host,
                           port);
    char service[8], bare[256];
    size_t length = strlen(host);
    if (host[0] == '[' && host[length - 1] == ']' && length < sizeof bare) {
        snprintf(bare, sizeof bare, "%.*s", (int)length - 2, host + 1); /* "[::1]" */
        host = bare;
    }
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int error = WEFT_OS->getaddrinfo(host, service, &hints, &found);
    if (error == EAI_MEMORY)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "store at %s: no memory to look up the name", host);
    if (error)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "store at %s: the name cannot be resolved: %s",
                           host, gai_strerror(error));
    *out = (weft_i_store_addresses){0};
    collect(found, out);
    WEFT_OS->freeaddrinfo(found);
    for (int i = 0; i < out->count; i++)
        if (is_wildcard((const struct sockaddr *)&out->list[i].where))
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG,
                "store at %s: a wildcard address would offer the store on every network; "
                "name the one address that the ranks use",
                host);
    return out->count
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_UNREACHABLE, "store at %s: no IPv4 or IPv6 address", host);
}

weft_status weft_i_store_address_unix(const char *name, weft_i_store_addresses *out)
{
    *out = (weft_i_store_addresses){.count = 1};
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    size_t length = name ? strnlen(name, sizeof where.sun_path) : 0;
    if (!length || length >= sizeof where.sun_path)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "store on a Unix socket: a name has 1 to %zu characters",
                           sizeof where.sun_path - 1);
    memcpy(where.sun_path + 1, name, length); /* the leading zero makes it abstract: no file */
    memcpy(&out->list[0].where, &where, sizeof where);
    out->list[0].length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return WEFT_OK;
}

int weft_i_store_address_port(const weft_i_store_address *address)
{
    if (address->where.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address->where)->sin_port);
    if (address->where.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->where)->sin6_port);
    return 0;
}

const char *weft_i_store_address_text(const weft_i_store_address *address,
                                      char out[WEFT_I_STORE_ADDRESS_TEXT])
{
    char number[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_un *local = (const struct sockaddr_un *)&address->where;
    switch (address->where.ss_family) {
    case AF_INET:
        inet_ntop(AF_INET, &((const struct sockaddr_in *)&address->where)->sin_addr, number,
                  sizeof number);
        snprintf(out, WEFT_I_STORE_ADDRESS_TEXT, "%s:%d", number,
                 weft_i_store_address_port(address));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&address->where)->sin6_addr, number,
                  sizeof number);
        snprintf(out, WEFT_I_STORE_ADDRESS_TEXT, "[%s]:%d", number,
                 weft_i_store_address_port(address));
        break;
    default:
        snprintf(out, WEFT_I_STORE_ADDRESS_TEXT, "@%.*s",
                 (int)(address->length - offsetof(struct sockaddr_un, sun_path) - 1),
                 local->sun_path + 1);
    }
    return out;
}

bool weft_i_store_address_read(const char *text, weft_i_store_address *out)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool bracketed = length > 2 && *text == '[' && text[length - 1] == ']';
    int port = colon ? atoi(colon + 1) : 0;
    *out = (weft_i_store_address){0};
    if (!length || length >= sizeof host || port < 1 || port > 65535)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)length - 2 * bracketed, text + bracketed);
    struct sockaddr_in *four = (struct sockaddr_in *)&out->where;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out->where;
    if (bracketed) {
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        out->length = sizeof *six;
        return inet_pton(AF_INET6, host, &six->sin6_addr) == 1;
    }
    *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    out->length = sizeof *four;
    return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

void weft_i_store_address_any_port(weft_i_store_address *address)
{
    if (address->where.ss_family == AF_INET)
        ((struct sockaddr_in *)&address->where)->sin_port = 0;
    if (address->where.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->where)->sin6_port = 0;
}

static int listen_on(const weft_i_store_address *address)
{
    int family = address->where.ss_family, one = 1;
    int fd = WEFT_OS->socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (family != AF_UNIX) {
        WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        /* Clients speak first: whoever says nothing stays with the kernel, for a second or so. */
        WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one);
    }
    if (WEFT_OS->bind(fd, (const struct sockaddr *)&address->where, address->length) == 0 &&
        WEFT_OS->listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    WEFT_OS->close(fd);
    errno = error;
    return -1;
}

int weft_i_store_address_listen(const weft_i_store_addresses *addresses,
                                weft_i_store_address *bound)
{
    char text[WEFT_I_STORE_ADDRESS_TEXT];
    int fd = -1, error = 0;
    for (int i = 0; i < addresses->count && fd < 0; i++) {
        fd = listen_on(&addresses->list[i]);
        error = errno;
        *bound = addresses->list[i];
    }
    if (fd < 0) {
        weft_i_fail_errno(error, "store: cannot listen on %s",
                          weft_i_store_address_text(bound, text));
        return -1;
    }
    bound->length = sizeof bound->where;
    if (WEFT_OS->getsockname(fd, (struct sockaddr *)&bound->where, &bound->length) != 0)
        weft_i_fail_errno(errno, "store: cannot read the address of a listening socket");
    else if (weft_i_nofork_add(fd) == WEFT_OK)
        return fd;
    WEFT_OS->close(fd);
    return -1;
}

void weft_i_store_address_tune(int fd)
{
    int one = 1, probes = 3;
    int pace = (int)(weft_i_env_number_or_default(WEFT_I_ENV_STORE_PATIENCE) / 1000);
    pace = pace > 0 ? pace : 1;
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pace, sizeof pace);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pace, sizeof pace);
    WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}
