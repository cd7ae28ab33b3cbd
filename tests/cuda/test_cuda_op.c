/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/tensor/table.c, backends/cuda/tensor/blas.c, backends/cuda/tensor/index.c,
 * backends/cuda/tensor/convert.c, backends/cuda/tensor/make.c, backends/cuda/tensor/matmul.c, backends/cuda/tensor/move.c,
 * backends/cuda/tensor/normalize.c, backends/cuda/tensor/pointwise.c,
 * backends/cuda/tensor/reduce.c */
/*
 * Tensor operations on CUDA devices give the bits of the CPU: every row of the op table, all
 * dtypes, layouts and sizes that take another way through the kernels.  On the software driver, or
 * on a GPU with WEFT_TEST_CUDA=real.  Two NaN are equal whatever their bits; powers are the C
 * library's and products cuBLASLt's, whose last bits differ on a GPU.
 */
#include "cuda/op_scene.h"
#include "op_samples.h"

#include "backends/cuda/device/launch.h"
#include "kernels/number/convert.h"
#include "kernels/vector/pointwise.h"
#include "weft/weft.h"

#include <math.h>

static double pow_slack(const char *op, weft_dtype dtype)
{
    double slack = dtype == WEFT_F64      ? 1e-14
                   : dtype == WEFT_F32    ? 1e-6
                   : dtype == WEFT_F8E4M3 ? 0.15
                   : dtype == WEFT_F8E5M2 ? 0.3
                                          : 1e-2;
    return scene.real && !strcmp(op, "pow") && weft_i_dtype_is_float(dtype) ? slack : 0;
}

/* Every row that runs has a column, or a reason why not. */
TEST(test_cuda_op_every_row_has_a_column)
{
    static const char *const none[] = {
#define RUN(name_, run_)
#define NONE(name_, why_) #name_,
#include "backends/cuda/tensor/columns.def"
#undef RUN
#undef NONE
    };
    size_t rows = 0;
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_op *op = table->rows[i];
            bool excused = op->flags & WEFT_I_OP_VIEW;
            for (size_t k = 0; k < sizeof none / sizeof *none; k++)
                excused |= !strcmp(none[k], op->name);
            unsigned handles = WEFT_I_OP_EFFECT | WEFT_I_OP_LAYOUT;
            if (strchr(op->kinds, 'g') || (op->flags & handles) == handles)
                continue; /* collectives go by their carrier; the host changes handles */
            if (!excused && !op->run[WEFT_I_KIND_CUDA])
                FAIL("%s has neither a CUDA column nor a reason", op->name);
            if (excused && op->run[WEFT_I_KIND_CUDA])
                FAIL("%s has a CUDA column and a reason why not", op->name);
            rows++;
        }
    CHECK(rows > 50);
}

