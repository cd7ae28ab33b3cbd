/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/capture/joint.c, graph/capture/capture_joint.c, graph/pass/cut.c,
 * graph/run/frame_back.c, graph/run/backward.c */
/*
 * Compiled functions whose results require gradients: the two halves, what is saved between them,
 * what is handed out and when, hooks and modules inside.
 */
#include "graph_pattern.h"

#include <math.h>

enum { TEXT = 1 << 15 };

static const char *const backends[] = {"eager", "aot_eager"};

/* ---- values and gradients ---- */

FUNCTION(smooth)
{
    weft_tensor *y = weft_mul(weft_sin(in[0]), weft_exp(in[1]));
    out[0] = weft_add(weft_mul(y, y), in[0]);
    return WEFT_OK;
}

TEST(test_joint_gradients)
{
    weft_compiled *compiled = compile(smooth, NULL, "aot_eager");
    for (int round = 0; round < 3; round++) {
        weft_tensor *x[2], *y[2], *z;
        for (int k = 0; k < 2; k++) {
            weft_seed(round);
            x[k] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4));
            y[k] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
            CHECK_OK(weft_require_grad(x[k], true));
            CHECK_OK(weft_require_grad(y[k], true));
        }
        for (int step = 0; step < 2; step++) {
            CHECK_OK(smooth(ARGS(x[0], y[0]), 2, &z, 1, NULL));
            CHECK_OK(weft_backward(sum_of(z)));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x[1], y[1]), 2, &z, 1));
            CHECK(weft_requires_grad(z) && !weft_is_leaf(z));
            CHECK_OK(weft_backward(sum_of(z)));
        }
        check_same_grad(x[0], x[1]);
        check_same_grad(y[0], y[1]);
    }
    CHECK_INT(info_of(compiled).frames, 1);
    CHECK_INT(info_of(compiled).plain, 0);
    weft_release(compiled);
}

/* A gradient that goes on to what made the input; an output that nobody uses. */
FUNCTION(two_results)
{
    out[0] = weft_mul(in[0], in[0]);
    out[1] = weft_sin(in[1]);
    return WEFT_OK;
}

TEST(test_joint_unused_results)
{
    weft_compiled *compiled = compile(two_results, NULL, "aot_eager");
    weft_tensor *x = vector(4, 1), *y = vector(4, 2), *out[2];
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_require_grad(y, true));
    CHECK_OK(weft_compiled_call(compiled, ARGS(weft_exp(x), weft_neg(y)), 2, out, 2));
    CHECK_OK(weft_backward(sum_of(out[0])));
    CHECK_NEAR(weft_item(weft_grad(x), 0), 2 * exp(2), 1e-4);
    CHECK(!weft_grad(y)); /* as without a capture: no zeros */
    weft_release(compiled);
}

/* ---- inputs that are written ---- */

FUNCTION(writes_input)
{
    weft_tensor *y = weft_sin(in[0]);
    WEFT_TRY(weft_mul_into(in[1], in[1], y)); /* an input with a history */
    WEFT_TRY(weft_copy(in[2], weft_exp(y)));  /* one without */
    out[0] = weft_add(in[1], in[2]);
    return WEFT_OK;
}

static void run_writes(weft_compiled *compiled, weft_tensor *x, weft_tensor **buffer)
{
    weft_tensor *mid = weft_mul_scalar(x, 2), *z;
    buffer[0] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *const args[] = {x, mid, buffer[0]};
    CHECK_OK(compiled ? weft_compiled_call(compiled, args, 3, &z, 1)
                      : writes_input(args, 3, &z, 1, NULL));
    CHECK(weft_requires_grad(buffer[0]));
    buffer[1] = mid;
    CHECK_OK(weft_backward(sum_of(weft_add(weft_mul(mid, z), buffer[0]))));
}

