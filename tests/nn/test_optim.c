/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/optim/optim.c, nn/optim/optim_adamw.c, nn/optim/optim_sgd.c, nn/optim/optim_finite.c, nn/optim/optim_params.c,
 * tensor/op/update.c, kernels/vector/update.c */
/* Optimizers, against their formulas written down plainly. */
#include "harness.h"
#include "said.h"

#include "kernels/vector/update.h"
#include "kernels/vector/vector.h"
#include "tensor/op/ops.h"

#include <weft/weft.h>

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 6, STEPS = 5 };

static weft_tensor *identity(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)user;
    return x;
}

/* A module of one parameter, "p", of dtype and shape [2, 3]: 0.5, 1.5, ... */
static weft_module *one_param(weft_dtype dtype, bool turned)
{
    weft_module *module = weft_module_new(identity, NULL);
    weft_tensor *values =
        weft_add_scalar(weft_view(weft_arange(dtype, WEFT_CPU, 0, N, 1), WEFT_SHAPE(2, 3)), 0.5);
    if (turned)
        values = weft_transpose(weft_contiguous(weft_transpose(values, 0, 1)), 0, 1);
    CHECK_OK(weft_module_add_param(module, "p", weft_parameter(values, true)));
    return module;
}

/* The gradient of step k, different for every element. */
static double gradient(int k, int i)
{
    return 0.25 * (i + 1) - 0.1 * k;
}

static void set_gradient(weft_tensor *p, int k)
{
    weft_tensor *g = weft_zeros(weft_tensor_dtype(p), WEFT_CPU, WEFT_SHAPE(2, 3));
    for (int i = 0; i < N; i++)
        CHECK_OK(weft_fill(weft_select(weft_view(g, WEFT_SHAPE(6)), 0, i), gradient(k, i)));
    CHECK_OK(weft_set_grad(p, g));
}

static void run(weft_optim *optim, weft_tensor *p)
{
    for (int k = 0; k < STEPS; k++) {
        set_gradient(p, k);
        int64_t version = weft_tensor_version(p);
        CHECK_OK(weft_optim_step(optim));
        CHECK(!weft_grad(p)); /* a step clears the gradients */
        CHECK(weft_tensor_version(p) > version && weft_requires_grad(p) && weft_is_leaf(p));
    }
}

static void check_sgd(weft_dtype dtype, bool turned, double momentum, double decay, double near)
{
    weft_scope_open();
    weft_module *module = one_param(dtype, turned);
    weft_tensor *p = weft_module_param(module, "p");
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    opts.momentum = momentum;
    opts.decay = decay;
    run(weft_optim_sgd(module, 0.1, &opts), p);
    for (int i = 0; i < N; i++) {
        double x = i + 0.5, v = 0;
        for (int k = 0; k < STEPS; k++) {
            v = momentum * v + gradient(k, i) + decay * x;
            x -= 0.1 * v;
        }
        CHECK_NEAR(weft_item(p, i), x, near);
    }
    weft_scope_close();
}

TEST(test_optim_sgd)
{
    check_sgd(WEFT_F32, false, 0, 0, 1e-5);
    check_sgd(WEFT_F64, false, 0.9, 0, 1e-13);
    check_sgd(WEFT_F32, true, 0.9, 0.01, 1e-5);
    check_sgd(WEFT_F64, true, 0, 0.01, 1e-13);
    check_sgd(WEFT_BF16, false, 0.9, 0, 0.1);
}

/* One step over more than a block of elements, that lie side by side or not, between others which
 * stay as they are. */
