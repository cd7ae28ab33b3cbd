/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel may use.  Kernels are written in the language that C11 and CUDA C have in common,
 * so that three compilers read the same text: nvcc makes the embedded code, NVRTC compiles the
 * embedded text where there was no nvcc, and the C compiler makes the twins that the software
 * driver of the tests runs.  Everything that only one of them knows is in this file: memory order,
 * which thread this is, block barriers, clocks.  Names begin with weft_k_.
 *
 * Orders are those of the PTX memory model at system scope, unless a name ends in `near`.  In the twin the same word is a C
 * atomic of that order, so ThreadSanitizer sees whether the orders suffice.
 */
#ifndef WEFT_CUDA_KERNELS_DEVICE_H
#define WEFT_CUDA_KERNELS_DEVICE_H

#include <stdint.h>

#if defined(__CUDACC__)

#define WEFT_K            static __device__ __forceinline__
#define WEFT_K_OUT        static __device__ __noinline__ /* large, or called from many places */
#define WEFT_K_GLOBAL     static __device__
#define WEFT_K_UNROLL     _Pragma("unroll")
#define WEFT_K_UNROLL_TWO _Pragma("unroll 2")
#define WEFT_K_NO_UNROLL  _Pragma("unroll 1")
#define WEFT_K_ALIGN(n_)  __align__(n_)
#define WEFT_K_ASSUME(x_) __builtin_assume(x_)
/* A kernel: its most threads a block, its name, its one parameter.  Those of one warp are compiled
 * as if two blocks of 1024 threads had to fit, which leaves a thread 32 registers. */
#define WEFT_KERNEL(threads_, name_, type_, parameter_)                                   \
    extern "C" __global__ void __launch_bounds__((threads_) == 32 ? 1024 : (threads_), 2) \
        name_(const __grid_constant__ type_ parameter_)
#define WEFT_K_SHARED(type_, name_) \
    __shared__ type_ name_##_block; \
    type_ *name_ = &name_##_block

WEFT_K unsigned weft_k_thread(void)
{
    return threadIdx.x;
}

WEFT_K unsigned weft_k_threads(void)
{
    return blockDim.x;
}

/* The same in a block of one warp. */
WEFT_K unsigned weft_k_warp(void)
{
    return 32;
}

WEFT_K unsigned weft_k_block(void)
{
    return blockIdx.x;
}

WEFT_K unsigned weft_k_blocks(void)
{
    return gridDim.x;
}

WEFT_K void weft_k_sync(void)
{
    __syncthreads();
}

/* The same number, of which the compiler knows nothing: what is computed from it is computed where it
 * is needed, and takes no registers before. */
WEFT_K uint32_t weft_k_here(uint32_t number)
{
    asm volatile("" : "+r"(number));
    return number;
}

/* A barrier of the block that also tells whether all of its threads said yes. */
WEFT_K int weft_k_sync_all(int yes)
{
    return __syncthreads_and(yes);
}

/* What thread `from` of the warp has; all threads of the block call it. */
enum { WEFT_K_WARP = 32 };
WEFT_K float weft_k_shuffle(float x, unsigned from)
{
    return __shfl_sync(0xffffffffu, x, (int)from);
}

/*
 * Programmatic dependent launch: the kernel is resident before the one ahead of it in its stream
 * has ended.  From here on that one is over and its writes are visible; and the next may come.
 */
