/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that go past the caches, for results that no cache holds: their lines need not be read
 * first.  Compiled graphs contain this text (graph/emit/emit_expression.c).
 */
#ifndef WEFT_KERNELS_FAR_H
#define WEFT_KERNELS_FAR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    WEFT_I_FAR_LINE = 64,
    WEFT_I_FAR_LEAST = 8 << 20 /* bytes of results from which on it pays */
};

/* Asks for lines that are read soon; they need not exist. */
static inline void weft_i_far_ask(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += WEFT_I_FAR_LINE)
        __builtin_prefetch((const char *)from + i);
}

/* The same for lines that are read a few microseconds later: the second cache keeps them. */
static inline void weft_i_far_ask_early(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += WEFT_I_FAR_LINE)
        __builtin_prefetch((const char *)from + i, 0, 2);
}

#if defined(__x86_64__)
#if defined(__AVX512F__)
typedef long long weft_i_far_vector __attribute__((vector_size(64)));
#define WEFT_I_FAR_STORE __builtin_ia32_movntdq512
#elif defined(__AVX__)
typedef long long weft_i_far_vector __attribute__((vector_size(32)));
#define WEFT_I_FAR_STORE __builtin_ia32_movntdq256
#else
typedef long long weft_i_far_vector __attribute__((vector_size(16)));
#define WEFT_I_FAR_STORE __builtin_ia32_movntdq
#endif
#if defined(__clang__) /* does not know these names */
#undef WEFT_I_FAR_STORE
#define WEFT_I_FAR_STORE(to_, from_) __builtin_nontemporal_store(from_, to_)
#endif

/* `from` lies on a line's begin.  Results that do not, and parts of lines, are copied plainly. */
static inline void weft_i_far_store(void *to, const void *from, size_t bytes)
{
    weft_i_far_vector *into = (weft_i_far_vector *)to;
    const weft_i_far_vector *out_of = (const weft_i_far_vector *)from;
    if ((uintptr_t)to % WEFT_I_FAR_LINE || bytes % WEFT_I_FAR_LINE) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes / sizeof *into; i++)
        WEFT_I_FAR_STORE(into + i, out_of[i]);
}

/* Such stores are not ordered with others, not even with a release: they must be done before
 * anybody is told. */
static inline void weft_i_far_end(void)
{
    __builtin_ia32_sfence();
}
#else
static inline void weft_i_far_store(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static inline void weft_i_far_end(void)
{
}
#endif

#endif
