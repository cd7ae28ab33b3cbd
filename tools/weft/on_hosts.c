/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of several hosts; one that does not answer in time has its sentence in its place.  See on_hosts.h. */
#include "on_hosts.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { HOSTS = 64, COMMAND = 4096, LINE = 512 };

typedef struct answer {
    char host[128];
    FILE *from;
    char *text;
    size_t bytes;
} answer;

/* Reads the words of "a,b"; how many, or -1 after a message. */
static int split(const char *list, answer *hosts)
{
    int count = 0;
    while (*list) {
        size_t length = strcspn(list, ",");
        if (!length || length >= sizeof hosts->host || count == HOSTS)
            return -1;
        memcpy(hosts[count].host, list, length);
        if (!command_is_plain(hosts[count].host) || *hosts[count].host == '-')
            return -1;
        count++;
        list += length + (list[length] == ',');
    }
    return count ? count : -1;
}

/* "top", of messages: the first of the words. */
static int name_length(const on_hosts_ask *what)
{
    return (int)strcspn(what->words, " ");
}

static void ask(answer *host, const on_hosts_ask *what)
{
    char command[COMMAND];
    int length = snprintf(
        command, sizeof command, "timeout -k 1 %ld %s %s %s %s %s </dev/null 2>&1", what->limit_s,
        what->rsh, host->host, what->weft, what->words, what->which ? what->which : "");
    host->from = length < COMMAND ? popen(command, "r") : NULL;
}

/* Takes what a host says; its table may be long.  1 if that is an answer. */
static int hear(answer *host, const on_hosts_ask *what)
{
    enum { LATE = 124 }; /* the exit status of timeout(1) */
    char line[LINE];
    FILE *to = open_memstream(&host->text, &host->bytes);
    while (host->from && to && fgets(line, sizeof line, host->from))
        fputs(line, to);
    int status = host->from ? pclose(host->from) : -1;
    if (to && status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == LATE)
        fprintf(to, "weft %.*s: host %s did not answer in %ld s\n", name_length(what), what->words,
                host->host, what->limit_s);
    else if (to && status)
        fprintf(to, "weft %.*s: no table of host %s\n", name_length(what), what->words, host->host);
    if (to)
        fclose(to);
    return to && !status;
}

static void show(const answer *hosts, int count, int escapes)
{
    if (escapes)
        fputs("\033[H\033[2J", stdout);
    for (int i = 0; i < count; i++)
        printf("%s--- %s\n%s", i ? "\n" : "", hosts[i].host, hosts[i].text ? hosts[i].text : "");
    if (escapes)
        fputs("\n(Ctrl-C ends)\n", stdout);
    fflush(stdout);
}

int on_hosts(const char *list, const on_hosts_ask *what, long times, int escapes)
{
    answer *hosts = calloc(HOSTS, sizeof *hosts);
    int count = hosts ? split(list, hosts) : -1, answers = 0;
    if (count < 0 || !command_is_plain(what->weft) ||
        (what->which && !command_is_plain(what->which))) {
        fprintf(stderr,
                "weft %.*s: --hosts takes names with commas between them, at most %d; names "
                "of hosts, programs and --weft may not have blanks or signs of the shell\n",
                name_length(what), what->words, HOSTS);
        free(hosts);
        return 2;
    }
    for (long shown = 0; !times || shown < times; shown++) {
        for (int i = 0; i < count; i++)
            ask(&hosts[i], what);
        answers = 0;
        for (int i = 0; i < count; i++)
            answers += hear(&hosts[i], what);
        show(hosts, count, escapes);
        for (int i = 0; i < count; i++) {
            free(hosts[i].text);
            hosts[i].text = NULL;
        }
        if (ferror(stdout))
            break;
    }
    free(hosts);
    return ferror(stdout) || !answers;
}
