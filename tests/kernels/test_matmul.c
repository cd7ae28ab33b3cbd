/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/product/matmul.c, kernels/product/matmul_bf16.c, kernels/blas/matrix.c,
 * kernels/product/bf16.c, kernels/product/bf16_amx.c, kernels/product/bf16_avx512.c,
 * kernels/product/bf16_neon.c, kernels/blas/blas.c, kernels/blas/dnnl.c,
 * kernels/number/isa.c, tensor/op/matmul.c */
/* Products against a triple loop in double, through CBLAS and without, in every layout an operand
 * can have. */
#include "fault.h"
#include "harness.h"
#include "memory_count.h"

#include "kernels/blas/blas.h"
#include "kernels/blas/dnnl.h"
#include "kernels/product/bf16.h"
#include "kernels/product/matmul.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whole numbers between -4 and 4, so that all sums are exact in f32. */
static weft_tensor *numbers(weft_dtype dtype, int64_t rows, int64_t columns, int salt)
{
    weft_tensor *x = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(rows, columns));
    for (int64_t i = 0; i < rows * columns; i++)
        ((double *)weft_tensor_data(x))[i] =
            (double)((i * 7 + i / 11 + salt) % 9) - (dtype >= WEFT_U8 ? 0 : 4);
    return weft_to_dtype(x, dtype);
}

/* The same matrix in different clothes: row-major, transposed, with a row gap, with gaps
 * everywhere. */
enum { LAYOUTS = 4 };
static weft_tensor *dressed(weft_tensor *x, int layout)
{
    int64_t rows = weft_tensor_size(x, 0), columns = weft_tensor_size(x, 1);
    weft_dtype dtype = weft_tensor_dtype(x);
    weft_tensor *y = x;
    if (layout == 1)
        y = weft_transpose(weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(columns, rows)), 0, 1);
    if (layout == 2)
        y = weft_narrow(weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(rows, columns + 3)), 1, 2, columns);
    if (layout == 3)
        y = weft_slice(weft_slice(weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(2 * rows, 3 * columns)), 0,
                                  0, 2 * rows, 2),
                       1, 0, 3 * columns, 3);
    return y == x || weft_copy(y, x) >= 0 ? y : NULL;
}

static void check_product(weft_tensor *out, weft_tensor *a, weft_tensor *b, const char *what)
{
    int64_t m = weft_tensor_size(a, 0), k = weft_tensor_size(a, 1), n = weft_tensor_size(b, 1);
    if (!out)
        FAIL("%s: %s", what, weft_last_error());
    CHECK(weft_tensor_size(out, 0) == m && weft_tensor_size(out, 1) == n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += weft_item(a, i * k + l) * weft_item(b, l * n + j);
            if (weft_item(out, i * n + j) != sum)
                FAIL("%s: [%lld, %lld] is %g, not %g", what, (long long)i, (long long)j,
                     weft_item(out, i * n + j), sum);
        }
}

TEST(test_matmul_every_layout)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 4, 5}, {1, 7, 6}, {6, 7, 1},
                                       {5, 1, 4}, {5, 1, 6}, {6, 7, 5}, {17, 19, 23}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int la = 0; la < LAYOUTS; la++)
            for (int lb = 0; lb < LAYOUTS; lb++) {
                CHECK_OK(weft_scope_open());
                weft_dtype dtype = (la + lb) % 2 ? WEFT_F32 : WEFT_F64;
                weft_tensor *a = dressed(numbers(dtype, sizes[s][0], sizes[s][1], 1), la);
                weft_tensor *b = dressed(numbers(dtype, sizes[s][1], sizes[s][2], 5), lb);
                check_product(weft_mm(a, b), a, b, "mm");
                weft_tensor *out =
                    dressed(numbers(dtype, sizes[s][0], sizes[s][2], 2), (la + lb) % LAYOUTS);
                CHECK_OK(weft_mm_into(out, a, b));
                check_product(out, a, b, "mm into");
                CHECK_OK(weft_scope_close());
            }
}

