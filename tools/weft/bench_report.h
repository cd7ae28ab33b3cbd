/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The results of `weft bench`: a flat list of figures, one per operation, size and contender.
 * Tables, JSON, CSV, comparisons and plots are all made of it; JSON is also read back.
 */
#ifndef WEFT_TOOLS_BENCH_REPORT_H
#define WEFT_TOOLS_BENCH_REPORT_H

#include "bench/meter.h"

#include <stdio.h>

typedef struct bench_figure {
    char op[20], type[12], reduction[16];
    char who[40]; /* "weft", "weft symm", "floor", "Open MPI 4.1.4" ... */
    char way[24]; /* how: a floor's prototype, weft's algorithm; may be empty */
    char backend[12];
    int ranks, in_place, async;
    uint64_t bytes, count, wrong;
    double p50, p99, least; /* us */
    double algbw, busbw;    /* GB/s */
} bench_figure;

typedef struct bench_report {
    bench_figure *figure;
    int count, room;
    char machine[400]; /* where it was measured, in words; empty: here */
} bench_report;

/* 0, or -1 if there is no memory. */
int bench_report_add(bench_report *report, const bench_figure *figure);

enum { BENCH_ROUNDS = 15 };

/* Takes up several rounds of the same measurements: of each contender at each size the middle one
 * counts.  0, or -1. */
int bench_report_merge(bench_report *report, const bench_report *round, int rounds);

void bench_report_free(bench_report *report);

/* The figure of a row and column of a board: medians over its repetitions.  False if it was not
 * measured. */
int bench_figure_of(const meter_board *board, int row, int column, bench_figure *out);

/* The figure of this contender at this size; NULL if there is none. */
const bench_figure *bench_report_find(const bench_report *report, const char *op, const char *who,
                                      int in_place, uint64_t bytes);

/* "# key: value" lines about machine and binding, or the same as members of a JSON object. */
void bench_print_machine(FILE *out, int ranks, const char *binding);

/* "weft 0.1.0 on Neoverse-N1 (aarch64), 2 cores, Linux 6.1": of this machine. */
void bench_report_machine(char *out, size_t bytes);

int bench_report_json(const bench_report *report, FILE *out, const char *binding);
void bench_report_csv(const bench_report *report, FILE *out);

/* Reads what bench_report_json wrote; 0, or -1 after a message on standard error. */
int bench_report_read(bench_report *report, const char *path);

/* Prints the ratio of every figure of `now` to the same one of `old`; returns how many are above
 * the threshold, -1 if no figure is in both. */
int bench_compare(const bench_report *old, const bench_report *now, double threshold, FILE *out);

/* Draws time over size, and below it the others' time in that of weft; a column per operation.  0, or 1 after a
 * message on standard error. */
int bench_plot(const bench_report *report, const char *path);
/* 1, after a message, if nothing can be drawn there at all. */
int bench_plot_refuses(const char *path);

#endif
