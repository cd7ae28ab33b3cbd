/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the thresholds between algorithms on this machine.  At every size two ways are measured by
 * turns: eager or in place, with symmetric operands; eager or in pieces, with ordinary ones; in
 * pieces or copied by the kernel.  The threshold taken makes the product of all times least, so
 * that a cma disturbed size does not move it far.
 */
#include "bench_tune.h"

#include "bench_sweep.h"

#include <weft/weft.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LEAST = 1 << 10 }; /* below, data travels with the arrival word */

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

/* Measures one operation and writes its line; 0, or 1 after a message. */
static int tune_one(bench_options *options, int op, FILE *out)
{
    const char *name = plan_op_name(op);
    thresholds found;
    if (find_eager(options, op, &found) || find_cma(options, op, &found))
        return 1;
    fprintf(out, "%-16s %3d %8zu %8zu %zu\n", name, options->ranks, found.eager, found.direct,
            found.cma);
    printf(" %-16s %5d %10zu %10zu %10zu %10zu %12zd %12zd\n", name, options->ranks,
           weft_tune_get(WEFT_TUNE_EAGER, name, options->ranks), found.eager,
           weft_tune_get(WEFT_TUNE_ZERO_COPY, name, options->ranks), found.direct,
           (ssize_t)weft_tune_get(WEFT_TUNE_CMA, name, options->ranks), (ssize_t)found.cma);
    fflush(stdout);
    return 0;
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
    fprintf(out, "# op, ranks, bytes up to which ordinary and symmetric operands are eager, bytes "
                 "from which the kernel copies; for WEFT_TUNE\n");
    printf("# eager, ordinary and symmetric operands, up to; copied by the kernel from: bytes, so "
           "far and as measured (-1: never)\n#%-16s %5s %10s %10s %10s %10s %12s %12s\n",
           "op", "ranks", "eager", "measured", "symmetric", "measured", "cma", "measured");
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
