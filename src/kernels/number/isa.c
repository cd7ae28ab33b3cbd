/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can do.  Asked here and not in the loops' own files, which are compiled for
 * processors that have it. */
#include "kernels/number/isa.h"

#include "base/os/os.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

bool weft_i_isa_always(void)
{
    return true;
}

#if defined(__x86_64__)
bool weft_i_isa_avx2(void)
{
    unsigned a, b, c = 0, d; /* __builtin_cpu_supports of some compilers knows no F16C */
    __builtin_cpu_init();
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C && c & bit_FMA &&
           __builtin_cpu_supports("avx2");
}

/* The first processors with AVX-512 run slower while they use it; VBMI2 came with those that do
 * not. */
bool weft_i_isa_avx512(void)
{
    return weft_i_isa_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
}

bool weft_i_isa_avx512_bf16(void)
{
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a = 0, b, c, d;
    return weft_i_isa_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX512_BF16;
}

bool weft_i_isa_amx(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d = 0;
    return weft_i_isa_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 &&
           d & AMX_TILE && weft_i_os_allow_tiles();
}
#else
bool weft_i_isa_avx2(void)
{
    return false;
}

bool weft_i_isa_avx512(void)
{
    return false;
}

bool weft_i_isa_avx512_bf16(void)
{
    return false;
}

bool weft_i_isa_amx(void)
{
    return false;
}
#endif

bool weft_i_isa_bfmmla(void)
{
#if defined(__aarch64__)
    enum { BF16 = 1 << 14 }; /* HWCAP2_BF16, which not all headers have */
    return getauxval(AT_HWCAP2) & BF16;
#else
    return false;
#endif
}
