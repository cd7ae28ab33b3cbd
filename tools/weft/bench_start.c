/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of benchmarks, which a signal to the command ends with it. */
#include "bench_start.h"

#include <stdio.h>
#include <unistd.h>

int bench_start(weft_launch_opts *opts)
{
    weft_launch_end end = {.first_rank = -1};
    opts->flags |= WEFT_LAUNCH_QUIET | WEFT_LAUNCH_SIGNALS;
    opts->end = &end;
    fflush(stdout);
    int result = weft_launch(opts);
    if (end.interrupted) {
        fflush(stdout);
        _exit(128 + end.interrupted);
    }
    return result;
}
