/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 by the tiles of AMX: four of sums, two of each operand. */
#include "kernels/product/bf16_x86.h"

#if defined(__AMX_BF16__)
#include "kernels/number/isa.h"

#include <immintrin.h>

enum { ROWS = 16, ROW_BYTES = 64 };

/* The layout that LDTILECFG reads.  A constant, because gcc 12 does not know that the instruction
 * reads it. */
static const struct {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes = {
    .palette = 1,
    .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                  ROW_BYTES},
    .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
};

/* Nor does it know what the other ones read and write. */
static inline void memory_is_read_and_written(void)
{
    __asm__ volatile("" ::: "memory");
}

static void begin(void)
{
    _tile_loadconfig(&shapes);
}

static void end(void)
{
    _tile_release();
}

static void block(float *z, const uint16_t *left, int64_t left_skip, const uint16_t *right,
                  int64_t right_skip, int64_t tiles, bool gains)
{
    enum { STRIDE = WEFT_I_BF16_BLOCK * sizeof(float) };
    float *below = z + ROWS * WEFT_I_BF16_BLOCK;
    memory_is_read_and_written();
    if (gains) {
        _tile_loadd(0, z, STRIDE);
        _tile_loadd(1, z + ROWS, STRIDE);
        _tile_loadd(2, below, STRIDE);
        _tile_loadd(3, below + ROWS, STRIDE);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t t = 0; t < tiles; t++, left += WEFT_I_BF16_TILE, right += WEFT_I_BF16_TILE) {
        _tile_loadd(4, left, ROW_BYTES);
        _tile_loadd(6, right, ROW_BYTES);
        _tile_loadd(7, right + right_skip, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, left + left_skip, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, z, STRIDE);
    _tile_stored(1, z + ROWS, STRIDE);
    _tile_stored(2, below, STRIDE);
    _tile_stored(3, below + ROWS, STRIDE);
    memory_is_read_and_written();
}

const weft_i_bf16_kernel *weft_i_bf16_amx(void)
{
    static const weft_i_bf16_kernel kernel = {.name = "amx",
                                              .text = "AMX",
                                              .usable = weft_i_isa_amx,
                                              .pack_left = weft_i_bf16_pack_lines,
                                              .pack_right = weft_i_bf16_pack_pairs,
                                              .begin = begin,
                                              .end = end,
                                              .block = block,
                                              .round = weft_i_bf16_round};
    return &kernel;
}
#else
const weft_i_bf16_kernel *weft_i_bf16_amx(void)
{
    return NULL;
}
#endif