TEST(test_joint_inputs_that_are_written)
{
    weft_compiled *compiled = compile(writes_input, NULL, "aot_eager");
    for (int round = 0; round < 2; round++) {
        weft_tensor *x[2], *buffer[2][2];
        for (int k = 0; k < 2; k++) {
            x[k] = vector(4, round);
            CHECK_OK(weft_require_grad(x[k], true));
            run_writes(k ? compiled : NULL, x[k], buffer[k]);
        }
        check_same_grad(x[0], x[1]);
        for (int i = 0; i < 2; i++) {
            CHECK(weft_equal(buffer[0][i], buffer[1][i]));
            CHECK_INT(weft_tensor_version(buffer[0][i]), weft_tensor_version(buffer[1][i]));
        }
    }
    CHECK_INT(info_of(compiled).frames, 1);
    weft_release(compiled);
}

FUNCTION(returns_input)
{
    out[0] = in[0];
    out[1] = weft_sin(in[0]);
    out[2] = out[1];
    return WEFT_OK;
}

TEST(test_joint_returns_inputs)
{
    weft_compiled *compiled = compile(returns_input, NULL, "aot_eager");
    weft_tensor *x = vector(4, 1), *out[3];
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, out, 3));
    CHECK(out[0] == x && weft_is_leaf(x) && out[1] == out[2]);
    CHECK_OK(weft_backward(sum_of(weft_add(out[0], weft_add(out[1], out[2])))));
    CHECK_NEAR(weft_item(weft_grad(x), 0), 1 + 2 * cos(1), 1e-6);
    weft_release(compiled);
}

/* A write that the counter does not see, to what only a gradient rule has saved. */
static weft_status refill(void *argument)
{
    WEFT_NO_GRAD
    {
        return weft_fill(argument, 5);
    }
    return WEFT_OK;
}

FUNCTION(refills_saved)
{
    weft_tensor *y = weft_mul_scalar(in[0], 2);
    out[0] = weft_mul(y, in[1]); /* saves y */
    return weft_tensor_preserve_version(&y, 1, refill, y);
}

TEST(test_joint_hidden_writes_that_only_backward_sees)
{
    for (int k = 0; k < 2; k++) {
        weft_compiled *compiled = compile(refills_saved, NULL, backends[k]);
        weft_tensor *x = vector(4, 1), *y = vector(4, 1), *z;
        CHECK_OK(weft_require_grad(x, true));
        CHECK_OK(weft_require_grad(y, true));
        CHECK_OK(weft_compiled_call(compiled, ARGS(x, y), 2, &z, 1));
        CHECK_OK(weft_backward(sum_of(z)));
        CHECK_NEAR(weft_item(weft_grad(y), 3), 5, 0); /* not 2 * 4 */
        CHECK_NEAR(weft_item(weft_grad(x), 3), 8, 0);
        weft_release(compiled);
    }
}

/* What was saved must not be written before backward comes; what was not may be. */
TEST(test_joint_checks_versions)
{
    weft_compiled *compiled = compile(smooth, NULL, "aot_eager");
    weft_tensor *x = vector(4, 1), *y = vector(4, 1), *z;
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x, y), 2, &z, 1));
    CHECK_OK(weft_fill(y, 0)); /* only exp(y) is needed */
    CHECK_OK(weft_backward(sum_of(z)));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x, y), 2, &z, 1));
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_fill(x, 0));
    }
    CHECK_STATUS(weft_backward(sum_of(z)), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "modified in place");
    weft_clear_error();
    CHECK_OK(weft_compiled_call(compiled, ARGS(x, y), 2, &z, 1));
    CHECK_OK(weft_backward(sum_of(z)));
    weft_tensor *loss = sum_of(z);
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "retain_graph");
    weft_clear_error();
    weft_release(compiled);
}

/* ---- the cut ---- */

FUNCTION(chain)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 4; i++)
        x = weft_sin(weft_mul_scalar(x, 2));
    out[0] = weft_matmul(x, weft_relu(in[1]));
    return WEFT_OK;
}

