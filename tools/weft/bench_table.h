/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps of collectives as nccl-tests prints them, and the other forms their figures take. */
#ifndef WEFT_TOOLS_BENCH_TABLE_H
#define WEFT_TOOLS_BENCH_TABLE_H

#include "bench_options.h"
#include "bench_report.h"

/* Runs the sweeps that the options ask for and prints them; the exit status. */
int bench_collectives(const bench_options *options);

/* What follows all sweeps: --json, --csv, --save, --plot, --compare.  The exit status. */
int bench_conclude(const bench_options *options, const bench_report *report);

/* The same for the figures of a file: --from. */
int bench_replay(const bench_options *options);

/* Are dtype, reduction and ranks measurable?  0, or 2 after a message. */
int bench_possible(const bench_options *options);

#endif
