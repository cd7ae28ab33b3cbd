/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the hosts of a job.  A name becomes a word of the command that reaches the host, so it may
 * hold nothing that a shell or an option parser would take for something else.
 */
#include "launch/host_list.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "weft/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:";

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* One entry, without comment and the blanks around it. */
static size_t trim(const char **at, size_t length)
{
    const char *hash = memchr(*at, '#', length);
    length = hash ? (size_t)(hash - *at) : length;
    while (length && is_space(**at)) {
        ++*at;
        length--;
    }
    while (length && is_space((*at)[length - 1]))
        length--;
    return length;
}

static weft_status read_ranks(const char *entry, const char *text, int *out)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || *text < '0' || *text > '9' || value < 1 ||
        value > WEFT_LAUNCH_RANKS_MAX)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "launch: \"%s\" among the hosts: \"%s\" is not a number of ranks, 1 to %d", entry, text,
            WEFT_LAUNCH_RANKS_MAX);
    *out = (int)value;
    return WEFT_OK;
}

/* Cuts "slots=4", ":4" and brackets off `name`; what is behind them goes to `ranks`. */
static weft_status cut_ranks(const char *entry, char *name, int *ranks)
{
    char *blank = strpbrk(name, " \t"), *bracket = strchr(name, ']'), *number = NULL;
    if (blank) {
        number = strstr(blank, "slots=");
        if (!number || strspn(blank, " \t") != (size_t)(number - blank))
            return weft_i_fail(
                WEFT_ERR_INVALID_ARG,
                "launch: \"%s\" among the hosts: behind a name only slots=N may stand", entry);
        number += strlen("slots=");
        *blank = 0;
    }
    char *colon = bracket ? (bracket[1] == ':' ? bracket + 1 : NULL) : strchr(name, ':');
    if (colon && !bracket && strchr(colon + 1, ':'))
        colon = NULL; /* an IPv6 address without brackets has no number */
    if (colon && !number)
        number = colon + 1;
    if (colon)
        *colon = 0;
    if (*name == '[' && bracket) {
        *bracket = 0;
        memmove(name, name + 1, strlen(name));
    }
    return number ? read_ranks(entry, number, ranks) : WEFT_OK;
}

static weft_status read_entry(const char *at, size_t length, int each, weft_i_host_list *list)
{
    weft_i_named_host *host = &list->hosts[list->count];
    char entry[WEFT_I_HOST_NAME];
    if (length >= sizeof entry)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: the name of a host has %zu characters",
                           length);
    snprintf(entry, sizeof entry, "%.*s", (int)length, at);
    *host = (weft_i_named_host){.ranks = each, .first = list->ranks};
    snprintf(host->name, sizeof host->name, "%s", entry);
    WEFT_TRY(cut_ranks(entry, host->name, &host->ranks));
    if (!*host->name || *host->name == '-' || host->name[strspn(host->name, letters)])
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: \"%s\" among the hosts is no name of a host", entry);
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->hosts[i].name, host->name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "launch: host %s is named twice; give it all its ranks at once",
                               host->name);
    list->count++;
    list->ranks += host->ranks;
    return WEFT_OK;
}

static weft_status read_all(const char *text, int each, weft_i_host_list *out)
{
    for (const char *at = text; *at; at += *at != 0) {
        size_t length = strcspn(at, *text && strchr(text, '\n') ? "\n" : ",\n");
        const char *entry = at;
        size_t used = trim(&entry, length);
        at += length;
        if (!used)
            continue;
        if (out->count == WEFT_I_HOSTS_MAX)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: more than %d hosts",
                               WEFT_I_HOSTS_MAX);
        WEFT_TRY(read_entry(entry, used, each, out));
    }
    if (!out->count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: no host is named");
    if (out->ranks > WEFT_I_HOSTS_RANKS_MAX)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: %d ranks; at most %d on all hosts are possible", out->ranks,
                           WEFT_I_HOSTS_RANKS_MAX);
    return WEFT_OK;
}

weft_status weft_i_host_list_read(const char *text, int each, weft_i_host_list *out)
{
    size_t most = 1;
    for (const char *at = text; *at; at++)
        most += *at == ',' || *at == '\n';
    most = most < WEFT_I_HOSTS_MAX ? most : WEFT_I_HOSTS_MAX;
    *out = (weft_i_host_list){.hosts = WEFT_OS->alloc(most * sizeof *out->hosts)};
    if (!out->hosts)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for %zu hosts", most);
    weft_status status = read_all(text, each, out);
    if (status < 0)
        weft_i_host_list_free(out);
    return status;
}

void weft_i_host_list_free(weft_i_host_list *list)
{
    WEFT_OS->free(list->hosts);
    *list = (weft_i_host_list){.hosts = NULL};
}
