/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/rows/coded.c, kernels/rows/coded_baseline.c, kernels/rows/coded_avx2.c,
 * kernels/rows/coded_avx512.c, tensor/layer/quantize.c, parallel/quantize_layers.c, nn/linear.c */
/* Weights of 8 and 4 bits: how far they are off, the order of sums, and layers that have them. */
#include "fault.h"
#include "harness.h"

#include "base/team/team.h"
#include "kernels/rows/coded.h"

#include <weft/weft.h>

static const int all_bits[] = {8, 4};

static weft_tensor *weight(int64_t rows, int64_t columns)
{
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns));
    /* Blocks of very different sizes, one of zeros, and one of the smallest numbers. */
    for (int64_t k = 0; k < columns; k += 32) {
        weft_tensor *part = weft_narrow(x, 1, k, 32);
        CHECK_OK(weft_mul_scalar_into(part, part, k == 64 ? 0 : pow(10, (double)(k % 7) - 3)));
    }
    if (columns > 96)
        CHECK_OK(weft_fill(weft_narrow(x, 1, 96, 1), 1e-44));
    return x;
}

/* ---- elements ---- */

static void check_bound(weft_tensor *x, weft_tensor *back, int bits, int64_t block)
{
    int64_t columns = weft_tensor_size(x, 1);
    const float *a = weft_tensor_data(x), *b = weft_tensor_data(back);
    for (int64_t at = 0; at < weft_tensor_numel(x); at += block) {
        float most = 0;
        for (int64_t k = at; k < at + block; k++)
            most = fmaxf(most, fabsf(a[k]));
        for (int64_t k = at; k < at + block; k++)
            if (!(fabsf(a[k] - b[k]) <= most / (bits == 8 ? 254 : 14) * 1.0001f + 1e-44f))
                FAIL("%d bits, block %lld: [%lld, %lld] is %g, not %g", bits, (long long)block,
                     (long long)(k / columns), (long long)(k % columns), (double)b[k],
                     (double)a[k]);
    }
}

TEST(test_quantize_bound)
{
    static const int64_t blocks[] = {32, 64, 192, 384};
    weft_scope_open();
    weft_seed(1);
    weft_tensor *x = weight(7, 384), *made[2];
    for (int i = 0; i < 8; i++) {
        int bits = all_bits[i % 2];
        int64_t block = blocks[i / 2];
        CHECK_OK(weft_quantize(x, bits, block, made));
        CHECK(weft_tensor_dtype(made[0]) == (bits == 8 ? WEFT_I8 : WEFT_U8));
        CHECK_INT(weft_tensor_size(made[0], 1), bits == 8 ? 384 : 192);
        CHECK_INT(weft_tensor_size(made[1], 1), 384 / block);
        check_bound(x, weft_dequantize(made[0], made[1], WEFT_F32), bits, block);
    }
    weft_scope_close();
}

/* What was decoded is encoded to the same codes again, in every dtype that has room for it. */
TEST(test_quantize_again)
{
    weft_scope_open();
    weft_seed(2);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 96)), *one[2], *two[2];
    for (int i = 0; i < 4; i++) {
        weft_tensor *given = i < 2 ? x : weft_to_dtype(x, i == 2 ? WEFT_F64 : WEFT_BF16);
        CHECK_OK(weft_quantize(given, all_bits[i % 2], 32, one));
        CHECK_OK(
            weft_quantize(weft_dequantize(one[0], one[1], WEFT_F64), all_bits[i % 2], 32, two));
        CHECK(weft_equal(one[0], two[0]));
        CHECK(weft_allclose(one[1], two[1], 1e-6, 0, false));
    }
    weft_tensor *turned = weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
    CHECK_OK(weft_quantize(x, 4, 32, one));
    CHECK_OK(weft_quantize(turned, 4, 32, two));
    CHECK(weft_equal(one[0], two[0]) && weft_equal(one[1], two[1]));
    weft_scope_close();
}

/* ---- products ---- */

/* The order of a sum that kernels/rows/coded.h promises. */
static float sum_in_order(const float *x, const float *codes, const float *scales, int64_t n,
                          int64_t block)
{
    float sum[32] = {0};
    for (int64_t at = 0; at < n; at += block) {
        float part[32] = {0};
        for (int64_t k = at; k < at + block; k++) {
            float product = x[k] * codes[k];
            part[k % 32] += product;
        }
        for (int l = 0; l < 32; l++) {
            float scaled = part[l] * scales[at / block];
            sum[l] += scaled;
        }
    }
    for (int apart = 16; apart; apart /= 2)
        for (int l = 0; l < apart; l++)
            sum[l] += sum[l + apart];
    return sum[0];
}

/* The codes as numbers: what they stand for where every scale is 1. */
static weft_tensor *numbers(weft_tensor *codes, weft_tensor *scales)
{
    return weft_dequantize(codes, weft_full(WEFT_F32, WEFT_CPU, weft_tensor_shape(scales), 1),
                           WEFT_F32);
}

