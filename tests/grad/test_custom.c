/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/custom.c */
/* Operations of the user: values, shapes, gradients, and what is refused. */
#include "harness.h"
#include "leaf.h"

#include "weft/custom.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

static void check_all(weft_tensor *x, double value, double tolerance)
{
    CHECK(x != NULL);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(weft_item(x, i), value, tolerance);
}

/* ---- x^3 times a factor ---- */

static weft_status cube_run(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    for (int64_t i = 0; i < weft_tensor_numel(out); i++) {
        double x = weft_item(in[0].tensor, i);
        ((double *)weft_tensor_data(out))[i] = x * x * x * in[1].number;
    }
    return WEFT_OK;
}

static weft_status cube_gradient(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                                 const weft_value *in, void *user)
{
    weft_tensor *x = in[0].tensor;
    (void)user;
    CHECK(out == NULL); /* not asked for */
    grads[0] = weft_mul(g, weft_mul_scalar(weft_mul(x, x), 3 * in[1].number));
    return WEFT_OK;
}

static weft_custom *cube(void)
{
    weft_custom_opts opts = {.size = sizeof opts,
                             .name = "cube",
                             .params = "x:t factor:n",
                             .run = cube_run,
                             .gradient = cube_gradient};
    weft_custom *found = weft_custom_find("cube");
    return found ? found : weft_custom_new(&opts);
}

static weft_status doubled(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = weft_mul_scalar(*grad, 2);
    return WEFT_OK;
}

TEST(test_custom_op)
{
    weft_tensor *x = leaf(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 3), 2));
    weft_tensor *y = weft_custom_call(cube(), WEFT_VALUES(WEFT_T(x), WEFT_N(5)));
    check_all(y, 40, 0);
    CHECK(weft_requires_grad(y));
    CHECK(weft_tensor_hook(y, doubled, NULL, WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(y)));
    check_all(weft_grad(x), 2 * 3 * 4 * 5, 0);
    /* second derivative: 6 x factor */
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    weft_tensor *loss = total(weft_custom_call(cube(), WEFT_VALUES(WEFT_T(x), WEFT_N(1)))), *g;
    CHECK_OK(weft_gradients(&g, &x, 1, &loss, 1, &opts));
    loss = total(g);
    CHECK_OK(weft_gradients(&g, &x, 1, &loss, 1, NULL));
    check_all(g, 12, 0);
}

/* Any layout comes in, meta gives a shape, a freed storage is refused: as of every operation. */
TEST(test_custom_op_takes_the_path)
{
    weft_tensor *x = weft_transpose(weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 3), 2), 0, 1);
    check_all(weft_custom_call(cube(), WEFT_VALUES(WEFT_T(x), WEFT_N(1))), 8, 0);
    weft_tensor *meta = weft_zeros(WEFT_F64, WEFT_META, WEFT_SHAPE(5));
    weft_tensor *shape = weft_custom_call(cube(), WEFT_VALUES(WEFT_T(meta), WEFT_N(1)));
    CHECK(weft_tensor_device(shape) == WEFT_META && weft_tensor_size(shape, 0) == 5);
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 0));
    CHECK(weft_custom_call(cube(), WEFT_VALUES(WEFT_T(x), WEFT_N(1))) == NULL);
    CHECK_CONTAINS(weft_last_error(), "cube");
    CHECK(weft_custom_call(cube(), WEFT_VALUES(WEFT_T(NULL), WEFT_N(1))) == NULL);
}

/* ---- a shape of its own, an optional tensor, the result saved ---- */

static weft_status tail_shape(weft_custom_result *out, const weft_value *in, void *user)
{
    if (in[2].integer >= out->shape.dim[0])
        return WEFT_ERR_INVALID_ARG;
    out->shape.dim[0] -= in[2].integer;
    *(int *)user += 1;
    return WEFT_OK;
}