static weft_i_matrix matrix(weft_tensor *x)
{
    return (weft_i_matrix){weft_tensor_dtype(x),     weft_tensor_data(x),
                           weft_tensor_size(x, 0),   weft_tensor_size(x, 1),
                           weft_tensor_stride(x, 0), weft_tensor_stride(x, 1)};
}

/* What runs where no BLAS is found, and BLAS itself, agree with the loop in double and with each
 * other. */
TEST(test_matmul_loops_and_blas)
{
    for (int la = 0; la < LAYOUTS; la++)
        for (int dtype = WEFT_F64; dtype <= WEFT_F32; dtype++) {
            weft_tensor *a = dressed(numbers((weft_dtype)dtype, 37, 300, 1), la),
                        *b = dressed(numbers((weft_dtype)dtype, 300, 41, 3), 3 - la);
            weft_tensor *out = weft_zeros((weft_dtype)dtype, WEFT_CPU, WEFT_SHAPE(37, 41));
            weft_i_matrix x = matrix(a), y = matrix(b), z = matrix(out);
            CHECK_OK(weft_i_matmul_by_loops(&z, &x, &y));
            check_product(out, a, b, "loops");
            CHECK(weft_equal(out, weft_mm(a, b)));
        }
}

TEST(test_matmul_blas_is_found)
{
    if (!weft_i_blas_get())
        SKIP("no CBLAS library on this machine");
    CHECK(weft_i_blas_get()->sgemm && weft_i_blas_get()->dgemm);
}

/* The library is chosen once per process, so another choice needs another process: this program
 * again, with `setting`, running `test`. */
static int run_again(const char *setting, const char *test)
{
    char self[1024], command[2304];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(length > 0);
    self[length] = 0;
    snprintf(command, sizeof command, "WEFT_DEBUG=NONE %s '%s' %s", setting, self, test);
    return system(command);
}

TEST(test_matmul_library_is_chosen_by_the_environment)
{
    const char *none = "WEFT_BLAS=/no/such/library";
    CHECK_INT(run_again(none, "test_matmul_every_layout >/dev/null"), 0);
    CHECK_INT(run_again(none, "test_matmul_blas_is_found | grep -q skip"), 0);
    CHECK_INT(run_again(none, "test_matmul_describe >/dev/null"), 0);
}

/* With the stand-in of oneDNN in the environment: it did the products, but for those it refuses,
 * and the threads of the caller are what they were. */
TEST(test_matmul_dnnl_is_used)
{
    const char *name = getenv("WEFT_DNNL");
    void *library = name && weft_i_dnnl_name() ? dlopen(name, RTLD_NOW) : NULL;
    if (!library || strcmp(name, weft_i_dnnl_name()))
        SKIP("WEFT_DNNL names no library");
    int (*calls)(void), (*threads)(void);
    *(void **)&calls = dlsym(library, "model_dnnl_calls");
    *(void **)&threads = dlsym(library, "omp_get_max_threads");
    weft_tensor *a = numbers(WEFT_BF16, 2050, 6, 1), *b = numbers(WEFT_BF16, 6, 5, 2);
    check_product(weft_mm(a, b), a, b, "bf16 by oneDNN");
    CHECK_INT(calls(), 3); /* panels */
    CHECK_INT(threads(), 7);
    a = numbers(WEFT_BF16, 20, 7, 1), b = numbers(WEFT_BF16, 7, 5, 2);
    check_product(weft_mm(a, b), a, b, "bf16 that is not for oneDNN");
    CHECK_INT(calls(), 3);
    a = numbers(WEFT_BF16, 2050, 6, 1), b = numbers(WEFT_BF16, 6, 13, 2);
    check_product(weft_mm(a, b), a, b, "bf16 that oneDNN refuses");
    a = numbers(WEFT_BF16, 2050, 16, 1), b = numbers(WEFT_BF16, 16, 4, 2);
    check_product(weft_mm(a, b), a, b, "bf16 with few columns");
    a = numbers(WEFT_F16, 5, 3, 1), b = numbers(WEFT_F16, 3, 5, 2);
    check_product(weft_mm(a, b), a, b, "f16");
    CHECK_INT(calls(), 3);
    weft_matmul_info info;
    CHECK_OK(weft_matmul_describe(&info));
    CHECK(!strcmp(info.bf16, name));
    dlclose(library);
}

