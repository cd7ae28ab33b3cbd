/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft doctor --hosts a,b`: runs itself on each host through the remote shell (doctor_answer.c), and
 * compares what they say: versions, clocks, and whether each reaches each other one.
 */
#include "command.h"
#include "doctor.h"
#include "json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 64, NAME = 128, LINE = 8192, START_MS = 90000, ANSWER_MS = 30000, ROUNDS = 5 };

typedef struct host {
    char name[NAME], version[64], ports[64], at[LINE]; /* at: word, port, addresses */
    pid_t process;
    int to, from;
    char buffer[LINE];
    size_t held;
    int ready, status;            /* of its remote shell, once it has ended; -1: not yet */
    double clock_ahead, clock_in; /* seconds, of this machine; and how sure that is */
} host;

typedef struct report {
    int as_json, counts[VERDICTS];
    weft_i_json json;
} report;

static void put(report *r, const host *h, const char *name, const finding *found)
{
    r->counts[found->verdict]++;
    if (!r->as_json) {
        doctor_print(h->name, name, found);
        return;
    }
    weft_i_json_open(&r->json, NULL, '{');
    weft_i_json_text(&r->json, "host", h->name);
    weft_i_json_text(&r->json, "check", name);
    weft_i_json_text(&r->json, "verdict", doctor_words[found->verdict]);
    weft_i_json_text(&r->json, "finding", found->text);
    weft_i_json_text(&r->json, "advice", *found->advice ? found->advice : NULL);
    weft_i_json_close(&r->json);
}

/* ---- the remote shell ---- */

/* "exec ssh a weft doctor --answer", from a template with %h; false if it is too long. */
static int spell(char command[LINE], const doctor_ask *ask, const char *name)
{
    size_t used = (size_t)snprintf(command, LINE, "exec ");
    for (const char *at = ask->rsh; *at && used < LINE; at++) {
        int here = at[0] == '%' && at[1] == 'h';
        used +=
            (size_t)snprintf(command + used, LINE - used, here ? "%s" : "%.1s", here ? name : at);
        at += here;
    }
    if (used < LINE)
        used += (size_t)snprintf(command + used, LINE - used, " %s doctor --answer", ask->weft);
    return used < LINE;
}

static void start(host *h, const doctor_ask *ask)
{
    char command[LINE];
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    h->to = h->from = h->status = -1;
    if (!spell(command, ask, h->name) || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return;
    h->process = fork();
    if (h->process == 0) {
        setpgid(0, 0);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    h->to = in[1];
    h->from = out[0];
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The next line, without its end; false if none comes in time, or any more. */
static int hear(host *h, char line[LINE], int64_t limit_ms)
{
    int64_t end = now_ms() + limit_ms;
    for (;;) {
        char *stop = memchr(h->buffer, '\n', h->held);
        if (stop) {
            size_t length = (size_t)(stop - h->buffer);
            memcpy(line, h->buffer, length);
            line[length] = 0;
            h->held -= length + 1;
            memmove(h->buffer, stop + 1, h->held);
            return 1;
        }
        struct pollfd one = {h->from, POLLIN, 0};
        int64_t left = end - now_ms();
        if (h->from < 0 || h->held == sizeof h->buffer || left <= 0 ||
            poll(&one, 1, (int)left) <= 0)
            return 0;
        ssize_t more = read(h->from, h->buffer + h->held, sizeof h->buffer - h->held);
        if (more <= 0)
            return 0;
        h->held += (size_t)more;
    }
}

static int ask_line(host *h, const char *question, char answer[LINE])
{
    size_t length = strlen(question);
    return write(h->to, question, length) == (ssize_t)length && hear(h, answer, ANSWER_MS);
}

static void end(host *h)
{
    if (h->to >= 0)
        close(h->to);
    if (h->from >= 0)
        close(h->from);
    h->to = h->from = -1;
    if (h->process <= 0)
        return;
    if (!h->ready)
        kill(-h->process, SIGTERM);
    waitpid(h->process, &h->status, 0);
    h->process = 0;
}

/* ---- what each says ---- */

/* "finding, verdict, name, text, advice"; false if it is not one. */
static int read_finding(char *line, finding *out, char name[64])
{
    char *field[5];
    for (int i = 0; i < 5; i++) {
        field[i] = line;
        line = line ? strchr(line, '\t') : NULL;
        if (line)
            *line++ = 0;
    }
    if (!field[4] || strcmp(field[0], "finding"))
        return 0;
    int how = atoi(field[1]);
    out->verdict = how < 0 || how >= VERDICTS ? BROKEN : (verdict)how;
    snprintf(name, 64, "%s", field[2]);
    snprintf(out->text, sizeof out->text, "%s", field[3]);
    snprintf(out->advice, sizeof out->advice, "%s", field[4]);
    return 1;
}

/* Reads until "ready", and shows what is not in order. */
static void listen_to(host *h, report *r)
{
    char line[LINE], name[64];
    int fine = 0;
    finding found = {0};
    while (!h->ready && hear(h, line, START_MS)) {
        h->ready = !strcmp(line, "ready");
        if (!strncmp(line, "version\t", 8))
            snprintf(h->version, sizeof h->version, "%.63s", line + 8);
        else if (!strncmp(line, "ports\t", 6))
            snprintf(h->ports, sizeof h->ports, "%.63s", line + 6);
        else if (!strncmp(line, "at\t", 3))
            snprintf(h->at, sizeof h->at, "%s", line + 3);
        else if (read_finding(line, &found, name)) {
            if (!strcmp(name, "UCX") && found.verdict == NOTE)
                found.verdict = BROKEN; /* of a job on several hosts it is no choice */
            if (found.verdict == FINE)
                fine++;
            else
                put(r, h, name, &found);
        }
    }
    found = (finding){0};
    if (h->ready) {
        doctor_say(&found, FINE, "weft %s; %d checks are in order", h->version, fine);
        put(r, h, "this host", &found);
    }
}

/* Of a host that said nothing: what became of its shell. */
static void tell_silence(host *h, report *r)
{
    finding found = {0};
    end(h);
    int ended = h->status >= 0 && WIFEXITED(h->status);
    if (ended)
        doctor_say(&found, BROKEN, "it did not answer: its remote shell ended with exit code %d",
                   WEXITSTATUS(h->status));
    else
        doctor_say(&found, BROKEN, "it did not answer in %d s", START_MS / 1000);
    doctor_advise(&found, "%s",
                  ended && WEXITSTATUS(h->status) == 127
                      ? "weft is not at that path there, or the remote shell is not installed "
                        "here: --weft PATH, --rsh TEMPLATE."
                  : ended && WEXITSTATUS(h->status) == 2
                      ? "An older weft is there: install this one."
                      : "Try the remote shell by hand, without a password: ssh -o BatchMode=yes "
                        "HOST true. Ports, keys and names are a matter of its own settings.");
    put(r, h, "this host", &found);
}

/* ---- comparing ---- */

static void compare_version(const host *first, const host *h, report *r)
{
    finding found = {0};
    if (!strcmp(first->version, h->version))
        return;
    doctor_say(&found, BROKEN, "weft %s, but %s has %s", h->version, first->name, first->version);
    doctor_advise(&found, "Install one version on all hosts; --weft names another path.");
    put(r, h, "version", &found);
}

/* How far its clock is ahead of ours: the quickest of some rounds tells it best. */
static int look_at_clock_of(host *h)
{
    char line[LINE];
    h->clock_in = HUGE_VAL;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec from, to;
        int64_t there;
        clock_gettime(CLOCK_REALTIME, &from);
        if (!ask_line(h, "clock\n", line) || sscanf(line, "clock %" SCNd64, &there) != 1)
            return 0;
        clock_gettime(CLOCK_REALTIME, &to);
        double begun = (double)from.tv_nsec * 1e-9,
               took = (double)(to.tv_sec - from.tv_sec) + (double)to.tv_nsec * 1e-9 - begun;
        double ahead = (double)(there / 1000000000 - from.tv_sec) +
                       (double)(there % 1000000000) * 1e-9 - begun - took / 2;
        if (took / 2 < h->clock_in) {
            h->clock_in = took / 2;
            h->clock_ahead = ahead;
        }
    }
    return 1;
}

static void compare_clock(const host *first, const host *h, report *r)
{
    finding found = {0};
    double ahead = h->clock_ahead - first->clock_ahead, sure = h->clock_in + first->clock_in;
    int much = fabs(ahead) > 1 + sure;
    if (fabs(ahead) <= sure)
        doctor_say(&found, FINE, "as that of %s, within %.2g ms", first->name, sure * 1e3);
    else
        doctor_say(&found, much ? NOTE : FINE, "%.3g %s %s that of %s, within %.2g ms",
                   fabs(ahead) < 1 ? fabs(ahead) * 1e3 : fabs(ahead), fabs(ahead) < 1 ? "ms" : "s",
                   ahead > 0 ? "ahead of" : "behind", first->name, sure * 1e3);
    if (much)
        doctor_advise(&found, "weft needs no common clock, but times of files and logs do not "
                              "compare: systemctl enable --now systemd-timesyncd, or chrony.");
    put(r, h, "clock", &found);
}

static void try_reach(host *from, const host *to, report *r)
{
    char question[LINE + 16], line[LINE], name[NAME + 16], address[256];
    int64_t us;
    finding found = {0};
    snprintf(question, sizeof question, "reach %s\n", to->at);
    snprintf(name, sizeof name, "reaches %s", to->name);
    if (!ask_line(from, question, line)) {
        doctor_say(&found, BROKEN, "it does not answer any more");
    } else if (sscanf(line, "reached %255s %" SCNd64, address, &us) == 2) {
        doctor_say(&found, FINE, "at %s, in %.2f ms", address, (double)us * 1e-3);
    } else {
        doctor_say(&found, BROKEN, "no: %.600s", strchr(line, ' ') ? strchr(line, ' ') + 1 : line);
        if (strstr(found.text, "no address"))
            doctor_advise(&found, "No network of %s is up: ip addr there.", to->name);
        else
            doctor_advise(&found,
                          "A firewall between them, or hosts of different networks. Open the "
                          "TCP ports %s of %s for %s; WEFT_NET names the network to take.",
                          *to->ports ? to->ports : "1024-65535", to->name, from->name);
    }
    put(r, from, name, &found);
}

/* ---- the command ---- */

/* "a,b" as hosts; how many, or 0 if it is not such a list.  "a:4" of weft run is taken as "a". */
static int split(const char *list, host *hosts)
{
    int count = 0;
    while (*list) {
        size_t whole = strcspn(list, ","), length = strcspn(list, ",:");
        if (!length || length >= NAME || count == HOSTS)
            return 0;
        memcpy(hosts[count].name, list, length);
        if (!command_is_plain(hosts[count].name) || *hosts[count].name == '-')
            return 0;
        count++;
        list += whole + (list[whole] == ',');
    }
    return count;
}

static void examine(host *hosts, int count, const doctor_ask *ask, report *r)
{
    host *first = NULL;
    for (int i = 0; i < count; i++)
        start(&hosts[i], ask);
    for (int i = 0; i < count; i++) {
        listen_to(&hosts[i], r);
        hosts[i].ready = hosts[i].ready && look_at_clock_of(&hosts[i]);
        if (!hosts[i].ready)
            tell_silence(&hosts[i], r);
        else if (!first)
            first = &hosts[i];
    }
    for (int i = 0; i < count; i++)
        if (hosts[i].ready && &hosts[i] != first) {
            compare_version(first, &hosts[i], r);
            compare_clock(first, &hosts[i], r);
        }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            if (i != k && hosts[i].ready && hosts[k].ready)
                try_reach(&hosts[i], &hosts[k], r);
    for (int i = 0; i < count; i++)
        end(&hosts[i]);
}

int doctor_hosts(const doctor_ask *ask)
{
    static report r;
    host *hosts = calloc(HOSTS, sizeof *hosts);
    int count = hosts ? split(ask->hosts, hosts) : 0, lost = 0;
    if (!count || !command_is_plain(ask->weft)) {
        free(hosts);
        return command_wrong(&weft_command_doctor,
                             "--hosts takes names with commas between them, at most %d; names of "
                             "hosts and --weft have no blanks or signs of the shell",
                             HOSTS);
    }
    r = (report){.as_json = ask->as_json};
    signal(SIGPIPE, SIG_IGN); /* a shell that has ended is told as such */
    if (r.as_json) {
        weft_i_json_begin(&r.json, STDOUT_FILENO, 1);
        weft_i_json_open(&r.json, NULL, '[');
    }
    examine(hosts, count, ask, &r);
    if (r.as_json) {
        weft_i_json_close(&r.json);
        lost = json_finish(&r.json);
    } else {
        printf("%d hosts: %d broken, %d slow, %d to know\n", count, r.counts[BROKEN],
               r.counts[SLOW], r.counts[NOTE]);
    }
    free(hosts);
    return r.counts[BROKEN] || lost;
}