TEST(test_cuda_op_samples)
{
    begin();
    for (int k = 0; k < SAMPLES; k++) {
        const char *op = samples[k].op;
        const weft_i_op *row = weft_i_op_find(op);
        if (!(row->flags & WEFT_I_OP_VIEW) && !row->run[WEFT_I_KIND_CUDA])
            continue; /* columns.def says why */
        CHECK_OK(weft_scope_open());
        inputs cpu = make_inputs(&samples[k], WEFT_CPU), gpu = make_inputs(&samples[k], GPU);
        weft_seed(7);
        weft_tensor *here = call_sample(&samples[k], &cpu, WEFT_CPU);
        weft_seed(7);
        weft_tensor *there = call_sample(&samples[k], &gpu, GPU);
        if (!here || !there)
            FAIL("%s: %s", op, weft_last_error());
        if (memcmp(here->stride, there->stride, sizeof here->stride))
            FAIL("%s: another layout", op);
        if (strncmp(op, "empty", 5) && strcmp(op, "resize_storage")) {
            double slack = pow_slack(op, here->dtype);
            check_near(op, there, here, scene.real && strstr(op, "mm") ? 1e-6 : slack);
        }
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* -- values that are awkward -- */

/* Packed, `n` elements: specials first, then a mixture of signs and sizes. */
static weft_tensor *awkward(weft_dtype dtype, int64_t n, int seed)
{
    static const double specials[] = {0.0,      -0.0,      1,      -1,         INFINITY, -INFINITY,
                                      NAN,      0.5,       2,      1e-6,       -1e-6,    127,
                                      -128,     255,       0x1p31, 3e38,       88.8,     -103.97,
                                      0x1p-149, 0x1p-1030, 1e30,   0x1p28 - 1, 12345,    9e15};
    enum { SPECIALS = sizeof specials / sizeof *specials };
    weft_tensor *wide = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(n));
    double *at = (double *)(void *)weft_i_tensor_data(wide);
    for (int64_t i = 0; i < n; i++) {
        uint64_t mixed = (uint64_t)(i + seed) * 0x9e3779b97f4a7c15u;
        double size = ldexp(1, (int)(mixed >> 40) % 9 - 3);
        at[i] = i < SPECIALS ? specials[(i + seed) % SPECIALS]
                             : ((double)(int64_t)mixed * 0x1p-63) * size;
    }
    return weft_to_dtype(wide, dtype);
}

/* The same on the device; `way`: 0 packed, 1 behind an odd offset, 2 every second element, 3 by
 * columns of 3. */
static weft_tensor *laid_out(weft_tensor *x, int way, weft_device device)
{
    int64_t n = x->numel;
    weft_tensor *room = weft_zeros(x->dtype, device, WEFT_SHAPE(2 * n + 1)), *view = room;
    if (way == 0)
        view = weft_slice(room, 0, 0, n, 1);
    else if (way == 1)
        view = weft_slice(room, 0, 1, n + 1, 1);
    else if (way == 2)
        view = weft_slice(room, 0, 0, 2 * n, 2);
    else
        view = weft_transpose(weft_view(weft_slice(room, 0, 0, n, 1), WEFT_SHAPE(3, n / 3)), 0, 1);
    CHECK_OK(weft_copy(view, way == 3 ? weft_view(x, WEFT_SHAPE(n / 3, 3)) : x));
    return view;
}

static weft_tensor *apply(const weft_i_op *op, weft_tensor *a, weft_tensor *b)
{
    weft_i_arg args[3] = {WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b)};
    return weft_i_op_apply(op, NULL, args);
}

static void check_pointwise(const weft_i_op *op, weft_dtype dtype, int way)
{
    char what[96];
    weft_tensor *a = awkward(dtype, 99, 0), *b = awkward(dtype, 99, 5);
    snprintf(what, sizeof what, "%s of %s, layout %d", op->name, weft_dtype_name(dtype), way);
    weft_tensor *x = laid_out(a, way, WEFT_CPU), *y = laid_out(b, (way + 1) % 3, WEFT_CPU);
    weft_tensor *u = laid_out(a, way, GPU), *v = laid_out(b, (way + 1) % 3, GPU);
    if (way == 3) {
        y = weft_slice(b, 0, 0, 3, 1); /* broadcast */
        v = weft_to(y, dtype, GPU);
    }
    weft_tensor *here = apply(op, x, y), *there = apply(op, u, v);
    if (!here) { /* bool has no negative */
        CHECK(!there);
        weft_clear_error();
        return;
    }
    check_near(what, there, here, pow_slack(op->name, here->dtype));
}

static void each_pointwise(const weft_dtype *dtypes, int count)
{
    begin();
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_op *op = table->rows[i];
            if (op->run[0] != weft_i_pointwise_run || !strcmp(op->name, "where"))
                continue;
            for (int k = 0; k < count; k++) {
                CHECK_OK(weft_scope_open());
                check_pointwise(op, dtypes[k], (int)(i + (size_t)k) % 4);
                check_pointwise(op, dtypes[k], 0);
                CHECK_OK(weft_scope_close());
            }
        }
    end();
}

TEST(test_cuda_op_pointwise_floats)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16,   WEFT_F16,
                                        WEFT_F64, WEFT_F8E4M3, WEFT_F8E5M2};
    each_pointwise(dtypes, sizeof dtypes / sizeof *dtypes);
}

TEST(test_cuda_op_pointwise_integers)
{
    static const weft_dtype dtypes[] = {WEFT_I8,  WEFT_I16, WEFT_I32, WEFT_I64, WEFT_U8,
                                        WEFT_U16, WEFT_U32, WEFT_U64, WEFT_BOOL};
    each_pointwise(dtypes, sizeof dtypes / sizeof *dtypes);
}

