/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces and addresses this host has.  Link-local addresses are left out: without the name
 * of an interface, which differs from host to host, they lead nowhere. */
#include "base/machine/net.h"

#include "base/report/env.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <stdio.h>
#include <string.h>

static bool is_in_list(const char *list, const char *interface, bool whole)
{
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        if (!strncmp(at, interface, length) && (!whole || !interface[length]))
            return true;
        at += length;
    }
    return false;
}

bool weft_i_net_takes(const char *setting, const char *interface)
{
    if (!*setting)
        return true;
    if (*setting == '^')
        return !is_in_list(setting + 1, interface, false);
    if (*setting == '=')
        return is_in_list(setting + 1, interface, true);
    return is_in_list(setting, interface, false);
}

/* What a look at all addresses collects. */
typedef struct collection {
    const char *setting;
    char (*addresses)[WEFT_I_NET_TEXT]; /* NULL: not wanted */
    weft_i_text *interfaces;            /* NULL: not wanted */
    bool loopback;                      /* of the loopback interface alone, or of all others */
    int count;
} collection;

static bool look_at(void *arg, const char *interface, const char *address, bool loopback)
{
    collection *into = arg;
    if (loopback != into->loopback || !weft_i_net_takes(into->setting, interface))
        return true;
    if (into->addresses && into->count < WEFT_I_NET_ADDRESSES)
        snprintf(into->addresses[into->count], WEFT_I_NET_TEXT, "%s", address);
    weft_i_text *list = into->interfaces;
    if (list && !is_in_list(list->out, interface, true) &&
        list->used + strlen(interface) + 2 < list->room)
        weft_i_text_put(list, "%s%s", list->used ? "," : "", interface);
    into->count += into->count < WEFT_I_NET_ADDRESSES;
    return true;
}

static weft_status fail_none(const char *setting)
{
    return weft_i_fail(
        WEFT_ERR_INVALID_ARG,
        "WEFT_NET=\"%s\" takes no network interface of this host that has an address", setting);
}

int weft_i_net_addresses(char out[WEFT_I_NET_ADDRESSES][WEFT_I_NET_TEXT])
{
    collection into = {.setting = weft_i_env_text(WEFT_I_ENV_NET), .addresses = out};
    weft_i_os_each_address(look_at, &into);
    into.loopback = true;
    weft_i_os_each_address(look_at, &into);
    return !into.count && *into.setting ? (int)fail_none(into.setting) : into.count;
}

weft_status weft_i_net_interfaces(char out[WEFT_I_NET_LIST])
{
    weft_i_text list = {out, WEFT_I_NET_LIST, 0};
    collection into = {.setting = weft_i_env_text(WEFT_I_ENV_NET), .interfaces = &list};
    *out = 0;
    if (!*into.setting)
        return WEFT_OK;
    weft_i_os_each_address(look_at, &into);
    if (*into.setting != '^') { /* who names the loopback interface wants it */
        into.loopback = true;
        weft_i_os_each_address(look_at, &into);
    }
    return *out ? WEFT_OK : fail_none(into.setting);
}
