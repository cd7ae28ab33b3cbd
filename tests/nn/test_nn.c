/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/attention.c, nn/cross_entropy.c, nn/dropout.c, nn/embedding.c, nn/layer.c,
 * nn/layer_norm.c, nn/linear.c, nn/sequential.c */
/* Layers: their values, their first parameters, and the calls they refuse. */
#include "harness.h"
#include "leaf.h"

#include <weft/weft.h>

static void check_uniform(weft_tensor *x, double bound)
{
    double low = 1, high = -1;
    for (int64_t i = 0; i < weft_tensor_numel(x); i++) {
        low = fmin(low, weft_item(x, i));
        high = fmax(high, weft_item(x, i));
    }
    CHECK(low >= -bound && high <= bound && low < -0.9 * bound && high > 0.9 * bound);
}

TEST(test_nn_linear)
{
    weft_scope_open();
    weft_seed(3); /* 200 draws reach both ends, but for one seed in 30,000 */
    weft_module *module = weft_nn_linear(20, 200), *plain = weft_nn_linear_plain(20, 200);
    check_uniform(weft_module_param(module, "weight"), 1 / sqrt(20));
    check_uniform(weft_module_param(module, "bias"), 1 / sqrt(20));
    check_uniform(weft_module_param(plain, "weight"), 1 / sqrt(20));
    CHECK_INT(weft_module_params(plain, NULL, 0), 1);
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 20));
    weft_tensor *y = weft_module_call(module, x);
    CHECK(weft_allclose(
        y,
        weft_add(weft_matmul(x, weft_transpose(weft_module_param(module, "weight"), 0, 1)),
                 weft_module_param(module, "bias")),
        1e-5, 1e-6, false));
    CHECK(!weft_nn_linear(0, 3) && !weft_nn_linear_plain(3, -1));
    weft_clear_error();
    weft_scope_close();
}

/* Tied weights are one parameter with two names. */
TEST(test_nn_tied_parameters)
{
    weft_scope_open();
    weft_module *a = weft_nn_linear_plain(3, 3), *b = weft_nn_linear_plain(3, 3);
    weft_module *net = weft_nn_sequential(a, b, a);
    CHECK_OK(weft_module_bind(b, "weight", weft_module_param(a, "weight")));
    weft_named list[4];
    CHECK_INT(weft_module_params(net, NULL, 0), 1);
    CHECK_INT(weft_module_params(net, list, 4), 1);
    CHECK(!strcmp(list[0].name, "0.weight"));
    CHECK_INT(weft_module_state(net, list, 4), 3);
    CHECK(!strcmp(list[2].name, "2.weight"));
    weft_scope_close();
}

TEST(test_nn_embedding_and_layer_norm)
{
    weft_scope_open();
    weft_module *rows = weft_nn_embedding(7, 4), *norm = weft_nn_layer_norm(4);
    weft_tensor *index = weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 2), (int64_t[]){6, 0, 3, 3});
    weft_tensor *x = weft_module_call(rows, index), *y = weft_module_call(norm, x);
    CHECK(x && y && weft_tensor_ndim(x) == 3);
    CHECK(weft_item(x, 4) == weft_item(weft_module_param(rows, "weight"), 0));
    CHECK_OK(weft_backward(total(weft_mul(y, x))));
    CHECK(weft_grad(weft_module_param(rows, "weight")));
    CHECK(weft_item(weft_grad(weft_module_param(rows, "weight")), 4) == 0); /* row 1 is not used */
    CHECK(weft_item(weft_grad(weft_module_param(norm, "bias")), 0) != 0);
    CHECK(!weft_nn_embedding(0, 1) && !weft_nn_layer_norm(0));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_nn_dropout)
{
    weft_scope_open();
    weft_module *drop = weft_nn_dropout(0.25);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10000)));
    weft_seed(3);
    weft_tensor *y = weft_module_call(drop, x);
    weft_seed(3);
    CHECK(weft_equal(y, weft_module_call(drop, x))); /* the thread's generator, and nothing else */
    CHECK(!weft_equal(y, weft_module_call(drop, x)));
    double kept = 0;
    for (int i = 0; i < 10000; i++) {
        double v = weft_item(y, i);
        CHECK(v == 0 || fabs(v - 4.0 / 3) < 1e-6);
        kept += v != 0;
    }
    CHECK_NEAR(kept / 10000, 0.75, 0.02);
    CHECK_OK(weft_backward(total(y)));
    CHECK(weft_equal(weft_grad(x), weft_detach(y))); /* the same elements */
    CHECK_OK(weft_module_train(drop, false));
    CHECK(weft_module_call(drop, x) == x);
    CHECK_OK(weft_module_train(drop, true));
    CHECK(weft_item(weft_module_call(weft_nn_dropout(1), x), 5) == 0);
    CHECK(!weft_nn_dropout(1.5) && !weft_nn_dropout(NAN));
    weft_clear_error();
    weft_scope_close();
}