/* Operands of two dtypes, numbers, choices. */
TEST(test_cuda_op_pointwise_mixed)
{
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        weft_dtype dtype = (weft_dtype)d;
        CHECK_OK(weft_scope_open());
        weft_tensor *a = awkward(dtype, 50, 1), *b = awkward(WEFT_F32, 50, 2);
        weft_dtype small = dtype == WEFT_U64 ? WEFT_U8 : WEFT_I16; /* no dtype holds u64 and i16 */
        weft_tensor *c = awkward(small, 50, 3), *m = weft_gt_scalar(b, 0);
        weft_tensor *u = weft_to(a, dtype, GPU), *v = weft_to(b, WEFT_F32, GPU);
        weft_tensor *w = weft_to(c, small, GPU), *n = weft_to(m, WEFT_BOOL, GPU);
        check_same("a + f32", weft_add(u, v), weft_add(a, b));
        check_same("a * an integer", weft_mul(u, w), weft_mul(a, c));
        check_same("a < an integer", weft_lt(u, w), weft_lt(a, c));
        check_same("a + 1", weft_add_scalar(u, 1), weft_add_scalar(a, 1));
        check_same("1 == a", weft_eq_scalar(u, 1), weft_eq_scalar(a, 1));
        check_same("where", weft_where(n, u, w), weft_where(m, a, c));
        weft_tensor *into = weft_zeros(WEFT_F64, GPU, WEFT_SHAPE(50)),
                    *same = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(50));
        CHECK_OK(weft_add_into(into, u, v));
        CHECK_OK(weft_add_into(same, a, b));
        check_same("into another dtype", into, same);
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* -- reductions -- */

typedef weft_tensor *reduce_fn(weft_tensor *x, const int *dims, int count, bool keepdim);
static const struct {
    const char *name;
    reduce_fn *run;
} reductions[] = {{"sum", weft_sum}, {"mean", weft_mean}, {"prod", weft_prod}, {"max", weft_max},
                  {"min", weft_min}, {"any", weft_any},   {"all", weft_all}};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

static void check_reductions(weft_tensor *x, const int *dims, int count, const char *how)
{
    char what[96];
    weft_tensor *u = there(x);
    for (int i = 0; i < REDUCTIONS; i++) {
        snprintf(what, sizeof what, "%s of %s, %s", reductions[i].name, weft_dtype_name(x->dtype),
                 how);
        weft_tensor *here = reductions[i].run(x, dims, count, false);
        weft_tensor *far = reductions[i].run(u, dims, count, false);
        if (here)
            check_same(what, far, here);
        else
            CHECK(!far); /* the mean of integers */
        weft_clear_error();
    }
    if (count <= 1) {
        weft_tensor *most = count ? weft_argmax(x, dims[0], true) : weft_argmax_all(x);
        weft_tensor *least = count ? weft_argmin(x, dims[0], true) : weft_argmin_all(x);
        check_same(how, count ? weft_argmax(u, dims[0], true) : weft_argmax_all(u), most);
        check_same(how, count ? weft_argmin(u, dims[0], true) : weft_argmin_all(u), least);
    }
}

TEST(test_cuda_op_reduce_rows)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 513, 5000, 16384, 16385};
    static const int last = 1;
    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(weft_scope_open());
        char how[32];
        int64_t n = sizes[i];
        snprintf(how, sizeof how, "rows of %lld", (long long)n);
        weft_tensor *x = weft_view(bumpy(WEFT_F32, 3 * n, n == 513), WEFT_SHAPE(3, n));
        if (n)
            check_reductions(x, &last, 1, how);
        else
            check_same(how, weft_sum(there(x), &last, 1, true), weft_sum(x, &last, 1, true));
        CHECK_OK(weft_scope_close());
    }
    end();
}

TEST(test_cuda_op_reduce_long)
{
    begin();
    weft_tensor *x = bumpy(WEFT_F32, 50001, false);
    check_reductions(x, NULL, 0, "all of 50001");
    check_reductions(weft_slice(x, 0, 1, 50001, 2), NULL, 0, "every second");
    end();
}

