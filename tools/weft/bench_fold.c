/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums for the floor; see bench_fold.h.  Vectors of 64 bytes, which the compiler cuts to what the
 * processor has; the usual numbers of ranks have loops of their own, so that all sources are summed
 * in registers.
 */
#include "bench_fold.h"

#include <weft/dtype.h>

#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

#define FOLD_OF(name_, type_)                                                                    \
    typedef type_ name_##_wide __attribute__((vector_size(64), aligned(1), may_alias));          \
    typedef type_ name_##_one __attribute__((aligned(1), may_alias));                            \
    INLINE void fold_##name_##_fixed(void *const *out, int outs, const void *const *in, int ins, \
                                     size_t count)                                               \
    {                                                                                            \
        size_t bytes = count * sizeof(type_), at = 0;                                            \
        for (; at + 64 <= bytes; at += 64) {                                                     \
            name_##_wide sum = *(const name_##_wide *)((const char *)in[0] + at);                \
            for (int i = 1; i < ins; i++)                                                        \
                sum += *(const name_##_wide *)((const char *)in[i] + at);                        \
            for (int o = 0; o < outs; o++)                                                       \
                *(name_##_wide *)((char *)out[o] + at) = sum;                                    \
        }                                                                                        \
        for (; at < bytes; at += sizeof(type_)) {                                                \
            type_ sum = *(const name_##_one *)((const char *)in[0] + at);                        \
            for (int i = 1; i < ins; i++)                                                        \
                sum += *(const name_##_one *)((const char *)in[i] + at);                         \
            for (int o = 0; o < outs; o++)                                                       \
                *(name_##_one *)((char *)out[o] + at) = sum;                                     \
        }                                                                                        \
    }                                                                                            \
    CLONES static void fold_##name_(void *const *out, int outs, const void *const *in, int ins,  \
                                    size_t count)                                                \
    {                                                                                            \
        if (ins == 2 && outs == 1)                                                               \
            fold_##name_##_fixed(out, 1, in, 2, count);                                          \
        else if (ins == 2 && outs == 2)                                                          \
            fold_##name_##_fixed(out, 2, in, 2, count);                                          \
        else if (ins == 4 && outs == 1)                                                          \
            fold_##name_##_fixed(out, 1, in, 4, count);                                          \
        else if (ins == 4 && outs == 4)                                                          \
            fold_##name_##_fixed(out, 4, in, 4, count);                                          \
        else if (ins == 8 && outs == 1)                                                          \
            fold_##name_##_fixed(out, 1, in, 8, count);                                          \
        else if (ins == 8 && outs == 8)                                                          \
            fold_##name_##_fixed(out, 8, in, 8, count);                                          \
        else                                                                                     \
            fold_##name_##_fixed(out, outs, in, ins, count);                                     \
    }

FOLD_OF(f32, float)
FOLD_OF(f64, double)
FOLD_OF(u32, uint32_t)
FOLD_OF(u64, uint64_t)

bench_fold bench_fold_find(int dtype)
{
    switch (dtype) {
    case WEFT_F32:
        return fold_f32;
    case WEFT_F64:
        return fold_f64;
    case WEFT_I32:
    case WEFT_U32:
        return fold_u32;
    case WEFT_I64:
    case WEFT_U64:
        return fold_u64;
    default:
        return NULL;
    }
}
