/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 for processors with AVX-512 BF16, and the packing that AMX needs too.  A tile of
 * the left operand has 16 lines of 32 values; one of the right operand has 16 pairs of k, each with
 * the pairs of 16 lines side by side.  As numbers of 32 bits, one is the other transposed.
 */
#include "kernels/product/bf16_x86.h"

#if defined(__AVX512BF16__)
#include "kernels/number/isa.h"

#include <immintrin.h>

enum { LINES = WEFT_I_BF16_LINES, DEPTH = WEFT_I_BF16_DEPTH, PAIRS = WEFT_I_BF16_PAIRS };
enum { BLOCK = WEFT_I_BF16_BLOCK };

/* 16 x 16 numbers of 32 bits: first within groups of 4 x 4, then the groups. */
static inline void transpose(__m512i r[16])
{
    __m512i s[16];
    for (int i = 0; i < 16; i += 4) {
        __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]),
                b = _mm512_unpackhi_epi32(r[i], r[i + 1]),
                c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]),
                d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        s[i] = _mm512_unpacklo_epi64(a, c);
        s[i + 1] = _mm512_unpackhi_epi64(a, c);
        s[i + 2] = _mm512_unpacklo_epi64(b, d);
        s[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(s[i], s[i + 4], 0x88),
                b = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0x88),
                c = _mm512_shuffle_i32x4(s[i], s[i + 4], 0xdd),
                d = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0xdd);
        r[i] = _mm512_shuffle_i32x4(a, b, 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(a, b, 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

/* Line i in r[i]. */
static inline void load_lines(__m512i r[16], const uint16_t *from, int64_t stride)
{
    for (int i = 0; i < LINES; i++)
        r[i] = _mm512_loadu_si512((const void *)(from + i * stride));
}

/* Pair p of all lines in r[p], where neighbouring lines lie side by side. */
static inline void load_pairs(__m512i r[16], const uint16_t *from, int64_t stride)
{
    for (int p = 0; p < PAIRS; p++) {
        const void *even = from + 2 * p * stride, *odd = from + (2 * p + 1) * stride;
        __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)even)),
                high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)odd));
        r[p] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
}

static inline void store(uint16_t *tile, const __m512i r[16])
{
    for (int i = 0; i < 16; i++)
        _mm512_store_si512((void *)(tile + i * DEPTH), r[i]);
}

/* Loads a tile's part.  True if the lines are in r, false if the pairs are. */
static inline bool load(__m512i r[16], const weft_i_bf16_lines *from)
{
    bool whole = from->lines >= LINES && from->depth >= DEPTH;
    if (whole && from->depth_stride == 1) {
        load_lines(r, from->data, from->line_stride);
        return true;
    }
    if (whole && from->line_stride == 1) {
        load_pairs(r, from->data, from->depth_stride);
        return false;
    }
    uint16_t stage[WEFT_I_BF16_TILE];
    weft_i_bf16_stage(stage, from);
    load_lines(r, stage, DEPTH);
    return true;
}

void weft_i_bf16_pack_lines(uint16_t *tile, const weft_i_bf16_lines *from)
{
    __m512i r[16];
    if (!load(r, from))
        transpose(r);
    store(tile, r);
}

void weft_i_bf16_pack_pairs(uint16_t *tile, const weft_i_bf16_lines *from)
{
    __m512i r[16];
    if (load(r, from))
        transpose(r);
    store(tile, r);
}

/* The quiet NaN of the sign for a NaN; else half a step and the even bit are added, in whole
 * numbers: VCVTNEPS2BF16 would drop denormal numbers. */
static inline __m256i round_16(const float *from)
{
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff),
                  sign = _mm512_set1_epi32(0x8000), nan = _mm512_set1_epi32(0x7fc0);
    __m512i bits = _mm512_loadu_si512((const void *)from), high = _mm512_srli_epi32(bits, 16);
    __m512i even = _mm512_and_si512(high, one);
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, half), even);
    __mmask16 is_nan =
        _mm512_cmp_ps_mask(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(bits), _CMP_UNORD_Q);
    __m512i r =
        _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), is_nan, _mm512_and_si512(high, sign), nan);
    return _mm512_cvtepi32_epi16(r);
}

void weft_i_bf16_round(uint16_t *out, int64_t row_stride, const float *sums, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, out += row_stride, sums += BLOCK) {
        _mm256_storeu_si256((__m256i *)(void *)out, round_16(sums));
        _mm256_storeu_si256((__m256i *)(void *)(out + LINES), round_16(sums + LINES));
    }
}

enum { ROWS = 8 }; /* at a time: with two vectors of columns each, half of the registers */

/* `left` begins at its first line here. */
static inline void eight_rows(float *z, const uint16_t *left, const uint16_t *right,
                              int64_t right_skip, int64_t tiles, bool gains)
{
    __m512 sum[ROWS][2];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = gains ? _mm512_loadu_ps(z + i * BLOCK + j * LINES) : _mm512_setzero_ps();
    for (int64_t t = 0; t < tiles; t++, left += WEFT_I_BF16_TILE, right += WEFT_I_BF16_TILE)
        for (int p = 0; p < PAIRS; p++) {
            __m512i b0 = _mm512_load_si512((const void *)(right + p * DEPTH)),
                    b1 = _mm512_load_si512((const void *)(right + right_skip + p * DEPTH));
            for (int i = 0; i < ROWS; i++) {
                int pair;
                __builtin_memcpy(&pair, left + i * DEPTH + 2 * p, sizeof pair);
                __m512i a = _mm512_set1_epi32(pair);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], (__m512bh)a, (__m512bh)b0);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], (__m512bh)a, (__m512bh)b1);
            }
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            _mm512_storeu_ps(z + i * BLOCK + j * LINES, sum[i][j]);
}

static void block(float *z, const uint16_t *left, int64_t left_skip, const uint16_t *right,
                  int64_t right_skip, int64_t tiles, bool gains)
{
    for (int i = 0; i < BLOCK; i += ROWS)
        eight_rows(z + i * BLOCK, left + i / LINES * left_skip + i % LINES * DEPTH, right,
                   right_skip, tiles, gains);
}

const weft_i_bf16_kernel *weft_i_bf16_avx512(void)
{
    static const weft_i_bf16_kernel kernel = {.name = "avx512",
                                              .text = "AVX-512 BF16",
                                              .usable = weft_i_isa_avx512_bf16,
                                              .pack_left = weft_i_bf16_pack_lines,
                                              .pack_right = weft_i_bf16_pack_pairs,
                                              .block = block,
                                              .round = weft_i_bf16_round};
    return &kernel;
}
#else
const weft_i_bf16_kernel *weft_i_bf16_avx512(void)
{
    return NULL;
}
#endif