TEST(test_cuda_op_reduce_dtypes)
{
    static const int first = 0, both[] = {0, 2};
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = bumpy((weft_dtype)d, 2 * 700 * 3, d == WEFT_BF16);
        check_reductions(weft_view(x, WEFT_SHAPE(1400, 3)), &first, 1, "columns");
        check_reductions(weft_view(x, WEFT_SHAPE(2, 700, 3)), both, 2, "outer and inner");
        check_reductions(weft_transpose(weft_view(x, WEFT_SHAPE(2, 2100)), 0, 1), &first, 1,
                         "a transposed matrix");
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* What few_2, few_4 and few_8 sum, and beside it what just misses them: the bits of the CPU, a
 * negative zero and a NaN among them. */
TEST(test_cuda_op_reduce_few)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64, WEFT_F8E4M3};
    static const int first = 0;
    begin();
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int n = 1; n <= 9; n++)
            for (int wide = 0; wide < 2; wide++) {
                char how[40];
                int64_t each = wide ? 40 * 64 : 37; /* whole units, or not */
                CHECK_OK(weft_scope_open());
                snprintf(how, sizeof how, "%d of %lld", n, (long long)each);
                weft_tensor *x = weft_view(bumpy(dtypes[d], n * each, n == 3), WEFT_SHAPE(n, each));
                CHECK_OK(weft_fill(weft_narrow(x, 1, 5, 2), -0.0));
                weft_tensor *u = there(x);
                check_same(how, weft_sum(u, &first, 1, false), weft_sum(x, &first, 1, false));
                check_same(how, weft_mean(u, &first, 1, false), weft_mean(x, &first, 1, false));
                CHECK_OK(weft_scope_close());
            }
    end();
}

/* Sums over the rows of a matrix: whole units of 16 bytes by kernels of their own, and beside them
 * what just misses those: a row too short for it, a row that begins between two units, another
 * dtype.  Blocks of 512 rows are full or not, and there are up to three. */
TEST(test_cuda_op_reduce_columns)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64};
    static const int64_t heights[] = {9, 17, 512, 513, 1300}, widths[] = {8, 12, 136, 264};
    static const int first = 0;
    begin();
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t h = 0; h < sizeof heights / sizeof *heights; h++)
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                char how[48];
                int64_t n = heights[h], m = widths[w];
                CHECK_OK(weft_scope_open());
                snprintf(how, sizeof how, "%lld rows of %lld", (long long)n, (long long)m);
                weft_tensor *x =
                    weft_view(bumpy(dtypes[d], n * (m + 1), n == 17), WEFT_SHAPE(n, m + 1));
                CHECK_OK(weft_fill(weft_narrow(x, 1, 5, 2), -0.0));
                weft_tensor *whole = weft_contiguous(weft_narrow(x, 1, 0, m));
                weft_tensor *there_whole = there(whole), *apart = weft_narrow(there(x), 1, 1, m);
                check_same(how, weft_sum(there_whole, &first, 1, false),
                           weft_sum(whole, &first, 1, false));
                check_same(how, weft_mean(there_whole, &first, 1, true),
                           weft_mean(whole, &first, 1, true));
                check_same(how, weft_sum(apart, &first, 1, false),
                           weft_sum(weft_narrow(x, 1, 1, m), &first, 1, false));
                CHECK_OK(weft_scope_close());
            }
    end();
}

/* -- rows that are normalised -- */

static void check_softmax(weft_tensor *x, int dim, const char *how)
{
    weft_tensor *u = there(x);
    check_same(how, weft_softmax(u, dim), weft_softmax(x, dim));
    check_same(how, weft_log_softmax(u, dim), weft_log_softmax(x, dim));
    weft_tensor *g = weft_contiguous(weft_mul(x, x)), *v = there(g);
    check_same(how, weft_softmax_grad(v, u, dim), weft_softmax_grad(g, x, dim));
    check_same(how, weft_log_softmax_grad(v, u, dim), weft_log_softmax_grad(g, x, dim));
}

TEST(test_cuda_op_softmax)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_F8E4M3};
    begin();
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_view(bumpy(dtypes[d], 2400, false), WEFT_SHAPE(3, 40, 20));
        check_softmax(x, 2, "softmax of rows");
        check_softmax(x, 1, "softmax of columns");
        check_softmax(weft_transpose(x, 0, 2), 0, "softmax of a turned tensor");
        check_softmax(weft_view(x, WEFT_SHAPE(2, 1200)), 1, "softmax of rows of 1200");
        CHECK_OK(weft_scope_close());
    }
    weft_tensor *longer = weft_view(bumpy(WEFT_F32, 2 * 17000, true), WEFT_SHAPE(2, 17000));
    check_softmax(longer, 1, "softmax of rows of 17000");
    check_softmax(weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 3), 0, "softmax of a number");
    end();
}

