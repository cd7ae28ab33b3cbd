/* SPDX-License-Identifier: Apache-2.0 */
/* How weft sets UCX; each row says why.  docs/hosts.md has what was measured. */
#include "settings.h"

#include "base/os/environ.h"
#include "base/os/file.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct setting {
    const char *name, *value;
    bool tcp; /* not where there is RDMA */
} settings[] = {
    /* Its probes are data, which TCP sends again for a quarter of an hour: a silent peer is not seen
     * sooner with them.  Not 0: later versions refuse that. */
    {"KEEPALIVE_INTERVAL", "inf", false},
    /* The rendezvous protocol takes half as long again as the eager one over TCP. */
    {"RNDV_THRESH", "inf", true},
    /* Sent from its own buffers: 1.13 ends the process by an assertion when a peer is killed while
     * memory of ours is being sent. */
    {"ZCOPY_THRESH", "inf", true},
};

/*
 * Of the transport itself.  ucp_config_modify has other names for these from version to version, and
 * forgets them with a warning; the environment has not.
 */
static const struct lent {
    const char *name, *setting;
    bool forced; /* whatever the user says */
} lent[] = {
    /* ucp_ep_create would block in connect(), 40 s and more where packets are dropped. */
    {"TCP_CONN_NB", "UCX_TCP_CONN_NB=y", true},
    {"TCP_TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE=64k", false},
    {"TCP_RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE=256k", false},
};

/* Names of UCX for memory that processes of one machine share. */
static bool is_of_one_host(const char *word, size_t length)
{
    static const char *const names[] = {"sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && !strncmp(names[i], word, length))
            return true;
    return false;
}

void weft_i_ucx_transports(const char *users, char *out, size_t bytes)
{
    weft_i_text text = {out, bytes, 0};
    out[0] = 0;
    if (users && users[0] == '^') {
        weft_i_text_put(&text, "%s,sm", users);
        return;
    }
    bool all = false;
    for (const char *at = users ? users : ""; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        all |= length == 3 && !strncmp(at, "all", 3);
        if (!is_of_one_host(at, length))
            weft_i_text_put(&text, "%s%.*s", text.used ? "," : "", (int)length, at);
        at += length;
    }
    if (all || !*out)
        snprintf(out, bytes, "^sm");
}

/* The user's own, or NULL. */
static const char *users(const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "UCX_%s", name);
    return getenv(full);
}

static weft_status modify(const weft_i_ucx *ucx, weft_i_ucp_config config, const char *name,
                          const char *value)
{
    weft_i_ucs_status status = ucx->ucp_config_modify(config, name, value);
    return status ? weft_i_ucx_fail(status, "setting UCX_%s=%s", name, value) : WEFT_OK;
}

weft_status weft_i_ucx_set(const weft_i_ucx *ucx, weft_i_ucp_config config, const char *interface,
                           bool rdma)
{
    char transports[256];
    weft_i_ucx_transports(users("TLS"), transports, sizeof transports);
    WEFT_TRY(modify(ucx, config, "TLS", transports));
    if (interface && !users("NET_DEVICES"))
        WEFT_TRY(modify(ucx, config, "NET_DEVICES", interface));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!users(settings[i].name) && !(settings[i].tcp && rdma))
            WEFT_TRY(modify(ucx, config, settings[i].name, settings[i].value));
    return WEFT_OK;
}

bool weft_i_ucx_lend(const char *list[WEFT_I_UCX_LENT])
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        if (lent[i].forced || !users(lent[i].name))
            list[count++] = lent[i].setting;
    list[count] = NULL;
    return weft_i_environ_lend(list);
}

/* "/sys/class/infiniband/mlx5_0/ports", and whether one of them is active. */
typedef struct ports {
    char folder[320];
    bool active;
} ports;

static bool look_at_port(void *arg, int number)
{
    ports *of = arg;
    char path[352], state[32];
    snprintf(path, sizeof path, "%s/%d/state", of->folder, number);
    of->active |= weft_i_file_read(path, state, sizeof state) && strstr(state, "ACTIVE");
    return !of->active;
}

static bool look_at_device(void *arg, const char *name)
{
    ports *of = arg;
    snprintf(of->folder, sizeof of->folder, "/sys/class/infiniband/%.255s/ports", name);
    weft_i_os_each_number(of->folder, look_at_port, of);
    return !of->active;
}

bool weft_i_ucx_has_rdma(void)
{
    ports of = {.active = false};
    weft_i_os_each_name("/sys/class/infiniband", look_at_device, &of);
    return of.active;
}

static bool has_one(const char *name, size_t whole)
{
    static const char *const facts[] = {"/sys/class/net/%.*s/ifindex",
                                        "/sys/class/infiniband/%.*s/node_type"};
    char path[320], text[32];
    size_t length = strcspn(name, ":/,"); /* "mlx5_0:1" */
    bool found = false;
    for (size_t i = 0; i < 2 && length < 256 && length <= whole && name[length] != '/'; i++) {
        snprintf(path, sizeof path, facts[i], (int)length, name);
        found |= length && weft_i_file_read(path, text, sizeof text);
    }
    return found;
}

bool weft_i_ucx_has_interface(const char *names)
{
    for (;;) {
        size_t length = strcspn(names, ",");
        if (!has_one(names, length))
            return false;
        if (!names[length])
            return true;
        names += length + 1;
    }
}
