/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for x86-64 processors with AVX2 and F16C; compiled with those switched on, so
 * nothing of this file may run before usable() has said yes. */
#if defined(__x86_64__)
#include "kernels/fold_table.h"

#define TABLE weft_i_fold_avx2
#define NAME  "avx2"

static bool usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

#include "kernels/fold_loops.h"
#else
typedef int weft_i_fold_not_here; /* a file is never empty in C */
#endif
