/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft top --hosts a,b`: the tables of several hosts, one below the other.  Each interval the command
 * runs itself there, all at once; a host that does not answer in time has its sentence in its place.
 */
#include "command.h"
#include "top.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { HOSTS = 64, COMMAND = 4096, LINE = 512, PATIENCE_S = 20 };

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

static long limit_of(const top_ask *what)
{
    return PATIENCE_S + what->interval_ms / 1000;
}

static void ask(answer *host, const top_ask *what)
{
    char command[COMMAND];
    int length = snprintf(command, sizeof command,
                          "timeout -k 1 %ld %s %s %s top -n 1 -i %ld -s %s %s </dev/null 2>&1",
                          limit_of(what), what->rsh, host->host, what->weft, what->interval_ms,
                          what->order, what->which ? what->which : "");
    host->from = length < COMMAND ? popen(command, "r") : NULL;
}

/* Takes what a host says; its table may be long. */
static void hear(answer *host, const top_ask *what)
{
    enum { LATE = 124 }; /* the exit status of timeout(1) */
    char line[LINE];
    FILE *to = open_memstream(&host->text, &host->bytes);
    while (host->from && to && fgets(line, sizeof line, host->from))
        fputs(line, to);
    int status = host->from ? pclose(host->from) : -1;
    if (to && status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == LATE)
        fprintf(to, "weft top: host %s did not answer in %ld s\n", host->host, limit_of(what));
    else if (to && status)
        fprintf(to, "weft top: no table of host %s\n", host->host);
    if (to)
        fclose(to);
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

int top_hosts(const char *list, const top_ask *what, long times, int escapes)
{
    answer *hosts = calloc(HOSTS, sizeof *hosts);
    int count = hosts ? split(list, hosts) : -1;
    if (count < 0 || !command_is_plain(what->weft) ||
        (what->which && !command_is_plain(what->which))) {
        fprintf(stderr,
                "weft top: --hosts takes names with commas between them, at most %d; names "
                "of hosts, programs and --weft may not have blanks or signs of the shell\n",
                HOSTS);
        free(hosts);
        return 2;
    }
    for (long shown = 0; !times || shown < times; shown++) {
        for (int i = 0; i < count; i++)
            ask(&hosts[i], what);
        for (int i = 0; i < count; i++)
            hear(&hosts[i], what);
        show(hosts, count, escapes);
        for (int i = 0; i < count; i++) {
            free(hosts[i].text);
            hosts[i].text = NULL;
        }
        if (ferror(stdout))
            break;
    }
    free(hosts);
    return ferror(stdout) != 0;
}