WEFT_K void weft_k_begin(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

WEFT_K uint64_t weft_k_load_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

WEFT_K uint64_t weft_k_load(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

WEFT_K uint32_t weft_k_load32(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

WEFT_K void weft_k_store_release(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

WEFT_K void weft_k_store(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/*
 * The same two at device scope, for words and data of ranks that all run on this device.  A release
 * then waits until this thread's writes, and those it has seen, are in the cache that the device's
 * multiprocessors share; at system scope it also waits for all that the device has under way to
 * other devices and the host.  Both partners have to be on the device: a pair of which one is
 * outside the other's scope orders nothing.
 */
WEFT_K uint64_t weft_k_load_acquire_near(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

WEFT_K void weft_k_store_release_near(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/* An arrival before which this kernel has written nothing: what earlier kernels of the stream
 * wrote was released when they ended.  The twin's streams release by this store instead. */
WEFT_K void weft_k_store_entry(uint64_t *word, uint64_t value)
{
    weft_k_store(word, value);
}

/* True if `word` was `expected` and is `value` now. */
WEFT_K int weft_k_swap(uint64_t *word, uint64_t expected, uint64_t value)
{
    uint64_t seen;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(seen)
                 : "l"(word), "l"(expected), "l"(value)
                 : "memory");
    return seen == expected;
}

WEFT_K int weft_k_swap32(uint32_t *word, uint32_t expected, uint32_t value)
{
    uint32_t seen;
    asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(seen)
                 : "l"(word), "r"(expected), "r"(value)
                 : "memory");
    return seen == expected;
}

typedef struct WEFT_K_ALIGN(16) weft_k_vector {
    uint32_t word[4];
} weft_k_vector;

/* 16 bytes at a multiple of 16.  The volatile asm keeps several in flight: the compiler would
 * otherwise use one before it asks for the next. */
WEFT_K weft_k_vector weft_k_load16(const void *from)
{
    weft_k_vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(from));
    return v;
}

WEFT_K void weft_k_store16(void *to, weft_k_vector v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}

/* The same for bytes that this kernel does not read again. */
WEFT_K void weft_k_stream16(void *to, weft_k_vector v)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}

/* Begins to copy 16 bytes to shared memory, past the multiprocessor's cache and its registers; they
 * are there for this thread after weft_k_fetched. */
WEFT_K void weft_k_fetch16(void *to, const void *from)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}

WEFT_K void weft_k_fetched(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* The same through the caches of the multiprocessor, for memory that this kernel does not write. */
WEFT_K weft_k_vector weft_k_read16(const void *from)
{
    weft_k_vector v;
    asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(from));
    return v;
}

/* Two words of 8 bytes, each of which is there whole or not at all. */
WEFT_K void weft_k_store_pair(uint64_t *to, uint64_t a, uint64_t b)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b)
                 : "memory");
}

WEFT_K void weft_k_load_pair(const uint64_t *from, uint64_t *a, uint64_t *b)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*a), "=l"(*b)
                 : "l"(from)
                 : "memory");
}

/* The same as halves: data and flag of the first, then of the second. */
WEFT_K weft_k_vector weft_k_load_halves(const uint64_t *from)
{
    weft_k_vector v;
    asm volatile("{.reg .b64 a, b; ld.relaxed.sys.global.v2.u64 {a, b}, [%4];"
                 " mov.b64 {%0, %1}, a; mov.b64 {%2, %3}, b;}"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(from)
                 : "memory");
    return v;
}

WEFT_K void weft_k_store_halves(uint64_t *to, uint32_t a, uint32_t b, uint32_t flag)
{
    asm volatile("{.reg .b64 a, b; mov.b64 a, {%1, %3}; mov.b64 b, {%2, %3};"
                 " st.relaxed.sys.global.v2.u64 [%0], {a, b};}" ::"l"(to),
                 "r"(a), "r"(b), "r"(flag)
                 : "memory");
}

/* One of them. */
WEFT_K void weft_k_store_word(uint64_t *to, uint64_t word)
{
    weft_k_store(to, word);
}

WEFT_K uint64_t weft_k_load_word(const uint64_t *from)
{
    return weft_k_load(from);
}

/*
 * Multicast: at such an address the switch has the memory of all ranks at once.  A load adds what
 * they have, in an order that the switch defines, 16-bit floats with accumulators of 32 bits; a
 * store goes to all.  No device before sm_90 has this, and the host launches nothing of it there.
 */
