/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which core OpenBLAS should take; see core.h.
 *
 * Only names that every OpenBLAS since 2018 has are given: some versions take an unknown name for
 * the oldest core.  Newer names would bring nothing: for Cooperlake and SapphireRapids the products
 * of f32 and f64 are by the kernels of SkylakeX, and for Neoverse V2 by those of V1.
 */
#include "kernels/blas/core.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum { EAX = WEFT_I_CORE_EAX, EBX, ECX, EDX };

/* ---- x86 ---- */

/* Bits of CPUID and XCR0. */
enum { FMA = 12, OSXSAVE = 27, AVX = 28 };                                         /* leaf 1, ecx */
enum { AVX2 = 5, AVX512F = 16, AVX512DQ, AVX512CD = 28, AVX512BW = 30, AVX512VL }; /* 7, ebx */
enum { YMM = 0x6, ZMM = 0xe6 };                                                    /* XCR0 */

static bool has(uint32_t word, int bit)
{
    return word >> bit & 1;
}

static bool has_avx(const weft_i_core_x86 *cpu)
{
    uint32_t features = cpu->leaf1[ECX];
    return has(features, OSXSAVE) && has(features, AVX) && (cpu->saved & YMM) == YMM;
}

static bool has_avx2(const weft_i_core_x86 *cpu)
{
    return has_avx(cpu) && has(cpu->leaf7[EBX], AVX2) && has(cpu->leaf1[ECX], FMA);
}

static bool has_avx512(const weft_i_core_x86 *cpu)
{
    uint32_t features = cpu->leaf7[EBX];
    return has_avx2(cpu) && has(features, AVX512F) && has(features, AVX512DQ) &&
           has(features, AVX512CD) && has(features, AVX512BW) && has(features, AVX512VL) &&
           (cpu->saved & ZMM) == ZMM;
}

static bool is_from(const weft_i_core_x86 *cpu, const char *vendor)
{
    return !memcmp(&cpu->leaf0[EBX], vendor, 4) && !memcmp(&cpu->leaf0[EDX], vendor + 4, 4) &&
           !memcmp(&cpu->leaf0[ECX], vendor + 8, 4);
}

static bool is_amd(const weft_i_core_x86 *cpu)
{
    return is_from(cpu, "AuthenticAMD") || is_from(cpu, "HygonGenuine");
}

static unsigned family_of(const weft_i_core_x86 *cpu)
{
    unsigned family = cpu->leaf1[EAX] >> 8 & 0xf;
    return family == 0xf ? family + (cpu->leaf1[EAX] >> 20 & 0xff) : family;
}

static unsigned model_of(const weft_i_core_x86 *cpu)
{
    return (cpu->leaf1[EAX] >> 4 & 0xf) | (cpu->leaf1[EAX] >> 12 & 0xf0);
}

/* Those with AVX, of Intel's family 6, from Sandy Bridge to Rocket Lake and Sapphire Rapids.  Any
 * other model is Prescott for 0.3.21 to 0.3.24, and so is any later family for all versions. */
static bool lists_intel(unsigned model)
{
    static const uint8_t models[] = {0x2a, 0x2d, 0x3a, 0x3c, 0x3d, 0x3e, 0x3f, 0x45, 0x46, 0x47,
                                     0x4e, 0x4f, 0x55, 0x56, 0x57, 0x5e, 0x6a, 0x6c, 0x7d, 0x7e,
                                     0x8c, 0x8d, 0x8e, 0x8f, 0x97, 0x9a, 0x9e, 0xa5, 0xa6, 0xa7};
    return memchr(models, (int)model, sizeof models) != NULL;
}

/* AMD's families up to Zen 4. */
static bool lists_x86(const weft_i_core_x86 *cpu)
{
    unsigned family = family_of(cpu);
    return is_amd(cpu) ? family <= 0x19
                       : is_from(cpu, "GenuineIntel") && family == 6 && lists_intel(model_of(cpu));
}

weft_i_core weft_i_core_of_x86(const weft_i_core_x86 *cpu)
{
    const char *newest = has_avx512(cpu) ? "SkylakeX"
                         : has_avx2(cpu) ? (is_amd(cpu) ? "Zen" : "Haswell")
                         : has_avx(cpu)  ? "Sandybridge"
                                         : NULL;
    return (weft_i_core){.newest = newest, .listed = lists_x86(cpu)};
}

