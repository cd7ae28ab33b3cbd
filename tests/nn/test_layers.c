/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/rms_norm.c, nn/swiglu.c, nn/grouped_attention.c, nn/init.c, nn/recompute.c */
/* The layers of today's transformers. */
#include "fault.h"
#include "harness.h"
#include "leaf.h"

#include <weft/weft.h>

TEST(test_layers_rms_norm_and_swiglu)
{
    weft_scope_open();
    weft_seed(2);
    weft_module *norm = weft_nn_rms_norm(6, 1e-5), *mlp = weft_nn_swiglu(6, 10);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3, 6));
    CHECK_OK(weft_fill(weft_data(weft_module_param(norm, "weight")), 2));
    weft_tensor *y = weft_module_call(norm, x), *z = weft_module_call(mlp, y);
    CHECK(weft_allclose(y, weft_mul_scalar(weft_rms_norm(x, 1, NULL, 1e-5), 2), 1e-6, 0, false));
    weft_tensor *gate = weft_linear(y, weft_module_param(mlp, "gate_proj.weight"), NULL);
    weft_tensor *up = weft_linear(y, weft_module_param(mlp, "up_proj.weight"), NULL);
    weft_tensor *wide = weft_mul(weft_mul(gate, weft_sigmoid(gate)), up);
    CHECK(weft_allclose(z, weft_linear(wide, weft_module_param(mlp, "down_proj.weight"), NULL),
                        1e-4, 1e-6, false));
    CHECK_OK(weft_backward(total(weft_mul(z, z))));
    CHECK(weft_grad(weft_module_param(mlp, "up_proj.weight")));
    CHECK(weft_grad(weft_module_param(norm, "weight")));
    CHECK_INT(weft_module_params(mlp, NULL, 0), 3);
    CHECK(!weft_nn_rms_norm(0, 1e-5) && !weft_nn_rms_norm(4, -1) && !weft_nn_swiglu(4, 0));
    weft_clear_error();
    weft_scope_close();
}

static weft_module *grouped(double dropout)
{
    weft_nn_attention_opts opts = WEFT_NN_ATTENTION_OPTS;
    opts.rotary = 10000;
    opts.dropout = dropout;
    return weft_nn_grouped_attention(16, 4, 2, &opts);
}

/* Token by token with a cache is what it is at once. */
TEST(test_layers_grouped_attention_cache)
{
    enum { BATCH = 2, TIME = 7, LENGTH = 9 };
    weft_scope_open();
    weft_seed(8);
    weft_module *attention = grouped(0);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(BATCH, TIME, 16)), *whole;
    CHECK((whole = weft_module_call(attention, x)) != NULL);
    weft_tensor *keys = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(BATCH, 2, LENGTH, 4));
    weft_tensor *values = weft_zeros_like(keys);
    weft_tensor *position = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1));
    for (int64_t at = 0, n = 3; at<TIME; at += n, n = at + 2> TIME ? TIME - at : 2) {
        weft_tensor *out, *in[] = {weft_narrow(x, 1, at, n), keys, values, position};
        CHECK_OK(weft_module_call_list(attention, &out, 1, in, 4));
        CHECK(weft_allclose(out, weft_narrow(whole, 1, at, n), 1e-5, 1e-6, false));
        CHECK_OK(weft_add_scalar_into(position, position, (double)n));
    }
    weft_tensor *out, *in[] = {weft_narrow(x, 1, 0, 3), keys, values, position};
    CHECK_STATUS(weft_module_call_list(attention, &out, 1, in, 4), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "the dimension has 9");
    CHECK_STATUS(weft_module_call_list(attention, &out, 1, in, 2), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_module_call(attention, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 16))));
    CHECK(!weft_nn_grouped_attention(16, 4, 3, NULL) && !weft_nn_grouped_attention(15, 4, 2, NULL));
    weft_clear_error();
    weft_scope_close();
}

static weft_status one_token(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    weft_status status = weft_module_call_list(user, out, outs, in, ins);
    if (status < 0)
        return status;
    return weft_add_scalar_into(in[3], in[3], 1);
}

