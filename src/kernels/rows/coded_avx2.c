/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over codes for x86-64 processors with AVX2. */
#if defined(__x86_64__)
#define TABLE         weft_i_coded_avx2
#define NAME_OF_TABLE "avx2"
#define VECTOR_BYTES  32

#include "kernels/rows/coded_loops.h"
#else
typedef int weft_i_coded_not_here; /* a file is never empty in C */
#endif
