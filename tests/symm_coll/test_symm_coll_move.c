/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/vdev.c, symm_coll/tile.c, symm/put.c */
/*
 * Operations on symmetric memory that move rows, tiles and plain bytes: all_to_all with sizes in
 * memory, there and back; tiles of every kind of stride; puts, gets and signals; and what each of
 * them refuses.
 */
#include "symm_info.h"
#include "symm_jobs.h"

#include "fabric/group/group.h"

#include <weft/weft.h>

/* ---- all_to_all with sizes in memory ---- */

/* Rows that rank `from` has for expert `e` of rank `to`; some have none. */
static int64_t rows_for(int from, int to, int e)
{
    return (from * 3 + to * 5 + e * 2) % 4;
}

/* What is in such a row. */
static float row_value(int from, int to, int e, int64_t row)
{
    return (float)(from * 1000 + to * 100 + e * 10 + row);
}

enum { WIDTH = 3, ROOM = 400 };

static float *append_rows(float *at, int from, int to, int e)
{
    for (int64_t row = 0; row < rows_for(from, to, e); row++)
        for (int i = 0; i < WIDTH; i++)
            *at++ = row_value(from, to, e, row);
    return at;
}

static void check_rows(weft_tensor *out, int64_t at, int from, int to, int e)
{
    const float *data = (const float *)weft_tensor_data(out) + at * WIDTH;
    for (int64_t row = 0; row < rows_for(from, to, e); row++)
        for (int i = 0; i < WIDTH; i++, data++)
            if (*data != row_value(from, to, e, row))
                FAIL("row %lld from rank %d for expert %d is %g, not %g", (long long)row, from, e,
                     (double)*data, (double)row_value(from, to, e, row));
}

static weft_tensor *rows_tensor(void)
{
    return weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROOM, WIDTH));
}

/* Dispatch to experts and back again. */
static void dispatch(int rank, int size, int experts, int64_t align, weft_group *world)
{
    int64_t entries = size * experts;
    weft_tensor *in = rows_tensor(), *out = rows_tensor(), *back = rows_tensor();
    weft_tensor *splits = symmetric(WEFT_I64, entries);
    weft_tensor *table = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, entries));
    weft_tensor *last = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, entries));
    int64_t *split = weft_tensor_data(splits), *entry = weft_tensor_data(table);
    float *at = weft_tensor_data(in);
    for (int to = 0; to < size; to++)
        for (int e = 0; e < experts; e++) {
            *split++ = rows_for(rank, to, e);
            at = append_rows(at, rank, to, e);
        }
    weft_fill(out, -1);
    CHECK_OK(weft_symm_all_to_all_vdev_2d(out, table, in, splits, align, world));
    int64_t row = 0, received = 0;
    for (int e = 0; e < experts; e++) {
        int64_t start = row;
        for (int from = 0; from < size; from++) {
            CHECK_INT(entry[e * size + from], rows_for(from, rank, e));
            CHECK_INT(entry[entries + e * size + from], row);
            check_rows(out, row, from, rank, e);
            row += rows_for(from, rank, e);
        }
        received += row - start;
        int64_t length = (row - start + align - 1) / align * align;
        row = start + (length > align ? length : align);
    }
    int64_t untouched = 0;
    for (int64_t i = 0; i < ROOM * WIDTH; i++)
        untouched += ((float *)weft_tensor_data(out))[i] == -1;
    CHECK_INT(untouched, (ROOM - received) * WIDTH);

    CHECK_OK(weft_symm_all_to_all_vdev_2d_offset(back, last, out, table, world));
    CHECK(!memcmp(weft_tensor_data(last), weft_tensor_data(splits), (size_t)entries * 8));
    size_t sent = (size_t)(at - (float *)weft_tensor_data(in)) * sizeof(float);
    CHECK(!memcmp(weft_tensor_data(back), weft_tensor_data(in), sent));
}

