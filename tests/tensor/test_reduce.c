/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/reduce.c, kernels/vector/reduce.c */
/* Reductions against plain loops in double over every choice of dimensions, in several layouts. */
#include "harness.h"

#include "kernels/number/convert.h"
#include "kernels/vector/vector.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

enum { SUM, MEAN, PROD, MAX, MIN, ANY, ALL, KINDS };
static weft_tensor *(*const ops[KINDS])(weft_tensor *, const int *, int, bool) = {
    weft_sum, weft_mean, weft_prod, weft_max, weft_min, weft_any, weft_all};
static const char *const names[KINDS] = {"sum", "mean", "prod", "max", "min", "any", "all"};

static double start(int kind)
{
    return kind == PROD || kind == ALL ? 1 : kind == MAX ? -INFINITY : kind == MIN ? INFINITY : 0;
}

static double step(int kind, double so_far, double x)
{
    switch (kind) {
    case PROD:
        return so_far * x;
    case MAX:
        return isnan(so_far) || isnan(x) ? NAN : so_far > x ? so_far : x;
    case MIN:
        return isnan(so_far) || isnan(x) ? NAN : so_far < x ? so_far : x;
    case ANY:
        return so_far != 0 || x != 0;
    case ALL:
        return so_far != 0 && x != 0;
    default:
        return so_far + x;
    }
}

/* Reduces by looking at every element and adding it to the result its kept indices name. */
static void reference(int kind, weft_tensor *x, unsigned gone, double *out)
{
    int64_t results = 1, count = 1;
    for (int i = 0; i < weft_tensor_ndim(x); i++)
        *(gone & 1u << i ? &count : &results) *= weft_tensor_size(x, i);
    for (int64_t i = 0; i < results; i++)
        out[i] = start(kind);
    for (int64_t flat = 0; flat < weft_tensor_numel(x); flat++) {
        int64_t rest = flat, to = 0, scale = 1;
        for (int i = weft_tensor_ndim(x) - 1; i >= 0; i--) {
            if (!(gone & 1u << i)) {
                to += rest % weft_tensor_size(x, i) * scale;
                scale *= weft_tensor_size(x, i);
            }
            rest /= weft_tensor_size(x, i);
        }
        out[to] = step(kind, out[to], weft_item(x, flat));
    }
    for (int64_t i = 0; i < results && kind == MEAN; i++)
        out[i] /= (double)count;
}

static double rounded(weft_dtype dtype, double x)
{
    uint64_t element;
    weft_i_convert(dtype, &element, WEFT_F64, &x, 1);
    weft_i_convert(WEFT_F64, &x, dtype, &element, 1);
    return x;
}

/* Small whole numbers (-2 ... 2): all results are exact in every dtype that can hold them. */
static weft_tensor *whole(weft_dtype dtype, int64_t n)
{
    weft_tensor *x = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(n));
    for (int64_t i = 0; i < n; i++)
        ((double *)weft_tensor_data(x))[i] = (double)(i * 7919 % 5) - 2;
    return weft_to_dtype(x, dtype);
}

static void check_all_dims(int kind, weft_tensor *x, double tolerance)
{
    static double expected[4096];
    for (unsigned gone = 0; gone < 1u << weft_tensor_ndim(x); gone++)
        for (int keepdim = 0; keepdim < 2; keepdim++) {
            int dims[8], count = 0;
            for (int i = 0; i < weft_tensor_ndim(x); i++)
                if (gone & 1u << i)
                    dims[count++] =
                        i - keepdim * weft_tensor_ndim(x); /* also counted from the end */
            unsigned really = count ? gone : (1u << weft_tensor_ndim(x)) - 1;
            reference(kind, x, really, expected);
            weft_tensor *y = ops[kind](x, dims, count, keepdim);
            if (!y)
                FAIL("%s: %s", names[kind], weft_last_error());
            CHECK_INT(weft_tensor_ndim(y), keepdim
                                               ? weft_tensor_ndim(x)
                                               : weft_tensor_ndim(x) - __builtin_popcount(really));
            for (int64_t i = 0; i < weft_tensor_numel(y); i++) {
                expected[i] = rounded(weft_tensor_dtype(y),
                                      expected[i]); /* products may exceed a small float */
                if (isnan(expected[i]) && isnan(weft_item(y, i)))
                    continue;
                if (expected[i] != weft_item(y, i) &&
                    !(fabs(weft_item(y, i) - expected[i]) <= tolerance * fabs(expected[i])))
                    FAIL("%s of %s over dimensions %#x: element %lld is %g, not %g", names[kind],
                         weft_dtype_name(weft_tensor_dtype(x)), really, (long long)i,
                         weft_item(y, i), expected[i]);
            }
        }
}