TEST(test_matmul_dnnl)
{
    const char *model = "WEFT_BF16=dnnl WEFT_DNNL='" MODEL_DNNL "'";
    if (access(MODEL_DNNL, R_OK))
        SKIP("the stand-in of oneDNN is not built");
    CHECK_INT(run_again(model, "test_matmul_dnnl_is_used | grep -q pass"), 0);
    CHECK_INT(run_again(model, "test_matmul_every_layout >/dev/null"), 0);
    CHECK_INT(run_again(model, "test_matmul_small_floats_round_once >/dev/null"), 0);
    CHECK_INT(run_again(model, "test_matmul_panels >/dev/null"), 0);
    CHECK_INT(
        run_again("WEFT_BF16=dnnl WEFT_DNNL=/no/such/library", "test_matmul_panels >/dev/null"), 0);
    CHECK_INT(run_again("WEFT_DNNL=none", "test_matmul_dnnl_is_used | grep -q skip"), 0);
}

/* A result in the middle of a larger matrix, whose other elements must stay as they are. */
enum { MARGIN = 3, SENTINEL = -77 };
static weft_tensor *framed(weft_tensor **frame, int64_t rows, int64_t columns, bool turned)
{
    int64_t m = turned ? columns : rows, n = turned ? rows : columns;
    *frame = weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(m + 2 * MARGIN, n + 2 * MARGIN), SENTINEL);
    weft_tensor *inside = weft_narrow(weft_narrow(*frame, 0, MARGIN, m), 1, MARGIN, n);
    return turned ? weft_transpose(inside, 0, 1) : inside;
}

static void check_frame(weft_tensor *frame)
{
    int64_t rows = weft_tensor_size(frame, 0), columns = weft_tensor_size(frame, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (i < MARGIN || j < MARGIN || i >= rows - MARGIN || j >= columns - MARGIN)
                CHECK(weft_item(frame, i * columns + j) == SENTINEL);
}

/* Sums of whole numbers are exact, so the result is the exact one rounded once, whatever the way.
 * Sizes below, at and above those of tiles, blocks, slices and parts of k. */
TEST(test_matmul_bf16_every_layout)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},     {16, 32, 16},
                                       {31, 33, 47}, {33, 64, 65},  {70, 1100, 33},
                                       {5, 40, 530}, {70, 100, 70}, {2100, 1030, 5}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int layout = 0; layout < (s < 7 ? LAYOUTS * LAYOUTS : 2); layout++) {
            CHECK_OK(weft_scope_open());
            int64_t m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];
            weft_tensor *a = dressed(numbers(WEFT_BF16, m, k, 1), layout % LAYOUTS),
                        *b = dressed(numbers(WEFT_BF16, k, n, 5), layout / LAYOUTS), *frame;
            weft_tensor *out = framed(&frame, m, n, layout % 2);
            weft_tensor *exact = weft_mm(weft_to_dtype(a, WEFT_F64), weft_to_dtype(b, WEFT_F64));
            CHECK_OK(weft_mm_into(out, a, b));
            if (!weft_equal(out, weft_to_dtype(exact, WEFT_BF16)))
                FAIL("[%lld, %lld] by [%lld, %lld], layout %d", (long long)m, (long long)k,
                     (long long)k, (long long)n, layout);
            check_frame(frame);
            CHECK_OK(weft_scope_close());
        }
}

