/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops over codes for one instruction set.  Included once by each coded_<instruction set>.c, which
 * defines TABLE, NAME_OF_TABLE and VECTOR_BYTES, the size of its registers.
 */
#include "kernels/rows/coded.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define ALWAYS inline __attribute__((always_inline))
enum { PER = VECTOR_BYTES / 4, PARTS = WEFT_I_CODED_GROUP / PER, HALF = WEFT_I_CODED_GROUP / 2 };

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

/* PER codes, of bytes. */
static ALWAYS vector widen(const int8_t *codes)
{
#if VECTOR_BYTES == 64
    return (vector)_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)(const void *)codes)));
#elif VECTOR_BYTES == 32
    return (vector)_mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)(const void *)codes)));
#elif defined(__aarch64__)
    int32_t four;
    memcpy(&four, codes, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return (vector)vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
#else
    return (vector){codes[0], codes[1], codes[2], codes[3]};
#endif
}

static ALWAYS vector load(const float *x)
{
    vector v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Adds the products of 32 codes, one to each lane. */
static ALWAYS void add_group(vector sum[PARTS], const int8_t *codes, const float *x)
{
    for (int i = 0; i < PARTS; i++)
        sum[i] += load(x + i * PER) * widen(codes + i * PER);
}

static ALWAYS void add_block(vector sum[PARTS], const vector part[PARTS], float scale)
{
    for (int i = 0; i < PARTS; i++)
        sum[i] += part[i] * (scale - (vector){0});
}

static ALWAYS float add_lanes(const vector sum[PARTS])
{
    float lane[WEFT_I_CODED_GROUP];
    memcpy(lane, sum, sizeof lane);
    for (int apart = HALF; apart; apart /= 2)
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    return lane[0];
}

static float dot8(const uint8_t *codes, const float *scales, const float *x, int64_t columns,
                  int64_t block)
{
    vector sum[PARTS] = {{0}};
    for (int64_t at = 0; at < columns; at += block) {
        vector part[PARTS] = {{0}};
        for (int64_t k = at; k < at + block; k += WEFT_I_CODED_GROUP)
            add_group(part, (const int8_t *)codes + k, x + k);
        add_block(sum, part, *scales++);
    }
    return add_lanes(sum);
}

/* The 32 codes of 16 bytes. */
static ALWAYS void unpack(int8_t out[WEFT_I_CODED_GROUP], const uint8_t *codes)
{
    typedef uint8_t bytes __attribute__((vector_size(16)));
    bytes both, low, high;
    memcpy(&both, codes, sizeof both);
    low = (both & 15) - 8;
    high = (both >> 4) - 8;
    memcpy(out, &low, sizeof low);
    memcpy(out + HALF, &high, sizeof high);
}

static float dot4(const uint8_t *codes, const float *scales, const float *x, int64_t columns,
                  int64_t block)
{
    vector sum[PARTS] = {{0}};
    for (int64_t at = 0; at < columns; at += block) {
        vector part[PARTS] = {{0}};
        for (int64_t k = at; k < at + block; k += WEFT_I_CODED_GROUP) {
            int8_t own[WEFT_I_CODED_GROUP];
            unpack(own, codes + k / 2);
            add_group(part, own, x + k);
        }
        add_block(sum, part, *scales++);
    }
    return add_lanes(sum);
}

const weft_i_coded_table TABLE = {NAME_OF_TABLE, dot8, dot4};
