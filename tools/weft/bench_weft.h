/* SPDX-License-Identifier: Apache-2.0 */
/* weft itself under the meter: one rank's operands and calls. */
#ifndef WEFT_TOOLS_BENCH_WEFT_H
#define WEFT_TOOLS_BENCH_WEFT_H

#include "bench/meter.h"

#include <weft/weft.h>

typedef struct bench_weft {
    weft_group *world;
    int rank, ranks;
    int symm, malloced, in_place, async;
    plan_case what;
    weft_tensor *in, *out;
} bench_weft;

/* One call of a case, in the form that blocks. */
weft_status bench_weft_call(const plan_case *what, weft_tensor *in, weft_tensor *out, int root,
                            weft_group *world);

meter_contender bench_weft_contender(bench_weft *rank);

#endif