/* The position is a tensor: one capture serves all tokens. */
TEST(test_layers_grouped_attention_compiled)
{
    enum { TIME = 5 };
    weft_scope_open();
    weft_seed(8);
    weft_module *attention = grouped(0);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, TIME, 16)), *whole, *out;
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    weft_compiled *fast = weft_compile(one_token, attention, &opts);
    weft_compiled_info info;
    WEFT_NO_GRAD
    {
        whole = weft_module_call(attention, x);
        weft_tensor *keys = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 2, 8, 4));
        weft_tensor *values = weft_zeros_like(keys);
        weft_tensor *position = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1));
        for (int64_t at = 0; at < TIME; at++) {
            weft_tensor *in[] = {weft_clone(weft_narrow(x, 1, at, 1)), keys, values, position};
            CHECK_OK(weft_compiled_call(fast, in, 4, &out, 1));
            CHECK(weft_allclose(out, weft_narrow(whole, 1, at, 1), 1e-5, 1e-6, false));
        }
        CHECK(weft_item(position, 0) == TIME);
    }
    CHECK_OK(weft_compiled_describe(fast, &info));
    CHECK_INT(info.frames, 1);
    weft_scope_close();
}

/* ---- initial values ---- */

static double moment(weft_tensor *x, int power)
{
    double sum = 0;
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        sum += pow(weft_item(x, i), power);
    return sum / (double)weft_tensor_numel(x);
}

TEST(test_layers_init)
{
    static const struct {
        const char *name;
        double scale, variance; /* of [200, 100] */
    } cases[] = {{"uniform", 0.5, 0.25 / 3},          {"normal", 0.02, 0.0004},
                 {"xavier_uniform", 2, 4 * 2. / 300}, {"xavier_normal", 1, 2. / 300},
                 {"kaiming_uniform", 1, 1. / 100},    {"kaiming_normal", sqrt(2), 2. / 100}};
    weft_scope_open();
    weft_tensor *x = leaf(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(200, 100))), *before;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(weft_nn_init(x, cases[i].name, cases[i].scale, 7));
        CHECK_NEAR(moment(x, 2) / cases[i].variance, 1, 0.05);
        CHECK_NEAR(moment(x, 1) / sqrt(cases[i].variance), 0, 0.05);
        before = weft_clone(weft_detach(x));
        CHECK_OK(weft_nn_init(x, cases[i].name, cases[i].scale, 7));
        CHECK(weft_equal(weft_detach(x), before));
        CHECK_OK(weft_nn_init(x, cases[i].name, cases[i].scale, 8));
        CHECK(!weft_equal(weft_detach(x), before));
    }
    CHECK_OK(weft_nn_init(x, "constant", 3, 0));
    CHECK(weft_item(x, 19999) == 3 && weft_requires_grad(x));
    weft_seed(5); /* which init does not touch */
    weft_tensor *a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_seed(5);
    CHECK_OK(weft_nn_init(x, "normal", 1, 1));
    CHECK(weft_equal(a, weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))));
    CHECK_STATUS(weft_nn_init(x, "orthogonal", 1, 1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "kaiming_normal");
    CHECK_STATUS(weft_nn_init(a, "xavier_normal", 1, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_nn_init(NULL, "normal", 1, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_scope_close();
}

/* ---- recompute ---- */

static int calls;

static weft_tensor *counting(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    calls++;
    return weft_module_call(weft_module_child(self, "inner"), x);
}

static weft_module *make_block(void)
{
    weft_module *block = weft_module_new(counting, NULL);
    weft_module *inner = weft_nn_sequential(weft_nn_linear(8, 16), weft_nn_op(weft_gelu),
                                            weft_nn_dropout(0.3), weft_nn_linear(16, 8));
    CHECK_OK(weft_module_add(block, "inner", inner));
    return block;
}

/* Gradients of the input and of two parameters, and the loss. */
static void run_block(weft_module *block, bool again, weft_tensor *x, weft_tensor *out[4])
{
    weft_seed(21);
    weft_tensor *y = weft_mul_scalar(x, 1.5);
    y = again ? weft_nn_recompute(block, y) : weft_module_call(block, y);
    y = again ? weft_nn_recompute(block, y)
              : weft_module_call(block, y); /* twice: gradients add up */
    weft_tensor *loss = total(weft_mul(y, y));
    CHECK(loss);
    CHECK_OK(weft_backward(loss));
    weft_tensor *of[] = {x, weft_module_param(block, "inner.0.weight"),
                         weft_module_param(block, "inner.3.bias")};
    for (int i = 0; i < 3; i++) {
        out[i] = weft_clone(weft_grad(of[i]));
        CHECK_OK(weft_set_grad(of[i], NULL));
    }
    out[3] = weft_detach(loss);
}

/* A module that returns its input: the caller's tensor stays the caller's. */
TEST(test_layers_recompute_nothing)
{
    weft_module *none = weft_nn_sequential_of(NULL, 0);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    weft_tensor *y = weft_nn_recompute(none, x);
    CHECK(y && weft_item(weft_add(x, x), 0) == 2);
    CHECK_OK(weft_backward(total(weft_mul_scalar(y, 3))));
    CHECK(weft_grad(x) && weft_item(weft_grad(x), 2) == 3);
}

TEST(test_layers_recompute)
{
    weft_scope_open();
    weft_seed(1);
    weft_module *block = make_block();
    weft_tensor *x = leaf(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 8))), *a[4], *b[4];
    calls = 0;
    run_block(block, false, x, a);
    CHECK_INT(calls, 2);
    run_block(block, true, x, b);
    CHECK_INT(calls, 6);
    for (int i = 0; i < 4; i++)
        CHECK(weft_equal(a[i], b[i])); /* dropout drew the same */
    weft_scope_close();
}

/* The generator goes on as if the second call had not been. */
TEST(test_layers_recompute_leaves_the_generator)
{
    weft_scope_open();
    weft_module *block = make_block();
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8))), *next[2];
    for (int i = 0; i < 2; i++) {
        weft_seed(4);
        weft_tensor *loss = total(i ? weft_nn_recompute(block, x) : weft_module_call(block, x));
        CHECK_OK(weft_backward(loss));
        next[i] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    }
    CHECK(weft_equal(next[0], next[1]));
    weft_scope_close();
}