/* ---- Arm ---- */

/* Bits of the kernel's interface, fixed for ever: Documentation/arm64/elf_hwcaps. */
enum { ATOMICS = 8, CPUID = 11, ASIMDDP = 20, SVE = 22 };
enum { BY_ARM = 0x41 };

/* Those that run the kernels of Neoverse V1 or N2, which may use SVE.  V2 (Grace, Graviton4) is V1
 * for OpenBLAS too, once it knows it; V3 and N3 are their successors. */
static const char *newest_with_sve(unsigned implementer, unsigned part)
{
    if (implementer != BY_ARM)
        return NULL;
    switch (part) {
    case 0xd40: /* V1 */
    case 0xd4f: /* V2 */
    case 0xd83: /* V3AE */
    case 0xd84: /* V3 */
        return "neoversev1";
    case 0xd49: /* N2 */
    case 0xd8e: /* N3 */
        return "neoversen2";
    default:
        return NULL;
    }
}

/* Implementer and part of those that 0.3.21 lists.  V1 and N2 are not among them where the system
 * hides SVE: that version gives them kernels which may use it all the same. */
static bool lists_arm(unsigned implementer, unsigned part, bool sve)
{
    static const uint32_t models[] = {0x41d03, 0x41d05, 0x41d07, 0x41d08, 0x41d09, 0x41d0c, 0x42516,
                                      0x430a1, 0x430af, 0x430b8, 0x48d01, 0x50000, 0x51c00};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (models[i] == (implementer << 12 | part))
            return true;
    return sve && implementer == BY_ARM && (part == 0xd40 || part == 0xd49);
}

/* Without its model a processor is left to the library, which sees no more.  With SVE and an unknown
 * name too: newer versions have a core for all of these, better than any that older ones have. */
weft_i_core weft_i_core_of_arm(const weft_i_core_arm *cpu)
{
    unsigned implementer = cpu->model >> 24, part = cpu->model >> 4 & 0xfff;
    bool sve = cpu->features >> SVE & 1,
         plain = cpu->features >> ASIMDDP & 1 && cpu->features >> ATOMICS & 1;
    const char *newest = sve ? newest_with_sve(implementer, part) : plain ? "neoversen1" : NULL;
    return (weft_i_core){.newest = cpu->model ? newest : NULL,
                         .listed = lists_arm(implementer, part, sve)};
}

/* ---- this one ---- */

_Atomic(const weft_i_core *) weft_i_core_pretended;

#if defined(__x86_64__)
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static weft_i_core look(void)
{
    weft_i_core_x86 cpu = {0};
    __get_cpuid(0, &cpu.leaf0[EAX], &cpu.leaf0[EBX], &cpu.leaf0[ECX], &cpu.leaf0[EDX]);
    __get_cpuid(1, &cpu.leaf1[EAX], &cpu.leaf1[EBX], &cpu.leaf1[ECX], &cpu.leaf1[EDX]);
    __get_cpuid_count(7, 0, &cpu.leaf7[EAX], &cpu.leaf7[EBX], &cpu.leaf7[ECX], &cpu.leaf7[EDX]);
    if (has(cpu.leaf1[ECX], OSXSAVE))
        cpu.saved = saved_registers();
    return weft_i_core_of_x86(&cpu);
}
#elif defined(__aarch64__)
static weft_i_core look(void)
{
    uint64_t model = 0;
    weft_i_core_arm cpu = {.features = getauxval(AT_HWCAP)};
    if (cpu.features >> CPUID & 1) /* then the kernel answers for the register */
        __asm__("mrs %0, midr_el1" : "=r"(model));
    cpu.model = (uint32_t)model;
    return weft_i_core_of_arm(&cpu);
}
#else
static weft_i_core look(void)
{
    return (weft_i_core){0};
}
#endif

weft_i_core weft_i_core_here(void)
{
    /* Relaxed: what it points to was whole before the threads that ask. */
    const weft_i_core *pretended =
        atomic_load_explicit(&weft_i_core_pretended, memory_order_relaxed);
    return pretended ? *pretended : look();
}