static void check_long(weft_dtype dtype, int64_t step)
{
    enum { LONG = 1300, AT = 40 };
    weft_scope_open();
    weft_tensor *memory = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(2 * LONG + 800), 2);
    weft_tensor *x = weft_slice(memory, 0, AT, AT + LONG * step, step), *out = NULL;
    weft_tensor *grads = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(LONG * step), 0.5),
                *grad = weft_slice(grads, 0, 0, LONG * step, step);
    CHECK_INT(weft_tensor_numel(x), LONG);
    CHECK_OK(weft_i_op_apply_list(&weft_i_op_sgd_, &out,
                                  (weft_i_arg[]){WEFT_I_TENSORS_ARG(&x, 1), WEFT_I_TENSOR_ARG(grad),
                                                 WEFT_I_NUMBER_ARG(1), WEFT_I_NUMBER_ARG(0),
                                                 WEFT_I_NUMBER_ARG(0), WEFT_I_INTEGER_ARG(1)}));
    for (int64_t i = 0; i < weft_tensor_numel(memory); i++) {
        bool steps = i >= AT && i < AT + LONG * step && (i - AT) % step == 0;
        if (weft_item(memory, i) != (steps ? 1.5 : 2))
            FAIL("%s, step %lld: element %lld is %g", weft_dtype_name(dtype), (long long)step,
                 (long long)i, weft_item(memory, i));
    }
    weft_scope_close();
}

TEST(test_optim_blocks)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16};
    for (int i = 0; i < 3; i++)
        for (int64_t step = 1; step <= 2; step++)
            check_long(dtypes[i], step);
}

/* Parameters and gradients are floats of one shape, whichever of them is not. */
TEST(test_optim_refuses)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                *whole = weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4)),
                *other = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2)),
                *wide = weft_ones(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4)), *out[2];
    struct {
        weft_tensor *param, *momentum, *grad;
        const char *message;
    } cases[] = {
        {whole, whole, x, "sgd_: a parameter of i32 [4], a gradient of f32 [4]; both are floats"},
        {x, x, whole, "sgd_: a parameter of f32 [4], a gradient of i32 [4]; both are floats"},
        {x, x, other, "sgd_: a parameter of f32 [4], a gradient of f32 [2, 2]; both are floats"},
        {x, wide, x, "sgd_: a parameter of f32 [4], a gradient of f32 [4]; both are floats"},
        {x, other, x, "sgd_: a parameter of f32 [4], a gradient of f32 [4]; both are floats"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor *list[] = {cases[i].param, cases[i].momentum};
        weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, 2), WEFT_I_TENSOR_ARG(cases[i].grad),
                             WEFT_I_NUMBER_ARG(1),        WEFT_I_NUMBER_ARG(0.9),
                             WEFT_I_NUMBER_ARG(0),        WEFT_I_INTEGER_ARG(1)};
        CHECK_INT(weft_i_op_apply_list(&weft_i_op_sgd_, out, args), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), cases[i].message);
        weft_clear_error();
    }
    CHECK(weft_item(x, 0) == 1 && weft_item(whole, 3) == 1 && weft_item(wide, 0) == 1);
}

static void check_adamw(weft_dtype dtype, bool turned, double decay, double near)
{
    weft_scope_open();
    weft_module *module = one_param(dtype, turned);
    weft_tensor *p = weft_module_param(module, "p");
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    opts.decay = decay;
    run(weft_optim_adamw(module, 0.1, &opts), p);
    for (int i = 0; i < N; i++) {
        double x = i + 0.5, m = 0, v = 0;
        for (int k = 0; k < STEPS; k++) {
            double g = gradient(k, i);
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            x -= 0.1 * decay * x;
            x -= 0.1 * (m / (1 - pow(0.9, k + 1))) / (sqrt(v / (1 - pow(0.999, k + 1))) + 1e-8);
        }
        CHECK_NEAR(weft_item(p, i), x, near);
    }
    weft_scope_close();
}

TEST(test_optim_adamw)
{
    check_adamw(WEFT_F32, false, 0.01, 1e-5);
    check_adamw(WEFT_F64, false, 0.01, 1e-12);
    check_adamw(WEFT_F64, true, 0, 1e-12);
    check_adamw(WEFT_BF16, true, 0.01, 0.1);
}

/* A step of 37 elements by the loops of one instruction set; `what`: 0 SGD, 1 with momentum, 2
 * AdamW. */