static void check_layer(weft_tensor *x, int dims, weft_tensor *weight, weft_tensor *bias)
{
    weft_tensor *u = there(x), *w = weight ? there(weight) : NULL, *b = bias ? there(bias) : NULL;
    weft_tensor *grad = bumpy(x->dtype, x->numel, false), *here[3], *far[3];
    grad = weft_view(grad, weft_i_tensor_shape(x));
    check_same("layer_norm", weft_layer_norm(u, dims, w, b, 1e-5),
               weft_layer_norm(x, dims, weight, bias, 1e-5));
    CHECK_OK(weft_layer_norm_grad(grad, x, dims, weight, 1e-5, bias != NULL, here));
    CHECK_OK(weft_layer_norm_grad(there(grad), u, dims, w, 1e-5, bias != NULL, far));
    for (int k = 0; k < 3; k++) {
        CHECK((here[k] == NULL) == (far[k] == NULL));
        if (here[k])
            check_same("layer_norm_grad", far[k], here[k]);
    }
}

TEST(test_cuda_op_layer_norm)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16};
    begin();
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_view(bumpy(dtypes[d], 70 * 30, false), WEFT_SHAPE(70, 5, 6));
        weft_tensor *weight = weft_view(bumpy(WEFT_F32, 30, false), WEFT_SHAPE(5, 6));
        check_layer(x, 2, weight, weight);
        check_layer(weft_transpose(x, 0, 2), 1, bumpy(WEFT_BF16, 70, false), NULL);
        check_layer(weft_view(x, WEFT_SHAPE(1, 2100)), 1, NULL, bumpy(WEFT_F64, 2100, false));
        CHECK_OK(weft_scope_close());
    }
    check_layer(weft_view(bumpy(WEFT_F32, 17000, false), WEFT_SHAPE(1, 17000)), 1, NULL, NULL);
    end();
}

/* -- elements by index -- */

static weft_tensor *indices(weft_dtype dtype, int64_t n, int64_t limit)
{
    weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(n));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)(void *)weft_i_tensor_data(x))[i] =
            (int64_t)(((uint64_t)i * 0x9e3779b97f4a7c15u) >> 33) % limit;
    return weft_to_dtype(x, dtype);
}

static void check_index(weft_dtype dtype, weft_dtype index_dtype)
{
    weft_tensor *x = weft_view(bumpy(dtype, 60, false), WEFT_SHAPE(4, 15));
    weft_tensor *i = weft_view(indices(index_dtype, 36, 4), WEFT_SHAPE(9, 4));
    weft_tensor *s = weft_view(bumpy(dtype, 36, false), WEFT_SHAPE(9, 4)),
                *t = weft_transpose(i, 0, 1);
    check_same("take_along", weft_take_along(there(x), 0, there(i)), weft_take_along(x, 0, i));
    check_same("take_along", weft_take_along(there(x), 1, there(t)), weft_take_along(x, 1, t));
    check_same("scatter_add", weft_scatter_add(there(x), 0, there(i), there(s)),
               weft_scatter_add(x, 0, i, s));
    weft_tensor *list = indices(index_dtype, 700, 5), *many = bumpy(dtype, 700, false);
    weft_tensor *few = bumpy(dtype, 5, false);
    check_same("scatter_add of a long line",
               weft_scatter_add(there(few), 0, there(list), there(many)),
               weft_scatter_add(few, 0, list, many));
    weft_tensor *table = weft_view(bumpy(dtype, 40, false), WEFT_SHAPE(5, 8));
    weft_tensor *pick = weft_view(list, WEFT_SHAPE(70, 10));
    check_same("embedding", weft_embedding(there(table), there(pick)), weft_embedding(table, pick));
    check_same("embedding of a turned table",
               weft_embedding(weft_transpose(there(weft_view(table, WEFT_SHAPE(8, 5))), 0, 1),
                              there(pick)),
               weft_embedding(weft_transpose(weft_view(table, WEFT_SHAPE(8, 5)), 0, 1), pick));
    if (!weft_i_dtype_is_float(dtype))
        return;
    weft_tensor *grad = weft_view(bumpy(dtype, 2100, false), WEFT_SHAPE(70, 10, 3));
    check_same("embedding_grad", weft_embedding_grad(there(grad), there(pick), 6),
               weft_embedding_grad(grad, pick, 6));
}