static void vdev(int rank, int size)
{
    weft_group *world = join(rank);
    weft_tensor *in = rows_tensor(), *splits = symmetric(WEFT_I64, size + 1);
    splits = weft_slice(splits, 0, 1, size + 1, 1);
    /* What others do not read may lie anywhere. */
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROOM, WIDTH));
    weft_tensor *table = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, size));
    float *at = weft_tensor_data(in);
    for (int to = 0; to < size; to++) {
        ((int64_t *)weft_tensor_data(splits))[to] = rows_for(rank, to, 0);
        at = append_rows(at, rank, to, 0);
    }
    CHECK_OK(weft_symm_all_to_all_vdev(out, table, in, splits, world));
    int64_t row = 0;
    for (int from = 0; from < size; from++) {
        CHECK_INT(weft_item_int(table, from), rows_for(from, rank, 0));
        CHECK_INT(weft_item_int(table, size + from), row);
        check_rows(out, row, from, rank, 0);
        row += rows_for(from, rank, 0);
    }
    for (int experts = 1; experts <= 4; experts++)
        for (int64_t align = 1; align <= 8; align *= 2) {
            weft_scope_open();
            dispatch(rank, size, experts, align, world);
            weft_scope_close();
        }
    FINISH(world);
}

RANKS_TEST(test_symm_vdev_1, 1)
{
    vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_3, 3)
{
    vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_4, 4)
{
    vdev(rank, size);
}

/* What is wrong in one rank's splits is refused on all, and the group goes on. */
RANKS_TEST(test_symm_vdev_refused, 3)
{
    weft_group *world = join(rank);
    weft_tensor *in = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12, 2));
    weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12, 2), 7);
    weft_tensor *splits = symmetric(WEFT_I64, 3);
    weft_tensor *table = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 3), 7);
    int64_t *split = weft_tensor_data(splits);
    static const int64_t bad[][3] = {{-1, 2, 2}, {4, 4, 5}, {INT64_MAX, INT64_MAX, 2}, {0, 12, 0}};
    for (int i = 0; i < 4; i++) {
        for (int to = 0; to < 3; to++)
            split[to] = rank == 1 ? bad[i][to] : 1;
        CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, in, splits, world),
                     WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "rank 1");
        if (i == 3)
            CHECK_CONTAINS(weft_last_error(), "exceeds");
    }
    CHECK(weft_item(out, 0) == 7 && weft_item_int(table, 0) == 7);
    for (int to = 0; to < 3; to++)
        split[to] = 4;
    CHECK_OK(weft_symm_all_to_all_vdev(out, table, in, splits, world));

    weft_tensor *wider = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12, 3), 7);
    CHECK_STATUS(weft_symm_all_to_all_vdev(wider, table, in, splits, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "a row of the input has 8 bytes, one of the output 12");
    weft_tensor *ordinary = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(12, 2));
    CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, ordinary, splits, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, in, symmetric(WEFT_I32, 3), world),
                 WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, in, symmetric(WEFT_I64, 4), world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_all_to_all_vdev(in, table, in, splits, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_all_to_all_vdev_2d(out, table, in, splits, 0, world),
                 WEFT_ERR_INVALID_ARG);
    FINISH(world);
}

/* The same of the offsets, which the other form has; those of no rows are not looked at. */
RANKS_TEST(test_symm_vdev_offsets_refused, 2)
{
    weft_group *world = join(rank);
    weft_tensor *in = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *splits = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 2));
    weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 7);
    weft_tensor *table = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 2), 7);
    int64_t *split = weft_tensor_data(splits);
    static const int64_t offsets[] = {-1, 4, 5, INT64_MAX, INT64_MIN, 3};
    enum { CASES = sizeof offsets / sizeof *offsets };
    weft_fill(in, rank);
    for (int i = 0; i < CASES; i++) {
        split[0] = 0;
        split[2] = rank == 1 ? offsets[i] : 77; /* of no rows */
        split[1] = 1;
        split[3] = rank == 1 ? offsets[i] : 0;
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_status status = weft_symm_all_to_all_vdev_2d_offset(out, table, in, splits, world);
        CHECK_STATUS(status, i == CASES - 1 ? WEFT_OK : WEFT_ERR_INVALID_ARG);
        if (status < 0) {
            CHECK_CONTAINS(weft_last_error(), "rank 1 sends 1 rows from row");
            CHECK(weft_item(out, 0) == 7 && weft_item_int(table, 0) == 7);
        }
    }
    if (rank == 1) /* a row from each */
        CHECK(weft_item(out, 0) == 0 && weft_item(out, 1) == 1 && weft_item(out, 2) == 7);
    (void)size;
    FINISH(world);
}

/* ---- tiles ---- */