static void check_product(int bits, int64_t rows, int64_t out, int64_t columns, int64_t block)
{
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns)), *made[2];
    CHECK_OK(
        weft_quantize(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(out, columns)), bits, block, made));
    weft_tensor *y = weft_quantized_linear(x, made[0], made[1], NULL);
    CHECK(y != NULL);
    const float *codes = weft_tensor_data(numbers(made[0], made[1])),
                *scales = weft_tensor_data(made[1]), *from = weft_tensor_data(x),
                *got = weft_tensor_data(y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            float right = sum_in_order(from + i * columns, codes + j * columns,
                                       scales + j * (columns / block), columns, block);
            if (memcmp(&right, &got[i * out + j], sizeof right))
                FAIL("%d bits, %lld rows, block %lld: [%lld, %lld] is %.9g, not %.9g", bits,
                     (long long)rows, (long long)block, (long long)i, (long long)j,
                     (double)got[i * out + j], (double)right);
        }
}

/* Every instruction set gives the bits of the plain sum, with any number of threads. */
TEST(test_quantize_order)
{
    const weft_i_coded_table *table;
    int64_t least = weft_i_team_least, part = weft_i_team_part_bytes;
    weft_seed(3);
    for (int t = 0; (table = weft_i_coded_variant(t)); t++) {
        if (!weft_i_coded_use(table))
            continue;
        for (int i = 0; i < 24; i++) {
            weft_scope_open();
            weft_i_team_least = i % 3 ? least : 1024;
            weft_i_team_part_bytes = i % 3 ? part : 512;
            check_product(all_bits[i % 2], i / 2 % 4 + 1, 1 + i * 5 % 67, 192, i % 3 ? 64 : 32);
            weft_scope_close();
        }
    }
    weft_i_team_least = least;
    weft_i_team_part_bytes = part;
    CHECK(weft_i_coded_use(NULL));
}

/* Any number of rows and any float is as the product with the decoded weight. */
TEST(test_quantize_linear)
{
    static const int64_t rows[] = {1, 4, 5, 33};
    weft_scope_open();
    weft_seed(4);
    weft_tensor *made[2], *bias = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(300));
    for (int i = 0; i < 24; i++) {
        weft_dtype dtype = i / 8 == 0 ? WEFT_F32 : i / 8 == 1 ? WEFT_BF16 : WEFT_F16;
        weft_tensor *w = weft_mul_scalar(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(300, 64)), 0.1);
        CHECK_OK(weft_quantize(w, all_bits[i % 2], 32, made));
        weft_tensor *x = weft_randn(dtype, WEFT_CPU, WEFT_SHAPE(2, 64, rows[i / 2 % 4]));
        x = weft_transpose(x, 1, 2); /* [2, rows, 64], not adjacent */
        weft_tensor *b = i % 3 ? weft_to_dtype(bias, dtype) : NULL;
        weft_tensor *y = weft_quantized_linear(x, made[0], made[1], b);
        weft_tensor *right =
            weft_linear(weft_to_dtype(x, WEFT_F32), weft_dequantize(made[0], made[1], WEFT_F32),
                        b ? weft_to_dtype(b, WEFT_F32) : NULL);
        CHECK(y && weft_tensor_dtype(y) == dtype && weft_tensor_size(y, 2) == 300);
        double off = dtype == WEFT_F32 ? 1e-5 : dtype == WEFT_F16 ? 1e-3 : 8e-3;
        CHECK(weft_allclose(weft_to_dtype(y, WEFT_F32), right, off, off, false));
    }
    weft_scope_close();
}

