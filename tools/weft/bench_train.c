/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step of a GPT (4 layers, 256 wide) in one thread, beside the bare matrix products it
 * is made of and, where Python has it, PyTorch (bench/peers/torch_train.py).  Then the same step in
 * two ranks whose gradients are averaged: the all_reduces start as soon as backward has a gradient
 * and are waited for by the optimizer; hidden is the part of their time that the step does not take
 * longer than without them.
 *
 * All_reduces couple the ranks: a step with them lasts until the slower rank has done its part.  So
 * the slower rank of each turn counts, also without them.  The all_reduces are a small part of the
 * step, and machines change their pace by more than that: steps are compared within a turn, and the
 * quartiles of the differences say how much of the result is chance.
 */
#include "bench.h"
#include "bench_gpt.h"
#include "bench_options.h"
#include "bench_tree.h"

#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 15, PAIR_TURNS = 41, WARM_UP = 3, PARAMS = 128 };
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

/* -- one rank -- */

static double ask_torch(void)
{
    char line[64];
    double ms = 0;
    FILE *from = bench_tree_python("torch_train.py", 600);
    if (from && fgets(line, sizeof line, from))
        ms = strtod(line, NULL);
    if (from)
        pclose(from);
    return ms;
}

static int measure_one(bench_style *style)
{
    bench_gpt n = {0};
    bench_product products[BENCH_GPT_PRODUCTS];
    double steps[TURNS], bare[TURNS];
    weft_seed(1);
    if (bench_gpt_make(&n) < 0 || bench_gpt_make_products(products) < 0 || bench_gpt_step(&n) < 0)
        return -1;
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = bench_ns(), middle;
        if (bench_gpt_step(&n) < 0)
            return -1;
        middle = bench_ns();
        if (bench_gpt_multiply(products) < 0)
            return -1;
        steps[turn] = (double)(middle - start) * 1e-6;
        bare[turn] = (double)(bench_ns() - middle) * 1e-6;
    }
    double floor = bench_quantile(bare, TURNS, UNDISTURBED), torch = ask_torch();
    bench_row(style, "GPT step beside its products", 1, "ms",
              bench_quantile(steps, TURNS, UNDISTURBED), floor);
    if (torch > 0)
        bench_row(style, "  the same in PyTorch", 1, "ms", torch, floor);
    return 0;
}

/* -- two ranks -- */

enum { ALONE, TOGETHER, BARE, KINDS };
_Static_assert(KINDS *PAIR_TURNS <= BENCH_SAMPLES, "the board has room for all");

/* What the ranks are given. */
typedef struct pair {
    bench_board *board;
    int turns;
} pair;

typedef struct parallel {
    weft_group *world;
    bench_gpt n;
    weft_named params[PARAMS];
    int count;
    bool averaging;
} parallel;

static weft_status average(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    const parallel *p = user;
    (void)held;
    if (p->averaging)
        *grad = weft_all_reduce(*grad, WEFT_AVG, p->world);
    return WEFT_OK;
}

/* All the all_reduces of a step one after the other, each waited for. */
static int reduce_all(const parallel *p)
{
    for (int i = 0; i < p->count; i++) {
        weft_tensor *sum = weft_all_reduce(weft_detach(p->params[i].tensor), WEFT_AVG, p->world);
        if (!sum || !weft_wait_tensor(sum))
            return -1;
    }
    return 0;
}

static double time_once(parallel *p, int kind)
{
    if (weft_scope_open() < 0 || weft_group_barrier(p->world, WEFT_DEFAULT) < 0)
        return -1;
    p->averaging = kind == TOGETHER;
    int64_t start = bench_ns();
    int failed = kind == BARE ? reduce_all(p) : bench_gpt_step(&p->n);
    double ms = (double)(bench_ns() - start) * 1e-6;
    weft_scope_close();
    return failed ? -1 : ms;
}

static int body(int rank, void *arg)
{
    const pair *job = arg;
    parallel p = {.world = weft_init(NULL)};
    weft_seed(1);
    int failed = bench_gpt_make(&p.n) < 0;
    p.count = failed ? 0 : weft_module_params(p.n.net, p.params, PARAMS);
    for (int i = 0; i < p.count; i++)
        failed |= weft_tensor_hook(p.params[i].tensor, average, &p, WEFT_HOLD()) < 0;
    for (int turn = -WARM_UP; turn < job->turns && !failed; turn++)
        for (int kind = 0; kind < KINDS && !failed; kind++) {
            double ms = time_once(&p, kind);
            failed = ms < 0;
            if (turn >= 0)
                job->board->sample[rank][kind * PAIR_TURNS + turn] = ms;
        }
    return weft_finish(p.world);
}

/* What the slower rank took in each turn. */
static void slower_of(const pair *job, int kind, double *out)
{
    const double *a = job->board->sample[0] + kind * PAIR_TURNS;
    const double *b = job->board->sample[1] + kind * PAIR_TURNS;
    for (int turn = 0; turn < job->turns; turn++)
        out[turn] = a[turn] > b[turn] ? a[turn] : b[turn];
}

/* How far the median of so many values may be off to either side, nineteen times of twenty. */
static double uncertainty_of(double *values, int count)
{
    double low = bench_quantile(values, count, 0.25), high = bench_quantile(values, count, 0.75);
    return 1.57 * (high - low) / sqrt(count);
}

static void print_pair(bench_style *style, const pair *job)
{
    double alone[PAIR_TURNS], together[PAIR_TURNS], bare[PAIR_TURNS], longer[PAIR_TURNS];
    int turns = job->turns;
    slower_of(job, ALONE, alone);
    slower_of(job, TOGETHER, together);
    slower_of(job, BARE, bare);
    for (int turn = 0; turn < turns; turn++)
        longer[turn] = together[turn] - alone[turn];
    double all_reduces = bench_quantile(bare, turns, 0.5);
    double open = bench_quantile(longer, turns, 0.5);
    bench_row(style, "data-parallel step", 2, "ms", bench_quantile(together, turns, 0.5),
              bench_quantile(alone, turns, 0.5));
    bench_row(style, "  its all_reduces alone", 2, "ms", all_reduces, 0);
    bench_row(style, "  of them hidden", 2, "%", (1 - open / all_reduces) * 100, 0);
    bench_row(style, "  give or take", 2, "%", uncertainty_of(longer, turns) / all_reduces * 100,
              0);
}

static int measure_two(bench_style *style)
{
    pair job = {bench_board_new(), bench_turns(style, PAIR_TURNS)};
    if (!job.board)
        return -1;
    int failed = bench_ranks(2, body, &job) != 0;
    if (!failed)
        print_pair(style, &job);
    bench_board_free(job.board);
    return failed ? -1 : 0;
}

int bench_train(bench_style *style)
{
    if (weft_scope_open() < 0)
        return 1;
    int failed = measure_one(style) < 0;
    if (failed)
        fprintf(stderr, "weft bench train: %s\n", weft_last_error());
    weft_scope_close();
    if (!failed && measure_two(style) < 0) {
        fprintf(stderr, "weft bench train: a rank failed\n");
        failed = 1;
    }
    return failed;
}
