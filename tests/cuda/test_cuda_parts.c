/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/layer/attention_composed.c, tensor/op/index_copy.c, tensor/layer/quantize.c, nn/generate.c, nn/sample.c, nn/linear_cross_entropy.c, tensor/op/autocast.c */
/* Operations without a kernel for GPUs are put together from those that have one, and give what the CPU
 * gives.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real. */
#include "cuda/op_scene.h"

#include "weft/weft.h"

/* -- what is put together where a row has no kernel -- */

static weft_tensor *placed(weft_tensor *x)
{
    return weft_to(x, weft_tensor_dtype(x), GPU);
}

TEST(test_cuda_op_attention_in_parts)
{
    begin();
    weft_seed(5);
    weft_tensor *q = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4, 5, 8));
    weft_tensor *k = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2, 7, 8));
    weft_tensor *v = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2, 7, 3));
    weft_attention_opts opts = WEFT_ATTENTION_OPTS, far;
    opts.causal = true;
    opts.offset = 1;
    far = opts;
    far.position = weft_full(WEFT_I64, GPU, WEFT_SHAPE(1), 1);
    weft_tensor *at[] = {placed(q), placed(k), placed(v)}, *here[] = {q, k, v}, *a[3], *b[3];
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_require_grad(at[i], true));
        CHECK_OK(weft_require_grad(here[i], true));
    }
    weft_tensor *y = weft_attention(q, k, v, &opts), *z = weft_attention(at[0], at[1], at[2], &far);
    if (!y || !z)
        FAIL("%s", weft_last_error());
    check_near("attention", weft_detach(z), weft_detach(y), 1e-4);
    weft_tensor *loss = weft_sum(weft_mul(y, y), NULL, 0, false);
    weft_tensor *other = weft_sum(weft_mul(z, z), NULL, 0, false);
    CHECK_OK(weft_gradients(a, here, 3, &loss, 1, NULL));
    CHECK_OK(weft_gradients(b, at, 3, &other, 1, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(weft_allclose(weft_to(b[i], WEFT_F32, WEFT_CPU), a[i], 1e-3, 1e-4, false));
    opts.dropout = 0.5;
    CHECK(weft_attention(at[0], at[1], at[2], &opts));
    opts.mask = weft_zeros(WEFT_BOOL, GPU, WEFT_SHAPE(9));
    CHECK(!weft_attention(at[0], at[1], at[2], &opts));
    weft_clear_error();
    end();
}

TEST(test_cuda_op_loss_and_slices_in_parts)
{
    begin();
    weft_seed(5);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 4));
    weft_tensor *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 4));
    weft_tensor *labels =
        weft_tensor_from(WEFT_I64, WEFT_SHAPE(6), (int64_t[]){0, 4, -100, 2, 1, 3});
    weft_linear_cross_entropy_opts opts = WEFT_LINEAR_CROSS_ENTROPY_OPTS;
    opts.smoothing = 0.1;
    opts.z_loss = 0.01;
    weft_tensor *y = weft_linear_cross_entropy(x, w, labels, &opts);
    weft_tensor *z = weft_linear_cross_entropy(placed(x), placed(w), placed(labels), &opts);
    CHECK(y && z);
    CHECK_NEAR(weft_item(z, 0), weft_item(y, 0), 1e-5);
    weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), (int64_t[]){3, 1});
    weft_tensor *slices = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 2)), *far = placed(x);
    CHECK_OK(weft_index_copy(x, 1, index, slices));
    CHECK_OK(weft_index_copy(far, 1, placed(index), placed(slices)));
    check_near("index_copy", far, x, 0);
    CHECK_STATUS(weft_index_copy(far, 1, placed(index),
                                 placed(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 3)))),
                 WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    end();
}

TEST(test_cuda_op_few_bits_in_parts)
{
    begin();
    weft_seed(6);
    weft_tensor *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6, 96)), *made[2];
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 96));
    for (int bits = 4; bits <= 8; bits += 4) {
        CHECK_OK(weft_quantize(w, bits, 32, made));
        weft_tensor *codes = placed(made[0]), *scales = placed(made[1]);
        check_near("dequantize", weft_dequantize(codes, scales, WEFT_F32),
                   weft_dequantize(made[0], made[1], WEFT_F32), 0);
        check_near("quantized_linear", weft_quantized_linear(placed(x), codes, scales, NULL),
                   weft_quantized_linear(x, made[0], made[1], NULL), 1e-4);
        CHECK(!weft_dequantize(codes, codes, WEFT_F32));
        CHECK(!weft_quantized_linear(x, codes, scales, NULL));
    }
    weft_sample_opts opts = WEFT_SAMPLE_OPTS;
    weft_tensor *logits = weft_select(x, 0, 0), *drawn[2];
    opts.top_k = 7;
    for (int i = 0; i < 2; i++) {
        weft_seed(4);
        drawn[i] = weft_sample(i ? placed(logits) : logits, &opts);
    }
    CHECK(drawn[1] && weft_tensor_device(drawn[1]) == GPU);
    check_near("sample", drawn[1], drawn[0], 0);
    weft_module *net = weft_nn_sequential(weft_nn_linear(64, 32), weft_nn_linear_plain(32, 64));
    CHECK_OK(weft_module_to(net, GPU));
    CHECK_OK(weft_quantize_module(net, 8, 32));
    CHECK(weft_tensor_device(weft_module_buffer(net, "1.codes")) == GPU);
    CHECK(weft_module_call(net, weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1, 64))));
    weft_clear_error();
    end();
}

TEST(test_cuda_op_autocast)
{
    begin();
    weft_tensor *x = placed(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)));
    WEFT_AUTOCAST(WEFT_BF16)
    {
        weft_tensor *y = weft_linear(x, x, NULL);
        CHECK(y && weft_tensor_dtype(y) == WEFT_BF16);
        CHECK_INT(weft_tensor_dtype(weft_softmax(y, -1)), WEFT_F32);
        CHECK_NEAR(weft_item(y, 8), 4, 0);
    }
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
