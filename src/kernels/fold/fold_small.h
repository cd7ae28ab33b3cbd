/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small floats for fold_loops.h: elements become f32, are summed and rounded once, all in
 * registers. There are two ways to hold them: `scalar`, one f32, of which compilers make vectors,
 * and `lanes`, eight at once, for the conversion instructions of x86-64 that compilers do not find
 * in loops.
 */

/* What is stored is never a NaN other than the canonical one. */
typedef f32 scalar;
enum { scalar_STEP = 1 };

static inline scalar scalar_set(f32 x)
{
    return x;
}

static inline scalar scalar_canon(scalar x)
{
    return CANON(f32, x);
}

static inline scalar scalar_load_f32(const void *from)
{
    return *(const any_f32 *)from;
}

static inline void scalar_store_f32(void *to, scalar x)
{
    *(any_f32 *)to = x;
}

static inline scalar scalar_load_bf16(const void *from)
{
    return weft_i_bf16_to_f32(*(const any_u16 *)from);
}

/* The canonical NaN needs no care: rounding cuts it to that of bf16. */
static inline void scalar_store_bf16(void *to, scalar x)
{
    u32 u = weft_i_f32_bits(x);
    *(any_u16 *)to = (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#if !defined(__F16C__)
#if defined(__aarch64__)
typedef __fp16 any_f16 ANY_ADDRESS; /* every such processor converts it, and so do vectors */

static inline scalar scalar_load_f16(const void *from)
{
    return (f32) * (const any_f16 *)from;
}

static inline void scalar_store_f16(void *to, scalar x)
{
    *(any_f16 *)to = (__fp16)x;
}
#else
static inline scalar scalar_load_f16(const void *from)
{
    return weft_i_f16_to_f32(*(const any_u16 *)from);
}

static inline void scalar_store_f16(void *to, scalar x)
{
    *(any_u16 *)to = weft_i_f32_to_f16(x);
}
#endif

static inline scalar scalar_load_f8e4m3(const void *from)
{
    return weft_i_f8e4m3_to_f32(*(const u8 *)from);
}

static inline scalar scalar_load_f8e5m2(const void *from)
{
    return weft_i_f8e5m2_to_f32(*(const u8 *)from);
}

static inline void scalar_store_f8e4m3(void *to, scalar x)
{
    *(u8 *)to = weft_i_f32_to_f8e4m3(x);
}

static inline void scalar_store_f8e5m2(void *to, scalar x)
{
    *(u8 *)to = weft_i_f32_to_f8e5m2(x);
}

#else /* x86-64 with F16C and AVX2 */
#include <immintrin.h>

typedef __m256 lanes;
enum { lanes_STEP = 8 };

static inline lanes lanes_set(f32 x)
{
    return _mm256_set1_ps(x);
}

static inline lanes lanes_canon(lanes x)
{
    return _mm256_blendv_ps(lanes_set(__builtin_nanf("")), x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
}

static inline lanes lanes_load_f32(const void *from)
{
    return _mm256_loadu_ps(from);
}

static inline void lanes_store_f32(void *to, lanes x)
{
    _mm256_storeu_ps(to, x);
}

static inline lanes lanes_load_f16(const void *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

static inline void lanes_store_f16(void *to, lanes x)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* f8e5m2 is the upper half of f16. */
static inline lanes lanes_load_f8e5m2(const void *from)
{
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64(from)));
}

/* By way of f16 rounded to odd (cut, and the last bit set if anything was cut), which does not
 * disturb the second rounding. */
static inline void lanes_store_f8e5m2(void *to, lanes x)
{
    __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m256i cut = _mm256_castps_si256(_mm256_cmp_ps(_mm256_cvtph_ps(h), x, _CMP_NEQ_UQ));
    __m128i cut16 = _mm_packs_epi32(_mm256_castsi256_si128(cut), _mm256_extracti128_si256(cut, 1));
    h = _mm_or_si128(h, _mm_srli_epi16(cut16, 15));
    __m128i even = _mm_and_si128(_mm_srli_epi16(h, 8), _mm_set1_epi16(1));
    h = _mm_add_epi16(h, _mm_add_epi16(even, _mm_set1_epi16(0x7f)));
    _mm_storel_epi64(to, _mm_packus_epi16(_mm_srli_epi16(h, 8), h));
}

/* As f16 the bits of f8e4m3 mean 1/256 of the number; those of its NaN mean 480/256. */
static inline lanes lanes_load_f8e4m3(const void *from)
{
    __m128i b = _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64(from));
    __m128i sign = _mm_and_si128(b, _mm_set1_epi16(INT16_MIN));
    __m128i h = _mm_or_si128(sign, _mm_srli_epi16(_mm_andnot_si128(sign, b), 1));
    lanes x = _mm256_mul_ps(_mm256_cvtph_ps(h), lanes_set(256));
    lanes magnitude = _mm256_andnot_ps(lanes_set(-0.0f), x);
    return _mm256_or_ps(x, _mm256_cmp_ps(magnitude, lanes_set(480), _CMP_EQ_OQ));
}

/* As weft_i_f32_to_f8e4m3: above the smallest normal by adding half a step, below it by adding a
 * number whose last place is the smallest step.  What is too large, NaN too, becomes 0x7f. */
static inline void lanes_store_f8e4m3(void *to, lanes x)
{
    const __m256i smallest = _mm256_set1_epi32((128 - 7) << 23);
    const __m256i step = _mm256_set1_epi32((127 + 24 - 7 - 3) << 23);
    const __m256i half = _mm256_set1_epi32((1 << 23) + (1 << 19) - 1 - ((128 - 7) << 23));
    __m256i sign = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MIN));
    __m256i u = _mm256_xor_si256(_mm256_castps_si256(x), sign);
    __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 20), _mm256_set1_epi32(1));
    __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), even), 20);
    lanes stepped = _mm256_add_ps(_mm256_castsi256_ps(u), _mm256_castsi256_ps(step));
    __m256i tiny = _mm256_sub_epi32(_mm256_castps_si256(stepped), step);
    __m256i r = _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(smallest, u));
    r = _mm256_min_epu32(r, _mm256_set1_epi32(0x7f));
    r = _mm256_or_si256(r, _mm256_srli_epi32(sign, 24));
    __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    _mm_storel_epi64(to, _mm_packus_epi16(h, h));
}
#endif

