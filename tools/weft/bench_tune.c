/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the thresholds between algorithms on this machine.  At every size both algorithms are
 * measured by turns, with ordinary and with symmetric operands, which share one threshold; the
 * threshold taken makes the product of all times least, so that a single disturbed size does not
 * move it far.
 */
#include "bench_tune.h"

#include "bench_sweep.h"

#include <weft/weft.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LEAST = 64 }; /* below, data travels with the arrival word */

/* The operations that have thresholds. */
static int tunable(int op)
{
    return op != PLAN_BARRIER && op != PLAN_SEND_RECV;
}

/* Thresholds count what one rank shows: its input, which of a gathered size is a part. */
static void choose_sizes(bench_options *options, int op)
{
    uint64_t pieces = op == PLAN_ALL_GATHER || op == PLAN_GATHER ? (uint64_t)options->ranks : 1;
    options->sizes = 0;
    for (uint64_t bytes = LEAST; bytes <= BENCH_STAGED_MOST; bytes *= 2)
        options->size[options->sizes++] = bytes * pieces;
}

/* The log of the time of both kinds of operands at a row: columns `first` and `first` + 2. */
static double cost(const bench_sweep *sweep, int row, int first)
{
    bench_figure plain, symm;
    if (!bench_figure_of(sweep->board, row, first, &plain) ||
        !bench_figure_of(sweep->board, row, first + 2, &symm))
        return 0;
    return log(fmax(plain.p50, 0.01)) + log(fmax(symm.p50, 0.01));
}

/* The largest staged size for which staging up to it and not beyond costs least. */
static uint64_t best_threshold(const bench_sweep *sweep)
{
    int rows = sweep->board->rows;
    double total = 0, least;
    uint64_t threshold = 0;
    for (int row = 0; row < rows; row++)
        total += cost(sweep, row, 1);
    least = total;
    for (int row = 0; row < rows; row++) {
        total += cost(sweep, row, 0) - cost(sweep, row, 1);
        if (total < least) {
            least = total;
            threshold = sweep->board->row[row].what.in_bytes;
        }
    }
    return threshold;
}

/* Measures one operation and writes its line; 0, or 1 after a message. */
static int tune_one(bench_options *options, int op, FILE *out)
{
    bench_sweep sweep;
    choose_sizes(options, op);
    if (bench_sweep_open(&sweep, options, op) < 0)
        return 1;
    for (int kind = BENCH_PLAIN; kind <= BENCH_SYMM; kind++) {
        bench_sweep_add(&sweep, (bench_kind)kind, 0, BENCH_STAGED_MOST);
        bench_sweep_add(&sweep, (bench_kind)kind, 0, 0);
    }
    int status = bench_sweep_run(&sweep);
    if (!status) {
        uint64_t threshold = best_threshold(&sweep);
        fprintf(out, "%-16s %3d %8llu\n", plan_op_name(op), options->ranks,
                (unsigned long long)threshold);
        printf(" %-16s %5d %10zu %10llu\n", plan_op_name(op), options->ranks,
               weft_tune_staged(plan_op_name(op), options->ranks), (unsigned long long)threshold);
        fflush(stdout);
    }
    bench_sweep_close(&sweep);
    return status;
}

static int tune_ranks(bench_options *options, FILE *out)
{
    int status = 0;
    for (int i = 0; i < (options->ops ? options->ops : PLAN_OPS); i++) {
        int op = options->ops ? options->op[i] : i;
        if (tunable(op))
            status |= tune_one(options, op, out);
    }
    return status;
}

int bench_tune(const bench_options *options)
{
    static const int usual[] = {2, 4, 8, 16};
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), status = 0;
    FILE *out = fopen(options->tune, "w");
    if (!out) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", options->tune, strerror(errno));
        return 1;
    }
    bench_options mine = *options;
    bench_print_machine(out, 0, "");
    bench_print_machine(stdout, 0, "");
    fprintf(out, "# op, ranks, bytes of the largest staged operand; for WEFT_TUNE\n");
    printf("# the largest staged operand, bytes\n#%-16s %5s %10s %10s\n", "op", "ranks", "so far",
           "measured");
    for (int i = 0; i < 4 && !options->ranks; i++) {
        mine.ranks = usual[i];
        if (usual[i] <= 8 || usual[i] <= cores) /* no more ranks than anybody would run here */
            status |= tune_ranks(&mine, out);
    }
    if (options->ranks)
        status |= tune_ranks(&mine, out);
    if (fclose(out) != 0) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", options->tune, strerror(errno));
        status = 1;
    }
    return status;
}
