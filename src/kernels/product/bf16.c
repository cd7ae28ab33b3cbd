/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over blocks, and the packing: a slice of columns of the right operand, then panels of
 * rows of the left one.  Sums are f32 until their k is done. */
#include "kernels/product/bf16.h"

#include "base/os/os.h"
#include "kernels/walk/copy.h"
#include "kernels/walk/loop.h"

#include <string.h>

enum { LINES = WEFT_I_BF16_LINES, DEPTH = WEFT_I_BF16_DEPTH, TILE = WEFT_I_BF16_TILE };
enum { BLOCK = WEFT_I_BF16_BLOCK };
/* Of the right operand SLICE columns and DEEP tiles of k, 1 MiB, are to stay in a second-level cache
 * while the rows pass by, a panel at a time.  Where k has more tiles, the sums of TALL rows wait for
 * the next of them. */
enum { SLICE = 512, DEEP = 32, TALL = 2048, PANEL = 64 };

const weft_i_bf16_kernel *weft_i_bf16_variant(int i)
{
    const weft_i_bf16_kernel *const all[] = {weft_i_bf16_amx(), weft_i_bf16_avx512(),
                                             weft_i_bf16_neon()};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        if (all[at] && i-- == 0)
            return all[at];
    return NULL;
}

void weft_i_bf16_stage(uint16_t stage[TILE], const weft_i_bf16_lines *from)
{
    int64_t lines = from->lines < LINES ? from->lines : LINES,
            depth = from->depth < DEPTH ? from->depth : DEPTH;
    memset(stage, 0, TILE * sizeof *stage);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = 0; k < depth; k++)
            stage[i * DEPTH + k] = from->data[i * from->line_stride + k * from->depth_stride];
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* One product: its operands and its memory. */
typedef struct walk {
    const weft_i_bf16_kernel *kernel;
    const weft_i_matrix *out;
    weft_i_bf16_lines left, right;
    int64_t tiles;       /* along k */
    int64_t slice, tall; /* columns and rows at a time, whole blocks */
    uint16_t *packed_left, *packed_right;
    float *sums; /* [slice / BLOCK][tall][BLOCK] */
} walk;

typedef void pack_tile(uint16_t *tile, const weft_i_bf16_lines *from);

/* Tile `t` of k of the strip that begins with `line`. */
static void pack_one(pack_tile *one, uint16_t *to, const weft_i_bf16_lines *from, int64_t line,
                     int64_t end, int64_t t)
{
    weft_i_bf16_lines part = *from;
    part.lines = line < end ? end - line : 0;
    part.depth = from->depth - t * DEPTH;
    part.data += line * from->line_stride + t * DEPTH * from->depth_stride;
    one(to, &part);
}

/* Strips of `tiles` tiles of k, the first of them `first`, of the lines [begin, end), rounded up to
 * blocks; in the order in which the operand lies in memory. */
static void pack(pack_tile *one, uint16_t *to, const weft_i_bf16_lines *from, int64_t begin,
                 int64_t end, int64_t first, int64_t tiles)
{
    int64_t strips = round_up(end - begin, BLOCK) / LINES;
    if (from->depth_stride == 1)
        for (int64_t i = 0; i < strips; i++)
            for (int64_t t = 0; t < tiles; t++)
                pack_one(one, to + (i * tiles + t) * TILE, from, begin + i * LINES, end, first + t);
    else
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t i = 0; i < strips; i++)
                pack_one(one, to + (i * tiles + t) * TILE, from, begin + i * LINES, end, first + t);
}

/* The sums of rows i and columns j: blocks that stand below each other in the matrix lie
 * one after the other. */
static float *sums_at(const walk *w, int64_t i, int64_t j)
{
    return w->sums + (j * w->tall + i * BLOCK);
}

