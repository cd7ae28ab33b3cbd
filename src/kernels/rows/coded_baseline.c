/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over codes for every processor of the architecture. */
#define TABLE         weft_i_coded_baseline
#define NAME_OF_TABLE "baseline"
#define VECTOR_BYTES  16

#include "kernels/rows/coded_loops.h"
