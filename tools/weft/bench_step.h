/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of `weft bench compile`; both return 1 if they fail. */
#ifndef WEFT_TOOLS_BENCH_STEP_H
#define WEFT_TOOLS_BENCH_STEP_H

#include "bench.h"

/* A training step in one thread.  In a scope of the caller's. */
int bench_step_gpt(bench_style *style);
/* Forward and backward of two layers, and a step of a GPT, on 1 and on 2 ranks. */
int bench_step_parallel(bench_style *style);

#endif