static void step_by(const char *variant, int what, weft_dtype dtype, double out[3][37])
{
    union {
        float f32[3][37];
        double f64[3][37];
    } x;
    float grad[37];
    double wide[37];
    for (int i = 0; i < 37; i++) {
        wide[i] = grad[i] = 0.37f * (float)i - 5;
        for (int k = 0; k < 3; k++)
            if (dtype == WEFT_F64)
                x.f64[k][i] = 1.0 / (i + k + 1);
            else
                x.f32[k][i] = 1.0f / (float)(i + k + 1);
    }
    weft_i_sgd sgd = {.rate = 0.1, .momentum = 0.9, .decay = 0.01};
    weft_i_adamw adamw = {0.999, 0.9, 0.999, 1e-8, 0.1, 0.03};
    bool f64 = dtype == WEFT_F64;
    void *at[3], *g = f64 ? (void *)wide : (void *)grad;
    for (int k = 0; k < 3; k++)
        at[k] = f64 ? (void *)x.f64[k] : (void *)x.f32[k];
    CHECK(weft_i_vector_use(variant));
    if (what == 2)
        weft_i_update_adamw(dtype, at[0], at[1], at[2], g, 37, &adamw);
    else
        weft_i_update_sgd(dtype, at[0], what ? at[1] : NULL, g, 37, &sgd);
    CHECK(weft_i_vector_use(NULL));
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 37; i++)
            out[k][i] = f64 ? x.f64[k][i] : x.f32[k][i];
}

TEST(test_optim_variants)
{
    double plain[3][37], other[3][37];
    int compared = 0;
    for (int what = 0; what < 6; what++) {
        weft_dtype dtype = what < 3 ? WEFT_F32 : WEFT_F64;
        step_by("baseline", what % 3, dtype, plain);
        CHECK(plain[0][1] != (dtype == WEFT_F64 ? 1.0 / 2 : 1.0f / 2)); /* it has stepped */
        for (int i = 0; weft_i_vector_variant(i); i++) {
            if (!weft_i_vector_use(weft_i_vector_variant(i)))
                continue;
            step_by(weft_i_vector_variant(i), what % 3, dtype, other);
            CHECK(!memcmp(plain, other, sizeof plain));
            compared++;
        }
    }
    CHECK(compared >= 6);
}

/* Parameters without a gradient stay as they are, bit by bit, decay or not. */
TEST(test_optim_leaves_out_what_has_no_gradient)
{
    weft_scope_open();
    weft_module *net = weft_nn_sequential(weft_nn_linear(3, 3), weft_nn_linear(3, 3));
    weft_optim *adam = weft_optim_adamw(net, 0.1, NULL);
    weft_tensor *idle = weft_module_param(net, "1.weight"), *before = weft_clone(weft_detach(idle));
    int64_t version = weft_tensor_version(idle);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 3));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(weft_backward(
            weft_sum(weft_module_call(weft_module_child(net, "0"), x), NULL, 0, false)));
        CHECK_OK(weft_optim_step(adam));
    }
    CHECK(weft_equal(idle, before) && weft_tensor_version(idle) == version);
    CHECK_OK(weft_optim_step(adam)); /* nothing to do */
    weft_scope_close();
}