#if __CUDA_ARCH__ >= 900
#define WEFT_K_MULTI_SUMS(name_, wide_, word_)                                                     \
    WEFT_K weft_k_vector weft_k_multi_sum16_##name_(const void *from)                              \
    {                                                                                              \
        weft_k_vector v;                                                                           \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add." wide_ " {%0, %1, %2, %3}, [%4];" \
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])          \
                     : "l"(from)                                                                   \
                     : "memory");                                                                  \
        return v;                                                                                  \
    }                                                                                              \
    WEFT_K uint32_t weft_k_multi_sum4_##name_(const void *from)                                    \
    {                                                                                              \
        uint32_t word;                                                                             \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add." word_ " %0, [%1];"               \
                     : "=r"(word)                                                                  \
                     : "l"(from)                                                                   \
                     : "memory");                                                                  \
        return word;                                                                               \
    }
WEFT_K_MULTI_SUMS(f32, "v4.f32", "f32")
WEFT_K_MULTI_SUMS(f16, "acc::f32.v4.f16x2", "acc::f32.f16x2")
WEFT_K_MULTI_SUMS(bf16, "acc::f32.v4.bf16x2", "acc::f32.bf16x2")

WEFT_K void weft_k_multi_store16(void *to, weft_k_vector v)
{
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}

WEFT_K void weft_k_multi_store4(void *to, uint32_t word)
{
    asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
#else
#define WEFT_K_MULTI_SUMS(name_)                                      \
    WEFT_K weft_k_vector weft_k_multi_sum16_##name_(const void *from) \
    {                                                                 \
        weft_k_vector none = {{0, 0, 0, 0}};                          \
        (void)from;                                                   \
        return none;                                                  \
    }                                                                 \
    WEFT_K uint32_t weft_k_multi_sum4_##name_(const void *from)       \
    {                                                                 \
        (void)from;                                                   \
        return 0;                                                     \
    }
WEFT_K_MULTI_SUMS(f32)
WEFT_K_MULTI_SUMS(f16)
WEFT_K_MULTI_SUMS(bf16)

WEFT_K void weft_k_multi_store16(void *to, weft_k_vector v)
{
    (void)to, (void)v;
}

WEFT_K void weft_k_multi_store4(void *to, uint32_t word)
{
    (void)to, (void)word;
}
#endif
#undef WEFT_K_MULTI_SUMS

/* Nanoseconds of a clock that all blocks of the device share. */
WEFT_K uint64_t weft_k_clock(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* A wait that has become long gives way. */
WEFT_K void weft_k_rest(void)
{
    asm volatile("nanosleep.u32 200;");
}

WEFT_K void weft_k_poll(void)
{
}

WEFT_K float weft_k_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

WEFT_K uint32_t weft_k_bits(float x)
{
    return __float_as_uint(x);
}

WEFT_K double weft_k_double(uint64_t bits)
{
    return __longlong_as_double((long long)bits);
}

WEFT_K uint64_t weft_k_double_bits(double x)
{
    return (uint64_t)__double_as_longlong(x);
}

/* Two floats of 16 bits in a word, rounded to nearest; NaN has any payload. */
WEFT_K uint32_t weft_k_pack_f16(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

WEFT_K uint32_t weft_k_pack_bf16(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* The larger one; NaN if one is. */
WEFT_K float weft_k_most(float a, float b)
{
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}

/* Two masks of 16 bits, all ones where the byte in the same place of the lower half is not 0. */
WEFT_K uint32_t weft_k_mask_pair(uint32_t bytes)
{
    uint32_t signs = ((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bytes, mask;
    /* A selector above 7 repeats a byte's highest bit; __byte_perm would not do that. */
    asm("prmt.b32 %0, %1, 0, 0x9988;" : "=r"(mask) : "r"(signs));
    return mask;
}

/* The lower halves of two words, and the upper ones, as one each. */
WEFT_K uint32_t weft_k_low_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x5410);
}

WEFT_K uint32_t weft_k_high_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x7632);
}

WEFT_K float weft_k_low_f16(uint32_t word)
{
    float x;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(x) : "r"(word));
    return x;
}

WEFT_K float weft_k_high_f16(uint32_t word)
{
    float x;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(word));
    return x;
}

#else
#include "twin.h" /* of tests/cuda: the same on threads of the operating system */
#endif

#endif