/* What comes later changes nothing that comes before; and each head sees its own part only. */
TEST(test_nn_attention_is_causal)
{
    weft_scope_open();
    weft_seed(5);
    weft_module *attention = weft_nn_attention(8, 2, 0);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 5, 8)), *z = weft_clone(x);
    CHECK_OK(weft_fill(weft_select(z, 1, 3), 9));
    weft_tensor *a = weft_module_call(attention, x), *b = weft_module_call(attention, z);
    CHECK(a && b);
    CHECK(weft_equal(weft_narrow(a, 1, 0, 3), weft_narrow(b, 1, 0, 3)));
    CHECK(!weft_equal(weft_narrow(a, 1, 3, 1), weft_narrow(b, 1, 3, 1)));
    CHECK(!weft_equal(weft_narrow(a, 1, 4, 1), weft_narrow(b, 1, 4, 1)));
    CHECK(!weft_module_call(attention, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8))));
    CHECK(!weft_nn_attention(8, 3, 0));
    weft_clear_error();
    weft_scope_close();
}

/* The first place sees itself only: there the layer is linear in linear. */
TEST(test_nn_attention_values)
{
    weft_scope_open();
    weft_module *attention = weft_nn_attention(6, 3, 0);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 1, 6));
    weft_tensor *expected =
        weft_module_call(weft_module_child(attention, "out"),
                         weft_module_call(weft_module_child(attention, "value"), x));
    CHECK(weft_allclose(weft_module_call(attention, x), expected, 1e-5, 1e-6, false));
    weft_scope_close();
}

TEST(test_cross_entropy)
{
    weft_scope_open();
    weft_tensor *logits = leaf(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 5)));
    weft_tensor *labels =
        weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 3), (int64_t[]){0, 4, 2, 1, 1, 3});
    weft_tensor *loss = weft_cross_entropy(logits, labels), *p = weft_softmax(logits, -1);
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum -= log(weft_item(p, i * 5 + weft_item_int(labels, i))) / 6;
    CHECK_NEAR(weft_item(loss, 0), sum, 1e-6);
    CHECK_OK(weft_backward(loss));
    for (int i = 0; i < 30; i++)
        CHECK_NEAR(weft_item(weft_grad(logits), i),
                   (weft_item(p, i) - (weft_item_int(labels, i / 5) == i % 5)) / 6, 1e-6);
    CHECK(!weft_cross_entropy(logits, weft_narrow(labels, 1, 0, 2)));
    CHECK_CONTAINS(weft_last_error(), "[2, 3, 5]");
    weft_clear_error();
    weft_scope_close();
}

static void check_label_refused(weft_tensor *logits, weft_tensor *labels, weft_status status,
                                const char *text)
{
    weft_clear_error();
    CHECK(!weft_cross_entropy(logits, labels));
    CHECK_INT(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), text);
    CHECK(!strstr(weft_last_error(), "gather"));
}

/* The message is the loss's own: which label of which row, not which index of a gather. */
TEST(test_cross_entropy_labels)
{
    weft_scope_open();
    weft_tensor *logits = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 5));
    weft_tensor *labels =
        weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 3), (int64_t[]){0, 4, 2, 1, 1, 5});
    weft_tensor *narrow = weft_to_dtype(labels, WEFT_U8);
    const char *why = "cross_entropy: the label of row [1, 2] is 5; there are 5 classes, numbered";
    check_label_refused(logits, labels, WEFT_ERR_INVALID_ARG, why);
    check_label_refused(logits, narrow, WEFT_ERR_INVALID_ARG, why);
    check_label_refused(logits, weft_transpose(weft_contiguous(weft_transpose(labels, 0, 1)), 0, 1),
                        WEFT_ERR_INVALID_ARG, why);
    check_label_refused(weft_select(logits, 0, 0),
                        weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3), -100), WEFT_ERR_INVALID_ARG,
                        "row [0] is -100; there are 5 classes, numbered from 0, and no "
                        "label says that its row is to be left out");
    check_label_refused(logits, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)), WEFT_ERR_TYPE,
                        "cross_entropy: the labels are f32");
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
