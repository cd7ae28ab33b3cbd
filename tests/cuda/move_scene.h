/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on symmetric memory of a GPU that move rows and tiles: the bodies of the tests, for
 * every backend whose memory has them.  What is expected is worked out on the host.
 */
#ifndef WEFT_TESTS_CUDA_MOVE_SCENE_H
#define WEFT_TESTS_CUDA_MOVE_SCENE_H

#include "jobs.h"
#include "symm_info.h"

#define SCENE_GPU WEFT_CUDA(0)

enum { SCENE_WIDTH = 3, SCENE_ROOM = 200 };

/* How a scene gets its world: backends that must be started do that here. */
static weft_group *(*scene_begin)(int64_t timeout_ms) = join;

static weft_status scene_sync(void)
{
    return weft_stream_sync(weft_stream_current(SCENE_GPU), 30000);
}

static weft_tensor *scene_symmetric(weft_dtype dtype, weft_shape shape)
{
    weft_tensor *x = weft_symm_empty(dtype, SCENE_GPU, shape);
    if (!x)
        FAIL("weft_symm_empty: %s", weft_last_error());
    return x;
}

static weft_tensor *scene_here(weft_tensor *x)
{
    weft_tensor *here = weft_to(x, weft_tensor_dtype(x), WEFT_CPU);
    if (!here)
        FAIL("reading from the device: %s", weft_last_error());
    return weft_contiguous(here);
}

/* Rows that rank `from` has for expert `e` of rank `to`; some have none. */
static int64_t scene_rows(int from, int to, int e)
{
    return (from * 3 + to * 5 + e * 2) % 4;
}

static float scene_value(int from, int to, int e, int64_t row, int i)
{
    return (float)(from * 10000 + to * 1000 + e * 100 + row * 10 + i);
}

/* What a rank has for all experts of all ranks, row after row; returns the rows. */
static int64_t scene_fill_rows(weft_tensor *in, weft_tensor *splits, int rank, int size,
                               int experts)
{
    weft_tensor *rows = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SCENE_ROOM, SCENE_WIDTH));
    weft_tensor *counts = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(size * experts));
    float *at = weft_tensor_data(rows);
    int64_t *count = weft_tensor_data(counts), all = 0;
    for (int to = 0; to < size; to++)
        for (int e = 0; e < experts; e++) {
            for (int64_t row = 0; row < scene_rows(rank, to, e); row++)
                for (int i = 0; i < SCENE_WIDTH; i++)
                    *at++ = scene_value(rank, to, e, row, i);
            all += *count++ = scene_rows(rank, to, e);
        }
    CHECK_OK(weft_copy(in, rows));
    CHECK_OK(weft_copy(splits, counts));
    return all;
}

static void scene_check_rows(weft_tensor *out, int64_t at, int from, int to, int e)
{
    const float *data = (const float *)weft_tensor_data(out) + at * SCENE_WIDTH;
    for (int64_t row = 0; row < scene_rows(from, to, e); row++)
        for (int i = 0; i < SCENE_WIDTH; i++, data++)
            if (*data != scene_value(from, to, e, row, i))
                FAIL("row %lld from rank %d for expert %d is %g, not %g", (long long)row, from, e,
                     (double)*data, (double)scene_value(from, to, e, row, i));
}

/* What came to this rank lies by experts, aligned; the rest of the output is as it was. */
static void scene_check_dispatch(weft_tensor *out, weft_tensor *table, int rank, int size,
                                 int experts, int64_t align)
{
    weft_tensor *rows = scene_here(out), *entries = scene_here(table);
    const int64_t *entry = weft_tensor_data(entries);
    int64_t row = 0, received = 0, untouched = 0, all = (int64_t)size * experts;
    for (int e = 0; e < experts; e++) {
        int64_t start = row;
        for (int from = 0; from < size; from++) {
            CHECK_INT(entry[e * size + from], scene_rows(from, rank, e));
            CHECK_INT(entry[all + e * size + from], row);
            scene_check_rows(rows, row, from, rank, e);
            row += scene_rows(from, rank, e);
        }
        received += row - start;
        int64_t length = (row - start + align - 1) / align * align;
        row = start + (length > align ? length : align);
    }
    for (int64_t i = 0; i < SCENE_ROOM * SCENE_WIDTH; i++)
        untouched += ((float *)weft_tensor_data(rows))[i] == -1;
    CHECK_INT(untouched, (SCENE_ROOM - received) * SCENE_WIDTH);
}

