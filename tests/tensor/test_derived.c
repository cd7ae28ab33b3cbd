/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/derived.c, tensor/op/sort.c, tensor/op/cumsum.c, tensor/op/index_copy.c, tensor/op/einsum.c */
/* Operations of models: their values, their gradients against differences, what they refuse. */
#include "harness.h"

#include "tensor/object/tensor.h"
#include "weft/weft.h"

#include <math.h>

static void check_numbers(const char *what, weft_tensor *x, int n, const double *values)
{
    if (!x)
        FAIL("%s: %s", what, weft_last_error());
    CHECK_INT(weft_tensor_numel(x), n);
    for (int i = 0; i < n; i++) {
        double got = weft_item(x, i);
        if (got != values[i] && !(fabs(got - values[i]) < 1e-9) &&
            !(isnan(got) && isnan(values[i])))
            FAIL("%s: element %d is %g, not %g", what, i, got, values[i]);
    }
}

#define IS(x_, ...)                                                                 \
    check_numbers(#x_, x_, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), \
                  (double[]){__VA_ARGS__})

static weft_tensor *row(int n, const double *values)
{
    return weft_tensor_from(WEFT_F64, WEFT_SHAPE(n), values);
}
#define ROW(...) \
    row((int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static weft_tensor *counted(weft_dtype dtype, weft_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++)
        n *= shape.dim[i];
    return weft_view(weft_arange(dtype, WEFT_CPU, 1, (double)n + 1, 1), shape);
}

TEST(test_derived_choices)
{
    weft_tensor *x = ROW(-2, 0.5, 3, NAN);
    IS(weft_clamp(x, -1, 1), -1, 0.5, 1, NAN);
    IS(weft_clamp(x, -INFINITY, 1), -2, 0.5, 1, NAN);
    IS(weft_clamp(x, 0, INFINITY), 0, 0.5, 3, NAN);
    weft_tensor *same = weft_clamp(x, -INFINITY, INFINITY);
    CHECK(same && same != x);
    IS(weft_masked_fill(x, weft_gt_scalar(x, 0), 9), -2, 9, 9, NAN);
    weft_tensor *m = counted(WEFT_I32, WEFT_SHAPE(2, 3));
    IS(weft_tril(m, 0), 1, 0, 0, 4, 5, 0);
    IS(weft_tril(m, 1), 1, 2, 0, 4, 5, 6);
    IS(weft_triu(m, 0), 1, 2, 3, 0, 5, 6);
    IS(weft_triu(m, -1), 1, 2, 3, 4, 5, 6);
    CHECK_INT(weft_tensor_dtype(weft_triu(m, 0)), WEFT_I32);
    weft_tensor *classes = weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), (int64_t[]){2, 0});
    IS(weft_one_hot(classes, 3), 0, 0, 1, 1, 0, 0);
    CHECK(!weft_clamp(x, 2, 1) && !weft_tril(x, 0) && !weft_one_hot(classes, 0));
    CHECK(!weft_one_hot(classes, 2));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_derived_moments)
{
    weft_tensor *x = weft_view(ROW(1, 2, 4, 10, 10, 10), WEFT_SHAPE(2, 3));
    IS(weft_var(x, (int[]){1}, 1, 1, false), 7. / 3, 0);
    IS(weft_var(x, (int[]){1}, 1, 0, true), 14. / 9, 0);
    IS(weft_var(x, NULL, 0, 0, false), 557. / 36);
    CHECK(isinf(weft_item(weft_var(ROW(1), NULL, 0, 1, false), 0)) ||
          isnan(weft_item(weft_var(ROW(1), NULL, 0, 1, false), 0)));
    weft_tensor *weight = ROW(1, 2, 3), *norm = weft_rms_norm(x, 1, weight, 0);
    IS(norm, 1 / sqrt(7), 4 / sqrt(7), 12 / sqrt(7), 1, 2, 3);
    weft_tensor *half = weft_rms_norm(weft_to_dtype(x, WEFT_BF16), 1, NULL, 1e-6);
    CHECK_INT(weft_tensor_dtype(half), WEFT_BF16);
    CHECK_NEAR(weft_item(half, 2), 4 / sqrt(7), 0.01);
    CHECK(!weft_rms_norm(x, 3, NULL, 0) && !weft_var(x, NULL, 1, 0, false));
    weft_clear_error();
}