TEST(test_optim_rate)
{
    weft_scope_open();
    weft_module *module = one_param(WEFT_F64, false);
    weft_tensor *p = weft_module_param(module, "p"), *before = weft_clone(weft_detach(p));
    weft_optim *sgd = weft_optim_sgd(module, 1, NULL);
    CHECK_OK(weft_optim_set_rate(sgd, 0));
    run(sgd, p);
    CHECK(weft_equal(p, before));
    CHECK_STATUS(weft_optim_set_rate(sgd, -1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_optim_set_rate(sgd, NAN), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_optim_sgd(module, -0.5, NULL) && !weft_optim_adamw(NULL, 1, NULL));
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    opts.beta1 = 1;
    CHECK(!weft_optim_adamw(module, 1, &opts));
    weft_sgd_opts few = {.size = 3};
    CHECK(!weft_optim_sgd(module, 1, &few));
    weft_clear_error();
    weft_scope_close();
}

/* A step that cannot be done leaves the gradient where it is, and says which parameter. */
TEST(test_optim_freed_parameter)
{
    weft_scope_open();
    weft_module *module = one_param(WEFT_F32, false);
    weft_tensor *p = weft_module_param(module, "p");
    weft_optim *sgd = weft_optim_sgd(module, 1, NULL);
    set_gradient(p, 0);
    CHECK_OK(weft_resize_storage(p, 0));
    CHECK_STATUS(weft_optim_step(sgd), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "sgd of parameter \"p\"");
    CHECK(weft_grad(p));
    weft_clear_error();
    weft_scope_close();
}

/* Steps while nothing is recorded: the parameters stay leaves, and the mode is as before. */
TEST(test_optim_learns)
{
    weft_scope_open();
    weft_seed(11);
    weft_module *net =
        weft_nn_sequential(weft_nn_linear(2, 16), weft_nn_op(weft_tanh), weft_nn_linear(16, 1));
    weft_optim *adam = weft_optim_adamw(net, 0.05, NULL);
    weft_tensor *x =
                    weft_tensor_from(WEFT_F32, WEFT_SHAPE(4, 2), (float[]){0, 0, 0, 1, 1, 0, 1, 1}),
                *y = weft_tensor_from(WEFT_F32, WEFT_SHAPE(4, 1), (float[]){0, 1, 1, 0});
    double first = 0, last = 0;
    for (int k = 0; k < 150; k++) {
        weft_scope_open();
        weft_tensor *difference = weft_sub(weft_module_call(net, x), y);
        weft_tensor *loss = weft_mean(weft_mul(difference, difference), NULL, 0, false);
        CHECK_OK(weft_backward(loss));
        CHECK_OK(weft_optim_step(adam));
        last = weft_item(loss, 0);
        first = k ? first : last;
        weft_scope_close();
    }
    CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
    CHECK(first > 0.2 && last < 0.01);
    weft_scope_close();
}

/* ---- whom it trains ---- */

static weft_tensor *leaf_of(double value)
{
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), value);
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

/* A list of tensors takes the same steps as a module of them. */
TEST(test_optim_list)
{
    weft_scope_open();
    weft_tensor *a = leaf_of(1), *b = leaf_of(2), *c = leaf_of(3);
    weft_named list[] = {{"a", a}, {"", b}};
    weft_optim *sgd = weft_optim_sgd_of(list, 2, 0.5, NULL);
    weft_optim *adam = weft_optim_adamw_of(&(weft_named){"c", c}, 1, 0.1, NULL);
    weft_module *bag = weft_module_new(NULL, NULL);
    weft_tensor *twin = weft_parameter(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 3), true);
    CHECK_OK(weft_module_add_param(bag, "c", twin));
    weft_optim *same = weft_optim_adamw(bag, 0.1, NULL);
    for (int k = 0; k < 3; k++) {
        CHECK_OK(
            weft_backward(weft_sum(weft_mul(weft_mul(a, b), weft_add(c, twin)), NULL, 0, false)));
        CHECK(weft_optim_step(sgd) >= 0 && weft_optim_step(adam) >= 0 &&
              weft_optim_step(same) >= 0);
        CHECK(!weft_grad(a) && !weft_grad(b) && !weft_grad(c));
        CHECK(weft_equal(c, twin) && weft_item(c, 0) != 3 && weft_item(a, 0) != 1);
    }
    CHECK_OK(weft_backward(weft_sum(b, NULL, 0, false)));
    CHECK_OK(weft_resize_storage(b, 0));
    CHECK_STATUS(weft_optim_step(sgd), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "sgd of parameter 1");
    weft_clear_error();
    weft_scope_close();
}

static void check_no_list(weft_named *list, int count, weft_status status, const char *text)
{
    weft_clear_error();
    CHECK(!weft_optim_sgd_of(list, count, 0.1, NULL));
    CHECK_INT(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), text);
    CHECK(!weft_optim_adamw_of(list, count, 0.1, NULL));
}

