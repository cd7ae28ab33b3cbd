/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `weft bench` for collectives: one table, read once. */
#ifndef WEFT_TOOLS_BENCH_OPTIONS_H
#define WEFT_TOOLS_BENCH_OPTIONS_H

#include "bench/meter.h"
#include "command.h"

#include <stdio.h>

/* The largest operand weft sends eagerly: weft/tune.h. */
enum { BENCH_EAGER_MOST = 64 << 10 };

/* A product [m, k] times [k, n]. */
typedef struct bench_shape {
    int64_t m, n, k;
} bench_shape;

/* The GPT-2 that `model` trains. */
typedef struct bench_model {
    int layers, width, batch, time;
} bench_model;
enum { BENCH_SHAPES = 16 };

typedef struct bench_options {
    int op[PLAN_OPS], ops; /* which, and how many */
    int ranks;             /* 0: not said */
    uint64_t size[METER_ROWS];
    int sizes;
    int dtype, reduction;
    int typed, repeated;             /* the dtype was said, the repetitions were */
    bench_shape shape[BENCH_SHAPES]; /* of matrix products */
    int shapes;                      /* 0: not said */
    bench_model model;               /* of `model`; layers 0: not said */
    const char *backend;
    const char *device; /* NULL: the CPU */
    int64_t eager; /* --algo: weft sends operands eagerly up to this size; -1: as its table says */
    int in_place, symm, async, floor;
    int weft_memory; /* ordinary operands from weft_empty instead of malloc */
    int json, csv;
    int iters, warmup, repeats, rounds, budget_ms;
    int limit_s; /* of the tables of --peers; 0: none */
    int bind;    /* one core a rank */
    const char *compare, *from, *save, *plot;
    double threshold;
    int peers, overhead;
    const char *peers_from; /* where they are installed; NULL: not said */
    const char *tune;       /* file to write thresholds to */
    int sweep;              /* an option was given that only a sweep of collectives has */
} bench_options;

/* Its rows in the table of options. */
extern const command_option bench_options_table[];

/*
 * Reads the words after "bench"; names that are no collective go to `others` (room for argc + 1
 * words).  COMMAND_GOES_ON, or the exit status after --help or a message on standard error.
 */
int bench_options_read(bench_options *options, int argc, char **argv, char **others);

/* "64M" for 64 MiB, "8" for 8: as -b takes it. */
char *bench_size_text(uint64_t bytes, char out[24]);

#endif