/* ---- loops over them ---- */

/*
 * Elements after the last whole step are padded to one, and the loop is run again on that.
 * `from` and `to` are (type, dtype) of what is read and written.
 */
#define CONVERSION(name_, how_, from_type_, from_, to_type_, to_)      \
    static void name_##_any(void *out, const void *in, size_t n)       \
    {                                                                  \
        const size_t whole = n - n % how_##_STEP, rest = n - whole;    \
        const any_##from_type_ *from = in;                             \
        any_##to_type_ *to = out;                                      \
        WEFT_I_VECTOR_LOOP                                             \
        for (size_t i = 0; i < whole; i += how_##_STEP)                \
            how_##_store_##to_(to + i, how_##_load_##from_(from + i)); \
        if (rest) {                                                    \
            from_type_ x[how_##_STEP] = {0};                           \
            to_type_ y[how_##_STEP];                                   \
            memcpy(x, from + whole, rest * sizeof *x);                 \
            name_##_any(y, x, how_##_STEP);                            \
            memcpy(to + whole, y, rest * sizeof *y);                   \
        }                                                              \
    }
#define WIDEN(how_, name_, type_)                                    \
    CONVERSION(widen_##name_, how_, type_, name_, f32, f32)          \
    static void widen_##name_(float *to, const void *from, size_t n) \
    {                                                                \
        widen_##name_##_any(to, from, n);                            \
    }
#define ROUND(how_, name_, type_)                                    \
    CONVERSION(round_##name_, how_, f32, f32, type_, name_)          \
    static void round_##name_(void *to, const float *from, size_t n) \
    {                                                                \
        round_##name_##_any(to, from, n);                            \
    }

/* A sum, multiplied by factors[0] before it is rounded. */
#define SMALL_SUM(name_, dtype_, how_, type_, inputs_, sum_)                              \
    static void name_(void *to_, void *twin, const void *const *in, size_t n,             \
                      const double *factors)                                              \
    {                                                                                     \
        const size_t whole = n - n % how_##_STEP, rest = n - whole;                       \
        const how_ scale = how_##_set(factors ? (f32)factors[0] : 1);                     \
        any_##type_ *to = to_;                                                            \
        const any_##type_ *x0 = in[0], *x1 = INPUT(1, inputs_), *x2 = INPUT(2, inputs_),  \
                          *x3 = INPUT(3, inputs_), *x4 = INPUT(4, inputs_),               \
                          *x5 = INPUT(5, inputs_), *x6 = INPUT(6, inputs_),               \
                          *x7 = INPUT(7, inputs_);                                        \
        (void)x1, (void)x2, (void)x3, (void)x4, (void)x5, (void)x6, (void)x7, (void)twin; \
        WEFT_I_VECTOR_LOOP                                                                \
        for (size_t i = 0; i < whole; i += how_##_STEP) {                                 \
            how_ r = (sum_(how_##_load_##dtype_)) * scale;                                \
            how_##_store_##dtype_(to + i, how_##_canon(r));                               \
        }                                                                                 \
        if (rest) {                                                                       \
            type_ x[inputs_][how_##_STEP] = {{0}};                                        \
            const void *padded[inputs_];                                                  \
            for (int k = 0; k < inputs_; k++) {                                           \
                memcpy(x[k], (const any_##type_ *)in[k] + whole, rest * sizeof **x);      \
                padded[k] = x[k];                                                         \
            }                                                                             \
            name_(x[0], NULL, padded, how_##_STEP, factors);                              \
            memcpy(to + whole, x[0], rest * sizeof **x);                                  \
        }                                                                                 \
    }
#define SMALL_OF_2(load_) load_(x0 + i) + load_(x1 + i)
#define SMALL_OF_3(load_) SMALL_OF_2(load_) + load_(x2 + i)
#define SMALL_OF_4(load_) SMALL_OF_3(load_) + load_(x3 + i)
#define SMALL_OF_8(load_) \
    SMALL_OF_4(load_) + load_(x4 + i) + load_(x5 + i) + load_(x6 + i) + load_(x7 + i)
/* ---- sums of bf16 ---- */

/* Two adjacent elements are the halves of a word and stay there: nothing has to be moved between
 * lanes. */
static inline f32 low_bf16(const any_u32 *from)
{
    return weft_i_f32_from_bits(*from << 16);
}

static inline f32 high_bf16(const any_u32 *from)
{
    return weft_i_f32_from_bits(*from & 0xffff0000);
}

/* Rounded to bf16, in the upper half. */
static inline u32 rounded_bf16(f32 x)
{
    u32 u = weft_i_f32_bits(CANON(f32, x));
    return u + 0x7fff + (u >> 16 & 1);
}

#define BF16_SUM(name_, inputs_, sum_)                                                           \
    static void name_(void *to_, void *twin, const void *const *in, size_t n,                    \
                      const double *factors)                                                     \
    {                                                                                            \
        const f32 scale = factors ? (f32)factors[0] : 1;                                         \
        any_u32 *to = to_;                                                                       \
        const any_u32 *x0 = in[0], *x1 = INPUT(1, inputs_), *x2 = INPUT(2, inputs_),             \
                      *x3 = INPUT(3, inputs_), *x4 = INPUT(4, inputs_), *x5 = INPUT(5, inputs_), \
                      *x6 = INPUT(6, inputs_), *x7 = INPUT(7, inputs_);                          \
        (void)x1, (void)x2, (void)x3, (void)x4, (void)x5, (void)x6, (void)x7, (void)twin;        \
        WEFT_I_VECTOR_LOOP                                                                       \
        for (size_t i = 0; i < n / 2; i++) {                                                     \
            f32 low = (sum_(low_bf16)) * scale, high = (sum_(high_bf16)) * scale;                \
            to[i] = rounded_bf16(low) >> 16 | (rounded_bf16(high) & 0xffff0000);                 \
        }                                                                                        \
        if (n % 2) {                                                                             \
            u16 x[inputs_][2] = {{0}};                                                           \
            const void *padded[inputs_];                                                         \
            for (int k = 0; k < inputs_; k++) {                                                  \
                x[k][0] = ((const any_u16 *)in[k])[n - 1];                                       \
                padded[k] = x[k];                                                                \
            }                                                                                    \
            name_(x[0], NULL, padded, 2, factors);                                               \
            ((any_u16 *)to_)[n - 1] = x[0][0];                                                   \
        }                                                                                        \
    }

WIDEN(scalar, bf16, u16)
ROUND(scalar, bf16, u16)
BF16_SUM(SUM_bf16_2, 2, SMALL_OF_2)
BF16_SUM(SUM_bf16_3, 3, SMALL_OF_3)
BF16_SUM(SUM_bf16_4, 4, SMALL_OF_4)
BF16_SUM(SUM_bf16_8, 8, SMALL_OF_8)

/* ---- the others ---- */

#define SMALL(how_, name_, type_)                                 \
    WIDEN(how_, name_, type_)                                     \
    ROUND(how_, name_, type_)                                     \
    SMALL_SUM(SUM_##name_##_2, name_, how_, type_, 2, SMALL_OF_2) \
    SMALL_SUM(SUM_##name_##_3, name_, how_, type_, 3, SMALL_OF_3) \
    SMALL_SUM(SUM_##name_##_4, name_, how_, type_, 4, SMALL_OF_4) \
    SMALL_SUM(SUM_##name_##_8, name_, how_, type_, 8, SMALL_OF_8)

#if defined(__F16C__)
SMALL(lanes, f16, u16)
SMALL(lanes, f8e4m3, u8)
SMALL(lanes, f8e5m2, u8)
#else
SMALL(scalar, f16, u16)
SMALL(scalar, f8e4m3, u8)
SMALL(scalar, f8e5m2, u8)
#endif
