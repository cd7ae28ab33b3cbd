/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles: see cut.h.  BLAS libraries have threads of their own, which are left alone (blas.c): those of two
 * pools would wait for each other's work in loops, and how a library cuts a product may depend on how many
 * it has.  OpenBLAS takes other loops for small products; tiles are larger than those.
 */
#include "kernels/product/cut.h"

#include "base/os/os.h"
#include "base/team/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    /* Multiplications of a tile at least.  That takes 80 to 160 us; and below 28 * 512 * 512 some versions of
     * OpenBLAS have other loops. */
    TILE = 15 << 19,
    FIXED = 16,       /* tiles of a library that is not even, at most */
    BLAS_GRAIN = 16,  /* rows or columns of the kernels of a BLAS, or a multiple */
    BLAS_DEPTH = 400, /* of a trial: more than a block of k */
    BLAS_ROWS = 2 * 96 + 7,
    BLAS_COLUMNS = 2 * 112 + 5
};

typedef struct grid {
    const weft_i_matrix *out, *a, *b;
    int64_t rows, columns; /* of tiles */
    int grain;
    weft_i_cut_way *way;
    const void *state;
    atomic_bool failed; /* relaxed: read when the turn is over */
} grid;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Columns [from, to) of x. */
static weft_i_matrix columns_of(const weft_i_matrix *x, int64_t from, int64_t to)
{
    weft_i_matrix turned = weft_i_matrix_transposed(x),
                  part = weft_i_matrix_rows(&turned, from, to);
    return weft_i_matrix_transposed(&part);
}

/* Where row or column `number` of tiles begins: at a whole grain; what is left over belongs to the last. */
static int64_t bound(int64_t size, int grain, int64_t tiles, int64_t number)
{
    return number == tiles ? size : weft_i_team_bound(size / grain, tiles, number) * grain;
}

static void multiply_tile(void *state, int64_t part)
{
    grid *g = state;
    int64_t row = part / g->columns, column = part % g->columns;
    int64_t top = bound(g->out->rows, g->grain, g->rows, row),
            bottom = bound(g->out->rows, g->grain, g->rows, row + 1);
    int64_t left = bound(g->out->columns, g->grain, g->columns, column),
            right = bound(g->out->columns, g->grain, g->columns, column + 1);
    weft_i_matrix rows = weft_i_matrix_rows(g->out, top, bottom),
                  out = columns_of(&rows, left, right);
    weft_i_matrix a = weft_i_matrix_rows(g->a, top, bottom), b = columns_of(g->b, left, right);
    if (!g->way(g->state, &out, &a, &b))
        atomic_store_explicit(&g->failed, true, memory_order_relaxed);
}

/* How many tiles the product is worth, `most` at most. */
static int64_t tiles_of(const weft_i_matrix *out, int64_t depth, int64_t most)
{
    double work = (double)out->rows * (double)out->columns * (double)depth / TILE;
    return work < 2 ? 1 : work < (double)most ? (int64_t)work : most;
}

/* Into how many `size` can be cut, `tiles` at most, if the smallest part has `least` or more. */
static int64_t count_of(int64_t size, int grain, int64_t tiles, double least)
{
    int64_t count = smaller(tiles, size / grain);
    while (count > 1 && (double)(size / grain / count * grain) < least)
        count--;
    return count > 1 ? count : 1;
}

/*
 * Along the longer side of the result: each thread packs its own part of one operand and all of the
 * other, which is the shorter then.  Along both where that side has not enough grains.
 */
static void arrange(grid *g, int64_t tiles)
{
    bool wide = g->out->columns >= g->out->rows;
    int64_t longer = wide ? g->out->columns : g->out->rows,
            shorter = wide ? g->out->rows : g->out->columns;
    double line =
        (double)g->a->columns * (double)shorter; /* work of a row or column of the longer */
    int64_t along = count_of(longer, g->grain, tiles, TILE / line);
    line = (double)g->a->columns * (double)(longer / g->grain / along * g->grain);
    int64_t across =
        along * 2 > tiles ? 1 : count_of(shorter, g->grain, tiles / along, TILE / line);
    g->columns = wide ? along : across;
    g->rows = wide ? across : along;
}

static bool multiply_tiles(grid *g, int64_t tiles)
{
    arrange(g, tiles);
    weft_i_team_run(g->rows * g->columns, multiply_tile, g);
    return !atomic_load_explicit(&g->failed, memory_order_relaxed);
}

bool weft_i_cut(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b, int grain,
                weft_i_cut_way *way, const void *state)
{
    int64_t tiles = tiles_of(out, a->columns, TILE);
    if (tiles > 1)
        tiles = smaller(tiles, weft_i_team_threads());
    if (tiles < 2)
        return way(state, out, a, b);
    grid g = {.out = out, .a = a, .b = b, .grain = grain, .way = way, .state = state};
    return multiply_tiles(&g, tiles);
}