TEST(test_derived_rotary)
{
    weft_tensor *x = counted(WEFT_F64, WEFT_SHAPE(1, 2, 3, 4)); /* [batch, heads, time, width] */
    weft_tensor *y = weft_rotary(x, NULL, 10000);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 2; i++) {
            double angle = t * pow(10000, -i / 2.), a = weft_item(x, 4 * t + i),
                   b = weft_item(x, 4 * t + i + 2);
            CHECK_NEAR(weft_item(y, 4 * t + i), a * cos(angle) - b * sin(angle), 1e-12);
            CHECK_NEAR(weft_item(y, 4 * t + i + 2), b * cos(angle) + a * sin(angle), 1e-12);
        }
    weft_tensor *at = weft_tensor_from(WEFT_I64, WEFT_SHAPE(1), (int64_t[]){2});
    weft_tensor *last = weft_rotary(weft_narrow(x, 2, 2, 1), at, 10000);
    CHECK(weft_allclose(last, weft_narrow(y, 2, 2, 1), 1e-14, 0, false));
    CHECK(!weft_rotary(weft_narrow(x, 3, 0, 3), NULL, 10000) && !weft_rotary(x, NULL, 1));
    weft_clear_error();
}

TEST(test_derived_cumsum)
{
    weft_tensor *x = counted(WEFT_F32, WEFT_SHAPE(2, 3));
    IS(weft_cumsum(x, 1), 1, 3, 6, 4, 9, 15);
    IS(weft_cumsum(x, 0), 1, 2, 3, 5, 7, 9);
    IS(weft_cumsum(weft_transpose(x, 0, 1), -1), 1, 5, 2, 7, 3, 9);
    weft_tensor *whole = weft_cumsum(weft_to_dtype(x, WEFT_I8), 1);
    CHECK_INT(weft_tensor_dtype(whole), WEFT_I64);
    IS(whole, 1, 3, 6, 4, 9, 15);
    weft_tensor *half = weft_cumsum(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(1000), 1), 0);
    CHECK(weft_item(half, 999) == 1000); /* sums in bf16 would stop at 256 */
    CHECK(!weft_cumsum(x, 2));
    weft_clear_error();
}

/* ---- order ---- */