TEST(test_cuda_op_index)
{
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        CHECK_OK(weft_scope_open());
        check_index((weft_dtype)d, d % 2 ? WEFT_I64 : WEFT_I32);
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* Rows go by the largest words that they and their places consist of. */
TEST(test_cuda_op_index_words)
{
    static const int64_t picks[] = {3, 0, 3, 2};
    begin();
    weft_tensor *pick = weft_tensor_from(WEFT_I64, WEFT_SHAPE(4), picks);
    for (int64_t width = 1; width <= 24; width++)
        for (int64_t skipped = 0; skipped < 5; skipped++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *all = bumpy(WEFT_BF16, skipped + 4 * width, false);
            weft_tensor *u = weft_narrow(there(all), 0, skipped, 4 * width);
            weft_tensor *table = weft_narrow(all, 0, skipped, 4 * width);
            check_same("rows of an embedding",
                       weft_embedding(weft_view(u, WEFT_SHAPE(4, width)), there(pick)),
                       weft_embedding(weft_view(table, WEFT_SHAPE(4, width)), pick));
            CHECK_OK(weft_scope_close());
        }
    end();
}

/* The host learns of it when it waits, once; nothing outside was touched, and work goes on. */
TEST(test_cuda_op_index_out_of_range)
{
    begin();
    weft_tensor *table = there(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 8)));
    static const int64_t values[] = {1, -3, 4, 77};
    weft_tensor *bad = there(weft_tensor_from(WEFT_I64, WEFT_SHAPE(4), values));
    weft_tensor *out = weft_embedding(table, bad);
    CHECK(out != NULL);
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 10000), WEFT_ERR_INVALID_ARG);
    CHECK(strstr(weft_last_error(), "embedding: index -3 at 1;") ||
          strstr(weft_last_error(), "embedding: index 77 at 3;"));
    CHECK_CONTAINS(weft_last_error(), "the weight has 5 rows");
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 10000));
    CHECK(weft_item(out, 0) == 1 && weft_item(out, 8) == 0 && weft_item(out, 16) == 1);
    CHECK(weft_take_along(weft_select(table, 1, 0), 0, bad) != NULL);
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), WEFT_FOREVER), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "take_along (in cross_entropy: its labels): index ");
    CHECK(weft_embedding_grad(there(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 2))), bad, 5));
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), WEFT_FOREVER), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "embedding_grad: index ");
    weft_tensor *line = there(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5)));
    weft_tensor *sum = weft_scatter_add(line, 0, bad, weft_select(table, 0, 0));
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), WEFT_FOREVER), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "scatter_add: index ");
    CHECK(weft_item(sum, 1) == 1 && weft_item(sum, 4) == 1 && weft_item(sum, 0) == 0);
    end();
}

/* -- numbers out of nothing -- */

TEST(test_cuda_op_random)
{
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        weft_dtype dtype = (weft_dtype)d;
        CHECK_OK(weft_scope_open());
        for (int way = 0; way < 3; way += 2) {
            weft_tensor *far = laid_out(weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(1025)), way, GPU);
            weft_tensor *here = weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(1025));
            for (int kind = weft_i_dtype_is_float(dtype) ? 0 : 3; kind < 4; kind++) {
                for (int side = 0; side < 2; side++) {
                    weft_tensor *x = side ? far : here;
                    weft_seed(99);
                    CHECK_OK(weft_integers(x, 0, 3)); /* moves the generator on */
                    CHECK_OK(kind == 0   ? weft_uniform(x, 0, 1)
                             : kind == 1 ? weft_uniform(x, -3, 2)
                             : kind == 2 ? weft_normal(x, 1, 2)
                                         : weft_integers(x, -5, 100));
                }
                check_same("random numbers", far, here);
            }
        }
        check_same("arange", weft_arange(dtype, GPU, 3, 50, 0.75),
                   weft_arange(dtype, WEFT_CPU, 3, 50, 0.75));
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* -- products -- */

static void check_product(weft_tensor *a, weft_tensor *b, const char *how)
{
    char what[96];
    snprintf(what, sizeof what, "%s of %s", how, weft_dtype_name(a->dtype));
    weft_dtype dtype = a->dtype;
    double slack = !weft_i_dtype_is_float(dtype) ? 0
                   : dtype == WEFT_F64           ? 1e-12
                   : dtype == WEFT_F32           ? 1e-4
                   : dtype == WEFT_F8E5M2        ? 0.3
                   : dtype == WEFT_F8E4M3        ? 0.15
                                                 : 1e-2;
    check_near(what, weft_matmul(there(a), there(b)), weft_matmul(a, b), slack);
}

static weft_tensor *matrix(weft_dtype dtype, int64_t rows, int64_t columns)
{
    weft_tensor *x = weft_add_scalar(bumpy(WEFT_F32, rows * columns, false), 2);
    return weft_view(weft_to_dtype(x, dtype), WEFT_SHAPE(rows, columns));
}

