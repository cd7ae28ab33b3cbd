/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tensor operations cost on a GPU: op_bench.  Host time per call, time on the device, and the
 * share of what a copy of as many bytes takes (elements are read and written once); products in
 * TFLOP/s.  Medians of several runs; the inputs are random and larger than the caches.
 */
#include "backends/cuda/tensor/matmul.h"
#include "base/os/os.h"
#include "weft/weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, CALLS = 20 };
#define GPU WEFT_CUDA(0)

static weft_tensor *a, *b, *mask, *rows, *weight, *table, *picks, *out, *square, *other, *product;
static weft_tensor *left, *right, *one;

static void run_copy(void)
{
    weft_copy(out, a);
}

static void run_add(void)
{
    weft_add_into(out, a, b);
}

static void run_gelu(void)
{
    weft_gelu_into(out, a);
}

static void run_where(void)
{
    weft_where_into(out, mask, a, b);
}

static void run_turned(void)
{
    weft_copy(out, weft_transpose(rows, 0, 1));
}

static void run_sum(void)
{
    weft_sum(a, NULL, 0, false);
}

static void run_sum_rows(void)
{
    weft_sum(rows, (const int[]){1}, 1, false);
}

static void run_sum_columns(void)
{
    weft_sum(rows, (const int[]){0}, 1, false);
}

static void run_softmax(void)
{
    weft_softmax(rows, 1);
}

static void run_layer_norm(void)
{
    weft_layer_norm(rows, 1, weight, weight, 1e-5);
}

static void run_embedding(void)
{
    weft_embedding(table, picks);
}

static void run_normal(void)
{
    weft_normal(out, 0, 1);
}

static void run_mm(void)
{
    weft_mm_into(product, square, other);
}

static void run_scaled(void)
{
    weft_i_cuda_multiply_scaled(product, left, right, one, one);
}

static int by_value(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

/* Medians: microseconds per call on the device, and of the host's part. */
static double measure(void (*call)(void), double *host)
{
    double device[RUNS], given[RUNS];
    weft_stream *stream = weft_stream_current(GPU);
    for (int run = -1; run < RUNS; run++) { /* the first warms up */
        weft_scope_open();
        weft_stream_sync(stream, WEFT_FOREVER);
        int64_t start = WEFT_OS->clock_ns();
        for (int i = 0; i < CALLS; i++)
            call();
        int64_t enqueued = WEFT_OS->clock_ns();
        if (weft_stream_sync(stream, WEFT_FOREVER) < 0) {
            printf("failed: %s\n", weft_last_error());
            exit(1);
        }
        if (run >= 0) {
            device[run] = (double)(WEFT_OS->clock_ns() - start) / 1e3 / CALLS;
            given[run] = (double)(enqueued - start) / 1e3 / CALLS;
        }
        weft_scope_close();
    }
    qsort(device, RUNS, sizeof *device, by_value);
    qsort(given, RUNS, sizeof *given, by_value);
    *host = given[RUNS / 2];
    return device[RUNS / 2];
}

static double copy_rate; /* bytes a microsecond */

static void line(const char *name, void (*call)(void), double bytes)
{
    double host, device = measure(call, &host);
    printf("  %-28s %10.1f us  host %6.2f us  %7.0f GB/s  %4.0f %%\n", name, device, host,
           bytes / device / 1e3, copy_rate > 0 ? 100 * bytes / device / copy_rate : 100.0);
    if (copy_rate <= 0)
        copy_rate = bytes / device;
}

static void lines(weft_dtype dtype, int64_t n)
{
    double size = (double)weft_dtype_size(dtype), bytes = (double)n * size;
    int64_t width = 4096;
    printf("%s, %lld elements\n", weft_dtype_name(dtype), (long long)n);
    a = weft_randn(dtype, GPU, WEFT_SHAPE(n));
    b = weft_randn(dtype, GPU, WEFT_SHAPE(n));
    out = weft_empty(dtype, GPU, WEFT_SHAPE(n));
    mask = weft_gt_scalar(a, 0);
    rows = weft_view(a, WEFT_SHAPE(n / width, width));
    weight = weft_randn(dtype, GPU, WEFT_SHAPE(width));
    table = weft_view(b, WEFT_SHAPE(n / width, width));
    picks = weft_randint(WEFT_I64, GPU, WEFT_SHAPE(n / width), 0, n / width);
    copy_rate = 0;
    line("copy", run_copy, 2 * bytes);
    line("add", run_add, 3 * bytes);
    line("gelu", run_gelu, 2 * bytes);
    line("where", run_where, 3 * bytes + (double)n);
    line("sum of all", run_sum, bytes);
    line("sum of rows of 4096", run_sum_rows, bytes);
    line("sum of columns", run_sum_columns, bytes);
    line("softmax of rows of 4096", run_softmax, 2 * bytes);
    line("layer_norm of rows of 4096", run_layer_norm, 2 * bytes);
    line("embedding", run_embedding, 2 * bytes);
    line("normal numbers", run_normal, bytes);
    weft_tensor *flat = out;
    out = weft_view(out, WEFT_SHAPE(width, n / width));
    line("transposition", run_turned, 2 * bytes);
    out = flat;
}

static void products(weft_dtype dtype, int64_t n)
{
    double host;
    square = weft_randn(dtype, GPU, WEFT_SHAPE(n, n));
    other = weft_randn(dtype, GPU, WEFT_SHAPE(n, n));
    product = weft_empty(dtype, GPU, WEFT_SHAPE(n, n));
    double device = measure(run_mm, &host), work = 2.0 * (double)n * (double)n * (double)n;
    printf("  mm %-5s %5lld^3            %10.1f us  host %6.2f us  %7.1f TFLOP/s\n",
           weft_dtype_name(dtype), (long long)n, device, host, work / device / 1e6);
}

static void scaled(int64_t n)
{
    double host;
    left = weft_to_dtype(weft_randn(WEFT_F32, GPU, WEFT_SHAPE(n, n)), WEFT_F8E4M3);
    right = weft_transpose(left, 0, 1);
    one = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1));
    product = weft_empty(WEFT_BF16, GPU, WEFT_SHAPE(n, n));
    double device = measure(run_scaled, &host), work = 2.0 * (double)n * (double)n * (double)n;
    printf("  scaled e4m3 %5lld^3          %10.1f us  host %6.2f us  %7.1f TFLOP/s\n", (long long)n,
           device, host, work / device / 1e6);
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoll(argv[1]) : (int64_t)1 << 28,
            side = argc > 2 ? atoll(argv[2]) : 8192;
    weft_scope_open();
    if (!weft_stream_current(GPU)) {
        printf("%s\n", weft_last_error());
        return 1;
    }
    weft_scope_open();
    lines(WEFT_F32, n / 2);
    weft_scope_close();
    weft_scope_open();
    lines(WEFT_BF16, n);
    weft_scope_close();
    a = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1024));
    b = a;
    out = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(1024));
    copy_rate = 0;
    printf("f32, 1024 elements\n");
    line("add", run_add, 3 * 4096.0);
    printf("products\n");
    products(WEFT_BF16, side);
    products(WEFT_F16, side);
    products(WEFT_F32, side / 2);
    products(WEFT_BF16, 512);
    scaled(side);
    weft_scope_close();
    return 0;
}
