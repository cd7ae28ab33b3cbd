/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: store/server.c, store/peer.c */
/*
 * A conversation with the server's state machine.  The input's first byte chooses whether a token
 * is asked for and whether the handshake is done properly first; the rest is pieces, a length byte
 * (in units of 8) and bytes each, with a step of the server between them.  Promises: no crash, no
 * growth beyond the limits, before the token nothing but greetings comes back, nothing is stored,
 * and nothing is left when the peers are gone.
 */
#include "fuzz.h"

#include "base/os/os.h"
#include "store/link.h"
#include "store/server.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t token[WEFT_I_KEYED_BYTES] = {1, 2, 3};

static void hear(int fd, bool admitted)
{
    static uint8_t bytes[1 << 16];
    ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0 || admitted)
        return;
    PROMISE(got % WEFT_I_STORE_GREETING_BYTES == 0);
    for (ssize_t at = 0; at < got; at += WEFT_I_STORE_GREETING_BYTES) {
        weft_i_store_greeting greeting;
        PROMISE(weft_i_store_greeting_decode(bytes + at, &greeting));
        PROMISE(greeting.kind == WEFT_I_STORE_CHALLENGE || greeting.kind == WEFT_I_STORE_REFUSAL);
    }
}

static void say_hello(int fd, weft_i_store_server *server, bool with_token)
{
    weft_i_store_greeting hello = {.version = WEFT_I_STORE_VERSION, .kind = WEFT_I_STORE_HELLO};
    uint8_t bytes[WEFT_I_STORE_GREETING_BYTES];
    if (with_token)
        PROMISE(weft_i_store_link_hello_proof(token, &hello, hello.proof) == WEFT_OK);
    weft_i_store_greeting_encode(&hello, bytes);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    weft_i_store_server_step(server, 0);
}

static void converse(weft_i_store_server *server, int fd, const uint8_t *bytes, size_t count,
                     bool admitted)
{
    for (size_t at = 0, piece; at < count; at += piece) {
        piece = 1 + (size_t)bytes[at++] * 8;
        if (piece > count - at)
            piece = count - at;
        if (send(fd, bytes + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return;
        weft_i_store_server_step(server, 0);
        hear(fd, admitted);
        weft_i_store_census now = weft_i_store_server_census(server);
        PROMISE(now.bytes <= 1 << 20);
        PROMISE(now.strangers <= 1 && now.peers <= 2);
        PROMISE(admitted || (now.keys == 0 && now.bytes == 0 && now.waiting == 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (!count)
        return 0;
    bool with_token = bytes[0] & 1, hello = bytes[0] & 2;
    setenv("WEFT_STORE_MEMORY", "1M", 1);
    setenv("WEFT_DEBUG", "NONE", 0);
    if (with_token && weft_i_keyed_load() < 0)
        return 0;
    weft_i_store_server *server = weft_i_store_server_new(-1, with_token ? token : NULL);
    PROMISE(server);
    int fds[2];
    PROMISE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    weft_i_store_server_adopt(server, fds[0]);
    if (hello)
        say_hello(fds[1], server, with_token);
    converse(server, fds[1], bytes + 1, count - 1, !with_token);
    close(fds[1]);
    for (int i = 0; i < 4; i++)
        weft_i_store_server_step(server, 0);
    weft_i_store_census after = weft_i_store_server_census(server);
    PROMISE(after.peers == 0 && after.waiting == 0 && after.granted == 0 && after.unsent == 0);
    weft_i_store_server_drop(server, false);
    return 0;
}
