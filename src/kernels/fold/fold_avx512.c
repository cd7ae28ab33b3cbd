/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for x86-64 processors with AVX-512 F, BW, DQ and VL; compiled with those
 * switched on. */
#if defined(__x86_64__)
#include "kernels/fold/fold_table.h"

#include <stdint.h>

#define TABLE      weft_i_fold_avx512
#define NAME       "avx512"
#define TWICE_MOST SIZE_MAX

#include "kernels/fold/fold_loops.h"
#else
typedef int weft_i_fold_not_here; /* a file is never empty in C */
#endif
