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

meter_contender bench_weft_contender(bench_weft *rank);

#endif