/* x and the bias get the gradients of the product with the decoded weight; scales have none. */
TEST(test_quantize_gradient)
{
    weft_scope_open();
    weft_seed(5);
    weft_tensor *made[2], *g[4], *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 64));
    CHECK_OK(weft_quantize(w, 4, 64, made));
    for (int i = 0; i < 2; i++) {
        weft_seed(7);
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 64)),
                    *bias = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6));
        CHECK(weft_require_grad(x, true) >= 0 && weft_require_grad(bias, true) >= 0);
        weft_tensor *y = i ? weft_linear(x, weft_dequantize(made[0], made[1], WEFT_F32), bias)
                           : weft_quantized_linear(x, made[0], made[1], bias);
        CHECK_OK(weft_backward(weft_sum(weft_mul(y, y), NULL, 0, false)));
        g[2 * i] = weft_grad(x), g[2 * i + 1] = weft_grad(bias);
    }
    CHECK(weft_allclose(g[0], g[2], 1e-4, 1e-4, false));
    CHECK(weft_allclose(g[1], g[3], 1e-4, 1e-4, false));
    CHECK(weft_require_grad(made[1], true) >= 0);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 64)),
                *y = weft_quantized_linear(x, made[0], made[1], NULL);
    CHECK_STATUS(weft_backward(weft_sum(y, NULL, 0, false)), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_quantize_refused)
{
    weft_scope_open();
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 96)), *made[2], *out[2];
    CHECK_OK(weft_quantize(x, 8, 32, made));
    CHECK_STATUS(weft_quantize(x, 5, 32, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_quantize(x, 8, 64, out), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "rows of 96");
    CHECK_STATUS(weft_quantize(x, 8, 0, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_quantize(x, 8, 48, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_quantize(weft_select(x, 0, 0), 8, 32, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_quantize(made[0], 8, 32, out), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_quantize(x, 8, 32, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_fill(weft_narrow(weft_select(x, 0, 2), 0, 95, 1), NAN));
    CHECK_STATUS(weft_quantize(x, 4, 32, out), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "row 2");
    CHECK(!weft_dequantize(made[0], made[0], WEFT_F32) && !weft_dequantize(x, made[1], WEFT_F32));
    CHECK(!weft_dequantize(made[0], made[1], WEFT_I32));
    weft_tensor *two = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 2)); /* blocks of 48 */
    CHECK(!weft_dequantize(made[0], two, WEFT_F32));
    weft_tensor *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 96));
    CHECK(!weft_quantized_linear(weft_narrow(y, 1, 0, 64), made[0], made[1], NULL));
    CHECK(!weft_quantized_linear(weft_to_dtype(y, WEFT_F64), made[0], made[1], NULL));
    CHECK(
        !weft_quantized_linear(y, made[0], made[1], weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))));
    CHECK(
        !weft_quantized_linear(y, made[0], made[1], weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4))));
    CHECK(!weft_quantized_linear(NULL, made[0], made[1], NULL));
    CHECK(weft_require_grad(x, true) >= 0 && weft_quantize(x, 8, 32, out) < 0);
    weft_clear_error();
    weft_scope_close();
}

/* ---- layers ---- */

static weft_module *two_layers(void)
{
    weft_seed(6);
    return weft_nn_sequential(weft_nn_linear(64, 96), weft_nn_op(weft_gelu),
                              weft_nn_linear_plain(96, 32), weft_nn_layer_norm(32));
}

TEST(test_quantize_module)
{
    for (int i = 0; i < 2; i++) {
        weft_scope_open();
        weft_module *net = two_layers(), *plain = two_layers();
        weft_named list[8];
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 64)), *made[2];
        int64_t before = weft_module_generation(net);
        CHECK_OK(weft_quantize_module(net, all_bits[i], 32));
        CHECK(weft_module_generation(net) != before);
        CHECK_INT(weft_module_params(net, list, 8), 3); /* a bias, and the norm's two */
        CHECK_INT(weft_module_state(net, list, 8), 7);
        CHECK(weft_module_buffer(net, "2.codes") && weft_module_buffer(net, "0.scales"));
        WEFT_NO_GRAD
        {
            weft_tensor *h;
            CHECK_OK(weft_quantize(weft_module_param(plain, "0.weight"), all_bits[i], 32, made));
            h = weft_gelu(
                weft_quantized_linear(x, made[0], made[1], weft_module_param(plain, "0.bias")));
            CHECK_OK(weft_quantize(weft_module_param(plain, "2.weight"), all_bits[i], 32, made));
            h = weft_quantized_linear(h, made[0], made[1], NULL);
            h = weft_module_call(weft_module_child(plain, "3"), h);
            CHECK(weft_equal(weft_module_call(net, x), h));
            CHECK(weft_allclose(h, weft_module_call(plain, x), 0, i ? 1 : 0.1, false));
        }
        CHECK_STATUS(weft_quantize_module(net, 8, 32), WEFT_ERR_EXISTS);
        weft_clear_error();
        weft_scope_close();
    }
}

TEST(test_quantize_module_refused)
{
    weft_scope_open();
    weft_module *net = two_layers();
    CHECK_STATUS(weft_quantize_module(net, 8, 64), WEFT_ERR_INVALID_ARG); /* 96 is no multiple */
    CHECK_CONTAINS(weft_last_error(), "layer \"2\"");
    CHECK(weft_module_param(net, "0.weight") != NULL);
    CHECK_STATUS(weft_quantize_module(weft_nn_layer_norm(8), 8, 32), WEFT_ERR_NOT_FOUND);
    CHECK(weft_quantize_module(NULL, 8, 32) < 0);
    weft_clear_error();
    weft_scope_close();
}

/* Every allocation may fail: then nothing has changed. */
TEST(test_quantize_faults)
{
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_scope_open();
        weft_module *net = two_layers();
        fault_arm(n);
        weft_status status = weft_quantize_module(net, 4, 32);
        fired = fault_disarm();
        CHECK(fired || status >= 0);
        if (status < 0)
            CHECK(weft_module_param(net, "0.weight") && weft_module_param(net, "2.weight"));
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9, 64));
        CHECK_OK(weft_quantize_module(two_layers(), 8, 32));
        CHECK(status < 0 || weft_detach(weft_module_call(net, x)));
        weft_clear_error();
        weft_scope_close();
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
