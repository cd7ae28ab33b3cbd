/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for x86-64 processors with AVX2 and F16C; compiled with those switched on. */
#if defined(__x86_64__)
#include "kernels/fold/fold_table.h"

#include <stdint.h>

#define TABLE      weft_i_fold_avx2
#define NAME       "avx2"
#define TWICE_MOST 4096 /* two half lines by turns are slow outside of the first cache */

#include "kernels/fold/fold_loops.h"
#else
typedef int weft_i_fold_not_here; /* a file is never empty in C */
#endif
