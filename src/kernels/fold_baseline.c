/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for what every processor of the architecture has: SSE2, NEON. */
#include "kernels/fold_table.h"

#define TABLE weft_i_fold_baseline
#define NAME  "baseline"

static bool usable(void)
{
    return true;
}

#include "kernels/fold_loops.h"