TEST(test_optim_list_refused)
{
    weft_scope_open();
    weft_tensor *x = leaf_of(1), *plain = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_named list[] = {{"x", x}, {"y", weft_neg(x)}};
    check_no_list(list, 2, WEFT_ERR_INVALID_ARG,
                  "weft_optim_sgd_of: parameter \"y\" is the result of an operation");
    list[1].tensor = plain;
    check_no_list(list, 2, WEFT_ERR_INVALID_ARG, "parameter \"y\" does not require gradients");
    list[1].tensor = x;
    check_no_list(list, 2, WEFT_ERR_INVALID_ARG, "\"x\" and \"y\" are the same tensor");
    list[1] = (weft_named){"", NULL};
    check_no_list(list, 2, WEFT_ERR_INVALID_ARG, "parameter 1 is NULL");
    check_no_list(list, 0, WEFT_ERR_INVALID_ARG, "a list of 0 parameters");
    check_no_list(NULL, 2, WEFT_ERR_INVALID_ARG, "a list of 0 parameters");
    weft_clear_error();
    CHECK(!weft_optim_adamw(weft_nn_op(weft_relu), 1e-3, NULL));
    CHECK_CONTAINS(weft_last_error(),
                   "weft_optim_adamw: the op has no parameters, nor has anything");
    weft_clear_error();
    weft_scope_close();
}

/* ---- what a step looks at ---- */

/* The gradient that is not finite is named, and nothing has moved: parameter, state, gradient. */
static void check_finite(weft_dtype dtype, double bad, bool adam)
{
    weft_scope_open();
    weft_tensor *first = leaf_of(1), *p = weft_ones(dtype, WEFT_CPU, WEFT_SHAPE(4, 3));
    CHECK_OK(weft_require_grad(p, true));
    weft_named list[] = {{"first", first}, {"second", p}};
    weft_sgd_opts sgd = WEFT_SGD_OPTS_INIT;
    weft_adamw_opts adamw = WEFT_ADAMW_OPTS_INIT;
    sgd.finite = adamw.finite = true;
    weft_optim *optim =
        adam ? weft_optim_adamw_of(list, 2, 0.1, &adamw) : weft_optim_sgd_of(list, 2, 0.1, &sgd);
    weft_tensor *g = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(4, 3), 2);
    CHECK_OK(weft_set_grad(first, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))));
    CHECK_OK(weft_set_grad(p, g));
    CHECK_OK(weft_fill(weft_select(weft_select(g, 0, 2), 0, 1), bad));
    int64_t version = weft_tensor_version(first);
    CHECK_STATUS(weft_optim_step(optim), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "the gradient of parameter \"second\" is not finite");
    CHECK_CONTAINS(weft_last_error(), isnan(bad) ? "nan among its 12" : "inf among its 12");
    CHECK(weft_grad(first) && weft_grad(p) && weft_item(first, 0) == 1);
    CHECK(weft_tensor_version(first) == version);
    CHECK_OK(weft_fill(g, 2));
    CHECK_OK(weft_optim_step(optim));
    CHECK(weft_item(first, 0) < 1 && weft_item(p, 0) < 1 && !weft_grad(p));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_optim_finite)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    for (int i = 0; i < 12; i++) {
        check_finite(types[i % 4], i < 4 ? NAN : i < 8 ? INFINITY : -INFINITY, i % 2);
    }
    weft_scope_open(); /* without the option, as ever */
    weft_tensor *x = leaf_of(1);
    weft_optim *plain = weft_optim_sgd_of(&(weft_named){"x", x}, 1, 0.1, NULL);
    CHECK_OK(weft_set_grad(x, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), NAN)));
    CHECK_OK(weft_optim_step(plain));
    CHECK(isnan(weft_item(x, 0)));
    weft_scope_close();
}

/* In a child, whose standard error is a pipe. */
static void step_for_nothing(void)
{
    weft_module *net = weft_nn_linear(2, 2);
    weft_optim *sgd = weft_optim_sgd(net, 1, NULL), *other = weft_optim_adamw(net, 1, NULL);
    for (int k = 0; k < 3; k++)
        if (weft_optim_step(sgd) < 0)
            _exit(1);
    _exit(weft_optim_step(other) < 0);
}

/* A step that finds no gradient at all is no error, but said once for each optimizer. */
TEST(test_optim_step_without_gradients)
{
    char text[4096];
    CHECK_INT(hear(step_for_nothing, text, sizeof text), 0);
    CHECK_CONTAINS(text, "none of the 2 parameters of this sgd has a gradient");
    CHECK(!strstr(strstr(text, "this sgd") + 1, "this sgd"));
    CHECK_CONTAINS(text, "this adamw");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