TEST(test_derived_sort)
{
    weft_tensor *x =
        weft_view(ROW(3, -1, NAN, 3, 0, -0.0, INFINITY, -5, 2, 2, 1, 2), WEFT_SHAPE(2, 6));
    weft_tensor *out[2];
    CHECK_OK(weft_sort(x, 1, false, out));
    IS(out[0], -1, 0, 0, 3, 3, NAN, -5, 1, 2, 2, 2, INFINITY);
    IS(out[1], 1, 4, 5, 0, 3, 2, 1, 4, 2, 3, 5, 0);
    CHECK_OK(weft_sort(x, 1, true, out));
    IS(out[1], 2, 0, 3, 4, 5, 1, 0, 2, 3, 5, 4, 1);
    CHECK_OK(weft_topk(x, 3, 1, true, out));
    IS(out[0], NAN, 3, 3, INFINITY, 2, 2);
    IS(out[1], 2, 0, 3, 0, 2, 3);
    CHECK_OK(weft_topk(weft_transpose(x, 0, 1), 1, 0, false, out));
    IS(out[1], 1, 1);
    CHECK_OK(weft_topk(x, 0, 1, true, out));
    CHECK_INT(weft_tensor_numel(out[0]), 0);
    weft_tensor *big =
        weft_tensor_from(WEFT_U64, WEFT_SHAPE(3), (uint64_t[]){UINT64_MAX, 0, (uint64_t)1 << 63});
    CHECK_OK(weft_sort(big, 0, false, out));
    IS(out[1], 1, 2, 0);
    CHECK_STATUS(weft_topk(x, 7, 1, true, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_topk(x, -1, 1, true, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_sort(x, 2, true, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_sort(x, 0, true, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* Long rows: as sort has it, for any number of elements. */
TEST(test_derived_topk_is_the_start_of_sort)
{
    weft_seed(2);
    weft_tensor *x = weft_randint(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3, 700), 0, 90);
    for (int64_t count = 1; count <= 700; count = 3 * count + 1)
        for (int largest = 0; largest < 2; largest++) {
            weft_tensor *all[2], *some[2];
            CHECK_OK(weft_sort(x, 1, largest, all));
            CHECK_OK(weft_topk(x, count, 1, largest, some));
            CHECK(weft_equal(some[0], weft_narrow(all[0], 1, 0, count)));
            CHECK(weft_equal(some[1], weft_narrow(all[1], 1, 0, count)));
            CHECK(weft_equal(all[0], weft_take_along(x, 1, all[1])));
        }
}

TEST(test_derived_multinomial)
{
    weft_tensor *weights = weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), (float[]){1, 0, 6, 3});
    double seen[4] = {0};
    weft_seed(9);
    weft_tensor *draws = weft_multinomial(weights, 20000, true);
    for (int i = 0; i < 20000; i++)
        seen[weft_item_int(draws, i)]++;
    CHECK(seen[1] == 0);
    CHECK_NEAR(seen[0] / 20000, 0.1, 0.01);
    CHECK_NEAR(seen[2] / 20000, 0.6, 0.015);
    weft_tensor *rows = weft_expand(weights, WEFT_SHAPE(5, 4));
    weft_tensor *once = weft_multinomial(rows, 3, false), *out[2];
    CHECK(weft_i_shape_equal(weft_tensor_shape(once), WEFT_SHAPE(5, 3)));
    CHECK_OK(weft_sort(once, 1, false, out));
    for (int i = 0; i < 5; i++) /* three of three that have a weight */
        CHECK(weft_item(out[0], 3 * i) == 0 && weft_item(out[0], 3 * i + 1) == 2 &&
              weft_item(out[0], 3 * i + 2) == 3);
    weft_seed(4);
    weft_tensor *a = weft_multinomial(rows, 1, false);
    weft_seed(4);
    CHECK(weft_equal(a, weft_multinomial(rows, 1, true)));
    CHECK(!weft_multinomial(weights, 5, false) && !weft_multinomial(weights, 0, true));
    weft_clear_error();
}

/* ---- slices ---- */

TEST(test_derived_index_copy)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4));
    weft_tensor *index = weft_tensor_from(WEFT_I32, WEFT_SHAPE(2), (int32_t[]){3, 1});
    CHECK_OK(weft_index_copy(x, 1, index, counted(WEFT_F32, WEFT_SHAPE(2, 2))));
    IS(x, 0, 2, 0, 1, 0, 4, 0, 3);
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK_OK(weft_index_copy(weft_transpose(x, 0, 1), -1,
                             weft_tensor_from(WEFT_I64, WEFT_SHAPE(1), (int64_t[]){0}),
                             weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 1))));
    IS(x, 1, 1, 1, 1, 0, 4, 0, 3);
    CHECK_OK(weft_index_copy(x, 1, index, weft_narrow(x, 1, 0, 2))); /* from itself */
    IS(x, 1, 1, 1, 1, 0, 4, 0, 0);
    weft_tensor *far = weft_tensor_from(WEFT_I32, WEFT_SHAPE(2), (int32_t[]){0, 4});
    CHECK_STATUS(weft_index_copy(x, 1, far, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "index 4 at 1; the dimension has 4");
    IS(x, 1, 1, 1, 1, 0, 4, 0, 0); /* nothing was written */
    CHECK_STATUS(weft_index_copy(x, 1, index, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3))),
                 WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_index_copy(x, 1, x, x), WEFT_ERR_TYPE);
    weft_clear_error();
    CHECK_STATUS(weft_index_copy(NULL, 1, index, x), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

/* ---- einsum ---- */

static weft_tensor *einsum(const char *equation, weft_tensor *a, weft_tensor *b)
{
    return weft_einsum(equation, (weft_tensor *[]){a, b}, b ? 2 : 1);
}

TEST(test_derived_einsum)
{
    weft_tensor *a = counted(WEFT_F64, WEFT_SHAPE(2, 3)), *b = counted(WEFT_F64, WEFT_SHAPE(3, 2));
    weft_tensor *c = counted(WEFT_F64, WEFT_SHAPE(2, 3, 2)),
                *s = counted(WEFT_F64, WEFT_SHAPE(3, 3));
    CHECK(weft_equal(einsum("ij,jk->ik", a, b), weft_mm(a, b)));
    CHECK(weft_equal(einsum(" i j , j k ", a, b), weft_mm(a, b)));
    CHECK(weft_equal(einsum("ij,jk->ki", a, b),
                     weft_contiguous(weft_transpose(weft_mm(a, b), 0, 1))));
    IS(einsum("ij->ji", a, NULL), 1, 4, 2, 5, 3, 6);
    IS(einsum("ij->", a, NULL), 21);
    IS(einsum("ii->i", s, NULL), 1, 5, 9);
    IS(einsum("ii", s, NULL), 15);
    IS(einsum("ij,ij->i", a, a), 14, 77);
    IS(einsum("i,j->ij", ROW(1, 2), ROW(3, 4)), 3, 4, 6, 8);
    CHECK(weft_equal(einsum("bij,jk->bik", c, counted(WEFT_F64, WEFT_SHAPE(2, 4))),
                     weft_matmul(c, counted(WEFT_F64, WEFT_SHAPE(2, 4)))));
    CHECK(weft_equal(einsum("bij,bkj->bik", c, c), weft_bmm(c, weft_transpose(c, 1, 2))));
    weft_tensor *three = weft_einsum("ij,jk,kl->il", (weft_tensor *[]){a, b, a}, 3);
    CHECK(weft_allclose(three, weft_mm(weft_mm(a, b), a), 1e-14, 0, false));
    weft_tensor *whole =
        einsum("ij,jk->ik", weft_to_dtype(a, WEFT_I32), weft_to_dtype(b, WEFT_I32));
    CHECK_INT(weft_tensor_dtype(whole), WEFT_I32);
    static const char *const bad[] = {"ij,jk",    "ij,jk->", "ijk,jk->i", "ij,jk->iz", "ij,jk->ii",
                                      "i.,jk->i", "ij->ij",  "",          "ij,jk-ik"};
    for (size_t i = 2; i < sizeof bad / sizeof *bad; i++)
        if (einsum(bad[i], a, b))
            FAIL("\"%s\" was taken", bad[i]);
    CHECK(!einsum("ij,kj->ik", a, b));
    CHECK_CONTAINS(weft_last_error(), "\"j\" is 3, and 2 in operand 1");
    CHECK(!weft_einsum(NULL, &a, 1) && !weft_einsum("ij", NULL, 1) && !weft_einsum("ij", &a, 0));
    weft_clear_error();
}

/* ---- gradients ---- */

enum { CLAMP, TRIL, VAR, RMS, ROTARY, CUMSUM, TOPK, COPY, EINSUM, FILL, CALLS };

static weft_tensor *call(weft_tensor *const *x, void *user)
{
    weft_tensor *out[2], *fresh = NULL;
    weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(1), (int64_t[]){1});
    switch (*(int *)user) {
    case CLAMP:
        return weft_clamp(x[0], -0.4, 0.7);
    case TRIL:
        return weft_tril(x[0], -1);
    case VAR:
        return weft_var(x[0], (int[]){0}, 1, 1, false);
    case RMS:
        return weft_rms_norm(x[0], 1, weft_select(x[1], 0, 0), 1e-3);
    case ROTARY:
        return weft_rotary(x[0], NULL, 100);
    case CUMSUM:
        return weft_cumsum(x[0], 1);
    case TOPK:
        return weft_topk(x[0], 2, 1, true, out) < 0 ? NULL : out[0];
    case COPY:
        fresh = weft_mul_scalar(x[0], 2);
        return weft_index_copy(fresh, 0, index, weft_narrow(x[1], 0, 0, 1)) < 0 ? NULL : fresh;
    case EINSUM:
        return weft_einsum("ij,kj->ki", (weft_tensor *[]){x[0], x[1]}, 2);
    default:
        return weft_masked_fill(x[0], weft_gt_scalar(weft_detach(x[0]), 0.1), 2);
    }
}

TEST(test_derived_gradients)
{
    for (int which = 0; which < CALLS; which++) {
        CHECK_OK(weft_scope_open());
        weft_seed(1 + (uint64_t)which);
        weft_tensor *x[2];
        for (int i = 0; i < 2; i++) {
            x[i] = weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3, 4));
            CHECK_OK(weft_require_grad(x[i], true));
        }
        weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
        opts.second = true;
        size_t count = which == RMS || which == COPY || which == EINSUM ? 2 : 1;
        if (weft_gradcheck(call, &which, x, count, &opts) < 0)
            FAIL("call %d: %s", which, weft_last_error());
        CHECK_OK(weft_scope_close());
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
