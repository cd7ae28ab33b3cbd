/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which way is the fastest differs: a processor may multiply bf16 at up to ten times the rate of
 * f32, or at the same, or not at all, and oneDNN may have code for it or only loops.  So the first
 * product measures the ways there are, on matrices that take a few hundred microseconds.  Sums
 * differ in their last bits between the ways.  So that all ranks of a job choose the same one, a
 * way must be clearly faster to be taken before one that stands earlier in the list: f32, the
 * instructions of the processor, oneDNN.  If the instructions are, oneDNN is not even loaded.
 */
#include "kernels/product/matmul_bf16.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "kernels/blas/dnnl.h"
#include "kernels/product/bf16.h"
#include "kernels/product/cut.h"
#include "kernels/product/matmul.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TALL_PANEL = 1024 }; /* rows that oneDNN does at a time: it copies b for each */

static char letter(const weft_i_matrix *x, int64_t *ld)
{
    return weft_i_matrix_transposition(x, ld) == WEFT_I_BLAS_PLAIN ? 'N' : 'T';
}

/* By oneDNN, a panel of rows at a time, each rounded when it is done.  False if it was not
 * possible.  Nor are sums of an odd number of products: for processors without instructions for bf16
 * oneDNN takes two at a time, and makes NaN of an infinity beside the one that it adds. */
