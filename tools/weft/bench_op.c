/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on tensors in one thread: what a call costs, beside nothing, recorded or not, what a
 * node of a graph costs backward; and what loops over 16 MiB take, beside a memcpy that moves as
 * many bytes, forward or both ways.  Where Python has PyTorch, the same in PyTorch, by
 * bench/peers/torch_op.py.
 */
#include "bench.h"
#include "bench_tree.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES = 1000,
    TURNS = 51,
    CALLS = 2000,
    LARGE_TURNS = 9,
    BYTES = 16 << 20,
    WIDTH = 1024,
    SIDE = 1024
};
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

typedef struct inputs {
    weft_tensor *one, *few, *sum, *large, *out, *weight, *bias, *a[2]; /* a: f32 and bf16 */
    weft_tensor *leaf, *large_leaf, *weight_leaf, *bias_leaf;          /* require gradients */
} inputs;

typedef enum row_kind { SMALL, CHAIN, LARGE, LARGE_READ, BOTH_WAYS, PRODUCT } row_kind;

static weft_tensor *add_one(const inputs *in)
{
    return weft_add(in->one, in->one);
}

static weft_tensor *add_few(const inputs *in)
{
    return weft_add(in->few, in->few);
}

static weft_tensor *view(const inputs *in)
{
    return weft_view(in->few, WEFT_SHAPE(4, 4));
}

static weft_tensor *softmax(const inputs *in)
{
    return weft_softmax(in->large, -1);
}

static weft_tensor *layer_norm(const inputs *in)
{
    return weft_layer_norm(in->large, 1, in->weight, in->bias, 1e-5);
}

static weft_tensor *sum(const inputs *in)
{
    return weft_sum(in->large, NULL, 0, false);
}

static weft_tensor *product_f32(const inputs *in)
{
    return weft_matmul(in->a[0], in->a[0]);
}

static weft_tensor *product_bf16(const inputs *in)
{
    return weft_matmul(in->a[1], in->a[1]);
}

static weft_status add_in_place(const inputs *in)
{
    return weft_add_into(in->sum, in->sum, in->few);
}

static weft_status neg_into(const inputs *in)
{
    return weft_neg_into(in->out, in->large);
}

static weft_status exp_into(const inputs *in)
{
    return weft_exp_into(in->out, in->large);
}

static weft_status tanh_into(const inputs *in)
{
    return weft_tanh_into(in->out, in->large);
}

static weft_status gelu_into(const inputs *in)
{
    return weft_gelu_into(in->out, in->large);
}

static weft_tensor *add_recorded(const inputs *in)
{
    return weft_add(in->leaf, in->one);
}

/* Only backward is timed: the chain is built by `prepare`. */
static weft_tensor *chain;

static weft_status build_chain(const inputs *in)
{
    if (weft_scope_open() < 0)
        return weft_last_status();
    weft_tensor *x = in->leaf;
    for (int i = 0; i < NODES; i++)
        x = weft_add(x, in->one);
    chain = weft_keep(x);
    weft_scope_close();
    return chain ? WEFT_OK : weft_last_status();
}

/* The gradient of the leaf, dropped again: it is not added to. */
static weft_status walk_chain(const inputs *in)
{
    weft_tensor *grad;
    weft_status status = weft_gradients(&grad, &in->leaf, 1, &chain, 1, NULL);
    weft_release(status < 0 ? NULL : grad);
    weft_release(chain);
    return status;
}

/* Forward, and back with a gradient of ordinary layout to `count` leaves. */
static weft_status both_ways(const inputs *in, weft_tensor *y, weft_tensor *const *leaves,
                             size_t count)
{
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    weft_tensor *grads[3];
    opts.seeds = &in->out;
    weft_status status =
        y ? weft_gradients(grads, leaves, count, &y, 1, &opts) : weft_last_status();
    for (size_t i = 0; status >= 0 && i < count; i++)
        weft_release(grads[i]);
    weft_release(y);
    return status;
}

static weft_status gelu_both(const inputs *in)
{
    return both_ways(in, weft_gelu(in->large_leaf), &in->large_leaf, 1);
}

static weft_status softmax_both(const inputs *in)
{
    return both_ways(in, weft_softmax(in->large_leaf, -1), &in->large_leaf, 1);
}

static weft_status layer_norm_both(const inputs *in)
{
    weft_tensor *leaves[] = {in->large_leaf, in->weight_leaf, in->bias_leaf};
    return both_ways(in, weft_layer_norm(leaves[0], 1, leaves[1], leaves[2], 1e-5), leaves, 3);
}

