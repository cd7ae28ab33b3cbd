/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp of f32 by AVX-512, which multiplies by a power of two in one instruction that rounds once,
 * whatever the power: weft_i_exp_f32 takes two products and what they need.  The bits are the same.
 * Included by pointwise_loops.h, whose loop does the rest of less than a vector.
 */
#include <immintrin.h>

#define ALL(x_) _mm512_set1_ps(x_)

static inline __m512 exp_rest_16(__m512 r)
{
    __m512 r2 = _mm512_mul_ps(r, r);
    __m512 low = _mm512_fmadd_ps(ALL(WEFT_I_EXP_F32_3), r, ALL(WEFT_I_EXP_F32_2));
    __m512 high = _mm512_fmadd_ps(ALL(WEFT_I_EXP_F32_5), r, ALL(WEFT_I_EXP_F32_4));
    __m512 q = _mm512_fmadd_ps(r2, _mm512_fmadd_ps(r2, ALL(WEFT_I_EXP_F32_6), high), low);
    return _mm512_fmadd_ps(r, _mm512_fmadd_ps(r, q, ALL(1)), ALL(1));
}

static inline __m512 exp_16(__m512 x)
{
    __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    __m512 a = _mm512_max_ps(_mm512_min_ps(x, ALL(105)), ALL(-105)), round = ALL(WEFT_I_ROUND_F32);
    __m512 k = _mm512_sub_ps(_mm512_fmadd_ps(a, ALL(WEFT_I_PER_LN2_F32), round), round);
    __m512 r = _mm512_fmadd_ps(k, ALL(-WEFT_I_LN2_HIGH), a);
    __m512 power = exp_rest_16(_mm512_fmadd_ps(k, ALL(-WEFT_I_LN2_LOW), r));
    return _mm512_mask_scalef_ps(ALL(WEFT_I_NAN_F32), number, power, k);
}

#undef ALL

static void exp_by_scale(size_t n, void *out_, const void *const *in)
{
    float *out = out_;
    const float *x = in[0];
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, exp_16(_mm512_loadu_ps(x + i)));
    exp_F32(n - i, out + i, (const void *const[]){x + i});
}