static void fill_grid(weft_tensor *x, int rank)
{
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        ((float *)weft_tensor_data(x))[i] = (float)(i + rank);
}

/* Element (i, j) of tile [top.., left..] of a grid of `width`, summed over the ranks. */
static double grid_sum(int size, int64_t width, int64_t i, int64_t j)
{
    return (double)size * (double)(i * width + j) + (double)(size * (size - 1)) / 2;
}

RANKS_TEST(test_symm_tile_reduce, 4)
{
    weft_group *world = join(rank);
    weft_tensor *grid = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 24));
    for (int kind = 0; kind < 4; kind++) {
        fill_grid(grid, rank);
        weft_tensor *result = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 24));
        weft_tensor *tile = weft_narrow(weft_narrow(grid, 0, 2, 8), 1, 5, 7);
        weft_tensor *out = weft_narrow(weft_narrow(result, 0, 2, 8), 1, 5, 7);
        if (kind == 1) { /* columns follow each other */
            tile = weft_transpose(tile, 0, 1);
            out = weft_transpose(out, 0, 1);
        } else if (kind == 2) { /* nothing does */
            tile = weft_slice(tile, 1, 0, 7, 2);
            out = weft_slice(out, 1, 0, 7, 2);
        } else if (kind == 3) {
            out = tile; /* in place */
        }
        int root = kind % size;
        CHECK_OK(weft_symm_tile_reduce(rank == root ? out : NULL, tile, WEFT_SUM, root, world));
        for (int64_t i = 0; rank == root && i < weft_tensor_size(out, 0); i++)
            for (int64_t j = 0; j < weft_tensor_size(out, 1); j++) {
                int64_t row = 2 + (kind == 1 ? j : i), column = 5 + (kind == 1 ? i : j);
                column += kind == 2 ? j : 0;
                CHECK(weft_item(out, i * weft_tensor_size(out, 1) + j) ==
                      grid_sum(size, 24, row, column));
            }
        if (kind < 3) { /* around the tile nothing has changed */
            CHECK(weft_item(result, 0) == 0 && weft_item(result, 16 * 24 - 1) == 0);
            CHECK(weft_item(grid, 2 * 24 + 5) == 2 * 24 + 5 + rank);
        }
    }
    FINISH(world);
}

RANKS_TEST(test_symm_multi_root_tile_reduce, 4)
{
    weft_group *world = join(rank);
    weft_tensor *grid = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 16));
    fill_grid(grid, rank);
    static const int roots[] = {3, 0, 2}; /* rank 1 is root of none */
    weft_tensor *tiles[3], *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    int mine = -1;
    for (int i = 0; i < 3; i++) {
        tiles[i] = weft_narrow(weft_narrow(grid, 0, i / 2 * 8, 8), 1, i % 2 * 8, 8);
        mine = roots[i] == rank ? i : mine;
    }
    CHECK_OK(
        weft_symm_multi_root_tile_reduce(mine < 0 ? NULL : out, tiles, roots, 3, WEFT_SUM, world));
    for (int64_t i = 0; mine >= 0 && i < 64; i++)
        CHECK(weft_item(out, i) == grid_sum(size, 16, mine / 2 * 8 + i / 8, mine % 2 * 8 + i % 8));
    CHECK_OK(weft_symm_multi_root_tile_reduce(NULL, NULL, NULL, 0, WEFT_SUM, world));

    static const int twice[] = {0, 0, 1};
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(out, tiles, twice, 3, WEFT_SUM, world),
                 WEFT_ERR_INVALID_ARG);
    weft_tensor *ordinary = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    CHECK_STATUS(weft_symm_tile_reduce(out, ordinary, WEFT_SUM, 0, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_tile_reduce(out, tiles[0], WEFT_SUM, 4, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_tile_reduce(tiles[1], tiles[0], WEFT_SUM, rank, world),
                 WEFT_ERR_INVALID_ARG);
    weft_tensor *whole = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8, 8));
    CHECK_STATUS(weft_symm_tile_reduce(whole, tiles[0], WEFT_SUM, rank, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "the input is f32, the output i32");
    weft_tensor *narrow = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 7));
    CHECK_STATUS(weft_symm_tile_reduce(narrow, tiles[0], WEFT_SUM, rank, world),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "expected out shape [8, 8], not [8, 7]");
    CHECK_STATUS(weft_symm_tile_reduce(out, tiles[0], WEFT_BAND, rank, world), WEFT_ERR_TYPE);
    FINISH(world);
}

