/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/layer/normalize.c, tensor/layer/normalize_grad.c, tensor/layer/softmax_grad.c,
 * tensor/layer/embedding.c, kernels/vector/normalize.c */
/* softmax, log_softmax, layer_norm and embedding against loops in double. */
#include "fault.h"
#include "harness.h"

#include "kernels/vector/vector.h"

#include "memory_count.h"

#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

static double tolerance(weft_dtype dtype)
{
    return dtype == WEFT_F64    ? 1e-13
           : dtype == WEFT_F32  ? 1e-6
           : dtype == WEFT_F16  ? 2e-3
           : dtype == WEFT_BF16 ? 1e-2
                                : 0.15;
}

TEST(test_normalize_softmax)
{
    weft_seed(1);
    for (int dtype = WEFT_F64; dtype <= WEFT_F8E5M2; dtype++)
        for (int dim = -3; dim < 0; dim++) {
            weft_tensor *x = weft_permute(
                weft_randn((weft_dtype)dtype, WEFT_CPU, WEFT_SHAPE(3, 700, 4)), (int[]){1, 0, 2});
            weft_tensor *y = weft_softmax(x, dim), *l = weft_log_softmax(x, dim + 3);
            CHECK(y && l && weft_tensor_dtype(y) == (weft_dtype)dtype);
            for (int i = 0; i < 3; i++) {
                weft_tensor *row = weft_select(weft_select(weft_movedim(x, dim, 2), 1, 1), 0, i);
                weft_tensor *out = weft_select(weft_select(weft_movedim(y, dim, 2), 1, 1), 0, i);
                weft_tensor *logs = weft_select(weft_select(weft_movedim(l, dim, 2), 1, 1), 0, i);
                double sum = 0;
                for (int64_t j = 0; j < weft_tensor_numel(row); j++)
                    sum += exp(weft_item(row, j));
                for (int64_t j = 0; j < weft_tensor_numel(row);
                     j += 1 + weft_tensor_numel(row) / 50) {
                    double expected = exp(weft_item(row, j)) / sum;
                    /* the smallest 8-bit floats are further apart than the values */
                    CHECK_NEAR(weft_item(out, j), expected,
                               tolerance((weft_dtype)dtype) * expected +
                                   (dtype >= WEFT_F8E4M3 ? 2e-3 : 1e-7));
                    CHECK_NEAR(weft_item(logs, j), log(expected), tolerance((weft_dtype)dtype) * 8);
                }
            }
        }
    weft_tensor *big = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), 1e30);
    CHECK(weft_item(weft_softmax(big, 0), 0) == 0.25);
    CHECK(weft_item(weft_softmax(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SCALAR), 0), 0) == 1);
    CHECK_INT(weft_tensor_numel(weft_softmax(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 0)), 1)),
              0);
    CHECK(!weft_softmax(weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3)), 0) && !weft_softmax(big, 1));
    weft_clear_error();
}

TEST(test_normalize_layer_norm)
{
    weft_seed(2);
    for (int dtype = WEFT_F64; dtype <= WEFT_BF16; dtype++)
        for (int turned = 0; turned < 2; turned++) {
            weft_dtype d = (weft_dtype)dtype;
            weft_tensor *x = weft_randn(d, WEFT_CPU, WEFT_SHAPE(5, 6, 20));
            x = turned ? weft_permute(x, (int[]){2, 0, 1}) : x;
            int64_t length = weft_tensor_size(x, 1) * weft_tensor_size(x, 2);
            weft_shape tail = WEFT_SHAPE(weft_tensor_size(x, 1), weft_tensor_size(x, 2));
            weft_tensor *w = weft_randn(d, WEFT_CPU, tail),
                        *b = weft_randn(WEFT_F32, WEFT_CPU, tail);
            weft_tensor *y = weft_layer_norm(x, 2, w, b, 1e-3),
                        *plain = weft_layer_norm(x, 2, NULL, NULL, 1e-3);
            CHECK(y && plain && weft_tensor_dtype(y) == d);
            for (int64_t row = 0; row < weft_tensor_size(x, 0); row++) {
                double sum = 0, squares = 0;
                for (int64_t i = 0; i < length; i++)
                    sum += weft_item(x, row * length + i);
                for (int64_t i = 0; i < length; i++)
                    squares += pow(weft_item(x, row * length + i) - sum / (double)length, 2);
                for (int64_t i = 0; i < length; i++) {
                    double z = (weft_item(x, row * length + i) - sum / (double)length) /
                               sqrt(squares / (double)length + 1e-3);
                    CHECK_NEAR(weft_item(plain, row * length + i), z, tolerance(d) * 4);
                    CHECK_NEAR(weft_item(y, row * length + i),
                               z * weft_item(w, i) + weft_item(b, i), tolerance(d) * 8);
                }
            }
        }
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    CHECK(!weft_layer_norm(x, 3, NULL, NULL, 0) && !weft_layer_norm(x, 1, x, NULL, 0) &&
          !weft_layer_norm(x, 0, NULL, NULL, 0));
    CHECK_INT(weft_tensor_numel(weft_layer_norm(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 0)), 1,
                                                NULL, NULL, 1)),
              0);
    weft_clear_error();
}

