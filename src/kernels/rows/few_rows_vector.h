/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of VECTOR_BYTES for few_rows_loops.h: how floats of each dtype become a vector of sums, a
 * whole one or the first `n` elements of one, with zeros behind them; a product added to a sum; and
 * the lanes of a sum added in their order.
 */
#include "kernels/number/small.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef float v_float __attribute__((vector_size(VECTOR_BYTES)));
typedef double v_double __attribute__((vector_size(VECTOR_BYTES)));
typedef float quarter_float __attribute__((vector_size(16)));
typedef double quarter_double __attribute__((vector_size(16)));

static inline v_float load_f32(const float *x)
{
    v_float v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline v_double load_f64(const double *x)
{
    v_double v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* ---- by instruction set ---- */

#if VECTOR_BYTES == 64
#define FUSED        true
#define ACCUMULATORS 16
static inline v_float fma_float(v_float a, v_float b, v_float c)
{
    return (v_float)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline v_double fma_double(v_double a, v_double b, v_double c)
{
    return (v_double)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

static inline v_float widen_bf16(__m256i x)
{
    return (v_float)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

static inline v_float load_bf16(const uint16_t *x)
{
    return widen_bf16(_mm256_loadu_si256((const __m256i_u *)(const void *)x));
}

static inline v_float load_f16(const uint16_t *x)
{
    return (v_float)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)x));
}

static inline quarter_float quarter_of_float(const v_float *part)
{
    __m512 all = (__m512)*part;
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return (quarter_float)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline quarter_double quarter_of_double(const v_double *part)
{
    __m512d all = (__m512d)*part;
    __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(all), _mm512_extractf64x4_pd(all, 1));
    return (quarter_double)_mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
}

/* ---- */
#elif VECTOR_BYTES == 32
#define FUSED        true
#define ACCUMULATORS 8
static inline v_float fma_float(v_float a, v_float b, v_float c)
{
    return (v_float)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline v_double fma_double(v_double a, v_double b, v_double c)
{
    return (v_double)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}

static inline v_float load_bf16(const uint16_t *x)
{
    __m128i narrow = _mm_loadu_si128((const __m128i_u *)(const void *)x);
    return (v_float)_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16);
}

static inline v_float load_f16(const uint16_t *x)
{
    return (v_float)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(const void *)x));
}

static inline quarter_float quarter_of_float(const v_float *part)
{
    __m256 half = (__m256)(part[0] + part[1]);
    return (quarter_float)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline quarter_double quarter_of_double(const v_double *part)
{
    __m256d half = (__m256d)(part[0] + part[1]);
    return (quarter_double)_mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
}

/* ---- */
#else
static inline quarter_float quarter_of_float(const v_float *part)
{
    return (part[0] + part[2]) + (part[1] + part[3]);
}

static inline quarter_double quarter_of_double(const v_double *part)
{
    return (part[0] + part[2]) + (part[1] + part[3]);
}

#if defined(__aarch64__)
#define FUSED        true
#define ACCUMULATORS 16
static inline v_float fma_float(v_float a, v_float b, v_float c)
{
    return (v_float)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

static inline v_double fma_double(v_double a, v_double b, v_double c)
{
    return (v_double)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}

static inline v_float load_bf16(const uint16_t *x)
{
    return (v_float)vshll_n_u16(vld1_u16(x), 16);
}

static inline v_float load_f16(const uint16_t *x)
{
    return (v_float)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}
#else
#define FUSED        false
#define ACCUMULATORS 8
static inline v_float fma_float(v_float a, v_float b, v_float c)
{
    return a * b + c;
}

static inline v_double fma_double(v_double a, v_double b, v_double c)
{
    return a * b + c;
}

static __attribute__((noinline)) v_float load_by_element(const uint16_t *x,
                                                         float (*widen)(uint16_t x))
{
    float wide[VECTOR_BYTES / sizeof(float)];
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        wide[i] = widen(x[i]);
    return load_f32(wide);
}

static inline v_float load_f16(const uint16_t *x)
{
    return load_by_element(x, weft_i_f16_to_f32);
}

#if defined(__x86_64__)
static inline v_float load_bf16(const uint16_t *x)
{
    __m128i narrow = _mm_loadl_epi64((const __m128i_u *)(const void *)x);
    return (v_float)_mm_unpacklo_epi16(_mm_setzero_si128(), narrow);
}
#else
static inline v_float load_bf16(const uint16_t *x)
{
    return load_by_element(x, weft_i_bf16_to_f32);
}
#endif
#endif
#endif

/* ---- for all of them ---- */

static inline float sum_of_float(const v_float *part)
{
    quarter_float q = quarter_of_float(part);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

static inline double sum_of_double(const v_double *part)
{
    quarter_double q = quarter_of_double(part);
    return q[0] + q[1];
}

/* The sums of four columns at once, which takes half of the instructions. */
static inline void sum_four_float(float *out, const v_float *a, const v_float *b, const v_float *c,
                                  const v_float *d)
{
#if defined(__x86_64__)
    __m128 q = (__m128)quarter_of_float(a), r = (__m128)quarter_of_float(b),
           s = (__m128)quarter_of_float(c), t = (__m128)quarter_of_float(d);
    q = _mm_add_ps(_mm_unpacklo_ps(q, r), _mm_unpackhi_ps(q, r));
    s = _mm_add_ps(_mm_unpacklo_ps(s, t), _mm_unpackhi_ps(s, t));
    _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(q, s), _mm_movehl_ps(s, q)));
#else
    out[0] = sum_of_float(a);
    out[1] = sum_of_float(b);
    out[2] = sum_of_float(c);
    out[3] = sum_of_float(d);
#endif
}

static inline void sum_four_double(double *out, const v_double *a, const v_double *b,
                                   const v_double *c, const v_double *d)
{
    out[0] = sum_of_double(a);
    out[1] = sum_of_double(b);
    out[2] = sum_of_double(c);
    out[3] = sum_of_double(d);
}

/* The first n elements of a vector; behind them may be no memory. */
#if VECTOR_BYTES == 64
static inline v_float begin_f32(const float *x, int64_t n)
{
    return (v_float)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
}

static inline v_double begin_f64(const double *x, int64_t n)
{
    return (v_double)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), x);
}

static inline v_float begin_bf16(const uint16_t *x, int64_t n)
{
    return widen_bf16(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), x));
}

static inline v_float begin_f16(const uint16_t *x, int64_t n)
{
    return (v_float)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), x));
}
#else
#define BEGIN(dtype_, element_, vector_, sum_)                                            \
    static __attribute__((noinline)) vector_ begin_##dtype_(const element_ *x, int64_t n) \
    {                                                                                     \
        element_ all[VECTOR_BYTES / sizeof(sum_)] = {0};                                  \
        memcpy(all, x, (size_t)n * sizeof *x);                                            \
        return load_##dtype_(all);                                                        \
    }
BEGIN(f32, float, v_float, float)
BEGIN(f64, double, v_double, double)
BEGIN(bf16, uint16_t, v_float, float)
BEGIN(f16, uint16_t, v_float, float)
#endif