/* Rounds the sums of at most a block of columns into the result. */
static void round_sums(const walk *w, const float *sums, char *out, int64_t rows, int64_t columns)
{
    int64_t size = (int64_t)sizeof(uint16_t);
    weft_i_loop loop = {.ndim = 2, .operands = 2, .dim = {rows, columns}};
    if (w->out->column_stride == 1 && columns == BLOCK && w->kernel->round) {
        w->kernel->round((uint16_t *)(void *)out, w->out->row_stride, sums, rows);
        return;
    }
    loop.data[0] = out;
    loop.stride[0][0] = w->out->row_stride * size;
    loop.stride[0][1] = w->out->column_stride * size;
    loop.data[1] = (char *)(uintptr_t)sums;
    loop.stride[1][0] = BLOCK * (int64_t)sizeof(float);
    loop.stride[1][1] = sizeof(float);
    weft_i_copy(&loop, WEFT_BF16, WEFT_F32);
}

/* Adds the part of k that is `tiles` tiles, the first of them `first`, to the sums of a panel. */
static void multiply_panel(const walk *w, int64_t row, int64_t rows, int64_t columns, int64_t first,
                           int64_t tiles)
{
    int64_t skip = tiles * TILE;
    pack(w->kernel->pack_left, w->packed_left, &w->left, row, row + rows, first, tiles);
    for (int64_t j = 0; j < columns; j += BLOCK)
        for (int64_t i = 0; i < rows; i += BLOCK)
            w->kernel->block(sums_at(w, row % w->tall + i, j), w->packed_left + i / LINES * skip,
                             skip, w->packed_right + j / LINES * skip, skip, tiles, first > 0);
}

/* All of k for `tall` rows, beginning with `row`. */
static void multiply_rows(const walk *w, int64_t row, int64_t column, int64_t columns)
{
    int64_t end = smaller(row + w->tall, w->left.lines);
    for (int64_t t = 0; t < w->tiles; t += DEEP) {
        int64_t tiles = smaller(DEEP, w->tiles - t);
        if (row == 0 || w->tiles > DEEP) /* else it is still there */
            pack(w->kernel->pack_right, w->packed_right, &w->right, column, column + columns, t,
                 tiles);
        for (int64_t i = row; i < end; i += PANEL)
            multiply_panel(w, i, smaller(PANEL, end - i), columns, t, tiles);
    }
    for (int64_t j = 0; j < columns; j += BLOCK) {
        int64_t at = row * w->out->row_stride + (column + j) * w->out->column_stride;
        round_sums(w, sums_at(w, 0, j), w->out->data + at * (int64_t)sizeof(uint16_t), end - row,
                   smaller(BLOCK, columns - j));
    }
}

static void multiply(const walk *w)
{
    if (w->kernel->begin)
        w->kernel->begin();
    for (int64_t column = 0; column < w->right.lines; column += w->slice)
        for (int64_t row = 0; row < w->left.lines; row += w->tall)
            multiply_rows(w, row, column, smaller(w->slice, w->right.lines - column));
    if (w->kernel->end)
        w->kernel->end();
}

bool weft_i_bf16_multiply(const weft_i_bf16_kernel *kernel, const weft_i_matrix *out,
                          const weft_i_matrix *a, const weft_i_matrix *b)
{
    walk w = {.kernel = kernel, .out = out, .tiles = round_up(a->columns, DEPTH) / DEPTH};
    w.left = (weft_i_bf16_lines){(const uint16_t *)(const void *)a->data, a->rows, a->columns,
                                 a->row_stride, a->column_stride};
    w.right = (weft_i_bf16_lines){(const uint16_t *)(const void *)b->data, b->columns, b->rows,
                                  b->column_stride, b->row_stride};
    w.slice = smaller(SLICE, round_up(out->columns, BLOCK));
    w.tall = smaller(w.tiles > DEEP ? TALL : PANEL, round_up(out->rows, BLOCK));
    size_t depth = (size_t)smaller(DEEP, w.tiles) * DEPTH,
           right = (size_t)w.slice * depth * sizeof(uint16_t),
           left = (size_t)smaller(PANEL, w.tall) * depth * sizeof(uint16_t),
           sums = (size_t)w.tall * (size_t)w.slice * sizeof(float);
    char *memory = WEFT_OS->alloc_aligned(64, right + left + sums);
    if (!memory)
        return false;
    w.packed_right = (uint16_t *)(void *)memory;
    w.packed_left = (uint16_t *)(void *)(memory + right);
    w.sums = (float *)(void *)(memory + right + left);
    multiply(&w);
    WEFT_OS->free(memory);
    return true;
}