/* Real numbers: a sum of k products is off by at most k roundings of f32, of which most cancel. */
TEST(test_matmul_bf16_is_close)
{
    weft_seed(11);
    for (int64_t k = 5; k <= 3000; k = k * 5 + 3) {
        weft_tensor *a = weft_randn(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(77, k)),
                    *b = weft_randn(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(k, 45));
        weft_tensor *out = weft_mm(a, b),
                    *exact = weft_mm(weft_to_dtype(a, WEFT_F64), weft_to_dtype(b, WEFT_F64));
        double slack = 4 * sqrt((double)k) * 0x1p-24 * sqrt((double)k);
        for (int64_t i = 0; i < 77 * 45; i++)
            CHECK_NEAR(weft_item(out, i), weft_item(exact, i),
                       fabs(weft_item(exact, i)) * 0x1p-8 + slack);
    }
}

/* Infinities and NaN stay in their row or column; padding brings none. */
TEST(test_matmul_bf16_infinities)
{
    weft_tensor *a = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(40, 35)),
                *b = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(35, 37));
    CHECK_OK(weft_fill(weft_select(weft_select(a, 0, 7), 0, 34), INFINITY));
    CHECK_OK(weft_fill(weft_select(weft_select(b, 0, 34), 0, 5), NAN));
    weft_tensor *out = weft_mm(a, b);
    for (int64_t i = 0; i < 40; i++)
        for (int64_t j = 0; j < 37; j++) {
            double x = weft_item(out, i * 37 + j);
            CHECK(j == 5 ? isnan(x) : i == 7 ? isinf(x) && x > 0 : x == 35);
        }
}

/* Each way that this machine has, and the one that is chosen without a word. */
TEST(test_matmul_bf16_ways)
{
    static const char *const tests[] = {"test_matmul_bf16_every_layout",
                                        "test_matmul_bf16_is_close", "test_matmul_bf16_infinities",
                                        "test_matmul_bf16_no_memory"};
    char setting[64], test[128];
    for (int i = -2; i < 0 || weft_i_bf16_variant(i); i++) {
        const char *name = i == -2 ? "f32" : i == -1 ? "dnnl" : weft_i_bf16_variant(i)->name;
        if (i >= 0 && !weft_i_bf16_variant(i)->usable())
            continue;
        snprintf(setting, sizeof setting, "WEFT_BF16=%s", name);
        for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) {
            snprintf(test, sizeof test, "%s >/dev/null", tests[t]);
            if (run_again(setting, test))
                FAIL("%s fails with %s", tests[t], setting);
        }
        snprintf(test, sizeof test, "test_matmul_bf16_names_its_way | grep -q pass");
        if (i >= 0)
            CHECK_INT(run_again(setting, test), 0);
    }
}

/* The name that weft_matmul_describe tells is the one that WEFT_BF16 asked for. */
TEST(test_matmul_bf16_names_its_way)
{
    const char *name = getenv("WEFT_BF16");
    weft_matmul_info info;
    CHECK_OK(weft_matmul_describe(&info));
    if (!name)
        SKIP("WEFT_BF16 is not set");
    for (int i = 0; weft_i_bf16_variant(i); i++)
        if (!strcmp(weft_i_bf16_variant(i)->name, name))
            CHECK(!strcmp(info.bf16, weft_i_bf16_variant(i)->text));
    if (!strcmp(name, "f32"))
        CHECK(!*info.bf16);
}