/* Dispatch to experts and back again. */
static void scene_dispatch(int rank, int size, int experts, int64_t align, weft_group *world)
{
    int64_t entries = (int64_t)size * experts;
    weft_shape shape = WEFT_SHAPE(SCENE_ROOM, SCENE_WIDTH);
    weft_tensor *in = scene_symmetric(WEFT_F32, shape), *out = scene_symmetric(WEFT_F32, shape);
    weft_tensor *splits = scene_symmetric(WEFT_I64, WEFT_SHAPE(entries));
    weft_tensor *table = scene_symmetric(WEFT_I64, WEFT_SHAPE(2, entries));
    weft_tensor *back = weft_zeros(WEFT_F32, SCENE_GPU, shape);
    weft_tensor *last = weft_zeros(WEFT_I64, SCENE_GPU, WEFT_SHAPE(2, entries));
    int64_t sent = scene_fill_rows(in, splits, rank, size, experts);
    CHECK_OK(weft_fill(out, -1));
    CHECK_OK(weft_symm_all_to_all_vdev_2d(out, table, in, splits, align, world));
    CHECK_OK(weft_symm_all_to_all_vdev_2d_offset(back, last, out, table, world));
    CHECK_OK(scene_sync());
    scene_check_dispatch(out, table, rank, size, experts, align);
    CHECK(!memcmp(weft_tensor_data(scene_here(last)), weft_tensor_data(scene_here(splits)),
                  (size_t)entries * 8));
    CHECK(!memcmp(weft_tensor_data(scene_here(back)), weft_tensor_data(scene_here(in)),
                  (size_t)sent * SCENE_WIDTH * sizeof(float)));
}

static void scene_vdev(int rank, int size)
{
    weft_group *world = scene_begin(30000);
    weft_tensor *in = scene_symmetric(WEFT_F32, WEFT_SHAPE(SCENE_ROOM, SCENE_WIDTH));
    weft_tensor *splits = scene_symmetric(WEFT_I64, WEFT_SHAPE(size + 1));
    splits = weft_slice(splits, 0, 1, size + 1, 1);
    weft_tensor *out = weft_zeros(WEFT_F32, SCENE_GPU, WEFT_SHAPE(SCENE_ROOM, SCENE_WIDTH));
    weft_tensor *table = weft_zeros(WEFT_I64, SCENE_GPU, WEFT_SHAPE(2, size));
    scene_fill_rows(in, splits, rank, size, 1);
    CHECK_OK(weft_symm_all_to_all_vdev(out, table, in, splits, world));
    CHECK_OK(scene_sync());
    weft_tensor *rows = scene_here(out);
    int64_t row = 0;
    for (int from = 0; from < size; from++) {
        CHECK_INT(weft_item_int(table, from), scene_rows(from, rank, 0));
        CHECK_INT(weft_item_int(table, size + from), row);
        scene_check_rows(rows, row, from, rank, 0);
        row += scene_rows(from, rank, 0);
    }
    static const int64_t aligns[] = {1, 4, 8};
    for (int experts = 1; experts <= 3; experts++) {
        weft_scope_open();
        scene_dispatch(rank, size, experts, aligns[experts - 1], world);
        weft_scope_close();
    }
    finish(world);
}

/* What is wrong in one rank's splits is refused on all, nothing moves, and the group goes on. */
static void scene_vdev_refused(int rank, int size)
{
    static const int64_t bad[][3] = {{-1, 2, 2}, {4, 4, 5}, {INT64_MAX, INT64_MAX, 2}, {0, 12, 0}};
    weft_group *world = scene_begin(30000);
    weft_tensor *in = scene_symmetric(WEFT_F32, WEFT_SHAPE(12, 2));
    weft_tensor *out = weft_full(WEFT_F32, SCENE_GPU, WEFT_SHAPE(12, 2), 7);
    weft_tensor *splits = scene_symmetric(WEFT_I64, WEFT_SHAPE(3));
    weft_tensor *table = weft_full(WEFT_I64, SCENE_GPU, WEFT_SHAPE(2, 3), 7);
    weft_tensor *counts = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3));
    for (int i = 0; i < 5; i++) {
        for (int to = 0; to < size; to++)
            ((int64_t *)weft_tensor_data(counts))[to] = i == 4 ? 4 : rank == 1 ? bad[i][to] : 1;
        CHECK_OK(weft_copy(splits, counts));
        CHECK_OK(weft_symm_all_to_all_vdev(out, table, in, splits, world));
        if (i == 4)
            break;
        CHECK_STATUS(scene_sync(), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "all_to_all_vdev: ");
        CHECK_CONTAINS(weft_last_error(),
                       i == 3 ? "what rank 1 receives exceeds the 12 rows" : "splits of rank 1");
        CHECK_OK(scene_sync()); /* told once */
        weft_clear_error();
        CHECK(weft_item(out, 0) == 7 && weft_item_int(table, 0) == 7);
    }
    CHECK_OK(scene_sync());
    CHECK(weft_item(out, 23) == 0 && weft_item_int(table, 0) == 4);
    weft_tensor *ordinary = weft_zeros(WEFT_F32, SCENE_GPU, WEFT_SHAPE(12, 2));
    CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, ordinary, splits, world), WEFT_ERR_TYPE);
    weft_tensor *host = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_STATUS(weft_symm_all_to_all_vdev(out, table, in, host, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "the table of splits is on cpu, the input on cuda:0");
    finish(world);
}

