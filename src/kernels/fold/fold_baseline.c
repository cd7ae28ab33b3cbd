/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for what every processor of the architecture has: SSE2, NEON. */
#include "kernels/fold/fold_table.h"

#include <stdint.h>

#define TABLE weft_i_fold_baseline
#define NAME  "baseline"
#if defined(__x86_64__)
#define TWICE_MOST 4096 /* parts of two lines by turns are slow outside of the first cache */
#else
#define TWICE_MOST SIZE_MAX
#endif

#include "kernels/fold/fold_loops.h"
