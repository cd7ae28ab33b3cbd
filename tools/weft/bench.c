/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench`: what things cost on this machine, beside the floor measured in the same run. */
#include "bench.h"
#include "bench_device.h"
#include "bench_options.h"
#include "bench_overhead.h"
#include "bench_peers.h"
#include "bench_report.h"
#include "bench_start.h"
#include "bench_table.h"
#include "bench_tune.h"
#include "command.h"
#include "json.h"

#include <weft/weft.h>

#include <errno.h>
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
    {"fused", bench_fused,
     "products fused with all_gather and reduce_scatter, beside the product alone"},
    {"op", bench_op, "operations on tensors, beside copying the bytes, and PyTorch where it is"},
    {"compile", bench_compile,
     "compiled graphs, beside copying the bytes, eager, and PyTorch where it is"},
    {"train", bench_train,
     "a step of a small GPT, beside its matrix products, and PyTorch where it is"},
    {"checkpoint", bench_checkpoint,
     "256 MiB saved and loaded by 1, 2 and 4 ranks, beside writing and reading the bytes"},
    {"model", bench_model_run,
     "steps of a GPT-2 of any size (--model), eager, compiled, and PyTorch where it is"},
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
    opts.flags = WEFT_LAUNCH_NO_CAPTURE;
    opts.body = body;
    opts.arg = arg;
    return bench_start(&opts);
}

int64_t bench_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_own_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int bench_turns(const bench_style *style, int most)
{
    const bench_options *options = style->options;
    return options->repeated && options->repeats < most ? options->repeats : most;
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

static int find(const char *name)
{
    for (int i = 0; i < BENCHES; i++)
        if (!strcmp(benches[i].name, name))
            return i;
    return -1;
}

/* Small measurements first, then the collectives; `barrier` is both. */
static const char *bench_word(int index, const char **text)
{
    static const char *const texts[PLAN_OPS] = {
        [PLAN_ALL_REDUCE] = "every rank has a vector and gets the sum of all",
        [PLAN_ALL_GATHER] = "every rank has a part and gets all parts",
        [PLAN_REDUCE_SCATTER] = "every rank has a vector and gets a part of the sum",
        [PLAN_ALL_TO_ALL] = "every rank has a part for every rank",
        [PLAN_BROADCAST] = "one rank's vector goes to all",
        [PLAN_REDUCE] = "one rank gets the sum of all vectors",
        [PLAN_GATHER] = "one rank gets a part of every rank",
        [PLAN_SCATTER] = "one rank has a part for every rank",
        [PLAN_SEND_RECV] = "every rank sends to the next, round a ring",
        [PLAN_BARRIER] = "nobody goes on before all are there",
    };
    *text = NULL;
    if (index < BENCHES) {
        *text = benches[index].text;
        return benches[index].name;
    }
    for (int op = 0, at = BENCHES; op < PLAN_OPS; op++)
        if (find(plan_op_name(op)) < 0 && at++ == index) {
            *text = texts[op];
            return plan_op_name(op);
        }
    return NULL;
}

static const char *name_of(const void *unused, int index)
{
    const char *text;
    (void)unused;
    return bench_word(index, &text);
}

static int unknown(const char *word)
{
    const char *guess = command_nearest(word, name_of, NULL);
    if (guess)
        return command_wrong(&weft_command_bench,
                             "there is nothing called \"%s\".  Did you mean \"%s\"?", word, guess);
    return command_wrong(&weft_command_bench, "there is nothing called \"%s\"", word);
}

/* The small measurements: those named, or all of them. */
static int run_small(const bench_options *options, char *const *names)
{
    bench_style style;
    int wanted[BENCHES] = {0}, named = 0, failed = 0;
    for (; *names; names++) {
        int which = find(*names);
        if (which < 0) {
            return unknown(*names);
        }
        wanted[which] = named = 1;
    }
    if (options->ops)
        wanted[find("barrier")] = named = 1;
    bench_style_open(&style, options->json);
    style.options = options;
    for (int i = 0; i < BENCHES; i++)
        if (wanted[i] || !named)
            failed |= benches[i].run(&style);
    failed |= bench_style_close(&style);
    return failed ? 1 : 0;
}

/* On a GPU: products that are fused with collectives, or collectives. */
static int run_on_device(const bench_options *options, char *const *names)
{
    if (!*names)
        return bench_device(options);
    if (strcmp(*names, "fused") != 0 || names[1]) {
        fprintf(stderr, "weft bench: --device cuda has collectives, or `fused`; not \"%s\"\n",
                strcmp(*names, "fused") != 0 ? *names : names[1]);
        return 2;
    }
    bench_style style = {.is_json = options->json, .options = options};
    if (options->json)
        bench_style_open(&style, 1);
    int failed = bench_fused(&style);
    return bench_style_close(&style) || failed ? 1 : 0;
}

/* `barrier` alone, and nothing at all, are small measurements unless an option of sweeps is given.
 */
static int wants_sweep(const bench_options *options, char *const *names)
{
    if (*names)
        return 0;
    if (options->sweep || options->plot || options->compare || options->save)
        return 1;
    return options->ops > 1 || (options->ops == 1 && options->op[0] != PLAN_BARRIER);
}

/* Can the file be written?  One that was not there is taken away again. */
static int check_file(const char *path)
{
    int there = access(path, F_OK) == 0;
    FILE *file = fopen(path, "ab");
    if (!file) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", path, strerror(errno));
        return 1;
    }
    fclose(file);
    if (!there)
        unlink(path);
    return 0;
}

static int check_old(const char *path)
{
    bench_report old = {0};
    int status = bench_report_read(&old, path) < 0;
    bench_report_free(&old);
    return status;
}

/* What cannot be drawn, saved or compared is refused before minutes of measuring. */
static int check_outputs(const bench_options *options)
{
    if (options->plot && bench_plot_refuses(options->plot))
        return 1;
    return (options->plot && check_file(options->plot)) ||
           (options->save && check_file(options->save)) ||
           (options->compare && check_old(options->compare));
}

/* The option that wants figures of collectives; NULL: none was given. */
static const char *wants_figures(const bench_options *options)
{
    return options->plot      ? "--plot"
           : options->save    ? "--save"
           : options->compare ? "--compare"
           : options->csv     ? "--csv"
                              : NULL;
}

/* Options that would be passed over, or ask for what cannot be: the exit status after a message,
 * or 0. */
static int check_meaning(const bench_options *options, char *const *names)
{
    const char *option = wants_figures(options);
    const char *other = *names              ? *names
                        : options->overhead ? "--overhead"
                        : options->tune     ? "--tune"
                        : options->device   ? "--device"
                                            : NULL;
    int sizeless = options->ops == 1 && options->op[0] == PLAN_BARRIER;
    if (*names && (options->from || options->peers || options->tune || options->overhead))
        return command_wrong(&weft_command_bench, "\"%s\" is no collective", *names);
    if (options->from && (options->save || options->json || !option))
        return command_wrong(&weft_command_bench,
                             "--from takes up figures for --plot, --compare or --csv");
    if (option && other)
        return command_wrong(&weft_command_bench, "%s is for sweeps of collectives, not for %s",
                             option, other);
    if (options->peers_from && !options->peers)
        return command_wrong(&weft_command_bench, "--peers-from is for --peers");
    if (options->plot && !options->from && sizeless)
        return command_wrong(&weft_command_bench, "--plot draws time over size, and a barrier has "
                                                  "no size");
    return 0;
}

static int measure(const bench_options *options, char *const *names)
{
    int wrong = check_meaning(options, names);
    if (wrong)
        return wrong;
    if (check_outputs(options))
        return 1;
    if (options->from)
        return bench_replay(options);
    if (options->peers)
        return bench_peers(options);
    if (options->device)
        return run_on_device(options, names);
    if (options->tune)
        return bench_tune(options);
    if (options->overhead)
        return bench_overhead(options);
    return wants_sweep(options, names) ? bench_collectives(options) : run_small(options, names);
}

static int run(int argc, char **argv)
{
    /* How `weft bench launch` starts its ranks; nothing for users. */
    if (argc == 2 && !strcmp(argv[1], "--launched-rank"))
        return bench_launch_rank();
    bench_options options;
    char **names = calloc((size_t)argc + 1, sizeof *names);
    if (!names)
        return 1;
    int status = bench_options_read(&options, argc, argv, names);
    if (status == COMMAND_GOES_ON)
        status = measure(&options, names);
    free(names);
    return status;
}

const subcommand weft_command_bench = {
    .name = "bench",
    .text = "what things cost on this machine, beside their floors [--json]",
    .usage = "[NAME ...] [--json]\n"
             "COLLECTIVE ... [options]\n"
             "--peers [COLLECTIVE ...] [options]\n"
             "--tune FILE [COLLECTIVE ...] [-n RANKS] [--device cuda]\n"
             "--overhead [--json]",
    .about = "Measures collectives over sizes, as nccl-tests does.  Without a name, and with those "
             "below that are no collectives, small measurements beside their floors.  `barrier` is "
             "a collective with any option of sweeps, such as -n.",
    .options = bench_options_table,
    .word = bench_word,
    .words = "Names",
    .after = "docs/bench.md tells how it measures and how to read it.",
    .exits = "0; 1 when an element came out wrong, something could not be measured or written, or "
             "was slower than --threshold allows; 2 wrong use.",
    .run = run,
};