/* Without memory for its tiles a way leaves the product to f32, which may find some or says so. */
TEST(test_matmul_bf16_no_memory)
{
    weft_tensor *a = numbers(WEFT_BF16, 5, 40, 1), *b = numbers(WEFT_BF16, 40, 6, 2);
    weft_tensor *out = weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(5, 6));
    CHECK_OK(weft_mm_into(out, a, b)); /* the libraries are there now */
    bool fired = true;
    for (int n = 1; fired && n < 30; n++) {
        CHECK_OK(weft_fill(out, SENTINEL));
        fault_arm(n);
        weft_status status = weft_mm_into(out, a, b);
        fired = fault_disarm();
        if (status == WEFT_OK)
            check_product(out, a, b, "without some memory");
        else
            CHECK(status == WEFT_ERR_NO_MEMORY && weft_item(out, 0) == SENTINEL);
        weft_clear_error();
    }
    CHECK(!fired);
}

TEST(test_matmul_integers)
{
    for (int dtype = WEFT_I8; dtype <= WEFT_U64; dtype++) {
        if (weft_dtype_size((weft_dtype)dtype) == 1)
            continue;
        weft_tensor *a = dressed(numbers((weft_dtype)dtype, 6, 9, 1), dtype % LAYOUTS),
                    *b = dressed(numbers((weft_dtype)dtype, 9, 5, 2), 1);
        check_product(weft_mm(a, b), a, b, weft_dtype_name((weft_dtype)dtype));
    }
    weft_tensor *eight = weft_full(WEFT_I8, WEFT_CPU, WEFT_SHAPE(2, 2), 100);
    CHECK_INT(weft_item_int(weft_mm(eight, eight), 0), (int8_t)20000); /* wraps */
}

/* 16- and 8-bit floats: the f32 product, rounded once, bit by bit.  Instructions for bf16 and oneDNN
 * add in another order, which may change the last bit; test_matmul_bf16_by_f32 has the plain way.
 */
TEST(test_matmul_small_floats_round_once)
{
    weft_matmul_info info;
    CHECK_OK(weft_matmul_describe(&info));
    weft_seed(3);
    for (int dtype = WEFT_F16; dtype <= WEFT_F8E5M2; dtype++) {
        weft_tensor *a =
            weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9, 64)), (weft_dtype)dtype);
        weft_tensor *b =
            weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 7)), (weft_dtype)dtype);
        weft_tensor *wide = weft_mm(weft_to_dtype(a, WEFT_F32), weft_to_dtype(b, WEFT_F32));
        weft_tensor *out = weft_mm(a, b), *rounded = weft_to_dtype(wide, (weft_dtype)dtype);
        CHECK(dtype == WEFT_BF16 && *info.bf16 ? weft_allclose(out, rounded, 0x1p-7, 1e-6, false)
                                               : weft_equal(out, rounded));
        CHECK_INT(weft_tensor_dtype(out), dtype);
    }
}

TEST(test_matmul_bf16_is_by_f32)
{
    weft_matmul_info info;
    CHECK_OK(weft_matmul_describe(&info));
    if (*info.bf16)
        SKIP("products of bf16 are by %s", info.bf16);
}

/* The plain way is there on every machine, and rounds the sums of f32, bit by bit. */
TEST(test_matmul_bf16_by_f32)
{
    CHECK_INT(run_again("WEFT_BF16=f32", "test_matmul_bf16_is_by_f32 | grep -q pass"), 0);
    CHECK_INT(run_again("WEFT_BF16=f32", "test_matmul_small_floats_round_once >/dev/null"), 0);
}

TEST(test_matmul_empty)
{
    weft_tensor *a = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 0)),
                *b = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0, 2));
    weft_tensor *out = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 2));
    CHECK_OK(weft_mm_into(out, a, b));
    for (int i = 0; i < 6; i++)
        CHECK(weft_item(out, i) == 0);
    CHECK_INT(weft_tensor_numel(weft_mm(b, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 5)))), 0);
    CHECK(weft_item(weft_mm(weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(1, 0)),
                            weft_zeros(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(0, 1))),
                    0) == 0);
}