/* ---- tiles ---- */

static void scene_fill_grid(weft_tensor *x, int rank)
{
    weft_tensor *here =
        weft_arange(WEFT_F32, WEFT_CPU, rank, (double)weft_tensor_numel(x) + rank, 1);
    CHECK_OK(weft_copy(weft_view(x, WEFT_SHAPE(weft_tensor_numel(x))), here));
}

static double scene_grid_sum(int size, int64_t width, int64_t i, int64_t j)
{
    return (double)size * (double)(i * width + j) + (double)(size * (size - 1)) / 2;
}

/* Kinds of tiles: by rows that are aligned or not, by columns, by neither, and in place. */
static weft_tensor *scene_tile(weft_tensor *grid, int kind)
{
    weft_tensor *tile = kind == 0 ? weft_narrow(weft_narrow(grid, 0, 2, 8), 1, 4, 8)
                                  : weft_narrow(weft_narrow(grid, 0, 2, 8), 1, 5, 7);
    return kind == 2 ? weft_transpose(tile, 0, 1) : kind == 3 ? weft_slice(tile, 1, 0, 7, 2) : tile;
}

static void scene_tile_reduce(int rank, int size)
{
    weft_group *world = scene_begin(30000);
    weft_tensor *grid = scene_symmetric(WEFT_F32, WEFT_SHAPE(16, 24));
    for (int kind = 0; kind < 5; kind++) {
        scene_fill_grid(grid, rank);
        weft_tensor *result = weft_zeros(WEFT_F32, SCENE_GPU, WEFT_SHAPE(16, 24));
        weft_tensor *tile = scene_tile(grid, kind);
        weft_tensor *out = kind == 4 ? tile : scene_tile(result, kind);
        int root = kind % size;
        CHECK_OK(weft_symm_tile_reduce(rank == root ? out : NULL, tile, WEFT_SUM, root, world));
        CHECK_OK(scene_sync());
        weft_tensor *here = scene_here(out);
        int64_t columns = weft_tensor_size(here, 1), left = kind == 0 ? 4 : 5;
        for (int64_t i = 0; rank == root && i < weft_tensor_size(here, 0); i++)
            for (int64_t j = 0; j < columns; j++) {
                int64_t row = 2 + (kind == 2 ? j : i), column = left + (kind == 2 ? i : j);
                column += kind == 3 ? j : 0;
                CHECK(weft_item(here, i * columns + j) == scene_grid_sum(size, 24, row, column));
            }
        if (kind < 4) { /* around the tile nothing has changed */
            CHECK(weft_item(result, 0) == 0 && weft_item(result, 16 * 24 - 1) == 0);
            CHECK(weft_item(result, 2 * 24 + left - 1) == 0);
            CHECK(weft_item(grid, 2 * 24 + 5) == 2 * 24 + 5 + rank);
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* the grid is filled again */
    }
    finish(world);
}

static void scene_multi_root(int rank, int size)
{
    static const int roots[] = {3, 0, 2}; /* rank 1 is root of none */
    weft_group *world = scene_begin(30000);
    weft_tensor *grid = scene_symmetric(WEFT_BF16, WEFT_SHAPE(16, 16));
    CHECK_OK(weft_fill(grid, rank + 1));
    weft_tensor *tiles[3], *out = weft_zeros(WEFT_BF16, SCENE_GPU, WEFT_SHAPE(8, 8));
    int mine = -1;
    for (int i = 0; i < 3; i++) {
        tiles[i] = weft_narrow(weft_narrow(grid, 0, i / 2 * 8, 8), 1, i % 2 * 8, 8);
        CHECK_OK(weft_fill(tiles[i], (rank + 1) * (i + 1)));
        mine = roots[i] == rank ? i : mine;
    }
    CHECK_OK(
        weft_symm_multi_root_tile_reduce(mine < 0 ? NULL : out, tiles, roots, 3, WEFT_AVG, world));
    CHECK_OK(scene_sync());
    weft_tensor *here = scene_here(out);
    for (int64_t i = 0; mine >= 0 && i < 64; i++)
        CHECK(weft_item(here, i) == (mine + 1) * (size + 1) / 2.0);
    CHECK_OK(weft_symm_multi_root_tile_reduce(NULL, NULL, NULL, 0, WEFT_SUM, world));
    weft_tensor *host = weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8, 8));
    CHECK_STATUS(weft_symm_tile_reduce(host, tiles[0], WEFT_SUM, rank, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tiles on cuda:0 and cpu");
    /* Ranks that mean different tiles learn it. */
    weft_clear_error();
    CHECK_OK(weft_symm_tile_reduce(rank == 0 ? out : NULL, tiles[rank == 1], WEFT_SUM, 0, world));
    CHECK_STATUS(scene_sync(), WEFT_ERR_MISMATCH);
    finish(world);
}

/* ---- one-sided ---- */

static void scene_barrier(weft_symm *mem, int channel)
{
    CHECK_OK(weft_symm_barrier(mem, channel, WEFT_DEFAULT));
    CHECK_OK(scene_sync());
}

/* `counts`: signals that come with data do not wait until the last is taken. */
static void scene_put_get(int rank, int size, bool counts)
{
    weft_group *world = scene_begin(30000);
    weft_tensor *t = weft_symm_empty(WEFT_I32, SCENE_GPU, WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(weft_slice(t, 0, 16, 48, 1), world);
    if (!mem)
        FAIL("%s", weft_last_error());
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    weft_tensor *mine = weft_full(WEFT_I32, SCENE_GPU, WEFT_SHAPE(8), 100 + rank);
    CHECK_OK(weft_symm_put(mem, next, mine, 24)); /* the last 8 of the view */
    scene_barrier(mem, 0);
    for (int64_t i = 36; i < 52; i++)
        CHECK_INT(weft_item_int(t, i), i >= 40 && i < 48 ? 100 + last : 0);
    weft_tensor *got = weft_zeros(WEFT_I32, SCENE_GPU, WEFT_SHAPE(2, 4));
    CHECK_OK(weft_symm_get(got, mem, next, 24));
    CHECK_INT(weft_item_int(got, 7), 100 + rank);
    scene_barrier(mem, 0);
    int channels[] = {0, 1, symm_info(mem).channels - 1};
    for (int round = 0; round < 6; round++) {
        int channel = channels[round % 3];
        CHECK_OK(weft_fill(mine, rank * 1000 + round));
        CHECK_OK(weft_symm_put_with_signal(mem, next, mine, 0, channel, WEFT_DEFAULT));
        CHECK_OK(weft_symm_wait_for_signal(mem, last, channel, WEFT_DEFAULT));
        CHECK_OK(scene_sync());
        CHECK_INT(weft_item_int(t, 16), last * 1000 + round);
        CHECK_INT(weft_item_int(t, 23), last * 1000 + round);
        scene_barrier(mem, 0);
    }
    for (int i = 0; counts && i < 2; i++)
        CHECK_OK(weft_symm_put_with_signal(mem, next, mine, 8 * i, 1, WEFT_DEFAULT));
    CHECK_OK(scene_sync());
    scene_barrier(mem, 0);
    for (int i = 0; counts && i < 2; i++)
        CHECK_OK(weft_symm_wait_for_signal(mem, last, 1, WEFT_DEFAULT));
    CHECK_OK(scene_sync());
    CHECK_OK(weft_symm_put_signal(mem, next, 2, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(mem, last, 2, WEFT_DEFAULT));
    CHECK_OK(scene_sync());
    weft_tensor *host = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8));
    CHECK_STATUS(weft_symm_put(mem, next, host, 0), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_symm_put(mem, next, mine, 25), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(got, mem, size, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put_with_signal(mem, next, mine, 0, -1, 0), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_symm_wait_for_signal(mem, last, 3, 50)); /* which nobody sends */
    CHECK_STATUS(scene_sync(), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "channel 3");
    weft_clear_error();
    CHECK_OK(weft_symm_reset(mem, WEFT_DEFAULT));
    scene_barrier(mem, 0);
    finish(world);
}

#endif