/* One thing is wrong with each call, and all of them are refused before anything happens. */
RANKS_TEST(test_symm_tile_args, 2)
{
    weft_group *world = join(rank);
    weft_tensor *grid = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    weft_tensor *ints = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4, 4));
    fill_grid(grid, rank);
    weft_tensor *tile = weft_narrow(weft_narrow(grid, 0, 0, 4), 1, 0, 4);
    weft_tensor *second = weft_narrow(weft_narrow(grid, 0, 4, 4), 1, 4, 4);
    weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4), -7);
    weft_tensor *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 4));
    weft_tensor *flat = weft_reshape(out, WEFT_SHAPE(16));
    weft_tensor *row = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 4), -7);
    weft_tensor *folded = weft_expand(row, WEFT_SHAPE(4, 4));
    weft_tensor *mixed[] = {tile, ints}, *holes[] = {tile, NULL}, *two[] = {tile, second};
    const int roots[] = {rank, 1 - rank}, beyond[] = {rank, 2};
#define REFUSED(call_, status_, text_)              \
    do {                                            \
        weft_clear_error();                         \
        CHECK_STATUS((call_), (status_));           \
        CHECK_CONTAINS(weft_last_error(), (text_)); \
        CHECK(weft_item(out, 5) == -7);             \
    } while (0)
#define ONE(out_, in_) weft_symm_tile_reduce((out_), (in_), WEFT_SUM, rank, world)
#define MANY(out_, in_, roots_, count_) \
    weft_symm_multi_root_tile_reduce((out_), (in_), (roots_), (count_), WEFT_SUM, world)
    REFUSED(ONE(out, NULL), WEFT_ERR_INVALID_ARG, "the input tile is NULL");
    REFUSED(ONE(NULL, tile), WEFT_ERR_INVALID_ARG, "the output tile is NULL");
    REFUSED(ONE(out, meta), WEFT_ERR_UNSUPPORTED, "the input tile is on meta");
    REFUSED(ONE(meta, tile), WEFT_ERR_UNSUPPORTED, "the output tile is on meta");
    REFUSED(ONE(flat, tile), WEFT_ERR_INVALID_ARG, "the output tile has 1 dimensions, not 2");
    REFUSED(ONE(out, weft_select(grid, 0, 0)), WEFT_ERR_INVALID_ARG, "the input tile has 1 dim");
    REFUSED(ONE(folded, tile), WEFT_ERR_INVALID_ARG, "the output overlaps itself");
    REFUSED(ONE(weft_transpose(tile, 0, 1), tile), WEFT_ERR_INVALID_ARG, "apart from input tile 0");
    REFUSED(MANY(second, two, roots, 2), WEFT_ERR_INVALID_ARG, "apart from input tile 1");
    REFUSED(MANY(out, mixed, roots, 2), WEFT_ERR_TYPE, "tiles of f32 and i32");
    REFUSED(MANY(out, holes, roots, 2), WEFT_ERR_INVALID_ARG, "the input tile is NULL");
    REFUSED(MANY(out, two, beyond, 2), WEFT_ERR_INVALID_ARG, "root");
    REFUSED(MANY(out, two, roots, -1), WEFT_ERR_INVALID_ARG, "-1 tiles");
    REFUSED(MANY(out, NULL, roots, 1), WEFT_ERR_INVALID_ARG, "1 tiles");
    REFUSED(MANY(out, two, NULL, 1), WEFT_ERR_INVALID_ARG, "1 tiles");
#undef REFUSED
    weft_clear_error();
    CHECK(weft_item(row, 0) == -7 && weft_item(second, 0) == 4 * 8 + 4 + rank);
    static const int agreed[] = {1, 0};
    CHECK_OK(MANY(out, two, agreed, 2)); /* nothing has left a mark */
    CHECK(weft_item(out, 0) == grid_sum(size, 8, rank ? 0 : 4, rank ? 0 : 4));
#undef MANY
#undef ONE
    FINISH(world);
}

/* ---- one-sided ---- */

