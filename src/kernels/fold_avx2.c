/* SPDX-License-Identifier: Apache-2.0 */
/* The fold's loops for x86-64 processors with AVX2 and F16C; compiled with those switched on, so
 * nothing of this file may run before usable() has said yes. */
#if defined(__x86_64__)
#include "kernels/fold_table.h"

#include <cpuid.h>
#include <stdint.h>

#define TABLE      weft_i_fold_avx2
#define NAME       "avx2"
#define TWICE_MOST 4096 /* two half lines by turns are slow outside of the first cache */

/* clang 14 does not know "f16c": asked of the processor itself.  AVX2 vouches for the system's
 * part. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool usable(void)
{
    return __builtin_cpu_supports("avx2") && has_f16c();
}

#include "kernels/fold_loops.h"
#else
typedef int weft_i_fold_not_here; /* a file is never empty in C */
#endif
