/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels use, for the C compiler: see src/backends/cuda/kernels/device.h.  A thread of a
 * kernel is a thread of the operating system; a block is a barrier that its threads share.
 */
#ifndef WEFT_TESTS_CUDA_TWIN_H
#define WEFT_TESTS_CUDA_TWIN_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "twin_pause.h"

#define WEFT_K        static inline __attribute__((unused))
#define WEFT_K_OUT    static __attribute__((unused, noinline))
#define WEFT_K_GLOBAL static
#define WEFT_K_UNROLL
#define WEFT_K_UNROLL_TWO
#define WEFT_K_NO_UNROLL
#define WEFT_K_ASSUME(x_) ((void)0)
#define WEFT_KERNEL(threads_, name_, type_, parameter_) \
    void name_(const type_ parameter_);                 \
    void name_(const type_ parameter_)

typedef struct twin_block {
    pthread_barrier_t barrier;
    int no[3];              /* by turns: a vote, the last one's readers, the next one's zero */
    float shuffled[2][512]; /* by turns, too */
    _Alignas(16) char memory[20480]; /* what its threads share */
} twin_block;

typedef struct twin_place {
    unsigned thread, threads, block, blocks, votes, shuffles;
    twin_block *shared;
} twin_place;
extern _Thread_local twin_place twin_here;

/* One of them a kernel. */
#define WEFT_K_SHARED(type_, name_)                                                              \
    _Static_assert(sizeof(type_) <= sizeof twin_here.shared->memory, "room that threads share"); \
    type_ *name_ = (type_ *)(void *)twin_here.shared->memory

WEFT_K unsigned weft_k_thread(void)
{
    return twin_here.thread;
}

WEFT_K unsigned weft_k_threads(void)
{
    return twin_here.threads;
}

WEFT_K unsigned weft_k_warp(void)
{
    return twin_here.threads;
}

WEFT_K unsigned weft_k_block(void)
{
    return twin_here.block;
}

WEFT_K unsigned weft_k_blocks(void)
{
    return twin_here.blocks;
}

WEFT_K void weft_k_sync(void)
{
    pthread_barrier_wait(&twin_here.shared->barrier);
}

WEFT_K uint32_t weft_k_here(uint32_t number)
{
    return number;
}

WEFT_K int weft_k_sync_all(int yes)
{
    int *no = twin_here.shared->no;
    unsigned turn = twin_here.votes++ % 3;
    if (!yes)
        __atomic_store_n(&no[turn], 1, __ATOMIC_RELAXED); /* ordered by the barrier */
    if (twin_here.thread == 0)
        __atomic_store_n(&no[(turn + 1) % 3], 0, __ATOMIC_RELAXED);
    weft_k_sync();
    return !__atomic_load_n(&no[turn], __ATOMIC_RELAXED);
}

/* Threads that are not there have what is not looked at.  One barrier is enough, with two turns: who
 * writes to a place again has met all threads once more, and they had read it before. */
enum { WEFT_K_WARP = 32 };
WEFT_K float weft_k_shuffle(float x, unsigned from)
{
    float *all = twin_here.shared->shuffled[twin_here.shuffles++ % 2];
    all[twin_here.thread] = x;
    weft_k_sync();
    return all[twin_here.thread / WEFT_K_WARP * WEFT_K_WARP + from];
}

WEFT_K void weft_k_begin(void)
{
}

WEFT_K uint64_t weft_k_load_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

WEFT_K uint64_t weft_k_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

WEFT_K uint32_t weft_k_load32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

WEFT_K void weft_k_store_release(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

WEFT_K void weft_k_store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* A process has one scope. */
WEFT_K uint64_t weft_k_load_acquire_near(const uint64_t *word)
{
    return weft_k_load_acquire(word);
}

WEFT_K void weft_k_store_release_near(uint64_t *word, uint64_t value)
{
    weft_k_store_release(word, value);
}

WEFT_K void weft_k_store_entry(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

WEFT_K int weft_k_swap(uint64_t *word, uint64_t expected, uint64_t value)
{
    return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

WEFT_K int weft_k_swap32(uint32_t *word, uint32_t expected, uint32_t value)
{
    return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

typedef struct weft_k_vector {
    _Alignas(16) uint32_t word[4];
} weft_k_vector;

WEFT_K weft_k_vector weft_k_load16(const void *from)
{
    weft_k_vector v;
    memcpy(&v, __builtin_assume_aligned(from, 16), 16);
    return v;
}

WEFT_K weft_k_vector weft_k_read16(const void *from)
{
    return weft_k_load16(from);
}

WEFT_K void weft_k_store16(void *to, weft_k_vector v)
{
    memcpy(__builtin_assume_aligned(to, 16), &v, 16);
}

/* There is nothing to overlap. */
WEFT_K void weft_k_fetch16(void *to, const void *from)
{
    weft_k_store16(to, weft_k_load16(from));
}

WEFT_K void weft_k_fetched(void)
{
}

WEFT_K void weft_k_stream16(void *to, weft_k_vector v)
{
    weft_k_store16(to, v);
}

/* Release and acquire, where the kernels need none: who has the packets of a rank knows that its
 * kernels before this one are over, which on a device the end of a kernel makes true. */
WEFT_K void weft_k_store_pair(uint64_t *to, uint64_t a, uint64_t b)
{
    __atomic_store_n(to, a, __ATOMIC_RELEASE);
    __atomic_store_n(to + 1, b, __ATOMIC_RELEASE);
}

WEFT_K void weft_k_load_pair(const uint64_t *from, uint64_t *a, uint64_t *b)
{
    *a = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    *b = __atomic_load_n(from + 1, __ATOMIC_ACQUIRE);
}

WEFT_K weft_k_vector weft_k_load_halves(const uint64_t *from)
{
    uint64_t a, b;
    weft_k_load_pair(from, &a, &b);
    weft_k_vector v = {{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)}};
    return v;
}

WEFT_K void weft_k_store_halves(uint64_t *to, uint32_t a, uint32_t b, uint32_t flag)
{
    weft_k_store_pair(to, (uint64_t)flag << 32 | a, (uint64_t)flag << 32 | b);
}

WEFT_K void weft_k_store_word(uint64_t *to, uint64_t word)
{
    __atomic_store_n(to, word, __ATOMIC_RELEASE);
}

WEFT_K uint64_t weft_k_load_word(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

WEFT_K uint64_t weft_k_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

WEFT_K void weft_k_rest(void)
{
    struct timespec duration = {0, 20000};
    nanosleep(&duration, NULL);
}

WEFT_K void weft_k_poll(void)
{
    twin_pause();
}

WEFT_K float weft_k_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

WEFT_K uint32_t weft_k_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof x);
    return bits;
}

WEFT_K double weft_k_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

WEFT_K uint64_t weft_k_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof x);
    return bits;
}