TEST(test_matmul_batches)
{
    weft_tensor *a = weft_view(numbers(WEFT_F32, 6, 20, 1), WEFT_SHAPE(2, 3, 4, 5)),
                *b = weft_view(numbers(WEFT_F32, 10, 6, 2), WEFT_SHAPE(2, 1, 5, 6));
    weft_tensor *out = weft_matmul(a, b);
    CHECK(out && weft_tensor_ndim(out) == 4 && weft_tensor_size(out, 1) == 3);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            check_product(weft_select(weft_select(out, 0, i), 0, j),
                          weft_select(weft_select(a, 0, i), 0, j),
                          weft_select(weft_select(b, 0, i), 0, 0), "matmul");
    weft_tensor *c = weft_view(numbers(WEFT_F32, 6, 20, 3), WEFT_SHAPE(6, 4, 5)),
                *d = weft_transpose(weft_view(numbers(WEFT_F32, 12, 15, 4), WEFT_SHAPE(6, 6, 5)), 1,
                                    2);
    weft_tensor *products = weft_bmm(c, d);
    for (int i = 0; i < 6; i++)
        check_product(weft_select(products, 0, i), weft_select(c, 0, i), weft_select(d, 0, i),
                      "bmm");
    CHECK(!weft_matmul(a, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 2, 5, 6))));
    weft_clear_error();
}

TEST(test_matmul_vectors)
{
    weft_tensor *m = numbers(WEFT_F32, 3, 4, 1), *v = weft_select(numbers(WEFT_F32, 1, 4, 2), 0, 0),
                *u = weft_select(numbers(WEFT_F32, 1, 3, 2), 0, 0);
    weft_tensor *mv = weft_matmul(m, v), *um = weft_matmul(u, m), *vv = weft_matmul(v, v);
    CHECK(weft_tensor_ndim(mv) == 1 && weft_tensor_numel(mv) == 3 && weft_tensor_numel(um) == 4 &&
          weft_tensor_ndim(vv) == 0);
    weft_tensor *batch = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 0, 24, 1), WEFT_SHAPE(2, 3, 4));
    weft_tensor *ub = weft_matmul(u, batch), *bv = weft_matmul(batch, v);
    CHECK(weft_tensor_ndim(um) == 1 && weft_tensor_ndim(ub) == 2 && weft_tensor_ndim(bv) == 2);
    CHECK(weft_tensor_size(ub, 0) == 2 && weft_tensor_size(ub, 1) == 4);
    CHECK(weft_tensor_size(bv, 0) == 2 && weft_tensor_size(bv, 1) == 3);
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++)
            sum += weft_item(m, 4 * i + j) * weft_item(v, j);
        CHECK(weft_item(mv, i) == sum);
    }
    double sum = 0;
    for (int j = 0; j < 4; j++)
        sum += weft_item(v, j) * weft_item(v, j);
    CHECK(weft_item(vv, 0) == sum);
    CHECK(!weft_matmul(m, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR)) && !weft_matmul(m, u));
    CHECK(!weft_mm(m, weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4, 2))));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    weft_clear_error();
}

TEST(test_matmul_linear)
{
    weft_tensor *x = weft_view(numbers(WEFT_F32, 6, 4, 1), WEFT_SHAPE(2, 3, 4)),
                *w = numbers(WEFT_F32, 5, 4, 2), *bias = weft_arange(WEFT_F32, WEFT_CPU, 0, 5, 1);
    weft_tensor *y = weft_linear(x, w, bias), *plain = weft_linear(x, w, NULL);
    CHECK(y && weft_tensor_ndim(y) == 3 && weft_tensor_size(y, 2) == 5);
    check_product(weft_view(plain, WEFT_SHAPE(6, 5)), weft_view(x, WEFT_SHAPE(6, 4)),
                  weft_transpose(w, 0, 1), "linear");
    for (int i = 0; i < 30; i++)
        CHECK(weft_item(y, i) == weft_item(plain, i) + i % 5);
    CHECK(!weft_linear(x, bias, NULL));
    weft_clear_error();
}

