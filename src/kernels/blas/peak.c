/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of peak.h: twelve sums, none of which waits for another, are enough for two units that
 * take up to six clocks.  A sum is halved and two added, so it stays small; Arm's instruction
 * adds a product to its sum instead.  They begin with different numbers, or a compiler would see
 * that they are one.
 */
#include "kernels/blas/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { SUMS = 12 };
#define EACH(do_) \
    do_(0) do_(1) do_(2) do_(3) do_(4) do_(5) do_(6) do_(7) do_(8) do_(9) do_(10) do_(11)

// clang-format off
#define START(i_) s##i_ = splat(1.0f + (float)(i_));
#define TURN(i_) s##i_ = step(s##i_);
#define ADD(i_) all += first_of(s##i_);
/* The body, by vectors of `type_` with `lanes_` numbers. */
#define RUN(type_, lanes_)                              \
    const type_ half = splat(0.5f), two = splat(2.0f);  \
    type_ s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11; \
    float all = 0;                                      \
    EACH(START)                                         \
    for (int64_t i = 0; i < turns; i++) {               \
        EACH(TURN)                                      \
    }                                                   \
    EACH(ADD)                                           \
    *sum = all;                                         \
    return 2 * turns * SUMS * (lanes_)
// clang-format on

#if defined(__x86_64__)
#define splat(x_)    _mm512_set1_ps(x_)
#define step(s_)     _mm512_fmadd_ps(s_, half, two)
#define first_of(s_) _mm512_cvtss_f32(s_)
__attribute__((target("avx512f"))) static int64_t by_avx512(int64_t turns, float *sum)
{
    RUN(__m512, 16);
}
#undef splat
#undef step
#undef first_of

#define splat(x_)    _mm256_set1_ps(x_)
#define step(s_)     _mm256_fmadd_ps(s_, half, two)
#define first_of(s_) _mm256_cvtss_f32(s_)
__attribute__((target("avx2,fma"))) static int64_t by_fma(int64_t turns, float *sum)
{
    RUN(__m256, 8);
}
#undef step

#define step(s_) _mm256_add_ps(_mm256_mul_ps(s_, half), two)
__attribute__((target("avx"))) static int64_t by_avx(int64_t turns, float *sum)
{
    RUN(__m256, 8);
}
#undef splat
#undef step
#undef first_of

#define splat(x_)    _mm_set1_ps(x_)
#define step(s_)     _mm_add_ps(_mm_mul_ps(s_, half), two)
#define first_of(s_) _mm_cvtss_f32(s_)
static int64_t by_sse(int64_t turns, float *sum)
{
    RUN(__m128, 4);
}

int64_t weft_i_peak_run(int64_t turns, float *sum)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return by_avx512(turns, sum);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return by_fma(turns, sum);
    return __builtin_cpu_supports("avx") ? by_avx(turns, sum) : by_sse(turns, sum);
}
#elif defined(__aarch64__)
#define splat(x_)    vdupq_n_f32(x_)
#define step(s_)     vfmaq_f32(s_, half, two)
#define first_of(s_) vgetq_lane_f32(s_, 0)
int64_t weft_i_peak_run(int64_t turns, float *sum)
{
    RUN(float32x4_t, 4);
}
#else
int64_t weft_i_peak_run(int64_t turns, float *sum)
{
    *sum = (float)turns;
    return 0;
}
#endif