#include "kernels/number/small.h"

WEFT_K uint32_t weft_k_pack_f16(float low, float high)
{
    return weft_i_f32_to_f16(low) | (uint32_t)weft_i_f32_to_f16(high) << 16;
}

WEFT_K uint32_t weft_k_pack_bf16(float low, float high)
{
    return weft_i_f32_to_bf16(low) | (uint32_t)weft_i_f32_to_bf16(high) << 16;
}

WEFT_K float weft_k_most(float a, float b)
{
    return a != a || a > b ? a : b;
}

WEFT_K uint32_t weft_k_mask_pair(uint32_t bytes)
{
    return (bytes & 0xff ? 0xffffu : 0) | (bytes & 0xff00 ? 0xffff0000u : 0);
}

WEFT_K uint32_t weft_k_low_halves(uint32_t first, uint32_t second)
{
    return (first & 0xffff) | second << 16;
}

WEFT_K uint32_t weft_k_high_halves(uint32_t first, uint32_t second)
{
    return first >> 16 | (second & 0xffff0000u);
}

WEFT_K float weft_k_low_f16(uint32_t word)
{
    return weft_i_f16_to_f32((uint16_t)word);
}

WEFT_K float weft_k_high_f16(uint32_t word)
{
    return weft_i_f16_to_f32((uint16_t)(word >> 16));
}

/* ---- multicast ---- */

/* The memory of device number `which` behind a multicast address; NULL: there are no more of them. */
void *twin_multi(const void *at, int which);

/* At an address that no instruction takes the kernel faults. */
WEFT_K int twin_multi_count(const void *at, uintptr_t unit)
{
    int count = 0;
    if ((uintptr_t)at % unit)
        abort();
    while (twin_multi(at, count))
        count++;
    return count;
}

/* From the last device to the first: the order is the switch's own, and no caller may know it. */
#define TWIN_MULTI_SUMS(name_)                                                 \
    WEFT_K uint32_t weft_k_multi_sum4_##name_(const void *from)                \
    {                                                                          \
        float low = 0, high = 0;                                               \
        for (int k = twin_multi_count(from, 4) - 1; k >= 0; k--) {             \
            uint32_t word;                                                     \
            memcpy(&word, twin_multi(from, k), 4);                             \
            low += weft_k_low_##name_(word);                                   \
            high += weft_k_high_##name_(word);                                 \
        }                                                                      \
        return weft_k_pack_##name_(low, high);                                 \
    }                                                                          \
    WEFT_K weft_k_vector weft_k_multi_sum16_##name_(const void *from)          \
    {                                                                          \
        weft_k_vector v;                                                       \
        twin_multi_count(from, 16);                                            \
        for (int i = 0; i < 4; i++)                                            \
            v.word[i] = weft_k_multi_sum4_##name_((const char *)from + 4 * i); \
        return v;                                                              \
    }

WEFT_K float weft_k_low_f32(uint32_t word)
{
    return weft_k_float(word);
}

WEFT_K float weft_k_high_f32(uint32_t word)
{
    (void)word;
    return 0;
}

WEFT_K uint32_t weft_k_pack_f32(float low, float high)
{
    (void)high;
    return weft_k_bits(low);
}

WEFT_K float weft_k_low_bf16(uint32_t word)
{
    return weft_i_bf16_to_f32((uint16_t)word);
}

WEFT_K float weft_k_high_bf16(uint32_t word)
{
    return weft_i_bf16_to_f32((uint16_t)(word >> 16));
}

TWIN_MULTI_SUMS(f32)
TWIN_MULTI_SUMS(f16)
TWIN_MULTI_SUMS(bf16)
#undef TWIN_MULTI_SUMS

WEFT_K void twin_multi_store(void *to, const void *from, size_t bytes)
{
    for (int k = twin_multi_count(to, bytes) - 1; k >= 0; k--)
        memcpy(twin_multi(to, k), from, bytes);
}

WEFT_K void weft_k_multi_store16(void *to, weft_k_vector v)
{
    twin_multi_store(to, &v, 16);
}

WEFT_K void weft_k_multi_store4(void *to, uint32_t word)
{
    twin_multi_store(to, &word, 4);
}

#endif