/* Rows far from zero keep their digits; and every instruction set gives the same bits. */
TEST(test_normalize_rows)
{
    weft_seed(3);
    const char *variant;
    int64_t n = 3001;
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, n));
    weft_tensor *far = weft_add_scalar(x, 20000), *first[3] = {NULL, NULL, NULL};
    for (int v = 0; (variant = weft_i_vector_variant(v)); v++) {
        if (!weft_i_vector_use(variant))
            continue;
        weft_tensor *out[3] = {weft_layer_norm(far, 1, NULL, NULL, 0), weft_softmax(x, 1),
                               weft_log_softmax(x, 1)};
        for (int k = 0; k < 3; k++) {
            first[k] = first[k] ? first[k] : out[k];
            CHECK(out[k] && weft_equal(first[k], out[k]));
        }
    }
    CHECK(weft_i_vector_use(NULL));
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += weft_item(far, i);
    for (int64_t i = 0; i < n; i++)
        squares += pow(weft_item(far, i) - sum / (double)n, 2);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(weft_item(first[0], i),
                   (weft_item(far, i) - sum / (double)n) / sqrt(squares / (double)n), 2e-6);
}

/* What a chain of rows gives, in f64. */
static weft_tensor *slow_softmax_grad(bool logarithm, weft_tensor *grad, weft_tensor *y, int dim)
{
    weft_tensor *g = weft_to_dtype(grad, WEFT_F64), *r = weft_to_dtype(y, WEFT_F64);
    int along[] = {dim}, count = weft_tensor_ndim(y) ? 1 : 0;
    if (logarithm)
        return weft_sub(g, weft_mul(weft_exp(r), weft_sum(g, along, count, true)));
    return weft_mul(weft_sub(g, weft_sum(weft_mul(g, r), along, count, true)), r);
}

static void check_softmax_grad(weft_tensor *grad, weft_tensor *x, int dim, double tolerance)
{
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        weft_tensor *y = logarithm ? weft_log_softmax(x, dim) : weft_softmax(x, dim);
        weft_tensor *out =
            logarithm ? weft_log_softmax_grad(grad, y, dim) : weft_softmax_grad(grad, y, dim);
        CHECK(out && weft_tensor_dtype(out) == weft_tensor_dtype(x));
        CHECK(weft_allclose(weft_to_dtype(out, WEFT_F64),
                            slow_softmax_grad(logarithm, grad, y, dim), tolerance, tolerance,
                            false));
    }
}

TEST(test_normalize_softmax_grad)
{
    static const weft_dtype dtypes[] = {WEFT_F64, WEFT_F32, WEFT_BF16, WEFT_F16};
    static const double tolerance[] = {1e-13, 1e-5, 2e-2, 2e-3};
    weft_seed(12);
    for (int d = 0; d < 4; d++) {
        weft_tensor *x =
            weft_to_dtype(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3, 5, 1100)), dtypes[d]);
        weft_tensor *grad =
            weft_to_dtype(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3, 5, 1100)), dtypes[d]);
        for (int dim = -1; dim < 2; dim++)
            check_softmax_grad(grad, x, dim, tolerance[d]);
        check_softmax_grad(weft_transpose(grad, 1, 2), weft_transpose(x, 1, 2), 1, tolerance[d]);
        check_softmax_grad(weft_contiguous(weft_transpose(grad, 0, 2)), weft_transpose(x, 0, 2), 2,
                           tolerance[d]);
    }
    weft_tensor *number = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 3);
    check_softmax_grad(number, number, 0, 0);
    weft_tensor *empty = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 0));
    CHECK(weft_softmax_grad(empty, empty, 0) && weft_softmax_grad(empty, empty, 1));
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    CHECK(!weft_softmax_grad(x, weft_to_dtype(x, WEFT_F64), 0));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_log_softmax_grad(weft_transpose(x, 0, 1), x, 0));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_softmax_grad(x, x, 2));
    weft_tensor *whole = weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK(!weft_softmax_grad(whole, whole, 0));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_TYPE);
    weft_clear_error();
}

