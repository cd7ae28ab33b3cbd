/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft info`: version, build, machine, backends and settings, for people or (--json) for programs.
 * It knows no fact itself: each section walks a table of the library, once as text and once as
 * JSON.
 */
#include "command.h"
#include "info_job.h"
#include "info_tune.h"
#include "info_ways.h"
#include "json.h"
#include "on_hosts.h"

#include <weft/weft.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_build(const weft_version_info *build)
{
    printf("weft %s\n\nbuild\n", build->version);
    printf("  %-24s%s\n", "compiler", build->compiler);
    printf("  %-24s%s\n", "flags", build->flags);
    printf("  %-24s%s\n", "sanitizers", *build->sanitizers ? build->sanitizers : "none");
    printf("  %-24s%s\n", "target", build->target);
    printf("  %-24s%s\n", "assertions", build->assertions ? "on" : "off");
}

static void json_build(weft_i_json *j, const weft_version_info *build)
{
    weft_i_json_text(j, "version", build->version);
    weft_i_json_open(j, "build", '{');
    weft_i_json_text(j, "compiler", build->compiler);
    weft_i_json_text(j, "flags", build->flags);
    weft_i_json_text(j, "sanitizers", build->sanitizers);
    weft_i_json_text(j, "target", build->target);
    weft_i_json_bool(j, "assertions", build->assertions);
    weft_i_json_close(j);
}

static int is_bytes(const weft_machine_fact *fact)
{
    return fact->is_number && fact->number != INT64_MAX && !strncmp(fact->meaning, "bytes", 5);
}

/* "24.0 GiB" for people; the JSON form has the number. */
static void print_bytes(int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    printf("%.*f %s", unit ? 1 : 0, value, units[unit]);
}

static void print_machine(void)
{
    const char *part = "";
    weft_machine_fact fact;
    for (int i = 0; i < weft_machine_count() && weft_machine_describe(i, &fact) == WEFT_OK; i++) {
        if (strcmp(part, fact.part))
            printf("\n%s\n", part = fact.part);
        printf("  %-24s", fact.name);
        if (is_bytes(&fact))
            print_bytes(fact.number);
        else
            printf("%s", *fact.text ? fact.text : "not told by this system");
        putchar('\n');
    }
}

static void json_machine(weft_i_json *j)
{
    weft_i_json_open(j, "machine", '[');
    weft_machine_fact fact;
    for (int i = 0; i < weft_machine_count() && weft_machine_describe(i, &fact) == WEFT_OK; i++) {
        weft_i_json_open(j, NULL, '{');
        weft_i_json_text(j, "part", fact.part);
        weft_i_json_text(j, "name", fact.name);
        if (fact.is_number && fact.number != INT64_MAX)
            weft_i_json_integer(j, "value", fact.number);
        else
            weft_i_json_text(j, "value", *fact.text ? fact.text : NULL);
        weft_i_json_text(j, "meaning", fact.meaning);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}

static void print_backends(void)
{
    printf("\nbackends\n");
    weft_backend_info backend;
    for (int i = 0; i < weft_backend_count() && weft_backend_describe(i, &backend) == WEFT_OK; i++)
        printf("  %-24s%s%s%s\n", backend.name, backend.usable ? "usable" : "not usable",
               *backend.reason ? ": " : "", backend.reason);
}

static void json_backends(weft_i_json *j)
{
    weft_i_json_open(j, "backends", '[');
    weft_backend_info backend;
    for (int i = 0; i < weft_backend_count() && weft_backend_describe(i, &backend) == WEFT_OK;
         i++) {
        weft_i_json_open(j, NULL, '{');
        weft_i_json_text(j, "name", backend.name);
        weft_i_json_text(j, "device", backend.device);
        weft_i_json_bool(j, "usable", backend.usable);
        weft_i_json_integer(j, "score", backend.score);
        weft_i_json_text(j, "reason", backend.reason);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}

static void print_matmul(void)
{
    weft_matmul_info matmul;
    if (weft_matmul_describe(&matmul) != WEFT_OK)
        return;
    printf("\nmatrix products\n");
    printf("  %-24s%s%s\n", "library", *matmul.library ? matmul.library : "none: loops",
           matmul.slow ? "  (SLOW)" : "");
    printf("  %-24s%s\n", "it says", *matmul.config ? matmul.config : "nothing");
    if (*matmul.core)
        printf("  %-24s%s\n", "kernels for", matmul.core);
    if (matmul.vector_rate > 0)
        printf("  %-24s%.0f GFLOP/s, the vector units alone %.0f\n", "f32, one thread",
               matmul.product_rate * 1e-9, matmul.vector_rate * 1e-9);
    printf("  %-24s%s\n", "16- and 8-bit floats", matmul.small_floats);
    if (*matmul.bf16)
        printf("  %-24s%s\n", "bf16", matmul.bf16);
}

static void json_matmul(weft_i_json *j)
{
    weft_matmul_info matmul;
    if (weft_matmul_describe(&matmul) != WEFT_OK)
        return;
    weft_i_json_open(j, "matmul", '{');
    weft_i_json_text(j, "library", *matmul.library ? matmul.library : NULL);
    weft_i_json_text(j, "config", matmul.config);
    weft_i_json_text(j, "core", *matmul.core ? matmul.core : NULL);
    weft_i_json_text(j, "small_floats", matmul.small_floats);
    weft_i_json_text(j, "bf16", matmul.bf16);
    weft_i_json_integer(j, "product_rate", (int64_t)matmul.product_rate);
    weft_i_json_integer(j, "vector_rate", (int64_t)matmul.vector_rate);
    weft_i_json_bool(j, "slow", matmul.slow);
    weft_i_json_close(j);
}

static void print_compiler(void)
{
    weft_compiler_info compiler;
    if (weft_compiler_describe(&compiler) != WEFT_OK)
        return;
    printf("\ncompiled graphs\n");
    printf("  %-24s%s\n", "compiler", *compiler.program ? compiler.program : "none: interpreted");
    printf("  %-24s%s\n", "cache", *compiler.folder ? compiler.folder : "none: interpreted");
    if (*compiler.reason)
        printf("  %-24s%s\n", "because", compiler.reason);
    printf("  %-24s%s\n", "for GPUs", compiler.cuda);
}

static void json_compiler(weft_i_json *j)
{
    weft_compiler_info compiler;
    if (weft_compiler_describe(&compiler) != WEFT_OK)
        return;
    weft_i_json_open(j, "compiler", '{');
    weft_i_json_text(j, "program", *compiler.program ? compiler.program : NULL);
    weft_i_json_text(j, "cache", *compiler.folder ? compiler.folder : NULL);
    weft_i_json_text(j, "reason", compiler.reason);
    weft_i_json_text(j, "cuda", compiler.cuda);
    weft_i_json_close(j);
}

static void print_variables(void)
{
    printf("\nenvironment variables (* set here)\n");
    weft_env_info env;
    for (int i = 0; i < weft_env_count() && weft_env_describe(i, &env) == WEFT_OK; i++) {
        printf("%c %-24s%s", env.value ? '*' : ' ', env.name, env.value ? env.value : env.fallback);
        if (!env.value && !*env.fallback)
            printf("-");
        if (env.value && env.valid)
            printf("  (default %s)", *env.fallback ? env.fallback : "none");
        if (!env.valid)
            printf("  is NOT a valid %s (default %s)", env.kind, env.fallback);
        printf("\n  %-24s  %s\n", "", env.meaning);
    }
}

static void json_variables(weft_i_json *j)
{
    weft_i_json_open(j, "variables", '[');
    weft_env_info env;
    for (int i = 0; i < weft_env_count() && weft_env_describe(i, &env) == WEFT_OK; i++) {
        weft_i_json_open(j, NULL, '{');
        weft_i_json_text(j, "name", env.name);
        weft_i_json_text(j, "kind", env.kind);
        weft_i_json_text(j, "default", env.fallback);
        weft_i_json_text(j, "value", env.value);
        weft_i_json_bool(j, "valid", env.valid);
        weft_i_json_text(j, "meaning", env.meaning);
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}

/* Up to which size an operand is eager whole, by operation and number of ranks. */
static const char *const tuned_ops[] = {"all_reduce", "reduce",  "broadcast",      "all_gather",
                                        "gather",     "scatter", "reduce_scatter", "all_to_all"};
static const int tuned_ranks[] = {2, 4, 8, 16};

static void print_thresholds(const char *title, weft_threshold which)
{
    printf("%s\n  %-16s", title, "ranks");
    for (int n = 0; n < 4; n++)
        printf("%10d", tuned_ranks[n]);
    for (int op = 0; op < 8; op++) {
        printf("\n  %-16s", tuned_ops[op]);
        for (int n = 0; n < 4; n++) {
            size_t bytes = weft_tune_get(which, tuned_ops[op], tuned_ranks[n]);
            if (bytes == 0 || bytes == SIZE_MAX)
                printf("%10s", "never");
            else
                printf("%10zu", bytes);
        }
    }
    printf("\n");
}

static int print_algorithms(void)
{
    printf("algorithms: inline up to %d bytes; ", (int)WEFT_TUNE_INLINE);
    print_thresholds("ordinary operands eager up to this many bytes, then cma or pipelined",
                     WEFT_TUNE_EAGER);
    print_thresholds("symmetric operands eager up to this many bytes, then direct",
                     WEFT_TUNE_ZERO_COPY);
    print_thresholds("cma (cma copies of ordinary operands) from this many bytes between two "
                     "ranks",
                     WEFT_TUNE_CMA);
    info_ways_print();
    return fflush(stdout) != 0 || ferror(stdout);
}

static void json_thresholds(weft_i_json *j, const char *name, weft_threshold which)
{
    weft_i_json_open(j, name, '{');
    for (int op = 0; op < 8; op++) {
        weft_i_json_open(j, tuned_ops[op], '{');
        for (int n = 0; n < 4; n++) {
            char ranks[16];
            size_t bytes = weft_tune_get(which, tuned_ops[op], tuned_ranks[n]);
            snprintf(ranks, sizeof ranks, "%d", tuned_ranks[n]);
            weft_i_json_integer(j, ranks, bytes == SIZE_MAX ? -1 : (int64_t)bytes);
        }
        weft_i_json_close(j);
    }
    weft_i_json_close(j);
}

static void json_algorithms(weft_i_json *j)
{
    json_thresholds(j, "eager_up_to", WEFT_TUNE_EAGER);
    json_thresholds(j, "direct_beyond", WEFT_TUNE_ZERO_COPY);
    json_thresholds(j, "cma_from", WEFT_TUNE_CMA);
}

static int print_all(const weft_version_info *build)
{
    print_build(build);
    print_machine();
    print_backends();
    print_matmul();
    print_compiler();
    info_ways_print();
    print_variables();
    return fflush(stdout) != 0 || ferror(stdout);
}

static int json_all(const weft_version_info *build)
{
    weft_i_json j;
    weft_i_json_begin(&j, STDOUT_FILENO, WEFT_I_JSON_DEPTH);
    weft_i_json_open(&j, NULL, '{');
    json_build(&j, build);
    json_machine(&j);
    json_backends(&j);
    json_matmul(&j);
    json_compiler(&j);
    json_variables(&j);
    json_algorithms(&j);
    info_tune_json(&j);
    info_ways_json(&j);
    weft_i_json_close(&j);
    return json_finish(&j);
}

/* ---- the command ---- */

enum { JSON = 1, ALGO = 2, ENV = 4, MACHINE = 8, JOB = 16, TUNE = 32, HOSTS = 64, AWAY = 128 };

/* Where jobs are looked at. */
typedef struct places {
    const char *hosts;
    on_hosts_ask ask;
} places;

static int set_mark(void *into, const char *text, long number)
{
    (void)into, (void)text, (void)number;
    return 1;
}

static int set_hosts(void *into, const char *text, long number)
{
    (void)number;
    ((places *)into)->hosts = text;
    return *text != 0;
}

static int set_rsh(void *into, const char *text, long number)
{
    (void)number;
    ((places *)into)->ask.rsh = text;
    return *text != 0;
}

static int set_weft(void *into, const char *text, long number)
{
    (void)number;
    ((places *)into)->ask.weft = text;
    return *text != 0;
}

static const command_option options[] = {
    {0, "json", NULL, 0, 0, NULL, "for programs; with --job too", JSON, set_mark},
    {0, "algo", NULL, 0, 0, NULL, "which algorithm collectives take at which size", ALGO, set_mark},
    {0, "tune", NULL, 0, 0, NULL,
     "every decision by size: its values, what has set them, where they were measured", TUNE,
     set_mark},
    {0, "env", NULL, 0, 0, NULL, "the settings alone", ENV, set_mark},
    {0, "machine", NULL, 0, 0, NULL, "the machine alone", MACHINE, set_mark},
    {0, "job", NULL, 0, 0, NULL,
     "the running jobs of this user; with a process or program, what each rank of one is doing and "
     "whom it waits for",
     JOB, set_mark},
    {'H', "hosts", "LIST", 0, 0, "names of hosts, a,b,c", "with --job: those of these hosts", HOSTS,
     set_hosts},
    {0, "rsh", "COMMAND", 0, 0, "a command", "what runs a command on a host (ssh)", AWAY, set_rsh},
    {0, "weft", "PATH", 0, 0, "a path", "the command there (weft)", AWAY, set_weft},
    {0},
};

static int print_part(unsigned part)
{
    if (part == ALGO)
        return print_algorithms();
    if (part == TUNE)
        return info_tune_print();
    if (part == ENV)
        print_variables();
    else
        print_machine();
    return fflush(stdout) != 0 || ferror(stdout);
}

/* Ranks on other hosts: those there tell. */
static int print_hosts(unsigned marks, places *where, const char *which)
{
    if (marks & ~(unsigned)(JOB | HOSTS | AWAY))
        return command_wrong(&weft_command_info, "--hosts is for the text of --job");
    where->ask.words = "info --job";
    where->ask.which = which;
    return on_hosts(where->hosts, &where->ask, 1, 0);
}

static int print_what(unsigned marks, char **words, places *where)
{
    weft_version_info build;
    if (words[0] && (!(marks & JOB) || words[1]))
        return command_wrong(&weft_command_info,
                             marks & JOB ? "one job at a time, not also \"%s\""
                                         : "what is \"%s\"?  Jobs need --job",
                             words[marks & JOB ? 1 : 0]);
    if (marks & HOSTS && marks & JOB)
        return print_hosts(marks, where, words[0]);
    if (marks & (HOSTS | AWAY))
        return command_wrong(&weft_command_info,
                             "--hosts, --rsh and --weft need --job and --hosts");
    if (marks & JOB && !(marks & ~(unsigned)(JOB | JSON)))
        return weft_info_job(words[0], marks & JSON);
    if (marks == ALGO || marks == TUNE || marks == ENV || marks == MACHINE)
        return print_part(marks);
    if (marks & ~(unsigned)JSON)
        return command_wrong(&weft_command_info,
                             "one of --algo, --tune, --env, --machine and --job "
                             "at a time; --json alone has them all");
    if (weft_version_describe(&build) != WEFT_OK)
        return 1;
    return marks & JSON ? json_all(&build) : print_all(&build);
}

static int run(int argc, char **argv)
{
    unsigned marks;
    places where = {.ask = {.rsh = "ssh", .weft = "weft", .limit_s = 20}};
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int status = words ? command_read(&weft_command_info, argc, argv, &where, words, &marks) : 1;
    if (status == COMMAND_GOES_ON)
        status = print_what(marks, words, &where);
    free(words);
    return status;
}

const subcommand weft_command_info = {
    .name = "info",
    .text = "what this build and this machine offer, and every setting [--json]",
    .usage = "[--json | --algo | --tune | --env | --machine]\n"
             "--job [PROCESS | PROGRAM] [--json | --hosts LIST [--rsh COMMAND] [--weft PATH]]",
    .about = "Version, build, machine, backends and every setting.",
    .options = options,
    .run = run,
};
