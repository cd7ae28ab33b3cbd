/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress: how far a training run is, in a line.
 *
 *     weft_progress_opts opts = WEFT_PROGRESS_OPTS_INIT;
 *     opts.tokens = 32 * 1024;
 *     weft_progress *progress = weft_progress_new(weft_rank(world) ? NULL : stdout, steps, &opts);
 *     ...
 *     weft_progress_step(progress, step, loss);
 *     ...
 *     weft_progress_end(progress);
 *
 *     step  300/1000  loss 3.2142  51.2k tokens/s  MFU 41.2%  left 1:23
 *
 * On a terminal the line is drawn again and again, with a bar; elsewhere a line is added now and
 * then.  All of it is for the rank that made it: the ranks do not meet.
 */
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_progress weft_progress;

typedef struct weft_progress_opts {
    size_t size;         /* of this struct */
    double tokens;       /* of a step, of all ranks; 0: the line has steps/s */
    double flops;        /* operations of a step, of all ranks; 0: unknown */
    double peak;         /* operations a second that the machine could do; 0: unknown */
    int64_t interval_ms; /* between lines; 0: 100 ms on a terminal, 10 s elsewhere */
    const char *csv;     /* a file that gets a line for each step, behind what is in it, or NULL */
} weft_progress_opts;
#define WEFT_PROGRESS_OPTS_INIT                                  \
    {                                                            \
        sizeof(weft_progress_opts), 0 /*tokens*/, 0, 0, 0, NULL, \
    }

/*
 * Makes a progress of a run of `steps` steps, a handle in the current scope.  If `file` is NULL,
 * nothing is printed: on all ranks but one.  It must stay open until weft_progress_end.
 */
WEFT_API weft_progress *weft_progress_new(FILE *file, int64_t steps,
                                          const weft_progress_opts *opts);

/*
 * Step number `step`, from 0 on, is over, and had this loss.  Times are taken from one call to the next:
 * what lies before the first, and a pause after weft_progress_pause, does not count.
 */
WEFT_API weft_status weft_progress_step(weft_progress *progress, int64_t step, double loss);

/* What follows is no step, such as an evaluation; the next step does not count either. */
WEFT_API weft_status weft_progress_pause(weft_progress *progress);

/* Prints the last line, and ends it. */
WEFT_API weft_status weft_progress_end(weft_progress *progress);

/* The line as it is now, in one format everywhere; returns `out`. */
WEFT_API const char *weft_progress_text(const weft_progress *progress, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
