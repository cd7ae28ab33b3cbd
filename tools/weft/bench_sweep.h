/* SPDX-License-Identifier: Apache-2.0 */
/* One operation over all sizes, its contenders side by side in the same ranks. */
#ifndef WEFT_TOOLS_BENCH_SWEEP_H
#define WEFT_TOOLS_BENCH_SWEEP_H

#include "bench_floor.h"
#include "bench_options.h"
#include "bench_report.h"

#include <weft/tune.h>

typedef enum bench_kind { BENCH_PLAIN, BENCH_SYMM, BENCH_FLOOR } bench_kind;

/* What is measured in one column of the board. */
typedef struct bench_column {
    bench_kind kind;
    int in_place;
    int prototype;  /* of the floor */
    int64_t eager;  /* weft sends operands eagerly up to this size; -1: as its table says */
    int64_t cma;    /* and lets the kernel copy from this size on */
    int which;      /* another decision by size that is set, a weft_threshold; -1: none */
    const char *of; /* of which operation */
    int64_t value;
} bench_column;

typedef struct bench_sweep {
    const bench_options *options;
    int op;
    bench_column column[METER_COLUMNS];
    int columns;
    meter_board *board;
    int board_fd;
    bench_floor floor;
    size_t eager, direct; /* weft's thresholds, asked before the ranks are bound to cores */
    /* Called in rank 0 when a row is done, to show it as it comes; may be NULL. */
    void (*show)(const struct bench_sweep *sweep, int row);
} bench_sweep;

/* The number of ranks of a run, and whether they share cores. */
int bench_ranks_of(const bench_options *options);
int bench_crowded(const bench_options *options);
const char *bench_binding(const bench_options *options);

/* The plan of an operation on a new board; 0, or -1 after a message. */
int bench_sweep_open(bench_sweep *sweep, const bench_options *options, int op);
void bench_sweep_close(bench_sweep *sweep);

/* Adds a column, or all prototypes of the floor.  `eager` as in bench_column; the second with
 * `cma` as well, ordinary operands. */
void bench_sweep_add(bench_sweep *sweep, bench_kind kind, int in_place, int64_t eager);
void bench_sweep_add_cma(bench_sweep *sweep, int64_t eager, int64_t cma);

/* The same of symmetric operands that are used where they lie, with decision `which` of `of` set. */
void bench_sweep_add_decided(bench_sweep *sweep, weft_threshold which, const char *of,
                             int64_t value);

/* Starts the ranks and measures; 0, or 1 after a message. */
int bench_sweep_run(bench_sweep *sweep);

/* The figure of a contender at a row; for BENCH_FLOOR that of the quickest prototype.  False if
 * there is none. */
int bench_sweep_figure(const bench_sweep *sweep, int row, bench_kind kind, int in_place,
                       bench_figure *out);

/* All figures of a row. */
int bench_sweep_report(const bench_sweep *sweep, bench_report *report);

/* A line on the terminal that the next one overwrites; nothing elsewhere.  NULL wipes it. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
