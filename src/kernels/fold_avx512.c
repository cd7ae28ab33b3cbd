/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fold's loops for x86-64 processors with AVX-512; compiled with it switched on.  The first of
 * these processors run slower while they use it; VBMI2 came with those that do not.
 */
#if defined(__x86_64__)
#include "kernels/fold_table.h"

#include <stdint.h>

#define TABLE      weft_i_fold_avx512
#define NAME       "avx512"
#define TWICE_MOST SIZE_MAX

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi2");
}

#include "kernels/fold_loops.h"
#else
typedef int weft_i_fold_not_here; /* a file is never empty in C */
#endif
