/* SPDX-License-Identifier: Apache-2.0 */
/* Making stores over sockets: arguments to addresses and token, a server where asked for, and a
 * client in any case. */
#include "store/client.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"

#include <stdio.h>
#include <string.h>

static weft_status read_token(const char *token, weft_i_store_dial *dial)
{
    WEFT_TRY(weft_i_keyed_load());
    const char *text = token ? token : weft_i_env_text(WEFT_I_ENV_TOKEN);
    if (!weft_i_keyed_parse(text, dial->token))
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "a store over TCP needs the job's token of 64 hexadecimal digits, as argument or in "
            "WEFT_TOKEN; %s has %zu characters",
            token ? "the argument" : "WEFT_TOKEN", strlen(text));
    dial->has_token = true;
    return WEFT_OK;
}

static void name_tcp(weft_i_store_dial *dial, const char *address, int port)
{
    if (address && *address)
        snprintf(dial->name, sizeof dial->name, "tcp %.100s:%d", address, port);
    else
        snprintf(dial->name, sizeof dial->name, "tcp 127.0.0.1:%d", port);
}

/* A server on the dial's addresses and a client of it in the same process. */
static weft_store *serve(weft_i_store_dial *dial, const char *scheme)
{
    weft_i_store_address bound;
    int listener = weft_i_store_address_listen(&dial->addresses, &bound);
    if (listener < 0)
        return NULL;
    char text[WEFT_I_STORE_ADDRESS_TEXT];
    snprintf(dial->name, sizeof dial->name, "%s %s", scheme,
             weft_i_store_address_text(&bound, text));
    dial->port = weft_i_store_address_port(&bound);
    dial->addresses = (weft_i_store_addresses){.count = 1, .list = {bound}};
    weft_i_store_server *server =
        weft_i_store_server_new(listener, dial->has_token ? dial->token : NULL);
    if (!server)
        return NULL;
    if (weft_i_store_server_start(server) < 0) {
        weft_i_store_server_drop(server, false);
        return NULL;
    }
    int64_t timeout = weft_i_env_number_or_default(WEFT_I_ENV_STORE_TIMEOUT);
    return weft_i_store_client_new(dial, server, weft_i_os_deadline(timeout ? timeout : -1));
}

static weft_store *connect_to(const weft_i_store_dial *dial, const char *function,
                              int64_t timeout_ms)
{
    if (timeout_ms < 0 && timeout_ms != WEFT_FOREVER && timeout_ms != WEFT_DEFAULT)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: a timeout of %lld ms", function,
                           (long long)timeout_ms);
    if (timeout_ms == WEFT_DEFAULT) {
        timeout_ms = weft_i_env_number_or_default(WEFT_I_ENV_STORE_TIMEOUT);
        timeout_ms = timeout_ms ? timeout_ms : WEFT_FOREVER;
    }
    return weft_i_store_client_new(dial, NULL, weft_i_os_deadline(timeout_ms));
}

weft_store *weft_store_tcp_serve(const char *address, int port, const char *token)
{
    weft_i_store_dial dial = {0};
    if (weft_i_store_address_tcp(address, port, &dial.addresses) < 0 ||
        read_token(token, &dial) < 0)
        return NULL;
    weft_store *store = serve(&dial, "tcp");
    weft_i_store_dial_forget(&dial);
    return store;
}

weft_store *weft_i_store_tcp_connect(const char *address, int port, const char *token,
                                     int64_t timeout_ms, const char *notice, int64_t notice_at)
{
    weft_i_store_dial dial = {.port = port, .notice = notice, .notice_at = notice_at};
    if (port == 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_store_tcp_connect: port 0 is for servers");
    if (weft_i_store_address_tcp(address, port, &dial.addresses) < 0 ||
        read_token(token, &dial) < 0)
        return NULL;
    name_tcp(&dial, address, port);
    weft_store *store = connect_to(&dial, "weft_store_tcp_connect", timeout_ms);
    weft_i_store_dial_forget(&dial);
    return store;
}

weft_store *weft_store_tcp_connect(const char *address, int port, const char *token,
                                   int64_t timeout_ms)
{
    return weft_i_store_tcp_connect(address, port, token, timeout_ms, NULL, 0);
}

int weft_i_store_unix_owner(const char *name)
{
    weft_i_store_addresses at;
    if (weft_i_store_address_unix(name, &at) < 0)
        return -1;
    int fd = WEFT_OS->socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct ucred owner = {0};
    socklen_t length = sizeof owner;
    const weft_i_store_address *address = &at.list[0];
    bool known =
        WEFT_OS->connect(fd, (const struct sockaddr *)&address->where, address->length) == 0 &&
        WEFT_OS->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0;
    WEFT_OS->close(fd);
    return known ? (int)owner.uid : -1;
}

weft_store *weft_store_unix_serve(const char *name)
{
    weft_i_store_dial dial = {0};
    if (weft_i_store_address_unix(name, &dial.addresses) < 0)
        return NULL;
    return serve(&dial, "unix");
}

weft_store *weft_store_unix_connect(const char *name, int64_t timeout_ms)
{
    weft_i_store_dial dial = {0};
    if (weft_i_store_address_unix(name, &dial.addresses) < 0)
        return NULL;
    snprintf(dial.name, sizeof dial.name, "unix @%.107s", name);
    return connect_to(&dial, "weft_store_unix_connect", timeout_ms);
}