TEST(test_reduce_every_kind_dtype_and_dimension)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
            weft_dtype d = (weft_dtype)dtype;
            if (kind == MEAN && !weft_i_dtype_is_float(d))
                continue;
            CHECK_OK(weft_scope_open());
            weft_tensor *x = weft_view(whole(d, 60), WEFT_SHAPE(3, 4, 5));
            double tolerance = kind == MEAN ? 0.07 : 0;
            if (!(kind == PROD &&
                  weft_i_dtype_kind_of(d) ==
                      WEFT_I_KIND_UNSIGNED)) { /* wrapped products exceed a double */
                check_all_dims(kind, x, tolerance);
                check_all_dims(kind, weft_permute(x, (int[]){2, 0, 1}), tolerance);
                check_all_dims(kind, weft_slice(x, 2, 0, 5, 2), tolerance);
                check_all_dims(kind, weft_expand(weft_slice(x, 1, 0, 1, 1), WEFT_SHAPE(3, 2, 5)),
                               tolerance);
            }
            CHECK_OK(weft_scope_close());
        }
}

TEST(test_reduce_result_dtypes)
{
    weft_tensor *i8 = whole(WEFT_I8, 10), *b = weft_gt_scalar(i8, 0), *h = whole(WEFT_BF16, 10);
    CHECK_INT(weft_tensor_dtype(weft_sum(i8, NULL, 0, 0)), WEFT_I64);
    CHECK_INT(weft_tensor_dtype(weft_sum(b, NULL, 0, 0)), WEFT_I64);
    CHECK_INT(weft_tensor_dtype(weft_prod(i8, NULL, 0, 0)), WEFT_I64);
    CHECK_INT(weft_tensor_dtype(weft_max(i8, NULL, 0, 0)), WEFT_I8);
    CHECK_INT(weft_tensor_dtype(weft_sum(h, NULL, 0, 0)), WEFT_BF16);
    CHECK_INT(weft_tensor_dtype(weft_mean(h, NULL, 0, 0)), WEFT_BF16);
    CHECK_INT(weft_tensor_dtype(weft_any(h, NULL, 0, 0)), WEFT_BOOL);
    CHECK_INT(weft_tensor_dtype(weft_argmax_all(h)), WEFT_I64);
}

/* A million times 0.1 in f32: adding one by one is off by 1e-2; in blocks the error stays at a few
 * roundings. */
TEST(test_reduce_sum_is_accurate)
{
    int64_t n = 1000003;
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n), 0.1);
    double expected = (double)n * (double)0.1f;
    CHECK_NEAR(weft_item(weft_sum(x, NULL, 0, 0), 0) / expected, 1, 1e-6);
    weft_tensor *h = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4096));
    CHECK(weft_item(weft_sum(h, NULL, 0, 0), 0) ==
          4096); /* accumulating in bf16 would stop at 256 */
    CHECK(weft_item(weft_mean(h, NULL, 0, 0), 0) == 1);
}

/* The bits do not depend on the layout: rows, columns, copies and slices of the same numbers sum to
 * the same. */
TEST(test_reduce_bits_do_not_depend_on_strides)
{
    weft_seed(7);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1500, 130));
    weft_tensor *columns = weft_sum(x, (int[]){0}, 1, 0);
    weft_tensor *rows = weft_sum(weft_contiguous(weft_transpose(x, 0, 1)), (int[]){1}, 1, 0);
    CHECK(weft_equal(columns, rows));
    weft_tensor *spread = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1500, 260));
    weft_tensor *half = weft_slice(spread, 1, 0, 260, 2);
    CHECK_OK(weft_copy(half, x));
    CHECK(weft_equal(weft_sum(half, (int[]){0}, 1, 0), columns));
    CHECK(weft_equal(weft_sum(half, NULL, 0, 0), weft_sum(x, NULL, 0, 0)));
    weft_tensor *flat = weft_sum(weft_view(x, WEFT_SHAPE(195000)), NULL, 0, 0);
    CHECK(weft_equal(weft_sum(x, NULL, 0, 0), flat));
}

/* The order of kernels/vector/reduce.h, written down plainly: 16 lanes of a block of 512, lanes pairwise,
 * blocks pairwise as they come. */
static float in_order(const float *x, size_t n)
{
    float level[64];
    int depth = 0;
    for (size_t at = 0, blocks = 1; at < n; at += 512, blocks++) {
        float lane[16] = {0};
        for (size_t i = at; i < n && i < at + 512; i++)
            lane[i % 16] += x[i];
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++)
                lane[l] += lane[l + half];
        level[depth++] = lane[0];
        for (size_t bits = blocks; bits % 2 == 0; bits /= 2, depth--)
            level[depth - 2] += level[depth - 1];
    }
    for (; depth > 1; depth--)
        level[depth - 2] += level[depth - 1];
    return depth ? level[0] : 0;
}

