/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: running a body in forked ranks, memory to report through, medians, and
 * how rows are printed. */
#ifndef WEFT_TOOLS_BENCH_H
#define WEFT_TOOLS_BENCH_H

#include "base/report/json.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_SAMPLES = 512, BENCH_RANKS = 64 };

/* Lies in memory that the ranks and the command share. */
typedef struct bench_board {
    _Atomic int64_t when; /* a moment that ranks compare with: ns of the monotonic clock */
    _Atomic int failed;   /* a rank could not do its part */
    double sample[BENCH_RANKS][BENCH_SAMPLES]; /* by rank */
    struct {
        _Alignas(128) _Atomic uint64_t epoch;
    } flag[BENCH_RANKS]; /* for floors: one line per rank, written by it alone */
} bench_board;

/* How the rows of a benchmark are printed: as lines, or as an array of JSON. */
typedef struct bench_style {
    int is_json;
    const struct bench_options *options; /* what was asked for */
    weft_i_json json;
} bench_style;

bench_board *bench_board_new(void);
void bench_board_free(bench_board *board);

/* Runs `body` in `ranks` forked processes; 0, or how the first failure ended. */
int bench_ranks(int ranks, int (*body)(int rank, void *arg), void *arg);

int64_t bench_ns(void);
/* Time that this thread has had a core, for what one thread does: other programs do not count. */
int64_t bench_own_ns(void);
double bench_quantile(double *values, int count, double quantile); /* sorts */

/* How many turns things take: `most`, or as many as --repeats says where that is fewer. */
int bench_turns(const bench_style *style, int most);

/* Before the first row and after the last: the machine and the heads of the columns, or brackets.
 * The last returns 1 if what was printed is lost. */
void bench_style_open(bench_style *style, int is_json);
int bench_style_close(bench_style *style);

/* Prints one result: name, ranks, value in `unit`, and its floor (0: none) with the ratio. */
void bench_row(bench_style *style, const char *name, int ranks, const char *unit, double value,
               double floor);

int bench_barrier(bench_style *style);
int bench_model_run(bench_style *style);
int bench_read(bench_style *style);
int bench_death(bench_style *style);
int bench_kill(bench_style *style);
int bench_launch(bench_style *style);
int bench_overlap(bench_style *style);
int bench_fused(bench_style *style);
int bench_op(bench_style *style);
int bench_compile(bench_style *style);
int bench_train(bench_style *style);
int bench_checkpoint(bench_style *style);

/* What a started rank of bench_launch does. */
int bench_launch_rank(void);

#endif
