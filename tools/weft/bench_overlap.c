/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlap: an all_reduce of 64 MiB behind matrix products that do not need it.  Three times are
 * taken in turns: the communication alone, the products alone, and both, posted before and waited
 * for after; the products take about as long as the communication.  Hidden is the part of the
 * communication that both together do not take longer than the products.
 *
 * With a core for each rank only, nothing but waiting can be hidden, because somebody has to move
 * the bytes; with two cores a rank the helper thread moves them beside the computation.
 */
#include "bench.h"

#include <weft/weft.h>

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum { TURNS = 9, MATRIX = 384, BYTES = 64 << 20 };

typedef struct overlap {
    bench_board *board;
    int cores; /* for each rank; 0: let the system place them */
} overlap;

typedef struct rank_state {
    weft_group *world;
    weft_tensor *x, *a, *b, *c;
    int products;
} rank_state;

/* A rank and its helper have `cores` cores of their own. */
static void bind_to(int rank, int cores)
{
    cpu_set_t mine, allowed;
    int seen = 0;
    CPU_ZERO(&mine);
    if (!cores || sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && seen++ / cores == rank)
            CPU_SET(core, &mine);
    if (CPU_COUNT(&mine))
        sched_setaffinity(0, sizeof mine, &mine);
}

static int compute(rank_state *r)
{
    for (int i = 0; i < r->products; i++)
        if (weft_mm_into(r->c, r->a, r->b) < 0)
            return -1;
    return 0;
}

/* Milliseconds of one of the three, from a common start; -1 if it failed. */
static double time_once(rank_state *r, int communicate, int work)
{
    if (weft_scope_open() < 0 || weft_group_barrier(r->world, WEFT_DEFAULT) < 0)
        return -1;
    int64_t start = bench_ns();
    weft_tensor *sum = communicate ? weft_all_reduce(r->x, WEFT_SUM, r->world) : NULL;
    int failed = (communicate && !sum) || (work && compute(r));
    if (communicate && !failed)
        failed = !weft_wait_tensor(sum);
    double ms = (double)(bench_ns() - start) * 1e-6;
    weft_scope_close();
    return failed ? -1 : ms;
}

/* As many products as take about as long as the communication. */
static void choose_work(rank_state *r)
{
    double alone = 0, product = 0;
    for (int i = 0; i < 3; i++)
        alone = time_once(r, 1, 0);
    r->products = 4;
    for (int i = 0; i < 2; i++)
        product = time_once(r, 0, 1) / r->products;
    weft_tensor *mine = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2), alone);
    double *pair = weft_tensor_data(mine);
    if (!pair)
        return;
    pair[1] = product;
    weft_all_reduce_into(mine, mine, WEFT_MAX, r->world); /* the same number for everybody */
    r->products = (int)(pair[0] / (pair[1] > 0 ? pair[1] : 1)) + 1;
}

static int body(int rank, void *arg)
{
    const overlap *bench = arg;
    bind_to(rank, bench->cores);
    rank_state r = {.world = weft_init(NULL)};
    r.x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(BYTES / 4));
    r.a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(MATRIX, MATRIX));
    r.b = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(MATRIX, MATRIX));
    r.c = weft_empty_like(r.a);
    if (r.c)
        choose_work(&r);
    for (int turn = 0; r.c && turn < TURNS; turn++)
        for (int what = 0; what < 3; what++)
            bench->board->sample[rank][what * TURNS + turn] = time_once(&r, what != 1, what != 0);
    return weft_finish(r.world);
}

/* The slower rank's median of the three. */
static double median_of(overlap *bench, int ranks, int what)
{
    double worst = 0;
    for (int rank = 0; rank < ranks; rank++) {
        double median = bench_quantile(bench->board->sample[rank] + what * TURNS, TURNS, 0.5);
        worst = median > worst ? median : worst;
    }
    return worst;
}

static int measure(bench_style *style, int ranks, int cores)
{
    overlap bench = {.board = bench_board_new(), .cores = cores};
    char name[64];
    if (!bench.board)
        return 1;
    int failed = bench_ranks(ranks, body, &bench) != 0;
    if (!failed) {
        double alone = median_of(&bench, ranks, 0), work = median_of(&bench, ranks, 1),
               both = median_of(&bench, ranks, 2), hidden = (alone + work - both) / alone * 100;
        snprintf(name, sizeof name, "64 MiB all_reduce, %d core%s/r", cores, cores > 1 ? "s" : "");
        bench_row(style, name, ranks, "ms", alone, 0);
        bench_row(style, "  products alone", ranks, "ms", work, 0);
        bench_row(style, "  both", ranks, "ms", both, 0);
        bench_row(style, "  hidden", ranks, "%", hidden < 0 ? 0 : hidden, 0);
    }
    bench_board_free(bench.board);
    return failed;
}

int bench_overlap(bench_style *style)
{
    cpu_set_t allowed;
    int cores = sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed);
    int failed = cores < 2 ? 0 : measure(style, 2, 1);
    for (int each = 2; each <= 4 && cores >= 2 * each; each *= 2)
        failed |= measure(style, 2, each);
    if (failed)
        fprintf(stderr, "weft bench overlap: a rank failed\n");
    return failed;
}
