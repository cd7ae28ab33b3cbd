/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls cost apart from waiting and moving data.  In a world of one nobody is waited for, so
 * that the whole of a call is overhead: checks, the digest, the flight record, the choice of an
 * algorithm.  With two ranks an 8-byte all_reduce is one hop of a cache line each way: the bare
 * prototype is measured beside it, and the difference is the overhead.
 */
#include "bench_overhead.h"

#include "bench.h"
#include "bench_floor.h"

#include <weft/weft.h>

#include <stdlib.h>

/* Many short turns, of which the lowest tenth counts: what the call takes when nothing disturbs it.
 */
enum { TURNS = 101, CALLS = 2000, NAMES = 11 };
static const double UNDISTURBED = 0.1;

static const char *const names[NAMES] = {
    "reading the clock",    "scope, open and close",   "tensor, make and release",
    "barrier of a group",   "barrier on a channel",    "all_reduce, 8 B",
    "all_reduce, 8 B symm", "all_reduce, 8 B, posted", "all_reduce, 8 B, functional",
    "waiting for nothing",  "broadcast, 8 B",
};

typedef struct alone {
    weft_group *world;
    weft_tensor *plain[2], *symm[2];
    weft_symm *mem;
} alone;

static int call(const alone *a, int which)
{
    static float memory[2];
    switch (which) {
    case 0:
        return bench_ns() < 0;
    case 1:
        return weft_scope_open() < 0 || weft_scope_close() < 0;
    case 2:
        weft_release(weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), memory, NULL, NULL));
        return 0;
    case 3:
        return weft_group_barrier(a->world, WEFT_DEFAULT) < 0;
    case 4:
        return weft_symm_barrier(a->mem, 0, WEFT_DEFAULT) < 0;
    case 5:
        return weft_all_reduce_into(a->plain[1], a->plain[0], WEFT_SUM, a->world) < 0;
    case 6:
        return weft_all_reduce_into(a->symm[1], a->symm[0], WEFT_SUM, a->world) < 0;
    case 7: {
        weft_work *work = weft_all_reduce_start(a->plain[1], a->plain[0], WEFT_SUM, a->world);
        weft_status status = weft_work_wait(work, WEFT_DEFAULT);
        weft_release(work);
        return status < 0;
    }
    case 8: {
        weft_tensor *sum = weft_wait_tensor(weft_all_reduce(a->plain[0], WEFT_SUM, a->world));
        weft_release(sum);
        return !sum;
    }
    case 9:
        return !weft_wait_tensor(a->plain[0]);
    default:
        return weft_broadcast_in_place(a->plain[0], 0, a->world) < 0;
    }
}

/* Nanoseconds of one call, or -1. */
static double time_alone(const alone *a, int which)
{
    double turns[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = bench_ns();
        for (int i = 0; i < CALLS; i++)
            if (call(a, which))
                return -1;
        turns[turn] = (double)(bench_ns() - start) / CALLS;
    }
    return bench_quantile(turns, TURNS, UNDISTURBED);
}

static int body_alone(int rank, void *arg)
{
    bench_board *board = arg;
    alone a = {.world = weft_init(NULL)};
    (void)rank;
    for (int i = 0; i < 2; i++) {
        a.plain[i] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
        a.symm[i] = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
        a.mem = weft_symm_rendezvous(a.symm[i], a.world);
    }
    for (int i = 0; a.mem && i < NAMES; i++)
        board->sample[0][i] = time_alone(&a, i);
    return weft_finish(a.world);
}

/* Two ranks, back to back: what a call takes on the average, weft's and the prototype's by turns.
 */
typedef struct pair {
    bench_board *board;
    bench_floor floor;
} pair;

static double time_pair(weft_tensor *out, weft_tensor *in, weft_group *world)
{
    int64_t start = bench_ns();
    for (int i = 0; i < CALLS; i++)
        if (weft_all_reduce_into(out, in, WEFT_SUM, world) < 0)
            return -1;
    return (double)(bench_ns() - start) / CALLS;
}

/* Post and wait; the result is made and dropped each time. */
static double time_functional(weft_tensor *in, weft_group *world)
{
    int64_t start = bench_ns();
    for (int i = 0; i < CALLS; i++) {
        weft_tensor *sum = weft_wait_tensor(weft_all_reduce(in, WEFT_SUM, world));
        weft_release(sum);
        if (!sum)
            return -1;
    }
    return (double)(bench_ns() - start) / CALLS;
}

static double time_bare(const meter_contender *bare, void *in, void *out)
{
    int64_t start = bench_ns();
    for (int i = 0; i < CALLS; i++)
        bare->call(bare->self, in, out, 0);
    return (double)(bench_ns() - start) / CALLS;
}

static int body_pair(int rank, void *arg)
{
    pair *p = arg;
    weft_group *world = weft_init(NULL);
    weft_tensor *in = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), *out = weft_zeros_like(in);
    bench_floor_rank floor = {.floor = &p->floor, .rank = rank};
    meter_contender bare = bench_floor_contender(&floor);
    plan_case what = plan_case_of(PLAN_ALL_REDUCE, WEFT_F32, WEFT_SUM, 2, 8);
    void *from = NULL, *to = NULL;
    meter_bind(rank);
    if (bare.prepare(&floor, &what, &from, &to) == 0 && out)
        for (int turn = 0; turn < TURNS; turn++) {
            double ours = time_pair(out, in, world), least = time_bare(&bare, from, to);
            double functional = time_functional(in, world);
            if (rank == 0) {
                p->board->sample[0][turn] = ours;
                p->board->sample[1][turn] = least;
                p->board->sample[2][turn] = functional;
            }
        }
    return weft_finish(world);
}

static int measure_pair(bench_style *style)
{
    pair p = {.board = bench_board_new()};
    int crowded = sysconf(_SC_NPROCESSORS_ONLN) < 2;
    if (!p.board || bench_floor_open(&p.floor, 2, 8, 8, crowded) < 0)
        return 1;
    int failed = bench_ranks(2, body_pair, &p) != 0;
    if (!failed) {
        double ours = bench_quantile(p.board->sample[0], TURNS, UNDISTURBED);
        double bare = bench_quantile(p.board->sample[1], TURNS, UNDISTURBED);
        bench_row(style, "all_reduce, 8 B, to and fro", 2, "ns", ours, bare);
        double functional = bench_quantile(p.board->sample[2], TURNS, UNDISTURBED);
        bench_row(style, "... beyond the bare hops", 2, "ns", ours - bare, 0);
        bench_row(style, "the same, functional", 2, "ns", functional, 0);
        bench_row(style, "... of the functional layer", 2, "ns", functional - ours, 0);
    }
    bench_floor_close(&p.floor);
    bench_board_free(p.board);
    return failed;
}

int bench_overhead(const bench_options *options)
{
    bench_style style;
    bench_board *board = bench_board_new();
    if (!board)
        return 1;
    bench_style_open(&style, options->json);
    int failed = bench_ranks(1, body_alone, board) != 0;
    for (int i = 0; i < NAMES && !failed; i++)
        bench_row(&style, names[i], 1, "ns", board->sample[0][i], 0);
    failed |= measure_pair(&style);
    failed |= bench_style_close(&style);
    bench_board_free(board);
    if (failed)
        fprintf(stderr, "weft bench --overhead: a rank failed\n");
    return failed;
}
