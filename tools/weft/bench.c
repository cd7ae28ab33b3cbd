/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench`: what things cost on this machine, beside the floor measured in the same run. */
#include "bench.h"
#include "bench_device.h"
#include "bench_options.h"
#include "bench_overhead.h"
#include "bench_peers.h"
#include "bench_report.h"
#include "bench_table.h"
#include "bench_tune.h"
#include "command.h"
#include "json.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(bench_style *style);
    const char *text;
} benches[] = {
    {"barrier", bench_barrier, "a barrier of 2, 4 and 8 ranks, beside bare flags in shared memory"},
    {"read", bench_read, "reading a peer's buffer, beside reading one's own"},
    {"death", bench_death, "from kill -9 of a rank to the error at the others"},
    {"kill", bench_kill, "the same for 1,000 kills at any moment of any operation"},
    {"launch", bench_launch,
     "4 ranks: start, first barrier, exit; beside an empty fork and exit of 4 processes"},
    {"overlap", bench_overlap,
     "an all_reduce of 64 MiB behind matrix products: how much is hidden"},
    {"op", bench_op, "operations on tensors, beside copying the bytes, and PyTorch where it is"},
    {"compile", bench_compile,
     "compiled graphs, beside copying the bytes, eager, and PyTorch where it is"},
    {"train", bench_train,
     "a step of a small GPT, beside its matrix products, and PyTorch where it is"},
};

enum { BENCHES = sizeof benches / sizeof *benches };

bench_board *bench_board_new(void)
{
    bench_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? NULL : board;
}

void bench_board_free(bench_board *board)
{
    munmap(board, sizeof *board);
}

int bench_ranks(int ranks, int (*body)(int rank, void *arg), void *arg)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = ranks;
    opts.flags = WEFT_LAUNCH_QUIET | WEFT_LAUNCH_NO_CAPTURE | WEFT_LAUNCH_SIGNALS;
    opts.body = body;
    opts.arg = arg;
    return weft_launch(&opts);
}

int64_t bench_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_quantile(double *values, int count, double quantile)
{
    if (count <= 0)
        return 0;
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[(int)(quantile * (count - 1) + 0.5)];
}

void bench_row(bench_style *style, const char *name, int ranks, const char *unit, double value,
               double floor)
{
    if (style->is_json) {
        weft_i_json_open(&style->json, NULL, '{');
        weft_i_json_text(&style->json, "name", name);
        weft_i_json_integer(&style->json, "ranks", ranks);
        weft_i_json_text(&style->json, "unit", unit);
        weft_i_json_real(&style->json, "value", value, 4);
        if (floor > 0) {
            weft_i_json_real(&style->json, "floor", floor, 4);
            weft_i_json_real(&style->json, "ratio", value / floor, 3);
        }
        weft_i_json_close(&style->json);
        return;
    }
    printf("%-28s %5d  %10.3f %-4s", name, ranks, value, unit);
    if (floor > 0)
        printf("  %10.3f  %6.2f", floor, value / floor);
    printf("\n");
    fflush(stdout);
}

static void print_heads(void)
{
    struct utsname host;
    uname(&host);
    printf("# weft %s on %s %s, %ld cores\n", weft_version(), host.machine, host.release,
           sysconf(_SC_NPROCESSORS_ONLN));
    printf("%-28s %5s  %10s %-4s  %10s  %6s\n", "what", "ranks", "value", "", "floor", "ratio");
}

void bench_style_open(bench_style *style, int is_json)
{
    style->is_json = is_json;
    if (!is_json) {
        print_heads();
        return;
    }
    weft_i_json_begin(&style->json, STDOUT_FILENO, 1);
    weft_i_json_open(&style->json, NULL, '[');
}

int bench_style_close(bench_style *style)
{
    if (!style->is_json)
        return 0;
    weft_i_json_close(&style->json);
    return json_finish(&style->json);
}

static int usage(FILE *out)
{
    fprintf(out,
            "usage: weft bench [read|death|kill|launch|barrier|overlap|op|train] [--json]\n"
            "       weft bench COLLECTIVE ... [options]\n"
            "       weft bench --peers [COLLECTIVE ...] [options]\n"
            "       weft bench --tune FILE [COLLECTIVE ...] [-n RANKS]\n"
            "       weft bench --overhead [--json]\n"
            "\n"
            "Without a name, and with the names above, small measurements beside their floors:\n");
    for (int i = 0; i < BENCHES; i++)
        fprintf(out, "  %-20s %s\n", benches[i].name, benches[i].text);
    fprintf(out, "\nCollectives (`barrier` is one with any of the options below but --json):\n ");
    for (int op = 0; op < PLAN_OPS; op++)
        fprintf(out, " %s", plan_op_name(op));
    fprintf(out, "\n\n");
    bench_options_help(out);
    fprintf(out, "\ndocs/bench.md tells how it measures and how to read it.\n");
    return out == stdout ? 0 : 2;
}

static int find(const char *name)
{
    for (int i = 0; i < BENCHES; i++)
        if (!strcmp(benches[i].name, name))
            return i;
    return -1;
}

/* The small measurements: those named, or all of them. */
static int run_small(const bench_options *options, const char *const *names)
{
    bench_style style;
    int wanted[BENCHES] = {0}, named = 0, failed = 0;
    for (; *names; names++) {
        int which = find(*names);
        if (which < 0) {
            fprintf(stderr, "weft bench: there is nothing called \"%s\"\n", *names);
            return usage(stderr);
        }
        wanted[which] = named = 1;
    }
    if (options->ops)
        wanted[find("barrier")] = named = 1;
    bench_style_open(&style, options->json);
    for (int i = 0; i < BENCHES; i++)
        if (wanted[i] || !named)
            failed |= benches[i].run(&style);
    failed |= bench_style_close(&style);
    return failed ? 1 : 0;
}

/* `barrier` alone, and nothing at all, are small measurements unless an option of sweeps is given.
 */
static int wants_sweep(const bench_options *options, const char *const *names)
{
    if (*names)
        return 0;
    if (options->sweep || options->plot || options->compare || options->save)
        return 1;
    return options->ops > 1 || (options->ops == 1 && options->op[0] != PLAN_BARRIER);
}

int weft_cmd_bench(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--launched-rank"))
            return bench_launch_rank();
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return usage(stdout);
    }
    bench_options options;
    const char **names = calloc((size_t)argc + 1, sizeof *names);
    if (!names)
        return 1;
    int status = bench_options_read(&options, argc, argv, names);
    if (status == 0) {
        if (options.from)
            status = bench_replay(&options);
        else if (options.peers)
            status = bench_peers(&options);
        else if (options.tune)
            status = bench_tune(&options);
        else if (options.device)
            status = bench_device(&options);
        else if (options.overhead)
            status = bench_overhead(&options);
        else if (wants_sweep(&options, names))
            status = bench_collectives(&options);
        else
            status = run_small(&options, names);
    }
    free(names);
    return status;
}
