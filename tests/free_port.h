/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port where a server of a test can listen.  It lies below those that the kernel gives to connections,
 * one of which could take it before the server does, and tests that run at the same time look elsewhere.
 */
#ifndef WEFT_TESTS_FREE_PORT_H
#define WEFT_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

static inline bool port_is_free(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_ANY),
                             .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    /* As servers do: one that has ended a moment ago is no hindrance. */
    bool is_free = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
                   !bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 1);
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* 0: there is none. */
static inline int free_port(void)
{
    enum { FIRST = 12000, PORTS = 20000, EACH = 37, TRIES = 400 };
    static unsigned next; /* not the same again: its last clients may still be there */
    for (int i = 0; i < TRIES; i++) {
        int port = FIRST + (int)(((unsigned)getpid() * EACH + next++) % PORTS);
        if (port_is_free(port))
            return port;
    }
    return 0;
}

#endif
