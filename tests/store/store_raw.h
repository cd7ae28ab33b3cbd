/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a store's connection played by hand, byte by byte. */
#ifndef WEFT_TESTS_STORE_RAW_H
#define WEFT_TESTS_STORE_RAW_H

#include "store_kinds.h"

#include "store/link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static inline int raw_connect(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t count)
{
    (void)!send(fd, bytes, count, MSG_NOSIGNAL);
}

/* What arrives until `count` bytes, the end, or half a second of silence. */
static inline size_t raw_receive(int fd, void *out, size_t count)
{
    size_t got = 0;
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    while (got < count && poll(&watched, 1, 500) > 0) {
        ssize_t n = recv(fd, (char *)out + got, count - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static inline bool is_closed(int fd)
{
    char byte;
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    return poll(&watched, 1, 3000) > 0 && recv(fd, &byte, 1, 0) <= 0;
}

/* As a client that has the token says it; those who have overheard it can say the same. */
static inline weft_i_store_greeting hello_of(uint16_t version)
{
    weft_i_store_greeting hello = {
        .version = version, .kind = WEFT_I_STORE_HELLO, .release = "0.0.1"};
    uint8_t key[WEFT_I_KEYED_BYTES];
    WEFT_OS->random_bytes(hello.nonce, sizeof hello.nonce);
    CHECK(weft_i_keyed_load() == WEFT_OK && weft_i_keyed_parse(TOKEN, key));
    CHECK_OK(weft_i_store_link_hello_proof(key, &hello, hello.proof));
    return hello;
}

static inline void raw_greet(int fd, const weft_i_store_greeting *greeting)
{
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting_encode(greeting, bytes);
    raw_send(fd, bytes, sizeof bytes);
}

static inline weft_i_store_greeting raw_greeting(int fd)
{
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    weft_i_store_greeting greeting = {0};
    if (raw_receive(fd, bytes, sizeof bytes) == sizeof bytes)
        CHECK(weft_i_store_greeting_decode(bytes, &greeting));
    return greeting;
}

static inline weft_store *serve(void)
{
    weft_store *s = weft_store_tcp_serve(NULL, 0, TOKEN);
    if (!s)
        FAIL("%s", weft_last_error());
    return s;
}

static inline void still_works(weft_store *s)
{
    weft_store *client = weft_store_tcp_connect(NULL, weft_store_port(s), TOKEN, 5000);
    if (!client)
        FAIL("%s", weft_last_error());
    CHECK_OK(set(client, "works", "yes"));
    expect(s, "works", "yes");
    size_t keys = 0;
    CHECK_OK(weft_store_num_keys(s, &keys));
    CHECK_INT(keys, 1);
}

#endif