/* Every instruction set gives the same bits, forward and back. */
TEST(test_normalize_grads_everywhere)
{
    const char *variant;
    weft_seed(13);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(70, 1037)), *first[5] = {NULL};
    weft_tensor *grad = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(70, 1037));
    weft_tensor *weight = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1037));
    for (int v = 0; (variant = weft_i_vector_variant(v)); v++) {
        if (!weft_i_vector_use(variant))
            continue;
        weft_tensor *out[5];
        CHECK_OK(weft_layer_norm_grad(grad, x, 1, weight, 1e-5, true, out));
        out[3] = weft_softmax_grad(grad, x, 1);
        out[4] = weft_log_softmax_grad(grad, x, 1);
        for (int k = 0; k < 5; k++) {
            first[k] = first[k] ? first[k] : out[k];
            CHECK(out[k] && weft_equal(first[k], out[k]));
        }
    }
    CHECK(weft_i_vector_use(NULL));
    weft_tensor *bare[3];
    CHECK_OK(weft_layer_norm_grad(weft_mul(grad, weight), x, 1, NULL, 1e-5, false, bare));
    CHECK(weft_equal(bare[0], first[0]) && !bare[1] && !bare[2]);
}

/* Rows whose largest element is not finite take a way of their own. */
TEST(test_normalize_softmax_of_infinities)
{
    static const double rows[][3] = {{1, INFINITY, 2},
                                     {-INFINITY, -INFINITY, -INFINITY},
                                     {0, NAN, 1},
                                     {-INFINITY, 0, -INFINITY},
                                     {0, -200, -88}};
    for (int d = 0; d < 2; d++) {
        weft_dtype dtype = d ? WEFT_F64 : WEFT_F32;
        weft_tensor *y = weft_softmax(
            weft_to_dtype(weft_tensor_from(WEFT_F64, WEFT_SHAPE(5, 3), rows), dtype), 1);
        for (int i = 0; i < 9; i++)
            CHECK(weft_item(y, i) != weft_item(y, i));
        CHECK(weft_item(y, 9) == 0 && weft_item(y, 10) == 1 && weft_item(y, 11) == 0);
        CHECK(weft_item(y, 12) == 1);
        CHECK_NEAR(weft_item(y, 13) * 1e80, exp(-200) * 1e80, d ? 1e-20 : 1);
        CHECK_NEAR(weft_item(y, 14) * 1e38, exp(-88) * 1e38, 1e-6);
    }
}

/* Against differences of the sum of layer_norm(x) * grad, in f64. */
TEST(test_normalize_layer_norm_grad)
{
    weft_seed(6);
    weft_tensor *x = weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(70, 2, 3)), *out[3];
    weft_tensor *grad = weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(70, 2, 3));
    weft_tensor *all[3] = {x, weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 3)),
                           weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 3))};
    CHECK_OK(weft_layer_norm_grad(grad, x, 2, all[1], 1e-3, true, out));
    for (int k = 0; k < 3; k++) {
        CHECK(weft_i_shape_equal(weft_i_tensor_shape(out[k]), weft_i_tensor_shape(all[k])));
        double *data = weft_tensor_data(all[k]), sum[2];
        for (int64_t i = 0; i < weft_tensor_numel(all[k]); i += k ? 1 : 29) {
            double kept = data[i];
            for (int side = 0; side < 2; side++) {
                data[i] = kept + (side ? 1e-5 : -1e-5);
                weft_tensor *y = weft_layer_norm(x, 2, all[1], all[2], 1e-3);
                sum[side] = weft_item(weft_sum(weft_mul(y, grad), NULL, 0, false), 0);
            }
            data[i] = kept;
            CHECK_NEAR(weft_item(out[k], i), (sum[1] - sum[0]) / 2e-5, 1e-6);
        }
    }
    weft_tensor *few[3], *half[3];
    CHECK_OK(weft_layer_norm_grad(grad, x, 2, NULL, 1e-3, false, few));
    CHECK(few[0] && !few[1] && !few[2]);
    CHECK_OK(weft_layer_norm_grad(weft_to_dtype(grad, WEFT_F32), weft_to_dtype(x, WEFT_F32), 2,
                                  all[1], 1e-3, true, half));
    for (int k = 0; k < 3; k++)
        CHECK(weft_allclose(weft_to_dtype(half[k], WEFT_F64), out[k], 1e-4, 1e-4, false));
    CHECK_STATUS(weft_layer_norm_grad(all[1], x, 2, NULL, 1e-3, false, few), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_layer_norm_grad(grad, x, 4, NULL, 1e-3, false, few), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

TEST(test_normalize_embedding)
{
    weft_tensor *table = weft_transpose(
        weft_view(weft_arange(WEFT_BF16, WEFT_CPU, 0, 12, 1), WEFT_SHAPE(3, 4)), 0, 1); /* [4, 3] */
    int16_t values[] = {3, 0, 1, 3, 2, 2};
    weft_tensor *indices =
        weft_transpose(weft_tensor_from(WEFT_I16, WEFT_SHAPE(3, 2), values), 0, 1);
    weft_tensor *out = weft_embedding(table, indices);
    CHECK(out && weft_tensor_ndim(out) == 3 && weft_tensor_size(out, 1) == 3 &&
          weft_tensor_size(out, 2) == 3);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 3; j++)
            CHECK(weft_item(out, i * 3 + j) == 4 * j + weft_item(indices, i));
    values[4] = 4;
    CHECK(!weft_embedding(table, weft_tensor_from(WEFT_I16, WEFT_SHAPE(6), values)));
    CHECK_CONTAINS(weft_last_error(), "index 4 at 4");
    CHECK(!weft_embedding(table, weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, -1)));
    CHECK(!weft_embedding(table, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))));
    CHECK_INT(
        weft_tensor_numel(weft_embedding(table, weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(0)))), 0);
    weft_clear_error();
}