/* Small floats are multiplied in panels of 256 rows: all of them, also the last, in every layout,
 * and each result is rounded once. */
TEST(test_matmul_panels)
{
    static const weft_dtype small[] = {WEFT_F16, WEFT_BF16};
    weft_seed(5);
    for (int k = 0; k < 4; k++) {
        weft_dtype dtype = small[k % 2];
        weft_tensor *a = weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(601, 33)), dtype);
        weft_tensor *b = weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(33, 7)), dtype);
        a = k / 2 ? weft_transpose(weft_contiguous(weft_transpose(a, 0, 1)), 0, 1) : a;
        b = k / 2 ? weft_transpose(weft_contiguous(weft_transpose(b, 0, 1)), 0, 1) : b;
        weft_tensor *c = weft_matmul(a, b);
        weft_tensor *wide = weft_matmul(weft_to_dtype(a, WEFT_F64), weft_to_dtype(b, WEFT_F64));
        CHECK(c && weft_tensor_dtype(c) == dtype);
        for (int64_t i = 0; i < 601 * 7; i++) {
            double step = dtype == WEFT_F16 ? 0x1p-11 : 0x1p-8, value = weft_item(wide, i);
            CHECK_NEAR(weft_item(c, i), value, fabs(value) * step * 1.001 + 2e-5);
        }
    }
}

/* Products of floats of 8 bits: scales, bias, the result's scale, and one rounding at the end. */
TEST(test_matmul_scaled)
{
    weft_tensor *a = weft_to_dtype(numbers(WEFT_F32, 6, 4, 1), WEFT_F8E4M3),
                *b = weft_to_dtype(numbers(WEFT_F32, 4, 5, 2), WEFT_F8E5M2),
                *one = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 0.25), *none = NULL;
    weft_tensor *rows = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 1, 7, 1), WEFT_SHAPE(6, 1)),
                *columns = weft_view(weft_arange(WEFT_F32, WEFT_CPU, 1, 6, 1), WEFT_SHAPE(1, 5)),
                *bias = weft_arange(WEFT_BF16, WEFT_CPU, 0, 5, 1);
    weft_tensor *plain = weft_mm(weft_to_dtype(a, WEFT_F32), weft_to_dtype(b, WEFT_F32));
    CHECK(weft_equal(weft_scaled_mm(a, b, one, one, NULL, NULL, WEFT_F32),
                     weft_mul_scalar(plain, 0.0625)));
    weft_tensor *scaled = weft_mul(weft_mul(plain, rows), columns);
    CHECK(weft_equal(weft_scaled_mm(a, b, rows, columns, NULL, NULL, WEFT_F32), scaled));
    scaled = weft_mul_scalar(weft_add(scaled, weft_to_dtype(bias, WEFT_F32)), 0.25);
    weft_tensor *turned = weft_transpose(weft_contiguous(weft_transpose(b, 0, 1)), 0, 1);
    CHECK(weft_equal(weft_scaled_mm(a, b, rows, columns, bias, NULL, WEFT_F32),
                     weft_mul_scalar(scaled, 4))); /* a bias, and no scale of the result */
    for (int i = 0; i < 2; i++)
        CHECK(weft_equal(weft_scaled_mm(a, i ? turned : b, rows, columns, bias, one, WEFT_BF16),
                         weft_to_dtype(scaled, WEFT_BF16)));
    CHECK(!weft_scaled_mm(a, plain, one, one, NULL, NULL, WEFT_F32));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_scaled_mm(a, weft_to_dtype(b, WEFT_F16), one, one, NULL, NULL, WEFT_F32));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    CHECK(!weft_scaled_mm(a, b, columns, one, NULL, NULL, WEFT_F32));
    CHECK_CONTAINS(weft_last_error(), "[rows of a, 1]");
    CHECK(!weft_scaled_mm(a, b, one, bias, NULL, NULL, WEFT_F32));
    CHECK_CONTAINS(weft_last_error(), "must be f32");
    CHECK(!weft_scaled_mm(a, b, one, one, rows, NULL, WEFT_F32));
    CHECK_CONTAINS(weft_last_error(), "a bias");
    weft_tensor *wrong[] = {weft_view(bias, WEFT_SHAPE(5, 1)), weft_slice(bias, 0, 0, 4, 1),
                            weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5))};
    for (int i = 0; i < 3; i++) {
        CHECK(!weft_scaled_mm(a, b, one, one, wrong[i], NULL, WEFT_F32));
        CHECK_CONTAINS(weft_last_error(), "a bias has 5 floats, one for each column of b");
    }
    CHECK(!weft_scaled_mm(a, b, one, one, NULL, rows, WEFT_F32));
    CHECK(!weft_scaled_mm(a, b, one, one, NULL, NULL, WEFT_F64));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    weft_clear_error();
    CHECK(!weft_scaled_mm(a, b, none, one, NULL, NULL, WEFT_F32));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_matmul_describe)
{
    weft_matmul_info info;
    CHECK_OK(weft_matmul_describe(&info));
    const weft_i_blas *blas = weft_i_blas_get();
    CHECK(!strcmp(info.library, blas ? blas->name : "") && *info.small_floats);
    CHECK(info.product_rate >= 0 && info.vector_rate >= 0 && (blas || info.slow));
    if (blas && info.vector_rate > 0) /* test_blas.c has the rest */
        CHECK_INT(info.slow, 3 * info.product_rate < info.vector_rate);
    if (strstr(info.library, "openblas"))
        CHECK_CONTAINS(info.config, "OpenBLAS");
    CHECK_STATUS(weft_matmul_describe(NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* A product that is released keeps nothing, though the scope in which it was made stays open. */
TEST(test_matmul_of_vectors_keeps_nothing)
{
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4), 2);
    weft_tensor *row = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 1),
                *column = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 1);
    weft_tensor *turned =
        weft_transpose(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 4), 2), 0, 1);
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        weft_tensor *left = weft_matmul(row, x), *right = weft_matmul(x, column);
        CHECK(left && right && weft_item(left, 3) == 6 && weft_item(right, 2) == 8);
        weft_tensor *all = weft_linear(turned, x, NULL); /* of rows that are copied first */
        CHECK(all && weft_item(all, 17) == 16);
        weft_release(left);
        weft_release(right);
        weft_release(all);
    }
    CHECK_INT(count_end(), 0);
}

