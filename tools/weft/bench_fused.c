/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused products: all_gather in front of one and reduce_scatter behind one, fused, as the two
 * operations one after the other, and the product alone, which is the floor.  The three are timed
 * in turns from a common start; the slowest rank's median counts.
 */
#include "bench.h"

#include <weft/weft.h>

#include <stdio.h>

enum { TURNS = 11, ROWS = 1024, INNER = 1024, COLUMNS = 512 };
typedef enum what { PRODUCT, FUSED, PAIR, WHATS } what;
typedef enum side { GATHER, SCATTER, SIDES } side;

typedef struct fused {
    bench_board *board;
    weft_dtype dtype;
} fused;

typedef struct rank_state {
    weft_group *world;
    weft_tensor *shard, *whole, *b;
} rank_state;

static weft_tensor *gather(const rank_state *r, what which)
{
    weft_tensor *out = NULL;
    if (which == PRODUCT)
        return weft_mm(r->whole, r->b);
    if (which == PAIR)
        return weft_mm(weft_all_gather_tensor(r->shard, 0, r->world), r->b);
    return weft_all_gather_matmul(NULL, &out, r->shard, &r->b, 1, 0, r->world) < 0 ? NULL : out;
}

static weft_tensor *scatter(const rank_state *r, what which)
{
    if (which == FUSED)
        return weft_matmul_reduce_scatter(r->whole, r->b, WEFT_SUM, 0, r->world);
    weft_tensor *product = weft_mm(r->whole, r->b);
    if (which == PRODUCT)
        return product;
    return weft_wait_tensor(weft_reduce_scatter_tensor(product, WEFT_SUM, 0, r->world));
}

/* Milliseconds, or -1. */
static double time_once(const rank_state *r, side end, what which)
{
    if (weft_scope_open() < 0 || weft_group_barrier(r->world, WEFT_DEFAULT) < 0)
        return -1;
    int64_t start = bench_ns();
    weft_tensor *out = end == GATHER ? gather(r, which) : scatter(r, which);
    double ms = (double)(bench_ns() - start) * 1e-6;
    weft_scope_close();
    return out ? ms : -1;
}

static weft_tensor *random_matrix(weft_dtype dtype, int64_t rows, int64_t columns)
{
    return weft_to_dtype(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns)), dtype);
}

static int body(int rank, void *arg)
{
    const fused *bench = arg;
    rank_state r = {.world = weft_init(NULL)};
    int size = weft_size(r.world);
    r.shard = random_matrix(bench->dtype, ROWS / (size > 0 ? size : 1), INNER);
    r.whole = random_matrix(bench->dtype, ROWS, INNER);
    r.b = random_matrix(bench->dtype, INNER, COLUMNS);
    for (int turn = -1; r.b && turn < TURNS; turn++) /* the first makes what later ones find */
        for (int i = 0; i < SIDES * WHATS; i++) {
            double ms = time_once(&r, (side)(i / WHATS), (what)(i % WHATS));
            bench->board->sample[rank][i * TURNS + (turn < 0 ? 0 : turn)] = ms;
            if (ms < 0)
                atomic_store_explicit(&bench->board->failed, 1, memory_order_relaxed);
        }
    return weft_finish(r.world);
}

static double slowest(fused *bench, int ranks, int i)
{
    double worst = 0;
    for (int rank = 0; rank < ranks; rank++) {
        double median = bench_quantile(bench->board->sample[rank] + i * TURNS, TURNS, 0.5);
        worst = median > worst ? median : worst;
    }
    return worst;
}

static int measure(bench_style *style, int ranks, weft_dtype dtype)
{
    static const char *const names[SIDES][WHATS] = {
        {"product", "gather+product fused", "  one after the other"},
        {"product", "product+scatter fused", "  one after the other"}};
    fused bench = {.board = bench_board_new(), .dtype = dtype};
    char name[80];
    if (!bench.board)
        return 1;
    /* Pairs with the relaxed store of a rank, which has ended since. */
    int failed = bench_ranks(ranks, body, &bench) != 0 ||
                 atomic_load_explicit(&bench.board->failed, memory_order_relaxed);
    for (int i = 0; !failed && i < SIDES * WHATS; i++) {
        double floor = slowest(&bench, ranks, i / WHATS * WHATS);
        snprintf(name, sizeof name, "%s, %s", names[i / WHATS][i % WHATS], weft_dtype_name(dtype));
        if (i != SCATTER * WHATS + PRODUCT) /* the same product again */
            bench_row(style, name, ranks, "ms", slowest(&bench, ranks, i),
                      i % WHATS == PRODUCT ? 0 : floor);
    }
    bench_board_free(bench.board);
    return failed;
}

int bench_fused(bench_style *style)
{
    int failed = 0;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        failed |= measure(style, ranks, WEFT_F32);
        failed |= measure(style, ranks, WEFT_BF16);
    }
    if (failed)
        fprintf(stderr, "weft bench fused: a rank failed\n");
    return failed;
}
