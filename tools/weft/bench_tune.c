/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the thresholds between algorithms on this machine.  At every size two ways are measured by
 * turns: eager or in place, with symmetric operands; eager or in pieces, with ordinary ones; in
 * pieces or copied by the kernel; whole or by slices, pushed or pulled.  The threshold taken makes the product of all times least, so
 * that a cma disturbed size does not move it far.
 */
#include "bench_tune.h"

#include "bench_sweep.h"

#include <weft/weft.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LEAST = 1 << 10 }; /* below, data travels with the arrival word */

/* Numbers of ranks that are measured if none is asked for, one of each column of the table. */
enum { USUAL = 4 };
static const int usual[USUAL] = {2, 4, 8, 16};

/* No more ranks than anybody would run here. */
static int is_run(const bench_options *options, int ranks)
{
    return options->ranks ? ranks == options->ranks
                          : ranks <= 8 || ranks <= (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The operations that have thresholds. */
static int tunable(int op)
{
    return op != PLAN_BARRIER && op != PLAN_SEND_RECV;
}

/* Thresholds count what one rank shows: its input, which of a gathered size is a part. */
static void choose_sizes(bench_options *options, int op, uint64_t least, uint64_t most, int factor)
{
    uint64_t pieces = op == PLAN_ALL_GATHER || op == PLAN_GATHER ? (uint64_t)options->ranks : 1;
    options->sizes = 0;
    for (uint64_t bytes = least; bytes <= most; bytes *= (uint64_t)factor)
        options->size[options->sizes++] = bytes * pieces;
}

static double cost(const bench_sweep *sweep, int row, int column)
{
    bench_figure figure;
    return bench_figure_of(sweep->board, row, column, &figure) ? log(fmax(figure.p50, 0.01)) : 0;
}

/* How many rows the first column should have, and `second` the others, so that it costs least. */
static int best_border(const bench_sweep *sweep, int first, int second)
{
    int rows = sweep->board->rows, border = 0;
    double total = 0, least;
    for (int row = 0; row < rows; row++)
        total += cost(sweep, row, second);
    least = total;
    for (int row = 0; row < rows; row++) {
        total += cost(sweep, row, first) - cost(sweep, row, second);
        if (total < least) {
            least = total;
            border = row + 1;
        }
    }
    return border;
}

/* The largest operand of the first rows. */
static size_t up_to(const bench_sweep *sweep, int rows)
{
    return rows ? (size_t)sweep->board->row[rows - 1].what.in_bytes : 0;
}

/* Bytes from one rank to another at a row. */
static size_t transfer_at(const bench_sweep *sweep, int row)
{
    const plan_case *what = &sweep->board->row[row].what;
    return (size_t)(sweep->op == PLAN_ALL_REDUCE ? what->bytes / (uint64_t)what->ranks
                                                 : what->part);
}

typedef struct thresholds {
    size_t eager, direct, cma;
} thresholds;

static int find_eager(bench_options *options, int op, thresholds *found)
{
    bench_sweep sweep;
    choose_sizes(options, op, LEAST, BENCH_EAGER_MOST, 2);
    if (bench_sweep_open(&sweep, options, op) < 0)
        return 1;
    for (int kind = BENCH_PLAIN; kind <= BENCH_SYMM; kind++) {
        bench_sweep_add(&sweep, (bench_kind)kind, 0, BENCH_EAGER_MOST);
        bench_sweep_add(&sweep, (bench_kind)kind, 0, 0);
    }
    int status = bench_sweep_run(&sweep);
    found->eager = up_to(&sweep, best_border(&sweep, 0, 1));
    found->direct = up_to(&sweep, best_border(&sweep, 2, 3));
    bench_sweep_close(&sweep);
    return status;
}

static int find_cma(bench_options *options, int op, thresholds *found)
{
    enum { FIRST = 16 << 10, LAST = 4 << 20 };
    bench_sweep sweep;
    choose_sizes(options, op, FIRST, LAST, 4);
    if (bench_sweep_open(&sweep, options, op) < 0)
        return 1;
    bench_sweep_add_cma(&sweep, 0, INT64_MAX);
    bench_sweep_add_cma(&sweep, 0, 0);
    int status = bench_sweep_run(&sweep), border = best_border(&sweep, 0, 1);
    found->cma = border < sweep.board->rows ? transfer_at(&sweep, border) : SIZE_MAX;
    bench_sweep_close(&sweep);
    return status;
}

/* A line as weft_tune_load reads it; ranks 0: any number. */
static void write_text(FILE *out, const char *op, int ranks, const char *decision,
                       const char *value)
{
    char many[16] = "*";
    if (ranks)
        snprintf(many, sizeof many, "%d", ranks);
    fprintf(out, "%-16s %3s %-10s %s\n", op, many, decision, value);
}

static void write_line(FILE *out, const char *op, int ranks, const char *decision, size_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    write_text(out, op, ranks, decision, text);
}

/* What is decided once for any number of ranks: the least and the most that any has found. */
typedef struct any_ranks {
    size_t fold_whole, push;
    int has_fold, has_push;
} any_ranks;

/* Up to which size the first way of a decision pays with symmetric operands. */
static int find_decided(bench_options *options, int op, weft_threshold which, const char *of,
                        int first_up_to, size_t *found)
{
    enum { FIRST = 1 << 10, LAST = 4 << 20 };
    bench_sweep sweep;
    choose_sizes(options, op, FIRST, LAST, 4);
    if (bench_sweep_open(&sweep, options, op) < 0)
        return 1;
    bench_sweep_add_decided(&sweep, which, of, first_up_to ? INT64_MAX : 0);
    bench_sweep_add_decided(&sweep, which, of, first_up_to ? 0 : INT64_MAX);
    int status = bench_sweep_run(&sweep);
    int border = first_up_to ? best_border(&sweep, 0, 1) : best_border(&sweep, 1, 0);
    if (first_up_to)
        *found = up_to(&sweep, border);
    else
        *found = border < sweep.board->rows ? transfer_at(&sweep, border) : SIZE_MAX;
    bench_sweep_close(&sweep);
    return status;
}

/* The operation in which a decision of any number of ranks shows. */
static int find_any_ranks(bench_options *options, int op, any_ranks *any)
{
    size_t found = 0;
    int status = 0;
    if (op == PLAN_ALL_REDUCE) {
        status = find_decided(options, op, WEFT_TUNE_FOLD_WHOLE, "all_reduce", 1, &found);
        found *= (size_t)options->ranks * (size_t)options->ranks;
        any->fold_whole = any->has_fold && any->fold_whole < found ? any->fold_whole : found;
        any->has_fold |= !status;
    } else if (op == PLAN_ALL_GATHER) {
        status = find_decided(options, op, WEFT_TUNE_PUSH, "*", 0, &found);
        any->push = any->has_push && any->push > found ? any->push : found;
        any->has_push |= !status;
    }
    return status;
}

static void write_any_ranks(FILE *out, const any_ranks *any)
{
    if (any->has_fold) {
        write_line(out, "all_reduce", 0, "fold_whole", any->fold_whole);
        printf("# all_reduce fold_whole %zu bytes x ranks x ranks, measured %zu\n",
               weft_tune_get(WEFT_TUNE_FOLD_WHOLE, "all_reduce", 2), any->fold_whole);
    }
    if (any->has_push) {
        write_line(out, "*", 0, "push", any->push);
        printf("# push %zd bytes, measured %zd\n", (ssize_t)weft_tune_get(WEFT_TUNE_PUSH, "*", 2),
               (ssize_t)any->push);
    }
}

/* Whether the run has found a decision for that many ranks. */
static int was_measured(const bench_options *options, const any_ranks *any,
                        const weft_tune_decision *d, int ranks)
{
    if (d->which == WEFT_TUNE_FOLD_WHOLE || d->which == WEFT_TUNE_PUSH)
        return d->which == WEFT_TUNE_PUSH ? any->has_push : any->has_fold;
    if (d->which != WEFT_TUNE_EAGER && d->which != WEFT_TUNE_ZERO_COPY && d->which != WEFT_TUNE_CMA)
        return 0;
    for (int i = 0; i < (options->ops ? options->ops : PLAN_OPS); i++) {
        int op = options->ops ? options->op[i] : i;
        if (tunable(op) && !strcmp(plan_op_name(op), d->op))
            return is_run(options, ranks);
    }
    return 0;
}

/* The value as files have it. */
static const char *value_text(const weft_tune_decision *d, char text[24])
{
    if (d->value == SIZE_MAX || d->value == 0)
        return (d->value == 0) == (d->sense == WEFT_TUNE_UP_TO) ? "never" : "always";
    snprintf(text, 24, "%zu", d->value);
    return text;
}

/* All other decisions, as comments: a value that was not measured here must not look like one that was. */
static void write_unmeasured(FILE *out, const bench_options *options, const any_ranks *any)
{
    weft_tune_decision d;
    char text[24];
    fprintf(out, "# not measured here, the values in force; without its '#' a line sets one\n");
    for (int i = 0; i < weft_tune_decision_count(); i++)
        for (int n = 0; n < USUAL; n++) {
            if (weft_tune_decision_describe(i, usual[n], &d) < 0 || !d.can_be_set)
                continue;
            if ((n && d.any_ranks) || was_measured(options, any, &d, usual[n]))
                continue;
            fputs("#", out);
            write_text(out, d.op, d.any_ranks ? 0 : usual[n], d.name, value_text(&d, text));
        }
}

/* Measures one operation and writes its lines; 0, or 1 after a message. */
static int tune_one(bench_options *options, int op, any_ranks *any, FILE *out)
{
    const char *name = plan_op_name(op);
    thresholds found;
    if (find_eager(options, op, &found) || find_cma(options, op, &found) ||
        find_any_ranks(options, op, any))
        return 1;
    write_line(out, name, options->ranks, "eager", found.eager);
    write_line(out, name, options->ranks, "zero_copy", found.direct);
    write_line(out, name, options->ranks, "cma", found.cma);
    printf(" %-16s %5d %10zu %10zu %10zu %10zu %12zd %12zd\n", name, options->ranks,
           weft_tune_get(WEFT_TUNE_EAGER, name, options->ranks), found.eager,
           weft_tune_get(WEFT_TUNE_ZERO_COPY, name, options->ranks), found.direct,
           (ssize_t)weft_tune_get(WEFT_TUNE_CMA, name, options->ranks), (ssize_t)found.cma);
    fflush(stdout);
    return 0;
}

static int tune_ranks(bench_options *options, any_ranks *any, FILE *out)
{
    int status = 0;
    for (int i = 0; i < (options->ops ? options->ops : PLAN_OPS); i++) {
        int op = options->ops ? options->op[i] : i;
        if (tunable(op))
            status |= tune_one(options, op, any, out);
    }
    return status;
}

int bench_tune(const bench_options *options)
{
    int status = 0;
    FILE *out = fopen(options->tune, "w");
    if (!out) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", options->tune, strerror(errno));
        return 1;
    }
    bench_options mine = *options;
    any_ranks any = {0};
    bench_print_machine(out, 0, "");
    bench_print_machine(stdout, 0, "");
    fprintf(out, "# op, ranks, decision, bytes; for WEFT_TUNE\n");
    printf("# eager, ordinary and symmetric operands, up to; copied by the kernel from: bytes, so "
           "far and as measured (-1: never)\n#%-16s %5s %10s %10s %10s %10s %12s %12s\n",
           "op", "ranks", "eager", "measured", "symmetric", "measured", "cma", "measured");
    for (int i = 0; i < USUAL && !options->ranks; i++) {
        mine.ranks = usual[i];
        if (is_run(options, usual[i]))
            status |= tune_ranks(&mine, &any, out);
    }
    if (options->ranks)
        status |= tune_ranks(&mine, &any, out);
    write_any_ranks(out, &any);
    write_unmeasured(out, options, &any);
    if (fclose(out) != 0) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", options->tune, strerror(errno));
        status = 1;
    }
    return status;
}
