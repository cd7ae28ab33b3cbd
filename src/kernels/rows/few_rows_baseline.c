/* SPDX-License-Identifier: Apache-2.0 */
/* Products with few rows for what every processor of the architecture has: SSE2, NEON. */
#define TABLE         weft_i_few_rows_baseline
#define NAME_OF_TABLE "baseline"
#define VECTOR_BYTES  16

#include "kernels/rows/few_rows_loops.h"