static weft_status tail_run(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    for (int64_t i = 0; i < weft_tensor_numel(out); i++)
        ((float *)weft_tensor_data(out))[i] =
            (float)(exp(weft_item(in[0].tensor, i + in[2].integer)) +
                    (in[1].tensor ? weft_item(in[1].tensor, 0) : 0));
    return WEFT_OK;
}

static weft_status tail_gradient(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                                 const weft_value *in, void *user)
{
    (void)user;
    CHECK(out != NULL && in[0].tensor == NULL);
    grads[0] = weft_view_scatter(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5)), weft_mul(g, out),
                                 WEFT_SHAPE(5 - in[2].integer), (int64_t[]){1}, in[2].integer);
    grads[1] = g; /* summed for us */
    return WEFT_OK;
}

TEST(test_custom_op_with_a_shape)
{
    static int asked;
    weft_custom_opts opts = {.size = sizeof opts,
                             .name = "tail",
                             .params = "x:t bias:o skip:i",
                             .shape = tail_shape,
                             .run = tail_run,
                             .gradient = tail_gradient,
                             .save = WEFT_CUSTOM_RESULT,
                             .user = &asked};
    weft_custom *tail = weft_custom_new(&opts);
    CHECK(tail != NULL && weft_custom_find("tail") == tail);
    weft_tensor *x = leaf(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5)));
    weft_tensor *y = weft_custom_call(tail, WEFT_VALUES(WEFT_T(x), WEFT_T(NULL), WEFT_I(2)));
    CHECK_INT(weft_tensor_size(y, 0), 3);
    CHECK_INT(asked, 1);
    weft_tensor *bias = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 4));
    y = weft_custom_call(tail, WEFT_VALUES(WEFT_T(x), WEFT_T(bias), WEFT_I(2)));
    check_all(y, 5, 0);
    CHECK_OK(weft_backward(total(y)));
    for (int i = 0; i < 5; i++)
        CHECK_NEAR(weft_item(weft_grad(x), i), i < 2 ? 0 : 5, 0);
    check_all(weft_grad(bias), 3, 0);
    CHECK(weft_custom_call(tail, WEFT_VALUES(WEFT_T(x), WEFT_T(NULL), WEFT_I(9))) == NULL);
    CHECK_CONTAINS(weft_last_error(), "tail: its shape function returned WEFT_ERR_INVALID_ARG");
}

/* ---- what is refused ---- */

TEST(test_custom_op_without_gradient)
{
    weft_custom_opts opts = {
        .size = sizeof opts, .name = "cube_only", .params = "x:t factor:n", .run = cube_run};
    weft_custom *only = weft_custom_new(&opts);
    weft_tensor *x = weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2));
    check_all(weft_custom_call(only, WEFT_VALUES(WEFT_T(x), WEFT_N(2))), 2, 0);
    CHECK(weft_custom_call(only, WEFT_VALUES(WEFT_T(leaf(x)), WEFT_N(2))) == NULL);
    CHECK_CONTAINS(weft_last_error(), "declared without a gradient");
}

TEST(test_custom_ops_are_checked)
{
    const char *wrong[] = {"", "x", "x:", "x:n", "x:t y", "x:t  y:t", "x:t y:q", "x:tt", "-:t"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_custom_opts opts = {
            .size = sizeof opts, .name = "wrong", .params = wrong[i], .run = cube_run};
        CHECK(weft_custom_new(&opts) == NULL);
        CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    }
    weft_custom_opts opts = {.size = sizeof opts, .name = "sin", .params = "x:t", .run = cube_run};
    CHECK(weft_custom_new(&opts) == NULL);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_EXISTS);
    opts.name = "a b";
    CHECK(weft_custom_new(&opts) == NULL);
    CHECK(weft_custom_new(NULL) == NULL);
    CHECK(weft_custom_find("sin") == NULL && weft_custom_find(NULL) == NULL);
    weft_clear_error();
    CHECK(weft_custom_call(NULL, NULL) == NULL);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
