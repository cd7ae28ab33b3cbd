/* SPDX-License-Identifier: Apache-2.0 */
/* The vector loops for x86-64 processors with AVX2; compiled with those switched on. */
#if defined(__x86_64__)
#define TABLE         weft_i_vector_avx2
#define NAME_OF_TABLE "avx2"
#define VECTOR_BYTES  32

#include "kernels/vector/vector_loops.h"
#else
typedef int weft_i_vector_not_here; /* a file is never empty in C */
#endif