/* In the order in which torch_op.py prints its own. */
static const struct {
    const char *name;
    row_kind kind;
    weft_tensor *(*make)(const inputs *in); /* the result is released */
    weft_status (*act)(const inputs *in);
} rows[] = {
    {"add, 1 element", SMALL, add_one, NULL},
    {"add, 16 elements", SMALL, add_few, NULL},
    {"add, 16 elements, in place", SMALL, NULL, add_in_place},
    {"view of 16 elements", SMALL, view, NULL},
    {"add, 1 element, recorded", SMALL, add_recorded, NULL},
    {"backward, a node", CHAIN, NULL, walk_chain},
    {"neg, 16 MiB", LARGE, NULL, neg_into},
    {"exp, 16 MiB", LARGE, NULL, exp_into},
    {"tanh, 16 MiB", LARGE, NULL, tanh_into},
    {"gelu, 16 MiB", LARGE, NULL, gelu_into},
    {"softmax, 16 MiB", LARGE, softmax, NULL},
    {"layer norm, 16 MiB", LARGE, layer_norm, NULL},
    {"gelu both ways, 16 MiB", BOTH_WAYS, NULL, gelu_both},
    {"softmax both ways, 16 MiB", BOTH_WAYS, NULL, softmax_both},
    {"layer norm both ways, 16 MiB", BOTH_WAYS, NULL, layer_norm_both},
    {"sum, 16 MiB", LARGE_READ, sum, NULL},
    {"matmul of 1024, f32", PRODUCT, product_f32, NULL},
    {"matmul of 1024, bf16", PRODUCT, product_bf16, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

static weft_tensor *as_leaf(weft_tensor *x)
{
    weft_tensor *leaf = weft_detach(x);
    return leaf && weft_require_grad(leaf, true) >= 0 ? leaf : NULL;
}

static int make_inputs(inputs *in)
{
    int64_t many = BYTES / 4 / WIDTH;
    weft_seed(1);
    in->one = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    in->few = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    in->sum = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
    in->large = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(many, WIDTH));
    in->out = weft_zeros_like(in->large);
    in->weight = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH));
    in->bias = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH));
    in->a[0] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SIDE, SIDE));
    in->a[1] = weft_to_dtype(in->a[0], WEFT_BF16);
    in->leaf = as_leaf(in->one);
    in->large_leaf = as_leaf(in->large);
    in->weight_leaf = as_leaf(in->weight);
    in->bias_leaf = as_leaf(in->bias);
    return in->a[1] && in->out && in->leaf && in->large_leaf && in->bias_leaf ? 0 : -1;
}

static weft_status call_row(const inputs *in, int row)
{
    weft_tensor *made = rows[row].make ? rows[row].make(in) : NULL;
    if (rows[row].make ? !made : rows[row].act(in) < 0)
        return weft_last_status();
    weft_release(made);
    return WEFT_OK;
}

/* Nanoseconds of a call, or of a node of a chain, or -1. */
static double measure(const inputs *in, int row)
{
    double turns[TURNS];
    int small = rows[row].kind == SMALL, chained = rows[row].kind == CHAIN;
    int count = small || chained ? TURNS : LARGE_TURNS, calls = small ? CALLS : 1;
    for (int turn = 0; turn < count; turn++) {
        if (chained && build_chain(in) < 0)
            return -1;
        int64_t start = bench_ns();
        for (int i = 0; i < calls; i++)
            if (call_row(in, row) < 0)
                return -1;
        turns[turn] = (double)(bench_ns() - start) / (chained ? NODES : calls);
    }
    return bench_quantile(turns, count, UNDISTURBED);
}

static double measure_copy(const inputs *in, size_t bytes)
{
    double turns[LARGE_TURNS];
    for (int turn = 0; turn < LARGE_TURNS; turn++) {
        int64_t start = bench_ns();
        memcpy(weft_tensor_data(in->out), weft_tensor_data(in->large), bytes);
        turns[turn] = (double)(bench_ns() - start);
    }
    return bench_quantile(turns, LARGE_TURNS, UNDISTURBED);
}

/* What PyTorch takes, in the order of the rows; 0 where it said nothing. */
static void ask_torch(double *ns)
{
    char line[64];
    int row = 0;
    FILE *from = bench_tree_python("torch_op.py", 600);
    while (from && row < ROWS && fgets(line, sizeof line, from))
        ns[row++] = strtod(line, NULL);
    if (from)
        pclose(from);
}

static void print_one(bench_style *style, const char *name, row_kind kind, double ns, double floor)
{
    if (kind == SMALL || kind == CHAIN)
        bench_row(style, name, 1, "ns", ns, 0);
    else if (kind == PRODUCT)
        bench_row(style, name, 1, "GF/s", 2.0 * SIDE * SIDE * SIDE / ns, 0);
    else
        bench_row(style, name, 1, "us", ns / 1e3, floor / 1e3);
}

int bench_op(bench_style *style)
{
    inputs in;
    double torch[ROWS] = {0};
    if (weft_scope_open() < 0 || make_inputs(&in) < 0) {
        fprintf(stderr, "weft bench op: %s\n", weft_last_error());
        return 1;
    }
    ask_torch(torch);
    int failed = 0;
    for (int i = 0; i < ROWS; i++) {
        double ns = measure(&in, i);
        double floor = measure_copy(&in, rows[i].kind == LARGE_READ ? BYTES / 2 : BYTES);
        if (rows[i].kind ==
            BOTH_WAYS) /* x, then g and x again are read, y and its gradient written */
            floor *= 2.5;
        failed |= ns < 0;
        print_one(style, rows[i].name, rows[i].kind, ns, floor);
        if (torch[i] > 0)
            print_one(style, "  the same in PyTorch", rows[i].kind, torch[i], floor);
    }
    if (failed)
        fprintf(stderr, "weft bench op: %s\n", weft_last_error());
    weft_scope_close();
    return failed;
}