/* Whatever cannot be had: layer_norm is right, or there is none and an error. */
TEST(test_normalize_layer_norm_shortage)
{
    weft_tensor *rows = weft_view(weft_arange(WEFT_BF16, WEFT_CPU, 0, 12, 1), WEFT_SHAPE(4, 3));
    weft_tensor *x = weft_transpose(rows, 0, 1), *weight, *bias;
    weight = weft_slice(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8), 2), 0, 0, 8, 2);
    bias = weft_slice(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8), 1), 0, 0, 8, 2);
    weft_tensor *right = weft_layer_norm(x, 1, weight, bias, 1e-5);
    CHECK(right);
    int failed = 0;
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_scope_open();
        fault_arm(n);
        weft_tensor *y = weft_layer_norm(x, 1, weight, bias, 1e-5);
        fired = fault_disarm();
        CHECK(y || fired);
        if (y)
            CHECK(weft_equal(y, right));
        else
            CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_MEMORY);
        failed += !y;
        weft_clear_error();
        weft_scope_close();
    }
    CHECK(failed >= 4); /* the result, packed arguments, and the rows that it works on */
}

/* So are its gradients: all of them, or none and an error. */
TEST(test_normalize_layer_norm_grad_shortage)
{
    weft_tensor *rows = weft_view(weft_arange(WEFT_BF16, WEFT_CPU, 0, 12, 1), WEFT_SHAPE(4, 3));
    weft_tensor *x = weft_transpose(rows, 0, 1), *right[3], *out[3];
    weft_tensor *weight = weft_slice(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8), 2), 0, 0, 8, 2);
    CHECK_OK(weft_layer_norm_grad(x, x, 1, weight, 1e-5, true, right));
    int failed = 0;
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_scope_open();
        fault_arm(n);
        weft_status status = weft_layer_norm_grad(x, x, 1, weight, 1e-5, true, out);
        fired = fault_disarm();
        CHECK_INT(status, fired ? WEFT_ERR_NO_MEMORY : WEFT_OK);
        for (int k = 0; k < 3 && status == WEFT_OK; k++)
            CHECK(weft_equal(out[k], right[k]));
        failed += status < 0;
        weft_clear_error();
        weft_scope_close();
    }
    CHECK(failed >= 6); /* the results, packed arguments, sums and rows */
}

static void *no_row(size_t alignment, size_t bytes)
{
    return bytes == 64 ? NULL : weft_i_os_linux.alloc_aligned(alignment, bytes);
}

/* Rows that must be copied, and no memory for one. */
TEST(test_normalize_without_a_row)
{
    weft_scope_open();
    weft_tensor *x = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(2, 3));
    weft_i_os table = weft_i_os_linux;
    table.alloc_aligned = no_row;
    weft_i_os_now = &table;
    weft_tensor *made = weft_softmax_grad(x, x, 1);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(!made && weft_last_status() == WEFT_ERR_NO_MEMORY);
    CHECK(!strcmp(weft_last_error(), "softmax_grad: no memory for a row of 3 elements"));
    weft_clear_error();
    weft_scope_close();
}

/* A result that is released keeps nothing of what was copied for it, though the scope stays open. */
TEST(test_normalize_keeps_nothing)
{
    weft_scope_open();
    weft_tensor *x = weft_transpose(weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4, 3)), 0, 1);
    weft_tensor *weight = weft_slice(weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8)), 0, 0, 8, 2),
                *bias = weft_slice(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(8), 3), 0, 0, 8, 2);
    for (int i = 0; i < 5; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        weft_tensor *y = weft_layer_norm(x, 1, weight, bias, 1e-5);
        CHECK(y && weft_item(y, 5) == 3);
        weft_tensor *g = weft_softmax_grad(x, x, 1);
        CHECK(g);
        weft_release(y);
        weft_release(g);
    }
    CHECK_INT(count_end(), 0);
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