/* Every instruction set sums in that order, and so has the same bits. */
TEST(test_reduce_order_is_the_same_for_every_variant)
{
    const char *variant;
    weft_seed(8);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9000));
    const float *data = weft_tensor_data(x);
    for (int v = 0; (variant = weft_i_vector_variant(v)); v++) {
        if (!weft_i_vector_use(variant))
            continue;
        for (int64_t n = 0; n < 9000; n += 1 + n / 7) {
            CHECK_OK(weft_scope_open());
            weft_tensor *part = weft_slice(x, 0, 0, n, 1);
            float expected = in_order(data, (size_t)n);
            float got = (float)weft_item(weft_sum(part, NULL, 0, 0), 0);
            if (memcmp(&got, &expected, sizeof got) != 0)
                FAIL("%s: %lld elements sum to %a, not %a", variant, (long long)n, got, expected);
            CHECK_OK(weft_scope_close());
        }
    }
    CHECK(weft_i_vector_use(NULL));
}

/* The first of equals also if blocks of the search begin with it, or NaN comes later. */
TEST(test_reduce_arguments_across_blocks)
{
    for (int64_t at = 505; at < 1540; at += 1 + (at % 512 > 8 && at % 512 < 500 ? 400 : 0)) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2000), -2);
        float *data = weft_tensor_data(x);
        data[at] = 3;
        data[1999] = 3;
        CHECK_INT(weft_item_int(weft_argmax_all(x), 0), at);
        data[1600] = -NAN;
        CHECK_INT(weft_item_int(weft_argmax_all(x), 0), 1600);
        CHECK_INT(weft_item_int(weft_argmin_all(x), 0), 1600);
        data[at] = NAN;
        CHECK_INT(weft_item_int(weft_argmin_all(x), 0), at);
    }
}

TEST(test_reduce_large_columns)
{
    weft_tensor *x = weft_view(whole(WEFT_F32, 700 * 131), WEFT_SHAPE(700, 131));
    static double expected[700];
    reference(SUM, x, 1, expected);
    weft_tensor *y = weft_sum(x, (int[]){0}, 1, 0);
    for (int i = 0; i < 131; i++)
        CHECK(weft_item(y, i) == expected[i]);
    reference(MAX, x, 2, expected);
    y = weft_max(x, (int[]){1}, 1, 0);
    for (int i = 0; i < 700; i++)
        CHECK(weft_item(y, i) == expected[i]);
}

TEST(test_reduce_arguments)
{
    weft_tensor *x = weft_view(whole(WEFT_F32, 1320), WEFT_SHAPE(2, 660));
    for (int i = 0; i < 2; i++) {
        int64_t most = 0, least = 0;
        for (int64_t j = 1; j < 660; j++) {
            most = weft_item(x, i * 660 + j) > weft_item(x, i * 660 + most) ? j : most;
            least = weft_item(x, i * 660 + j) < weft_item(x, i * 660 + least) ? j : least;
        }
        CHECK_INT(weft_item_int(weft_argmax(x, 1, false), i), most); /* the first of equals */
        CHECK_INT(weft_item_int(weft_argmin(x, -1, true), i), least);
    }
    float values[] = {1, 5, NAN, 9, NAN};
    weft_tensor *nan = weft_tensor_from(WEFT_F32, WEFT_SHAPE(5), values);
    CHECK_INT(weft_item_int(weft_argmax_all(nan), 0), 2);
    CHECK_INT(weft_item_int(weft_argmin_all(nan), 0), 2);
    CHECK(isnan(weft_item(weft_max(nan, NULL, 0, 0), 0)) &&
          isnan(weft_item(weft_min(nan, NULL, 0, 0), 0)));
    weft_tensor *u = weft_full(WEFT_U64, WEFT_CPU, WEFT_SHAPE(3), 0x1p63);
    CHECK_OK(weft_fill(weft_slice(u, 0, 0, 1, 1), 5));
    CHECK_INT(weft_item_int(weft_argmax_all(u), 0), 1);
    CHECK(weft_item(weft_max(u, NULL, 0, 0), 0) == 0x1p63);
    weft_tensor *t =
        weft_transpose(weft_view(weft_arange(WEFT_I32, WEFT_CPU, 0, 6, 1), WEFT_SHAPE(2, 3)), 0, 1);
    CHECK_INT(weft_item_int(weft_argmax_all(t), 0), 5);
    CHECK(!weft_argmax(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0)), 0, false));
    weft_clear_error();
}

TEST(test_reduce_nothing)
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 0));
    weft_tensor *s = weft_sum(x, (int[]){1}, 1, 0);
    CHECK(weft_tensor_numel(s) == 3 && weft_item(s, 2) == 0);
    CHECK(weft_item(weft_prod(x, NULL, 0, 0), 0) == 1);
    CHECK(weft_item(weft_all(x, NULL, 0, 0), 0) == 1 && weft_item(weft_any(x, NULL, 0, 0), 0) == 0);
    CHECK(isnan(weft_item(weft_mean(x, NULL, 0, 0), 0)));
    CHECK_INT(weft_tensor_numel(weft_max(x, (int[]){0}, 1, 0)), 0);
    weft_tensor *z = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 3);
    CHECK(weft_item(weft_sum(z, NULL, 0, 1), 0) == 3 &&
          weft_item(weft_max(z, (int[]){-1}, 1, 0), 0) == 3);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