/* ---- shortage ---- */

/* Whatever cannot be had: the product is right, or there is none and an error. */
static void check_shortage(weft_dtype dtype, bool turned, bool with_bias)
{
    weft_scope_open();
    weft_shape shape = turned ? WEFT_SHAPE(3, 2, 4) : WEFT_SHAPE(2, 3, 4);
    weft_tensor *x = weft_full(dtype, WEFT_CPU, shape, 2), *weight, *bias;
    x = turned ? weft_transpose(x, 0, 1) : x;
    weight = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(5, 4), 0.5);
    bias = with_bias ? weft_full(dtype, WEFT_CPU, WEFT_SHAPE(5), 1) : NULL;
    int failed = 0;
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_scope_open();
        fault_arm(n);
        weft_tensor *y = weft_linear(x, weight, bias);
        fired = fault_disarm();
        CHECK(y || fired);
        if (y)
            CHECK(weft_item(y, 0) == 4 + with_bias && weft_item(y, 29) == 4 + with_bias);
        else
            CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_MEMORY);
        failed += !y;
        weft_clear_error();
        weft_scope_close();
    }
    CHECK(failed >= (dtype == WEFT_F16 ? 2 : 1)); /* for the result, and within the product */
    weft_scope_close();
}

TEST(test_matmul_linear_shortage)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
    for (int i = 0; i < 12; i++)
        check_shortage(dtypes[i % 3], i / 3 % 2, i / 6);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
