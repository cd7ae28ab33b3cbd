/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT (4 layers, 256 wide) to be trained in one thread, and the bare matrix products of a step. */
#ifndef WEFT_TOOLS_BENCH_GPT_H
#define WEFT_TOOLS_BENCH_GPT_H

#include <weft/weft.h>

/* Handles of the current scope. */
typedef struct bench_gpt {
    weft_module *net;
    weft_optim *adam;
    weft_tensor *in, *out;
    weft_compiled *fast; /* NULL: steps run plainly */
} bench_gpt;

/* 0, or -1 as weft_last_error says. */
int bench_gpt_make(bench_gpt *n);
/* From here on steps run compiled, by backend "c", with their backward. */
int bench_gpt_compile(bench_gpt *n);
/* Forward, backward, optimizer. */
int bench_gpt_step(const bench_gpt *n);

/* Products of the step: m x k by k x n, `times` of them, in batches of `batch`. */
typedef struct bench_product {
    int batch, m, k, n, times;
    weft_tensor *a, *b, *out;
} bench_product;
enum { BENCH_GPT_PRODUCTS = 18 };

int bench_gpt_make_products(bench_product *out);
int bench_gpt_multiply(const bench_product *products);

/* The bytes that the optimizer of a step must move, as a copy: AdamW reads a parameter, its gradient
 * and two moments, and writes all but the gradient. */
typedef struct bench_moved {
    weft_tensor *from, *to;
} bench_moved;

int bench_gpt_make_moved(const bench_gpt *n, bench_moved *out);
int bench_gpt_move(const bench_moved *moved);

#endif