TEST(test_layers_recompute_edges)
{
    weft_scope_open();
    weft_module *block = make_block();
    weft_tensor *plain = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8));
    calls = 0;
    CHECK_OK(weft_backward(total(weft_nn_recompute(block, plain)))); /* parameters alone */
    CHECK(weft_grad(weft_module_param(block, "inner.0.weight")) && calls == 2);
    WEFT_NO_GRAD
    {
        CHECK(!weft_requires_grad(weft_nn_recompute(block, plain)));
    }
    weft_tensor *y = total(weft_nn_recompute(block, plain));
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_mul_scalar_into(weft_module_param(block, "inner.3.weight"),
                                      weft_module_param(block, "inner.3.weight"), 2));
    }
    CHECK_STATUS(weft_backward(y), WEFT_ERR_STATE); /* the parameter was written */
    weft_clear_error();
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8))), *grad;
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    y = total(weft_nn_recompute(block, x));
    CHECK_STATUS(weft_gradients(&grad, &x, 1, &y, 1, &opts), WEFT_ERR_UNSUPPORTED);
    CHECK(!weft_nn_recompute(NULL, x) && !weft_nn_recompute(block, NULL));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_layers_recompute_every_allocation_may_fail)
{
    weft_scope_open();
    weft_module *block = make_block();
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 8)));
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_clear_error();
        fault_arm(n);
        weft_status status = weft_scope_open();
        if (status >= 0) {
            weft_tensor *y = weft_nn_recompute(block, x);
            weft_tensor *loss = y ? weft_sum(y, NULL, 0, false) : NULL;
            status = loss ? weft_backward(loss) : weft_last_status();
            weft_scope_close();
        }
        fired = fault_disarm();
        if (status != (fired ? WEFT_ERR_NO_MEMORY : WEFT_OK))
            FAIL("call %d failed: %s: %s", n, weft_status_name(status), weft_last_error());
    }
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
