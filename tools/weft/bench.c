/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench`: what things cost on this machine, beside the floor measured in the same run. */
#include "bench.h"
#include "command.h"

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
    {"launch", bench_launch,
     "4 ranks: start, first barrier, exit; beside an empty fork and exit of 4 processes"},
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
    if (style->json) {
        printf("%s{\"name\": \"%s\", \"ranks\": %d, \"unit\": \"%s\", \"value\": %.4g",
               style->rows ? ",\n  " : "[\n  ", name, ranks, unit, value);
        if (floor > 0)
            printf(", \"floor\": %.4g, \"ratio\": %.3g", floor, value / floor);
        printf("}");
    } else {
        printf("%-28s %5d  %10.3f %-4s", name, ranks, value, unit);
        if (floor > 0)
            printf("  %10.3f  %6.2f", floor, value / floor);
        printf("\n");
    }
    style->rows++;
    fflush(stdout);
}

static void print_header(void)
{
    struct utsname host;
    uname(&host);
    printf("# weft %s on %s %s, %ld cores\n", weft_version(), host.machine, host.release,
           sysconf(_SC_NPROCESSORS_ONLN));
    printf("%-28s %5s  %10s %-4s  %10s  %6s\n", "what", "ranks", "value", "", "floor", "ratio");
}

static int usage(FILE *out)
{
    fprintf(out, "usage: weft bench [--json] [name ...]\n\nWithout a name all of them run:\n");
    for (int i = 0; i < BENCHES; i++)
        fprintf(out, "  %-8s %s\n", benches[i].name, benches[i].text);
    return out == stdout ? 0 : 2;
}

static int find(const char *name)
{
    for (int i = 0; i < BENCHES; i++)
        if (!strcmp(benches[i].name, name))
            return i;
    return -1;
}

int weft_cmd_bench(int argc, char **argv)
{
    bench_style style = {0};
    int wanted[BENCHES] = {0}, named = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--launched-rank"))
            return bench_launch_rank();
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return usage(stdout);
        if (!strcmp(argv[i], "--json")) {
            style.json = 1;
            continue;
        }
        int which = find(argv[i]);
        if (which < 0)
            return usage(stderr);
        wanted[which] = named = 1;
    }
    if (!style.json)
        print_header();
    for (int i = 0; i < BENCHES; i++)
        if (wanted[i] || !named)
            failed |= benches[i].run(&style);
    if (style.json)
        printf(style.rows ? "\n]\n" : "[]\n");
    return failed ? 1 : 0;
}
