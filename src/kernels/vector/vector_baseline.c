/* SPDX-License-Identifier: Apache-2.0 */
/* The vector loops for what every processor of the architecture has: SSE2, NEON. */
#define TABLE         weft_i_vector_baseline
#define NAME_OF_TABLE "baseline"
#define VECTOR_BYTES  16

#include "kernels/vector/vector_loops.h"