/* ---- by CBLAS ---- */

static bool by_blas(const void *state, const weft_i_matrix *out, const weft_i_matrix *a,
                    const weft_i_matrix *b)
{
    weft_i_matrix_by_blas(state, out, a, b);
    return true;
}

void weft_i_cut_by_blas(const weft_i_blas *blas, const weft_i_matrix *out, const weft_i_matrix *a,
                        const weft_i_matrix *b)
{
    if (tiles_of(out, a->columns, 2) < 2) {
        weft_i_matrix_by_blas(blas, out, a, b);
    } else if (weft_i_cut_is_even(out->dtype)) {
        weft_i_cut(out, a, b, BLAS_GRAIN, by_blas, blas);
    } else {
        grid g = {.out = out, .a = a, .b = b, .grain = BLAS_GRAIN, .way = by_blas, .state = blas};
        multiply_tiles(&g, tiles_of(out, a->columns, FIXED));
    }
}

/* ---- is it even? ---- */

/* Numbers whose products differ in all bits; the same ones each time. */
static void put_numbers(weft_dtype dtype, void *out, int64_t count)
{
    uint32_t bits = 12345;
    for (int64_t i = 0; i < count; i++) {
        bits = bits * 1664525 + 1013904223;
        double x = (double)(int32_t)bits * 0x1p-31;
        if (dtype == WEFT_F32)
            ((float *)out)[i] = (float)x;
        else
            ((double *)out)[i] = x;
    }
}

/* One product, whole and in two tiles; a and b may lie either way. */
static bool is_even_for(const weft_i_blas *blas, weft_dtype dtype, char *memory, bool turn_a,
                        bool turn_b)
{
    enum { ROWS = BLAS_ROWS, COLUMNS = BLAS_COLUMNS, DEPTH = BLAS_DEPTH };
    size_t size = weft_i_dtype_size(dtype), bytes = (size_t)ROWS * COLUMNS * size;
    weft_i_matrix whole = {dtype, memory, ROWS, COLUMNS, COLUMNS, 1}, tiles = whole;
    tiles.data = memory + bytes;
    char *left = tiles.data + bytes, *right = left + (size_t)ROWS * DEPTH * size;
    weft_i_matrix a = {dtype, left, ROWS, DEPTH, turn_a ? 1 : DEPTH, turn_a ? ROWS : 1};
    weft_i_matrix b = {dtype, right, DEPTH, COLUMNS, turn_b ? 1 : COLUMNS, turn_b ? DEPTH : 1};
    grid g = {.out = &tiles, .a = &a, .b = &b, .grain = BLAS_GRAIN, .way = by_blas, .state = blas};
    g.rows = 1 + turn_a; /* two tiles that are about as small as any */
    g.columns = 2 - turn_a;
    weft_i_matrix_by_blas(blas, &whole, &a, &b);
    for (int64_t tile = 0; tile < g.rows * g.columns; tile++)
        multiply_tile(&g, tile);
    return !memcmp(whole.data, tiles.data, bytes);
}

static bool is_even(const weft_i_blas *blas, weft_dtype dtype)
{
    int64_t numbers = (int64_t)BLAS_DEPTH * (BLAS_ROWS + BLAS_COLUMNS);
    size_t size = weft_i_dtype_size(dtype), results = (size_t)2 * BLAS_ROWS * BLAS_COLUMNS * size;
    char *memory = WEFT_OS->alloc_aligned(64, results + (size_t)numbers * size + 64);
    bool even = memory != NULL;
    if (memory)
        put_numbers(dtype, memory + results, numbers);
    for (int way = 0; way < 4 && even; way++)
        even = is_even_for(blas, dtype, memory, way & 1, way >> 1);
    WEFT_OS->free(memory);
    return even;
}

static pthread_once_t once_f32 = PTHREAD_ONCE_INIT, once_f64 = PTHREAD_ONCE_INIT;
static bool even_f32, even_f64; /* written once each, before anybody passes */

static void try_f32(void)
{
    even_f32 = is_even(weft_i_blas_get(), WEFT_F32);
}

static void try_f64(void)
{
    even_f64 = is_even(weft_i_blas_get(), WEFT_F64);
}

bool weft_i_cut_is_even(weft_dtype dtype)
{
    pthread_once(dtype == WEFT_F32 ? &once_f32 : &once_f64, dtype == WEFT_F32 ? try_f32 : try_f64);
    return dtype == WEFT_F32 ? even_f32 : even_f64;
}
