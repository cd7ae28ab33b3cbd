/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 for Arm processors with BFMMLA, which multiplies 2 x 4 by 4 x 2.  A tile of
 * either operand is 8 groups of 4 values of k, each with those of all 16 lines one after the other.
 */
#include "kernels/product/bf16.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "kernels/number/isa.h"

#include <arm_neon.h>
#include <string.h>

enum { LINES = WEFT_I_BF16_LINES, DEPTH = WEFT_I_BF16_DEPTH, TILE = WEFT_I_BF16_TILE };
enum { BLOCK = WEFT_I_BF16_BLOCK };
enum { GROUP = 4 };                 /* values of k */
enum { PART = 8, TWOS = PART / 2 }; /* rows and columns at a time: 16 registers of sums */

/* Lines whose values of k lie side by side. */
static void pack_lines(uint16_t *tile, const uint16_t *from, int64_t stride)
{
    for (int i = 0; i < LINES; i++)
        for (int g = 0; g < DEPTH / GROUP; g++)
            memcpy(tile + (g * LINES + i) * GROUP, from + i * stride + g * GROUP,
                   GROUP * sizeof *tile);
}

/* Values of k whose lines lie side by side. */
static void pack_across(uint16_t *tile, const uint16_t *from, int64_t stride)
{
    for (int g = 0; g < DEPTH / GROUP; g++, from += GROUP * stride, tile += GROUP * LINES)
        for (int half = 0; half < 2; half++) {
            uint16x8x4_t four;
            for (int k = 0; k < GROUP; k++)
                four.val[k] = vld1q_u16(from + k * stride + half * 8);
            vst4q_u16(tile + half * 8 * GROUP, four);
        }
}

static void pack(uint16_t *tile, const weft_i_bf16_lines *from)
{
    bool whole = from->lines >= LINES && from->depth >= DEPTH;
    if (whole && from->depth_stride == 1) {
        pack_lines(tile, from->data, from->line_stride);
    } else if (whole && from->line_stride == 1) {
        pack_across(tile, from->data, from->depth_stride);
    } else {
        uint16_t stage[TILE];
        weft_i_bf16_stage(stage, from);
        pack_lines(tile, stage, DEPTH);
    }
}

/* Two lines of one group. */
static inline bfloat16x8_t two_lines(const uint16_t *at)
{
    return vreinterpretq_bf16_u16(vld1q_u16(at));
}

/* The registers hold 2 x 2 sums each: one row in the low, the other in the high half. */
static inline void eight_by_eight(float *z, const uint16_t *left, const uint16_t *right,
                                  int64_t tiles, bool gains)
{
    float32x4_t sum[TWOS][TWOS];
    for (int i = 0; i < TWOS; i++)
        for (int j = 0; j < TWOS; j++) {
            const float *at = z + 2 * i * BLOCK + 2 * j;
            sum[i][j] = gains ? vcombine_f32(vld1_f32(at), vld1_f32(at + BLOCK)) : vdupq_n_f32(0);
        }
    for (int64_t g = 0; g < tiles * DEPTH / GROUP;
         g++, left += LINES * GROUP, right += LINES * GROUP) {
        bfloat16x8_t b[TWOS];
        for (int j = 0; j < TWOS; j++)
            b[j] = two_lines(right + 2 * j * GROUP);
        for (int i = 0; i < TWOS; i++) {
            bfloat16x8_t a = two_lines(left + 2 * i * GROUP);
            for (int j = 0; j < TWOS; j++)
                sum[i][j] = vbfmmlaq_f32(sum[i][j], a, b[j]);
        }
    }
    for (int i = 0; i < TWOS; i++)
        for (int j = 0; j < TWOS; j++) {
            float *at = z + 2 * i * BLOCK + 2 * j;
            vst1_f32(at, vget_low_f32(sum[i][j]));
            vst1_f32(at + BLOCK, vget_high_f32(sum[i][j]));
        }
}

static void block(float *z, const uint16_t *left, int64_t left_skip, const uint16_t *right,
                  int64_t right_skip, int64_t tiles, bool gains)
{
    for (int j = 0; j < BLOCK; j += PART)
        for (int i = 0; i < BLOCK; i += PART)
            eight_by_eight(z + i * BLOCK + j, left + i / LINES * left_skip + i % LINES * GROUP,
                           right + j / LINES * right_skip + j % LINES * GROUP, tiles, gains);
}

const weft_i_bf16_kernel *weft_i_bf16_neon(void)
{
    static const weft_i_bf16_kernel kernel = {.name = "neon",
                                              .text = "BFMMLA",
                                              .usable = weft_i_isa_bfmmla,
                                              .pack_left = pack,
                                              .pack_right = pack,
                                              .block = block};
    return &kernel;
}
#else
const weft_i_bf16_kernel *weft_i_bf16_neon(void)
{
    return NULL;
}
#endif