static void check_products(weft_dtype dtype)
{
    weft_tensor *a = matrix(dtype, 7, 12), *b = matrix(dtype, 12, 5), *c = matrix(dtype, 5, 12);
    check_product(a, b, "a product");
    check_product(a, weft_transpose(c, 0, 1), "a product with a turned right side");
    check_product(weft_transpose(b, 0, 1), weft_transpose(a, 0, 1), "a turned product");
    check_product(weft_slice(a, 1, 0, 12, 2), weft_slice(b, 0, 0, 6, 1), "a product with gaps");
    check_product(weft_slice(a, 0, 0, 1, 1), weft_slice(b, 1, 0, 1, 1), "an inner product");
    weft_tensor *batch = weft_view(matrix(dtype, 12, 7), WEFT_SHAPE(3, 4, 7));
    check_product(batch, weft_view(matrix(dtype, 21, 5), WEFT_SHAPE(3, 7, 5)), "three products");
    check_product(batch, weft_view(matrix(dtype, 7, 5), WEFT_SHAPE(1, 7, 5)), "a shared matrix");
    weft_tensor *none = weft_zeros(dtype, GPU, WEFT_SHAPE(3, 0));
    check_same("an empty sum", weft_mm(none, weft_zeros(dtype, GPU, WEFT_SHAPE(0, 2))),
               weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(3, 2)));
    weft_tensor *into = weft_transpose(weft_zeros(dtype, GPU, WEFT_SHAPE(5, 7)), 0, 1);
    CHECK_OK(weft_mm_into(into, there(a), there(b)));
    check_near("into a turned target", into, weft_mm(a, b), 0.3);
}

TEST(test_cuda_op_products)
{
    begin();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        CHECK_OK(weft_scope_open());
        if (d != WEFT_BOOL)
            check_products((weft_dtype)d);
        CHECK_OK(weft_scope_close());
    }
    end();
}

/* What a plan is kept for costs no second question. */
TEST(test_cuda_op_products_are_planned_once)
{
    begin();
    weft_tensor *a = there(matrix(WEFT_BF16, 16, 32)), *b = there(matrix(WEFT_BF16, 32, 16));
    weft_tensor *first = weft_mm(a, b);
    int live = model_live();
    for (int i = 0; i < 5; i++)
        check_same("again", weft_mm(a, b), weft_to(first, WEFT_BF16, WEFT_CPU));
    if (!scene.real)
        CHECK(model_live() <= live + 10); /* results, not plans */
    end();
}

#include "backends/cuda/tensor/matmul.h"

static void check_scaled(weft_dtype left, weft_dtype right, int64_t m, int64_t n, int64_t k,
                         bool many_a, bool many_b)
{
    weft_tensor *a = matrix(left, m, k), *b = weft_transpose(matrix(right, n, k), 0, 1);
    weft_tensor *scale_a = weft_add_scalar(bumpy(WEFT_F32, many_a ? m : 1, false), 3);
    weft_tensor *scale_b = weft_add_scalar(bumpy(WEFT_F32, many_b ? n : 1, false), 3);
    weft_tensor *out = weft_zeros(WEFT_BF16, GPU, WEFT_SHAPE(m, n));
    CHECK_OK(weft_i_cuda_multiply_scaled(out, there(a), there(b), there(scale_a), there(scale_b)));
    weft_tensor *wide = weft_mm(weft_to_dtype(a, WEFT_F64), weft_to_dtype(b, WEFT_F64));
    wide =
        weft_mul(wide, weft_view(weft_to_dtype(scale_a, WEFT_F64), WEFT_SHAPE(many_a ? m : 1, 1)));
    wide =
        weft_mul(wide, weft_view(weft_to_dtype(scale_b, WEFT_F64), WEFT_SHAPE(1, many_b ? n : 1)));
    check_near("a product with scales", out, weft_to_dtype(wide, WEFT_BF16), 1.5e-2);
}

