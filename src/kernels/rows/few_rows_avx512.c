/* SPDX-License-Identifier: Apache-2.0 */
/* Products with few rows for x86-64 processors with AVX-512 F, BW, DQ and VL; compiled with those switched on. */
#if defined(__x86_64__)
#define TABLE         weft_i_few_rows_avx512
#define NAME_OF_TABLE "avx512"
#define VECTOR_BYTES  64

#include "kernels/rows/few_rows_loops.h"
#else
typedef int weft_i_few_rows_not_here; /* a file is never empty in C */
#endif
