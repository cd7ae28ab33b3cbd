/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft doctor`: what of this machine keeps weft from working, or makes it slow, and what to do.
 * Each check is a row of one table: it looks at one thing, or tries it, and writes a finding.  What
 * can be tried is tried: two ranks meet and share memory, and a store answers over TCP.
 */
#include "command.h"
#include "json.h"

#include <weft/weft.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum verdict { FINE, NOTE, SLOW, BROKEN } verdict;

/* What a check has found: a sentence, and what to do about it, which may be empty. */
typedef struct finding {
    verdict verdict;
    char text[640], advice[640];
} finding;

typedef struct check {
    const char *name;
    void (*look)(finding *out);
} check;

static const char *const words[] = {"ok", "note", "slow", "BROKEN"};

__attribute__((format(printf, 3, 4))) static void say(finding *out, verdict how, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->text, sizeof out->text, format, args);
    va_end(args);
    out->verdict = how;
}

__attribute__((format(printf, 2, 3))) static void advise(finding *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->advice, sizeof out->advice, format, args);
    va_end(args);
}

/* ---- what the system says ---- */

/* The fact of this name: false if the system does not tell. */
static int fact(const char *name, weft_machine_fact *out)
{
    for (int i = 0; i < weft_machine_count() && weft_machine_describe(i, out) == WEFT_OK; i++)
        if (!strcmp(out->name, name))
            return *out->text != 0;
    return 0;
}

/* The first line of a file of the kernel; false if there is none. */
static int line_of(const char *path, char *out, int bytes)
{
    FILE *file = fopen(path, "re");
    int there = file && fgets(out, bytes, file);
    if (file)
        fclose(file);
    if (there)
        out[strcspn(out, "\n")] = 0;
    return there;
}

static void look_at_cores(finding *out)
{
    weft_machine_fact usable, online;
    if (!fact("cores usable", &usable) || !fact("cores online", &online)) {
        say(out, NOTE, "the system does not say how many cores there are");
    } else if (usable.number < online.number) {
        say(out, NOTE, "%s of %s cores may be used", usable.text, online.text);
        advise(out, "The affinity or a container keeps the others away (taskset -p $$, docker run "
                    "--cpuset-cpus). More ranks than cores take turns.");
    } else {
        say(out, FINE, "%s", usable.text);
    }
}

static void look_at_clock(finding *out)
{
    char clock[64];
    if (!line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource", clock,
                 sizeof clock)) {
        say(out, FINE, "the system does not name its source");
        return;
    }
    struct timespec from, to;
    enum { LOOKS = 20000 };
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < LOOKS; i++)
        clock_gettime(CLOCK_MONOTONIC, &to);
    double ns =
        ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / LOOKS;
    say(out, ns > 300 ? SLOW : FINE, "%s, %.0f ns to read", clock, ns);
    if (ns > 300)
        advise(out, "Each read enters the kernel. If the processor's counter is steady, boot with "
                    "clocksource=tsc; small calls of weft take longer otherwise.");
}

static void look_at_memory(finding *out)
{
    weft_machine_fact available, limit;
    if (!fact("available", &available)) {
        say(out, NOTE, "the system does not say how much is free");
        return;
    }
    int64_t bytes = available.number;
    int bounded = fact("control group limit", &limit) && limit.number < bytes;
    if (bounded)
        bytes = limit.number;
    say(out, bytes < (int64_t)256 << 20 ? BROKEN : FINE, "%.1f GiB free%s",
        (double)bytes / (1 << 30), bounded ? ", by the limit of the control group" : "");
    if (out->verdict)
        advise(out,
               "Ranks need room for the symmetric memory that they ask for; it counts once for "
               "each rank, and for a container's limit as well.");
}

static void look_at_huge_pages(finding *out)
{
    weft_machine_fact pages;
    if (!fact("shared huge pages", &pages)) {
        say(out, FINE, "the kernel has none for shared memory");
    } else if (!strcmp(pages.text, "never") || !strcmp(pages.text, "deny")) {
        say(out, NOTE, "off for shared memory (\"%s\")", pages.text);
        advise(out, "Large symmetric blocks take pages of 4 KiB, which costs their first use. As "
                    "root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    } else {
        say(out, FINE, "\"%s\" for shared memory", pages.text);
    }
}

static void look_at_copies(finding *out)
{
    char scope[16] = "0";
    line_of("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (atoi(scope) < 2) {
        say(out, FINE, "the kernel may copy between ranks (ptrace scope %s)", scope);
        return;
    }
    say(out, SLOW, "the kernel copies nothing between processes (ptrace scope %s)", scope);
    advise(out, "Large operands of ordinary memory are copied twice instead of once; symmetric "
                "memory is not concerned. As root: sysctl kernel.yama.ptrace_scope=1");
}

static void look_at_descriptors(finding *out)
{
    weft_machine_fact files;
    if (!fact("open files", &files)) {
        say(out, FINE, "the system does not tell the limit");
        return;
    }
    say(out,
        files.number < 64    ? BROKEN
        : files.number < 256 ? NOTE
                             : FINE,
        "%s a process", files.number == INT64_MAX ? "unlimited" : files.text);
    if (out->verdict)
        advise(out,
               "A rank has a descriptor for each symmetric block of each peer: ulimit -n 4096");
}

static void look_at_locked_memory(finding *out)
{
    weft_machine_fact locked;
    int network = access("/sys/class/infiniband", F_OK) == 0;
    if (!fact("locked memory", &locked)) {
        say(out, FINE, "the system does not tell the limit");
        return;
    }
    int scarce = network && locked.number < (int64_t)1 << 30;
    if (locked.number == INT64_MAX)
        say(out, FINE, "unlimited");
    else
        say(out, scarce ? NOTE : FINE, "%.1f MiB%s", (double)locked.number / (1 << 20),
            network ? "" : "; no network with RDMA is here");
    if (scarce)
        advise(out, "Networks with RDMA register memory: set memlock to unlimited in "
                    "/etc/security/limits.d, and LimitMEMLOCK=infinity for services.");
}

/* ---- libraries ---- */

static void look_at_products(finding *out)
{
    weft_matmul_info info;
    if (weft_matmul_describe(&info) < 0) {
        say(out, BROKEN, "%s", weft_last_error());
    } else if (!*info.library) {
        say(out, SLOW, "no BLAS: plain loops");
        advise(out, "apt-get install libopenblas0-pthread");
    } else {
        say(out, info.slow ? SLOW : FINE, "%s, kernels for %s, %.0f GFLOP/s of a thread",
            info.library, *info.core ? info.core : "an unknown processor", info.product_rate / 1e9);
        if (info.slow)
            advise(out,
                   "The vector units do %.0f. Install libopenblas0-pthread, or name a newer core "
                   "in OPENBLAS_CORETYPE (SkylakeX, Haswell, NEOVERSEN1).",
                   info.vector_rate / 1e9);
    }
}

static void look_at_compiler(finding *out)
{
    weft_compiler_info info;
    if (weft_compiler_describe(&info) < 0) {
        say(out, BROKEN, "%s", weft_last_error());
    } else if (!*info.program) {
        say(out, SLOW, "none: %s", info.reason);
        advise(out, "Compiled functions are interpreted. apt-get install gcc libc6-dev, or set "
                    "WEFT_CC.");
    } else if (!*info.folder) {
        say(out, SLOW, "%s, but no folder for what it makes: %s", info.program, info.reason);
        advise(out, "Each program compiles anew. Set WEFT_CACHE_DIR to a folder that only you can "
                    "write to.");
    } else {
        say(out, FINE, "%s, cache in %s", info.program, info.folder);
    }
}

/* Backends that this machine lacks are no fault: the table says what they would need. */
static void look_at_backends(finding *out)
{
    size_t used = 0;
    weft_backend_info info;
    out->verdict = FINE;
    for (int i = 0; i < weft_backend_count() && weft_backend_describe(i, &info) == WEFT_OK; i++)
        if (info.usable && strcmp(info.name, "fake") && used < sizeof out->text)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s",
                                     used ? ", " : "", info.name);
    advise(out, "weft info says of each other one why it is not usable.");
}

/* ---- trials ---- */

enum { ROUNDS = 200, TRIAL_MS = 20000 };

/* One of two ranks: shares a page with the other, signals, and sums. */
static int rank_of_trial(int number, void *argument)
{
    (void)argument;
    weft_group *world = weft_init(NULL);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1024)), world);
    int32_t *mine = weft_symm_buffer_ptr(mem, number), *theirs = weft_symm_buffer_ptr(mem, !number);
    int right = mine && theirs;
    for (int i = 0; right && i < ROUNDS; i++) {
        mine[0] = i;
        right = weft_symm_barrier(mem, 0, TRIAL_MS) == WEFT_OK && theirs[0] == i &&
                weft_symm_barrier(mem, 1, TRIAL_MS) == WEFT_OK;
    }
    int32_t sum = number + 1;
    right = right && weft_all_reduce_ptr(&sum, &sum, 1, WEFT_I32, WEFT_SUM, world) == WEFT_OK &&
            sum == 3;
    int status = weft_finish(world);
    return status ? status : !right;
}

static void try_ranks(finding *out)
{
    weft_launch_end end;
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = 2;
    opts.body = rank_of_trial;
    opts.timeout_ms = 3 * TRIAL_MS;
    opts.end = &end;
    int status = weft_launch(&opts);
    if (status == 0) {
        say(out, FINE, "two processes met, shared memory, signalled %d times and agreed on a sum",
            2 * ROUNDS);
    } else {
        say(out, BROKEN, "two processes could not share memory: %s",
            status < 0 ? weft_last_error() : "what they said stands above");
        advise(out,
               "Nothing else will work before this does. WEFT_DEBUG=INFO weft doctor says more; "
               "in a container, look for a seccomp profile without memfd_create.");
    }
}

/* A store on the loopback interface, as jobs on several hosts meet, with a secret of its own. */
static void try_store(finding *out)
{
    static const char token[] = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
    weft_store *server = weft_store_tcp_serve("127.0.0.1", 0, token);
    int port = weft_store_port(server);
    weft_store *client = weft_store_tcp_connect("127.0.0.1", port, token, 5000);
    if (client && weft_store_set(client, "doctor", "here", 4) == WEFT_OK) {
        say(out, FINE, "a store answers over the loopback interface");
    } else {
        say(out, NOTE, "a store over TCP: %s", weft_last_error());
        advise(out,
               "Only jobs on several hosts need it, and programs that open stores of their own. "
               "It takes OpenSSL's libcrypto (apt-get install libssl3) and a loopback interface.");
    }
    weft_clear_error();
    weft_release(client);
    weft_release(server);
}

/* ---- the command ---- */

static const check checks[] = {
    {"two ranks", try_ranks},
    {"store over TCP", try_store},
    {"cores", look_at_cores},
    {"clock", look_at_clock},
    {"memory", look_at_memory},
    {"huge pages", look_at_huge_pages},
    {"copies by the kernel", look_at_copies},
    {"open files", look_at_descriptors},
    {"locked memory", look_at_locked_memory},
    {"matrix products", look_at_products},
    {"compiler", look_at_compiler},
    {"backends", look_at_backends},
};
enum { CHECKS = sizeof checks / sizeof *checks };

static void print_finding(const char *name, const finding *found)
{
    printf("  %-8s%-24s%s\n", words[found->verdict], name, found->text);
    if (*found->advice)
        printf("  %-8s%-24s  %s\n", "", "", found->advice);
    fflush(stdout);
}

static void json_finding(weft_i_json *j, const char *name, const finding *found)
{
    weft_i_json_open(j, NULL, '{');
    weft_i_json_text(j, "check", name);
    weft_i_json_text(j, "verdict", words[found->verdict]);
    weft_i_json_text(j, "finding", found->text);
    weft_i_json_text(j, "advice", *found->advice ? found->advice : NULL);
    weft_i_json_close(j);
}

/* Runs all checks.  1 if one found something broken, or what was written is lost. */
static int examine(int as_json)
{
    weft_i_json j;
    int counts[4] = {0}, lost = 0;
    if (as_json) {
        weft_i_json_begin(&j, STDOUT_FILENO, 1);
        weft_i_json_open(&j, NULL, '[');
    }
    for (int i = 0; i < CHECKS; i++) {
        finding found = {0};
        checks[i].look(&found);
        counts[found.verdict]++;
        if (as_json)
            json_finding(&j, checks[i].name, &found);
        else
            print_finding(checks[i].name, &found);
    }
    if (as_json) {
        weft_i_json_close(&j);
        lost = json_finish(&j);
    } else {
        printf("%d checks: %d broken, %d slow, %d to know\n", CHECKS, counts[BROKEN], counts[SLOW],
               counts[NOTE]);
    }
    return counts[BROKEN] || lost;
}

static int set_json(void *into, const char *text, long number)
{
    (void)text;
    (void)number;
    *(int *)into = 1;
    return 1;
}

static int run(int argc, char **argv)
{
    int as_json = 0;
    char **operands = calloc((size_t)argc + 1, sizeof *operands);
    int status =
        operands ? command_read(&weft_command_doctor, argc, argv, &as_json, operands, NULL) : 1;
    if (status == COMMAND_GOES_ON && operands[0])
        status = command_wrong(&weft_command_doctor, "it takes no words, not \"%s\"", operands[0]);
    free(operands);
    if (status != COMMAND_GOES_ON)
        return status;
    return examine(as_json);
}

static const command_option options[] = {
    {.name = "json", .text = "one JSON array, for programs", .set = set_json},
    {0},
};

const subcommand weft_command_doctor = {
    .name = "doctor",
    .text = "checks whether this machine lets weft work, and work fast",
    .usage = "[--json]",
    .about =
        "Tries what can be tried, looks at the rest, and says what to do: two ranks that share "
        "memory, a store over TCP, cores, the clock, memory, pages, limits, the BLAS, the "
        "compiler, backends. It changes nothing.",
    .options = options,
    .exits = "0, or 1 if something is broken. What is only slow, or good to know, is no failure.",
    .run = run,
};