static bool by_dnnl(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    if (a->columns % 2)
        return false;
    weft_i_matrix x, y, z,
        first = weft_i_matrix_rows(out, 0, out->rows < TALL_PANEL ? out->rows : TALL_PANEL);
    void *memory_a = NULL, *memory_b = NULL, *memory_z = NULL;
    bool done = weft_i_matrix_prepare(&x, &memory_a, WEFT_BF16, a, true) &&
                weft_i_matrix_prepare(&y, &memory_b, WEFT_BF16, b, true) &&
                weft_i_matrix_allocate(&z, &memory_z, WEFT_F32, &first);
    weft_i_dnnl_product product = {.n = out->columns, .k = a->columns, .ldc = out->columns};
    for (int64_t i = 0; done && i < out->rows; i += TALL_PANEL) {
        int64_t end = i + TALL_PANEL < out->rows ? i + TALL_PANEL : out->rows;
        weft_i_matrix from = weft_i_matrix_rows(&x, i, end), to = weft_i_matrix_rows(out, i, end);
        z.rows = product.m = end - i;
        product.transpose_a = letter(&from, &product.lda);
        product.transpose_b = letter(&y, &product.ldb);
        product.a = from.data;
        product.b = y.data;
        product.c = (float *)(void *)z.data;
        done = weft_i_dnnl_multiply(&product);
        if (done)
            weft_i_matrix_copy(&to, &z);
    }
    WEFT_OS->free(memory_a);
    WEFT_OS->free(memory_b);
    WEFT_OS->free(memory_z);
    return done;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written once, before `once` lets anybody pass.  NULL and false: by f32. */
static const weft_i_bf16_kernel *own;
static bool use_dnnl;

static bool by_f32(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    return weft_i_matmul_by_f32(out, a, b) >= 0;
}

static bool one_tile(const void *kernel, const weft_i_matrix *out, const weft_i_matrix *a,
                     const weft_i_matrix *b)
{
    return weft_i_bf16_multiply(kernel, out, a, b);
}

static bool by_own(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    return weft_i_cut(out, a, b, WEFT_I_BF16_BLOCK, one_tile, own);
}

/* What is measured: [TRIAL_ROWS, TRIAL] by [TRIAL, TRIAL]. */
enum { TRIAL_ROWS = 128, TRIAL = 256, TRIAL_RUNS = 5, HOPELESS = 8 };
typedef bool way(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b);

/* The shortest of some runs, in ns; INT64_MAX if it cannot be done, or if the first run takes
 * HOPELESS times `best`. */
static int64_t measure(way *multiply, uint16_t *memory, int64_t best)
{
    weft_i_matrix out = {WEFT_BF16, (char *)memory, TRIAL_ROWS, TRIAL, TRIAL, 1}, a = out, b = out;
    a.data = (char *)(memory + TRIAL_ROWS * TRIAL);
    b.data = (char *)(memory + 2 * TRIAL_ROWS * TRIAL);
    b.rows = TRIAL;
    int64_t shortest = INT64_MAX;
    for (int i = 0; i <= TRIAL_RUNS; i++) {
        int64_t start = WEFT_OS->clock_ns();
        if (!multiply(&out, &a, &b))
            return INT64_MAX;
        int64_t took = WEFT_OS->clock_ns() - start;
        if (i == 1 && best < INT64_MAX && took / HOPELESS > best)
            return INT64_MAX;
        shortest = i && took < shortest ? took : shortest; /* the first run loads and makes code */
    }
    return shortest;
}

static bool is_clearly_faster(int64_t took, int64_t best)
{
    return took < best / 4 * 3;
}

/* Sets `own` or `use_dnnl`, or none: f32. */
static void compare_ways(const weft_i_bf16_kernel *kernel, uint16_t *memory)
{
    int64_t took = INT64_MAX, f32 = measure(by_f32, memory, INT64_MAX);
    const char *name = "f32 alone";
    own = kernel;
    if (own) {
        took = measure(by_own, memory, f32);
        name = own->text;
    }
    if (!is_clearly_faster(took, f32)) {
        own = NULL;
        if (weft_i_dnnl_name()) {
            took = measure(by_dnnl, memory, f32);
            name = weft_i_dnnl_name();
        }
        use_dnnl = is_clearly_faster(took, f32);
    }
    weft_i_log(WEFT_LOG_INFO, "products of bf16: a trial took %lld ns by f32, %lld by %s",
               (long long)f32, (long long)(took == INT64_MAX ? f32 : took), name);
}

static void choose_by_trial(void)
{
    enum { COUNT = 2 * TRIAL_ROWS * TRIAL + TRIAL * TRIAL, ONE = 0x3f80 };
    uint16_t *memory = WEFT_OS->alloc_aligned(64, COUNT * sizeof *memory);
    const weft_i_bf16_kernel *kernel = NULL;
    for (int i = 0; !kernel && weft_i_bf16_variant(i); i++)
        kernel = weft_i_bf16_variant(i)->usable() ? weft_i_bf16_variant(i) : NULL;
    if (!memory) {
        own = kernel;
        return;
    }
    for (size_t i = 0; i < COUNT; i++)
        memory[i] = ONE;
    compare_ways(kernel, memory);
    WEFT_OS->free(memory);
}

/* A way the user named.  False if it is not to be had. */
static bool choose_by_name(const char *name)
{
    own = NULL;
    if (!strcmp(name, "f32"))
        return true;
    use_dnnl = !strcmp(name, "dnnl") && weft_i_dnnl_name();
    for (int i = 0; weft_i_bf16_variant(i); i++)
        if (!strcmp(weft_i_bf16_variant(i)->name, name) && weft_i_bf16_variant(i)->usable())
            own = weft_i_bf16_variant(i);
    return use_dnnl || own;
}

static void choose(void)
{
    const char *name = weft_i_env_text(WEFT_I_ENV_BF16);
    if (*name && choose_by_name(name))
        return;
    if (*name)
        weft_i_log(WEFT_LOG_WARN, "WEFT_BF16=%s: not on this machine; the fastest way is taken",
                   name);
    choose_by_trial();
}

const char *weft_i_matmul_bf16_way(void)
{
    pthread_once(&once, choose);
    return use_dnnl ? weft_i_dnnl_name() : own ? own->text : "";
}

bool weft_i_matmul_bf16(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    pthread_once(&once, choose);
    return use_dnnl ? by_dnnl(out, a, b) : own && by_own(out, a, b);
}
