/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step of a GPT (4 layers, 256 wide) in one thread, beside the bare matrix products it
 * is made of and, where Python has it, PyTorch (bench/peers/torch_train.py).  Then the same step in
 * two ranks whose gradients are averaged: the all_reduces start as soon as backward has a gradient
 * and are waited for by the optimizer; hidden is the part of their time that the step does not take
 * longer than without them.
 */
#include "bench.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, WIDTH = 256, HEADS = 8, TIME = 64, BATCH = 4, SYMBOLS = 64 };
enum { TOKENS = BATCH * TIME, HEAD = WIDTH / HEADS, TURNS = 15, PARAMS = 128 };
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

/* -- the network -- */

typedef struct network {
    weft_module *net;
    weft_optim *adam;
    weft_tensor *in, *out;
} network;

static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    x = weft_add(x, weft_module_call(weft_module_child(self, "attention"), x));
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_block(void)
{
    weft_module *module = weft_module_new(block, NULL);
    weft_module_add(
        module, "attention",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_attention(WIDTH, HEADS, 0)));
    weft_module_add(module, "mlp",
                    weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, 4 * WIDTH),
                                       weft_nn_op(weft_gelu), weft_nn_linear(4 * WIDTH, WIDTH)));
    return module;
}

static int make_network(network *n)
{
    weft_module *parts[LAYERS + 3] = {weft_nn_embedding(SYMBOLS, WIDTH)};
    for (int i = 0; i < LAYERS; i++)
        parts[i + 1] = new_block();
    parts[LAYERS + 1] = weft_nn_layer_norm(WIDTH);
    parts[LAYERS + 2] = weft_nn_linear(WIDTH, SYMBOLS);
    n->net = weft_nn_sequential_of(parts, LAYERS + 3);
    n->adam = weft_optim_adamw(n->net, 1e-4, NULL);
    n->in = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    n->out = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    return n->adam && n->out ? 0 : -1;
}

static int step(const network *n)
{
    if (weft_scope_open() < 0)
        return -1;
    weft_tensor *loss = weft_cross_entropy(weft_module_call(n->net, n->in), n->out);
    int failed = !loss || weft_backward(loss) < 0 || weft_optim_step(n->adam) < 0;
    weft_scope_close();
    return failed ? -1 : 0;
}

/* -- its products -- */

/* Products of the step: m x k by k x n, `times` of them, in batches of `batch`. */
typedef struct product {
    int batch, m, k, n, times;
    weft_tensor *a, *b, *out;
} product;

/* Forward, and both gradients: the same work in three shapes. */
static const product forward_products[] = {
    {1, TOKENS, WIDTH, WIDTH, 4 * LAYERS, NULL, NULL, NULL},
    {1, TOKENS, WIDTH, 4 * WIDTH, LAYERS, NULL, NULL, NULL},
    {1, TOKENS, 4 * WIDTH, WIDTH, LAYERS, NULL, NULL, NULL},
    {BATCH * HEADS, TIME, HEAD, TIME, LAYERS, NULL, NULL, NULL},
    {BATCH * HEADS, TIME, TIME, HEAD, LAYERS, NULL, NULL, NULL},
    {1, TOKENS, WIDTH, SYMBOLS, 1, NULL, NULL, NULL},
};
enum { SHAPES = sizeof forward_products / sizeof *forward_products, PRODUCTS = 3 * SHAPES };

static int make_products(product *out)
{
    for (int i = 0; i < PRODUCTS; i++) {
        product p = forward_products[i / 3];
        int m = p.m, k = p.k, n = p.n;
        if (i % 3 == 1) /* of the left operand: [m, n] by [n, k] */
            p.k = n, p.n = k;
        if (i % 3 == 2) /* of the right one: [k, m] by [m, n] */
            p.m = k, p.k = m;
        p.a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.m, p.k));
        p.b = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.k, p.n));
        p.out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.m, p.n));
        if (!p.a || !p.b || !p.out)
            return -1;
        out[i] = p;
    }
    return 0;
}

static int multiply(const product *products)
{
    for (int i = 0; i < PRODUCTS; i++)
        for (int k = 0; k < products[i].times; k++)
            if (weft_bmm_into(products[i].out, products[i].a, products[i].b) < 0)
                return -1;
    return 0;
}

/* -- one rank -- */

static double ask_torch(void)
{
    char line[64];
    double ms = 0;
    FILE *from = popen("python3 " WEFT_SOURCE "/bench/peers/torch_train.py 2>/dev/null", "r");
    if (from && fgets(line, sizeof line, from))
        ms = strtod(line, NULL);
    if (from)
        pclose(from);
    return ms;
}

static int measure_one(bench_style *style)
{
    network n;
    product products[PRODUCTS];
    double steps[TURNS], bare[TURNS];
    weft_seed(1);
    if (make_network(&n) < 0 || make_products(products) < 0 || step(&n) < 0)
        return -1;
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = bench_ns(), middle;
        if (step(&n) < 0)
            return -1;
        middle = bench_ns();
        if (multiply(products) < 0)
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

typedef struct parallel {
    weft_group *world;
    network n;
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
    int failed = kind == BARE ? reduce_all(p) : step(&p->n);
    double ms = (double)(bench_ns() - start) * 1e-6;
    weft_scope_close();
    return failed ? -1 : ms;
}

static int body(int rank, void *arg)
{
    bench_board *board = arg;
    parallel p = {.world = weft_init(NULL)};
    weft_seed(1);
    int failed = make_network(&p.n) < 0;
    p.count = failed ? 0 : weft_module_params(p.n.net, p.params, PARAMS);
    for (int i = 0; i < p.count; i++)
        failed |= weft_tensor_hook(p.params[i].tensor, average, &p, WEFT_HOLD()) < 0;
    for (int turn = -1; turn < TURNS && !failed; turn++)
        for (int kind = 0; kind < KINDS && !failed; kind++) {
            double ms = time_once(&p, kind);
            failed = ms < 0;
            if (turn >= 0)
                board->sample[rank][kind * TURNS + turn] = ms;
        }
    return weft_finish(p.world);
}

/* The slower rank's median. */
static double median_of(bench_board *board, int kind)
{
    double a = bench_quantile(board->sample[0] + kind * TURNS, TURNS, 0.5);
    double b = bench_quantile(board->sample[1] + kind * TURNS, TURNS, 0.5);
    return a > b ? a : b;
}

static int measure_two(bench_style *style)
{
    bench_board *board = bench_board_new();
    if (!board)
        return -1;
    int failed = bench_ranks(2, body, board) != 0;
    if (!failed) {
        double alone = median_of(board, ALONE), together = median_of(board, TOGETHER),
               bare = median_of(board, BARE), hidden = (alone + bare - together) / bare * 100;
        bench_row(style, "data-parallel step", 2, "ms", together, alone);
        bench_row(style, "  its all_reduces alone", 2, "ms", bare, 0);
        hidden = hidden < 0 ? 0 : hidden > 100 ? 100 : hidden;
        bench_row(style, "  of them hidden", 2, "%", hidden, 0);
    }
    bench_board_free(board);
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