/* The chain is computed again from its input; the product is not. */
TEST(test_joint_saves_little)
{
    weft_compiled *compiled = compile(chain, NULL, "aot_eager");
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8)), *z[2], *grad[2];
    weft_tensor *w = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8));
    static char text[TEXT];
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_require_grad(w, true));
    CHECK_OK(chain(ARGS(x, w), 2, &z[0], 1, NULL));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x, w), 2, &z[1], 1));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(weft_backward(sum_of(z[k])));
        grad[k] = weft_clone(weft_grad(x));
        CHECK_OK(weft_set_grad(x, NULL));
    }
    CHECK(weft_equal(z[0], z[1]) && weft_equal(grad[0], grad[1]));
    CHECK(weft_compiled_details(compiled, text, sizeof text) > 0);
    CHECK_CONTAINS(text, "bytes; ");
    const char *back = strstr(text, "backward: run 1 times;");
    CHECK(back != NULL);
    CHECK_CONTAINS(back, "hand_out");
    CHECK_CONTAINS(back, "sin ");
    weft_release(compiled);
}

/* ---- hooks ---- */

static int entered;

static weft_status add_held(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    entered++;
    *grad = weft_add(weft_add(*grad, held[0]), held[1]);
    return WEFT_OK;
}

FUNCTION(hooked)
{
    weft_tensor *y = weft_sin(in[0]), *more = weft_add_scalar(y, 1);
    if (weft_tensor_hook(y, add_held, NULL, WEFT_HOLD(in[1], more)) < 0)
        return weft_last_status();
    out[0] = weft_sin(y);
    return WEFT_OK;
}

/* A hook is entered once for each capture, and what it does is done each time. */
TEST(test_joint_hooks)
{
    for (int k = 0; k < 2; k++) {
        weft_compiled *compiled = compile(hooked, NULL, backends[k]);
        entered = 0;
        for (int round = 0; round < 3; round++) {
            weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y;
            weft_tensor *value = weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, round ? 99 : 88);
            CHECK_OK(weft_require_grad(x, true));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x, value), 2, &y, 1));
            CHECK_OK(weft_backward(sum_of(y)));
            CHECK_NEAR(weft_item(weft_grad(x), 3), round ? 54.844919 : 48.901593, 1e-4);
        }
        CHECK_INT(entered, 1);
        CHECK_INT(info_of(compiled).frames, 1);
        weft_release(compiled);
    }
}

FUNCTION(hooks_input)
{
    if (weft_tensor_hook(in[0], add_held, NULL, WEFT_HOLD(in[0], in[0])) < 0)
        return weft_last_status();
    out[0] = weft_sin(in[0]);
    return WEFT_OK;
}

/* A hook of an input belongs to the input: such a function runs as it is. */
TEST(test_joint_refuses_hooks_of_inputs)
{
    weft_compiled *compiled = compile(hooks_input, NULL, "aot_eager");
    weft_tensor *x = vector(4, 1), *y;
    CHECK_OK(weft_require_grad(x, true));
    CHECK_STATUS(weft_compiled_call(compiled, ARGS(x), 1, &y, 1), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "a hook of a tensor that was not made here");
    CHECK(!weft_grad(x));
    weft_clear_error();
    weft_release(compiled);
}

/* ---- modules ---- */

FUNCTION(call_module)
{
    out[0] = weft_module_call(user, in[0]);
    return WEFT_OK;
}

/* Another hook, another structure: captured anew. */
static weft_status nothing(weft_hook_event *event)
{
    (void)event;
    entered++;
    return WEFT_OK;
}

TEST(test_joint_guards_modules)
{
    weft_module *net = weft_nn_sequential(weft_nn_linear(4, 4), weft_nn_op(weft_relu));
    weft_compiled *compiled = compile(call_module, net, "aot_eager");
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4)), *y;
    entered = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
        CHECK_OK(weft_backward(sum_of(y)));
    }
    CHECK_INT(info_of(compiled).frames, 1);
    CHECK(weft_module_hook_add(net, WEFT_HOOK_BACKWARD, 0, nothing, NULL, WEFT_HOLD()) > 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
        CHECK_OK(weft_backward(sum_of(y)));
    }
    CHECK_INT(info_of(compiled).frames, 2);
    CHECK_CONTAINS(info_of(compiled).miss, "a module has changed");
    CHECK_INT(entered, 1);
    weft_release(compiled);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