TEST(test_cuda_op_scaled_products)
{
    begin();
    check_scaled(WEFT_F8E4M3, WEFT_F8E4M3, 16, 32, 48, false, false);
    check_scaled(WEFT_F8E4M3, WEFT_F8E5M2, 16, 16, 16, false, false);
    check_scaled(WEFT_F8E4M3, WEFT_F8E4M3, 32, 16, 16, true, true);
    check_scaled(WEFT_F8E4M3, WEFT_F8E4M3, 16, 16, 16, true, false);
    check_scaled(WEFT_F8E5M2, WEFT_F8E5M2, 16, 16, 16, false, false);
    check_scaled(WEFT_F8E4M3, WEFT_F8E4M3, 5, 7, 9, false, true);
    weft_tensor *x = weft_zeros(WEFT_F8E4M3, GPU, WEFT_SHAPE(4, 4)),
                *one = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1)),
                *three = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(3)),
                *out = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(4, 4));
    CHECK_STATUS(weft_i_cuda_multiply_scaled(out, x, x, three, one), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "the scale of a");
    CHECK_STATUS(weft_i_cuda_multiply_scaled(out, out, x, one, one), WEFT_ERR_INVALID_ARG);
    end();
}

/* -- threads, capture, memory that runs out -- */

static weft_tensor *some_work(weft_tensor *x, weft_tensor *w)
{
    weft_tensor *y = weft_gelu(weft_mm(x, w));
    y = weft_softmax(weft_layer_norm(y, 1, NULL, NULL, 1e-5), 1);
    return weft_sum(weft_mul(y, y), (const int[]){0}, 1, false);
}

static weft_tensor *want;

static void *work_on_thread(void *arg)
{
    (void)arg;
    weft_scope_open();
    weft_tensor *x = weft_to(matrix(WEFT_F32, 9, 8), WEFT_F32, GPU);
    weft_tensor *w = weft_to(matrix(WEFT_F32, 8, 6), WEFT_F32, GPU), *y = NULL;
    for (int i = 0; i < 3; i++)
        y = some_work(x, w);
    y = weft_to(y, WEFT_F32, WEFT_CPU);
    bool same = y && !memcmp(weft_i_tensor_data(y), weft_i_tensor_data(want), y->end);
    weft_scope_close();
    weft_i_stream_forget();
    return same ? NULL : "another result";
}

TEST(test_cuda_op_threads)
{
    pthread_t threads[3];
    void *complaint = NULL, *first = NULL;
    begin();
    weft_tensor *x = weft_to(matrix(WEFT_F32, 9, 8), WEFT_F32, GPU);
    want =
        weft_to(some_work(x, weft_to(matrix(WEFT_F32, 8, 6), WEFT_F32, GPU)), WEFT_F32, WEFT_CPU);
    CHECK(want != NULL);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, work_on_thread, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &complaint);
        first = first ? first : complaint;
    }
    CHECK(first == NULL);
    end();
}

TEST(test_cuda_op_capture)
{
    begin();
    weft_tensor *x = weft_to(matrix(WEFT_F32, 9, 8), WEFT_F32, GPU);
    weft_tensor *w = weft_to(matrix(WEFT_F32, 8, 6), WEFT_F32, GPU);
    weft_tensor *eager = weft_to(some_work(x, w), WEFT_F32, WEFT_CPU);
    weft_tensor *twice = weft_mul_scalar(x, 2);
    weft_tensor *other = weft_to(some_work(twice, w), WEFT_F32, WEFT_CPU);
    weft_stream *stream = weft_stream_current(GPU);
    CHECK_OK(weft_capture_begin(stream));
    weft_tensor *y = some_work(x, w);
    weft_replay *replay = weft_capture_end(stream);
    CHECK(y && replay);
    CHECK_OK(weft_replay_run(replay));
    check_same("replayed", y, eager);
    CHECK_OK(weft_copy(x, twice));
    CHECK_OK(weft_replay_run(replay));
    check_same("replayed on other values", y, other);
    end();
}

TEST(test_cuda_op_no_memory)
{
    if (scene_is_real())
        SKIP("a driver with faults is wanted");
    begin();
    weft_tensor *x = there(bumpy(WEFT_F32, 50001, false));
    weft_tensor *a = there(matrix(WEFT_F32, 4, 4));
    for (int at = 1; at < 4; at++) {
        model.fail = "cuMemAllocAsync";
        model.fail_at = at;
        model.fail_with = 1; /* no second try: not for want of memory */
        weft_tensor *sum = weft_sum(x, NULL, 0, false), *product = weft_mm(a, a);
        CHECK((sum && product) || weft_last_status() < 0);
        weft_clear_error();
    }
    model.fail = NULL;
    check_same("after it", weft_sum(x, NULL, 0, false),
               weft_sum(weft_to(x, WEFT_F32, WEFT_CPU), NULL, 0, false));
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
