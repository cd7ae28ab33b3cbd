/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on tensors in one thread: what a call costs, beside nothing, and what loops over 16
 * MiB take, beside a memcpy that moves as many bytes.  Where Python has PyTorch, the same in
 * PyTorch, by bench/peers/torch_op.py.
 */
#include "bench.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 51, CALLS = 2000, LARGE_TURNS = 9, BYTES = 16 << 20, WIDTH = 1024, SIDE = 1024 };
static const double UNDISTURBED = 0.1; /* the lowest tenth of the turns counts */

typedef struct inputs {
    weft_tensor *one, *few, *sum, *large, *out, *weight, *bias, *a[2]; /* a: f32 and bf16 */
} inputs;

typedef enum row_kind { SMALL, LARGE, LARGE_READ, PRODUCT } row_kind;

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
    {"exp, 16 MiB", LARGE, NULL, exp_into},
    {"tanh, 16 MiB", LARGE, NULL, tanh_into},
    {"gelu, 16 MiB", LARGE, NULL, gelu_into},
    {"softmax, 16 MiB", LARGE, softmax, NULL},
    {"layer norm, 16 MiB", LARGE, layer_norm, NULL},
    {"sum, 16 MiB", LARGE_READ, sum, NULL},
    {"matmul of 1024, f32", PRODUCT, product_f32, NULL},
    {"matmul of 1024, bf16", PRODUCT, product_bf16, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

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
    return in->a[1] && in->out && in->bias ? 0 : -1;
}

/* Nanoseconds of a call, or -1. */
static double measure(const inputs *in, int row)
{
    double turns[TURNS];
    int small = rows[row].kind == SMALL, count = small ? TURNS : LARGE_TURNS;
    int calls = small ? CALLS : 1;
    for (int turn = 0; turn < count; turn++) {
        int64_t start = bench_ns();
        for (int i = 0; i < calls; i++) {
            weft_tensor *made = rows[row].make ? rows[row].make(in) : NULL;
            if (rows[row].make ? !made : rows[row].act(in) < 0)
                return -1;
            weft_release(made);
        }
        turns[turn] = (double)(bench_ns() - start) / calls;
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
    FILE *from = popen("python3 " WEFT_SOURCE "/bench/peers/torch_op.py 2>/dev/null", "r");
    while (from && row < ROWS && fgets(line, sizeof line, from))
        ns[row++] = strtod(line, NULL);
    if (from)
        pclose(from);
}

static void print_one(bench_style *style, const char *name, row_kind kind, double ns, double floor)
{
    if (kind == SMALL)
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