RANKS_TEST(test_symm_put_get, 3)
{
    weft_group *world = join(rank);
    weft_tensor *t = symmetric(WEFT_I32, 64);
    weft_tensor *view = weft_slice(t, 0, 16, 48, 1);
    weft_symm *mem = weft_symm_rendezvous(view, world);
    CHECK(mem);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    weft_tensor *mine = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8), 100 + rank);
    CHECK_OK(weft_symm_put(mem, next, mine, 24)); /* the last 8 of the view */
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (int64_t i = 0; i < 64; i++)
        CHECK_INT(weft_item_int(t, i), i >= 40 && i < 48 ? 100 + last : 0);
    weft_tensor *got = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2, 4));
    CHECK_OK(weft_symm_get(got, mem, next, 24));
    CHECK_INT(weft_item_int(got, 7), 100 + rank);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));

    for (int round = 1; round <= 20; round++) {
        weft_fill(mine, rank * 1000 + round);
        CHECK_OK(weft_symm_put_with_signal(mem, next, mine, 0, 1, WEFT_DEFAULT));
        CHECK_OK(weft_symm_wait_for_signal(mem, last, 1, WEFT_DEFAULT));
        CHECK_INT(weft_item_int(view, 0), last * 1000 + round);
        CHECK_INT(weft_item_int(view, 7), last * 1000 + round);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    }

    const int channels[] = {0, symm_info(mem).channels - 1}; /* the first and the last */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_symm_put_with_signal(mem, next, mine, 0, channels[i], WEFT_DEFAULT));
        CHECK_OK(weft_symm_wait_for_signal(mem, last, channels[i], WEFT_DEFAULT));
    }
    CHECK_STATUS(weft_symm_put_with_signal(mem, next, mine, 0, -1, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put_with_signal(mem, next, mine, 0, symm_info(mem).channels, 0),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(got, mem, size, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "invalid peer");
    CHECK_STATUS(weft_symm_get(got, mem, next, -1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "non-negative");
    CHECK_STATUS(weft_symm_get(got, mem, next, 25), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "exceeds");
    CHECK_STATUS(weft_symm_put(mem, next, mine, INT64_MAX), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "exceeds");
    CHECK_STATUS(weft_symm_get(weft_transpose(got, 0, 1), mem, next, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "contiguous");
    CHECK_STATUS(weft_symm_put_with_signal(mem, -1, mine, 0, 1, WEFT_DEFAULT),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put_with_signal(mem, next, mine, 0, 1 << 20, WEFT_DEFAULT),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_wait_for_signal(mem, next, 2, 50), WEFT_ERR_TIMEOUT);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    FINISH(world);
}

/* What is put is waited for: the result of an operation that others have not come to yet. */
RANKS_TEST(test_symm_put_of_pending, 2)
{
    enum { COUNT = 4096 };
    weft_group *world = join(rank);
    weft_tensor *x = symmetric(WEFT_F32, COUNT),
                *ones = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    for (int i = 0; i < 2; i++) { /* without a signal, and with one */
        CHECK_OK(weft_fill(x, 0));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        if (rank == 0)
            usleep(50000);
        weft_tensor *sum = weft_all_reduce(ones, WEFT_SUM, world);
        CHECK(sum);
        CHECK_OK(i ? weft_symm_put_with_signal(mem, rank, sum, 0, 0, WEFT_DEFAULT)
                   : weft_symm_put(mem, rank, sum, 0));
        if (i)
            CHECK_OK(weft_symm_wait_for_signal(mem, rank, 0, WEFT_DEFAULT));
        CHECK(weft_item(x, 0) == 2 && weft_item(x, COUNT - 1) == 2);
    }
    FINISH(world);
}

/* It is one operation: a put that cannot signal says so by its own name, with its bytes in the
 * record. */
RANKS_TEST(test_symm_put_with_signal_is_told, 2)
{
    weft_group *world = join(rank);
    weft_tensor *x = symmetric(WEFT_F32, 8), *two = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    weft_i_record_entry entry;
    if (rank == 0) {
        CHECK_OK(weft_symm_put_with_signal(mem, 1, two, 0, 3, WEFT_DEFAULT));
        CHECK(weft_i_record_last(weft_i_group_record(world), &entry));
        CHECK(!strcmp(entry.name, "put_with_signal") && entry.bytes == 8);
        CHECK_STATUS(weft_symm_put_with_signal(mem, 1, two, 0, 3, 20), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "put_with_signal on channel 3: waited 20 ms for ");
        CHECK_CONTAINS(weft_last_error(), "to take its last signal");
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    FINISH(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
