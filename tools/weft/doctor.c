/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft doctor`: what of this machine keeps weft from working, or makes it slow, and what to do.
 * Each check is a row of one table: it looks at one thing, or tries it, and writes a finding.  What
 * can be tried is tried: two ranks meet and share memory, and a store answers over TCP.
 */
#include "doctor.h"
#include "command.h"
#include "json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the command ---- */

const char *const doctor_words[VERDICTS] = {"ok", "note", "slow", "BROKEN"};

const check doctor_checks[] = {
    {"two ranks", doctor_try_ranks},
    {"store over TCP", doctor_try_store},
    {"cores", doctor_look_at_cores},
    {"processor quota", doctor_look_at_quota},
    {"clock", doctor_look_at_clock},
    {"memory", doctor_look_at_memory},
    {"memory limit", doctor_look_at_limit},
    {"/dev/shm", doctor_look_at_shm},
    {"huge pages", doctor_look_at_huge_pages},
    {"copies by the kernel", doctor_look_at_copies},
    {"open files", doctor_look_at_descriptors},
    {"locked memory", doctor_look_at_locked_memory},
    {"matrix products", doctor_look_at_products},
    {"compiler", doctor_look_at_compiler},
    {"GPU", doctor_look_at_gpu},
    {"NCCL", doctor_look_at_nccl},
    {"UCX", doctor_look_at_ucx},
    {NULL, NULL},
};

void doctor_say(finding *out, verdict how, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->text, sizeof out->text, format, args);
    va_end(args);
    out->verdict = how;
}

void doctor_advise(finding *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->advice, sizeof out->advice, format, args);
    va_end(args);
}

void doctor_print(const char *host, const char *name, const finding *found)
{
    printf("  %-8s", doctor_words[found->verdict]);
    if (host)
        printf("%-12s", host);
    printf("%-24s%s\n", name, found->text);
    if (*found->advice)
        printf("  %-8s%*s%-24s  %s\n", "", host ? 12 : 0, "", "", found->advice);
    fflush(stdout);
}

static void json_finding(weft_i_json *j, const char *name, const finding *found)
{
    weft_i_json_open(j, NULL, '{');
    weft_i_json_text(j, "check", name);
    weft_i_json_text(j, "verdict", doctor_words[found->verdict]);
    weft_i_json_text(j, "finding", found->text);
    weft_i_json_text(j, "advice", *found->advice ? found->advice : NULL);
    weft_i_json_close(j);
}

/* Runs all checks.  1 if one found something broken, or what was written is lost. */
static int examine(int as_json)
{
    weft_i_json j;
    int counts[VERDICTS] = {0}, checks = 0, lost = 0;
    if (as_json) {
        weft_i_json_begin(&j, STDOUT_FILENO, 1);
        weft_i_json_open(&j, NULL, '[');
    }
    for (const check *c = doctor_checks; c->name; c++, checks++) {
        finding found = {0};
        c->look(&found);
        counts[found.verdict]++;
        if (as_json)
            json_finding(&j, c->name, &found);
        else
            doctor_print(NULL, c->name, &found);
    }
    if (as_json) {
        weft_i_json_close(&j);
        lost = json_finish(&j);
    } else {
        printf("%d checks: %d broken, %d slow, %d to know\n", checks, counts[BROKEN], counts[SLOW],
               counts[NOTE]);
    }
    return counts[BROKEN] || lost;
}

typedef struct reader {
    doctor_ask ask;
    int answers;
} reader;

static int set_json(void *into, const char *text, long number)
{
    (void)text, (void)number;
    return ((reader *)into)->ask.as_json = 1;
}

static int set_hosts(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->ask.hosts = text;
    return *text != 0;
}

static int set_rsh(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->ask.rsh = text;
    return strstr(text, "%h") != NULL;
}

static int set_weft(void *into, const char *text, long number)
{
    (void)number;
    ((reader *)into)->ask.weft = text;
    return *text != 0;
}

static int set_answer(void *into, const char *text, long number)
{
    (void)text, (void)number;
    return ((reader *)into)->answers = 1;
}

static int look(const reader *r)
{
    char own[4096];
    doctor_ask ask = r->ask;
    if (r->answers)
        return doctor_answer();
    if (!ask.hosts && (ask.rsh || ask.weft))
        return command_wrong(&weft_command_doctor, "--rsh and --weft need --hosts");
    if (!ask.hosts)
        return examine(ask.as_json);
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = 0;
    if (!ask.weft)
        ask.weft = *own ? own : "weft";
    if (!ask.rsh)
        ask.rsh = WEFT_LAUNCH_RSH;
    return doctor_hosts(&ask);
}

static int run(int argc, char **argv)
{
    reader r = {0};
    char **operands = calloc((size_t)argc + 1, sizeof *operands);
    int status = operands ? command_read(&weft_command_doctor, argc, argv, &r, operands, NULL) : 1;
    if (status == COMMAND_GOES_ON && operands[0])
        status = command_wrong(&weft_command_doctor, "it takes no words, not \"%s\"", operands[0]);
    free(operands);
    return status == COMMAND_GOES_ON ? look(&r) : status;
}

static const command_option options[] = {
    {.name = "json", .text = "one JSON array, for programs", .set = set_json},
    {.name = "hosts",
     .value = "HOST,...",
     .takes = "names of hosts with commas between them",
     .text = "look at these hosts, and whether they reach each other",
     .set = set_hosts},
    {.name = "rsh",
     .value = "TEMPLATE",
     .takes = "a command that has %h where the host goes",
     .text = "what runs a command on host %h (ssh -x -o BatchMode=yes ... %h)",
     .set = set_rsh},
    {.name = "weft",
     .value = "PATH",
     .takes = "the path of a weft command",
     .text = "where weft is on the hosts (where it is here)",
     .set = set_weft},
    {.name = "answer",
     .text = "what --hosts runs on each host; not for use by hand",
     .set = set_answer},
    {0},
};

const subcommand weft_command_doctor = {
    .name = "doctor",
    .text = "checks whether this machine lets weft work, and work fast",
    .usage = "[--json]\n--hosts a,b [--rsh TEMPLATE] [--weft PATH] [--json]",
    .about =
        "Tries what can be tried, looks at the rest, and says what to do: two ranks that share "
        "memory, a store over TCP, cores, the clock, memory, pages, limits, also those of a "
        "container, the BLAS, the compiler, GPU, NCCL, UCX. It changes nothing.\n"
        "With --hosts it does so on each host, through the remote shell, shows what is not in "
        "order "
        "there, compares versions and clocks, and has each host connect to each other one.",
    .options = options,
    .exits = "0, or 1 if something is broken. What is only slow, or good to know, is no failure.",
    .run = run,
};
