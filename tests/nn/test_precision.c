/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/autocast.c, tensor/layer/linear_loss.c, kernels/product/matmul_add.c, nn/linear_cross_entropy.c,
 * nn/optim/loss_scale.c, grad/rule_loss.c */
/* Mixed precision: autocast, master weights, loss scaling; and the loss without logits. */
#include "fault.h"
#include "harness.h"
#include "leaf.h"

#include <weft/weft.h>

#include <pthread.h>

/* ---- linear_cross_entropy ---- */

typedef struct scene {
    int64_t rows, width, classes;
    double smoothing, z;
} scene;

typedef struct operands {
    weft_tensor *x, *weight, *labels;
    weft_linear_cross_entropy_opts opts;
} operands;

static operands make_operands(const scene *s, weft_dtype dtype)
{
    weft_seed(6);
    operands o = {.opts = WEFT_LINEAR_CROSS_ENTROPY_OPTS};
    o.x = leaf(weft_to_dtype(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(s->rows, s->width)), dtype));
    o.weight = leaf(
        weft_to_dtype(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(s->classes, s->width)), dtype));
    o.labels = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(s->rows), 0, s->classes);
    o.opts.smoothing = s->smoothing;
    o.opts.z_loss = s->z;
    return o;
}

/* The definition, from logits; rows without a label are left out. */
static weft_tensor *defined(const operands *o)
{
    weft_tensor *logits = weft_linear(o->x, o->weight, NULL), *all = weft_log_softmax(logits, -1);
    double classes = (double)weft_tensor_size(o->weight, 0);
    weft_tensor *counts = weft_ne_scalar(o->labels, (double)o->opts.ignore);
    weft_tensor *safe = weft_masked_fill(o->labels, weft_logical_not(counts), 0);
    weft_tensor *hit = weft_squeeze(weft_take_along(all, -1, weft_unsqueeze(safe, -1)), -1);
    weft_tensor *loss = weft_mul_scalar(hit, o->opts.smoothing - 1);
    loss = weft_sub(
        loss, weft_mul_scalar(weft_sum(all, (int[]){1}, 1, false), o->opts.smoothing / classes));
    weft_tensor *lse = weft_select(weft_sub(logits, all), 1, 0);
    loss = weft_add(loss, weft_mul_scalar(weft_mul(lse, lse), o->opts.z_loss));
    loss = weft_masked_fill(loss, weft_logical_not(counts), 0);
    return weft_div(weft_sum(loss, NULL, 0, false), weft_sum(counts, NULL, 0, false));
}

static void check_scene(const scene *s, weft_dtype dtype, double slack, bool ignoring)
{
    weft_scope_open();
    operands o = make_operands(s, dtype), wide = o;
    if (ignoring)
        CHECK_OK(weft_fill(weft_slice(o.labels, 0, 0, s->rows, 3), -100));
    wide.x = leaf(weft_to_dtype(weft_detach(o.x), WEFT_F64));
    wide.weight = leaf(weft_to_dtype(weft_detach(o.weight), WEFT_F64));
    weft_tensor *loss = weft_linear_cross_entropy(o.x, o.weight, o.labels, &o.opts);
    weft_tensor *right = defined(&wide), *grads[2], *rights[2];
    if (!loss)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_tensor_dtype(loss), dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32);
    CHECK_NEAR(weft_item(loss, 0), weft_item(right, 0), slack * (1 + fabs(weft_item(right, 0))));
    loss = weft_mul_scalar(loss, 3);
    right = weft_mul_scalar(right, 3);
    CHECK_OK(weft_gradients(grads, (weft_tensor *[]){o.x, o.weight}, 2, &loss, 1, NULL));
    CHECK_OK(weft_gradients(rights, (weft_tensor *[]){wide.x, wide.weight}, 2, &right, 1, NULL));
    for (int i = 0; i < 2; i++)
        CHECK(
            weft_allclose(weft_to_dtype(grads[i], WEFT_F64), rights[i], 10 * slack, slack, false));
    weft_scope_close();
}

TEST(test_linear_cross_entropy)
{
    static const scene scenes[] = {
        {1, 3, 2, 0, 0},       {7, 5, 11, 0, 0},     {9, 4, 6, 0.1, 0},
        {9, 4, 6, 0.3, 0.02},  {600, 8, 40, 0.1, 0}, /* chunks of 16 rows, the last of 8 */
        {40, 3, 150000, 0, 0},                       /* chunks of 14, 14 and 12 */
        {50, 90, 30, 0, 0.1},                        /* two halves, as 45 would not do for all */
        {5, 33, 300, 1, 0.5}};
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        check_scene(&scenes[i], WEFT_F64, 1e-11, false);
        check_scene(&scenes[i], WEFT_F32, 2e-5, scenes[i].rows > 2);
        check_scene(&scenes[i], WEFT_BF16, 2e-2, scenes[i].rows > 2);
    }
}

static bool has_subnormals(weft_tensor *x)
{
    weft_tensor *size = weft_abs(weft_detach(x));
    weft_tensor *few =
        weft_logical_and(weft_gt_scalar(size, 0), weft_lt_scalar(size, 1.17549435e-38));
    return weft_item(weft_any(few, NULL, 0, false), 0) != 0;
}

/* Classes that are out of the question have a gradient of 0, not one that is too small for a normal number: products
 * of those take a processor forty times as long. */
TEST(test_linear_cross_entropy_of_logits_far_apart)
{
    scene s = {1, 32, 2000, 0, 0};
    operands o = make_operands(&s, WEFT_F32);
    weft_tensor *wide = leaf(weft_mul_scalar(weft_detach(o.weight), 4)), *grad;
    weft_tensor *logits = weft_linear(weft_detach(o.x), weft_detach(wide), NULL);
    CHECK(has_subnormals(weft_softmax(logits, -1)));
    weft_tensor *loss = weft_linear_cross_entropy(o.x, wide, o.labels, NULL);
    CHECK_OK(weft_gradients(&grad, &wide, 1, &loss, 1, NULL));
    CHECK(!has_subnormals(grad));
}

static weft_tensor *loss_of(weft_tensor *const *x, void *user)
{
    const operands *o = user;
    return weft_linear_cross_entropy(x[0], x[1], o->labels, &o->opts);
}

TEST(test_linear_cross_entropy_gradients)
{
    scene s = {4, 3, 5, 0.1, 0.05};
    operands o = make_operands(&s, WEFT_F64);
    CHECK_OK(weft_fill(weft_slice(o.labels, 0, 1, 2, 1), -100));
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = true;
    CHECK_OK(weft_gradcheck(loss_of, &o, (weft_tensor *[]){o.x, o.weight}, 2, &opts));
}

TEST(test_linear_cross_entropy_edges)
{
    scene s = {6, 3, 5, 0, 0};
    operands o = make_operands(&s, WEFT_F32);
    weft_tensor *apart = weft_view(o.labels, WEFT_SHAPE(2, 3));
    weft_tensor *x = weft_view(weft_detach(o.x), WEFT_SHAPE(2, 3, 3));
    weft_tensor *all = weft_linear_cross_entropy(o.x, o.weight, o.labels, NULL);
    CHECK(weft_equal(weft_detach(all),
                     weft_detach(weft_linear_cross_entropy(x, o.weight, apart, NULL))));
    CHECK_OK(weft_fill(weft_slice(o.labels, 0, 4, 5, 1), 5));
    CHECK(!weft_linear_cross_entropy(x, o.weight, apart, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(),
                   "linear_cross_entropy: the label of row [1, 1] is 5; there are 5");
    CHECK_OK(weft_fill(o.labels, -100));
    weft_tensor *none = weft_linear_cross_entropy(o.x, o.weight, o.labels, NULL), *grad;
    CHECK(weft_item(none, 0) == 0);
    CHECK_OK(weft_gradients(&grad, &o.x, 1, &none, 1, NULL));
    CHECK(weft_item(weft_max(weft_abs(grad), NULL, 0, false), 0) == 0);
    CHECK(!weft_linear_cross_entropy(o.x, weft_to_dtype(o.weight, WEFT_BF16), o.labels, NULL));
    CHECK(!weft_linear_cross_entropy(o.x, x, o.labels, NULL));
    CHECK(!weft_linear_cross_entropy(o.x, o.weight, weft_to_dtype(o.labels, WEFT_F32), NULL));
    o.opts.smoothing = 2;
    CHECK(!weft_linear_cross_entropy(o.x, o.weight, o.labels, &o.opts));
    CHECK(!weft_linear_cross_entropy(NULL, o.weight, o.labels, NULL));
    weft_clear_error();
}

static weft_status loss_step(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_linear_cross_entropy(in[0], in[1], in[2], NULL);
    return WEFT_OK;
}

TEST(test_linear_cross_entropy_compiled)
{
    scene s = {8, 4, 9, 0, 0};
    operands o = make_operands(&s, WEFT_F32);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    weft_tensor *in[] = {o.x, o.weight, o.labels}, *out, *plain, *a[2], *b[2];
    opts.backend = "c";
    opts.fullgraph = true;
    weft_compiled *fast = weft_compile(loss_step, NULL, &opts);
    CHECK_OK(loss_step(in, 3, &plain, 1, NULL));
    CHECK_OK(weft_gradients(a, in, 2, &plain, 1, NULL));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_compiled_call(fast, in, 3, &out, 1));
        CHECK(weft_equal(weft_detach(out), weft_detach(plain)));
        CHECK_OK(weft_gradients(b, in, 2, &out, 1, NULL));
        CHECK(weft_equal(a[0], b[0]) && weft_equal(a[1], b[1]));
    }
}

/* ---- autocast ---- */

TEST(test_autocast_lists)
{
    weft_seed(1);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4)),
                *y = weft_to_dtype(x, WEFT_BF16);
    weft_tensor *wide = weft_to_dtype(x, WEFT_F64), *out = NULL;
    CHECK_INT(weft_autocast_now(), WEFT_F32);
    WEFT_AUTOCAST(WEFT_BF16)
    {
        CHECK_INT(weft_autocast_now(), WEFT_BF16);
        CHECK_INT(weft_tensor_dtype(weft_matmul(x, weft_transpose(y, 0, 1))), WEFT_BF16);
        CHECK_INT(weft_tensor_dtype(weft_linear(x, x, NULL)), WEFT_BF16);
        CHECK_INT(weft_tensor_dtype(weft_softmax(y, -1)), WEFT_F32);
        CHECK_INT(weft_tensor_dtype(weft_sum(y, NULL, 0, false)), WEFT_F32);
        CHECK_INT(weft_tensor_dtype(weft_add(y, y)), WEFT_BF16);
        CHECK_INT(weft_tensor_dtype(weft_mul(x, x)), WEFT_F32);
        CHECK_INT(weft_tensor_dtype(weft_cat((weft_tensor *[]){x, y}, 2, 0)), WEFT_F32);
        CHECK_INT(weft_tensor_dtype(weft_matmul(wide, weft_transpose(wide, 0, 1))), WEFT_F64);
        WEFT_AUTOCAST(WEFT_F32)
        {
            CHECK_INT(weft_tensor_dtype(weft_linear(x, x, NULL)), WEFT_F32);
        }
        out = weft_linear(x, x, NULL);
        CHECK(!weft_linear(x, NULL, NULL)); /* errors come through */
        weft_clear_error();
    }
    CHECK(weft_equal(out, weft_linear(y, y, NULL)));
    CHECK_INT(weft_autocast_now(), WEFT_F32);
    WEFT_AUTOCAST(WEFT_I32)
    {
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    }
    weft_clear_error();
}

/* The dtype of a product outside of all blocks of the thread, and inside of one. */
static void *multiply(void *argument)
{
    weft_dtype *seen = argument;
    weft_scope_open();
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 3));
    seen[0] = weft_tensor_dtype(weft_mm(x, x));
    WEFT_AUTOCAST(WEFT_F16)
    {
        seen[1] = weft_tensor_dtype(weft_mm(x, x));
    }
    seen[2] = weft_tensor_dtype(weft_mm(x, x));
    weft_scope_close();
    return NULL;
}

TEST(test_autocast_is_of_the_thread)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 3));
    weft_dtype seen[3] = {WEFT_I32, WEFT_I32, WEFT_I32};
    pthread_t thread;
    WEFT_AUTOCAST(WEFT_BF16)
    {
        CHECK_INT(pthread_create(&thread, NULL, multiply, seen), 0);
        pthread_join(thread, NULL);
        CHECK_INT(weft_tensor_dtype(weft_mm(x, x)), WEFT_BF16);
    }
    CHECK_INT(seen[0], WEFT_F32);
    CHECK_INT(seen[1], WEFT_F16);
    CHECK_INT(seen[2], WEFT_F32);
    CHECK_INT(weft_tensor_dtype(weft_mm(x, x)), WEFT_F32);
}

static weft_tensor *net_loss(weft_module *net, weft_tensor *x)
{
    weft_tensor *y = weft_module_call(net, weft_module_call(net, x));
    return weft_sum(weft_mul(y, y), NULL, 0, false);
}

/* Gradients of f32 parameters are f32, and two uses of one add up; a step makes a new conversion. */
TEST(test_autocast_trains)
{
    weft_scope_open();
    weft_seed(3);
    weft_module *net = weft_nn_linear(8, 8);
    weft_optim *sgd = weft_optim_sgd(net, 0.01, NULL);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 8)), *weight;
    double first = 0, last = 0;
    for (int i = 0; i < 5; i++) {
        weft_tensor *loss = NULL;
        WEFT_AUTOCAST(WEFT_BF16)
        {
            loss = net_loss(net, x);
        }
        CHECK(loss && weft_tensor_dtype(loss) == WEFT_F32);
        last = weft_item(loss, 0);
        first = i ? first : last;
        CHECK_OK(weft_backward(loss));
        weight = weft_module_param(net, "weight");
        CHECK_INT(weft_tensor_dtype(weft_grad(weight)), WEFT_F32);
        CHECK_OK(weft_optim_step(sgd));
    }
    CHECK(last < first);
    weft_scope_close();
}

static weft_status count_casts(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                               void *user)
{
    (void)ins, (void)outs;
    out[0] = net_loss(user, in[0]);
    return WEFT_OK;
}

/* A parameter is converted once in a block, again when it was written, and again to be recorded. */
TEST(test_autocast_converts_parameters_once)
{
    weft_scope_open();
    weft_module *net = weft_nn_linear_plain(4, 4);
    weft_tensor *weight = weft_module_param(net, "weight"),
                *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 4));
    WEFT_AUTOCAST(WEFT_BF16)
    {
        weft_tensor *before = NULL, *after = NULL, *loss = NULL, *grad = NULL;
        WEFT_NO_GRAD
        {
            before = weft_module_call(net, x);
            CHECK_OK(weft_fill(weight, 0.5));
            after = weft_module_call(net, x);
        }
        CHECK(weft_item(after, 0) == 2 && !weft_requires_grad(after));
        CHECK(before && weft_tensor_dtype(before) == WEFT_BF16);
        loss = weft_sum(weft_module_call(net, x), NULL, 0, false);
        CHECK(weft_requires_grad(loss));
        for (int i = 0; i < 2; i++) { /* two micro-batches with one conversion */
            loss = weft_sum(weft_module_call(net, x), NULL, 0, false);
            CHECK_OK(weft_gradients(&grad, &weight, 1, &loss, 1, NULL));
            CHECK(weft_item(grad, 3) == 1);
        }
    }
    weft_scope_close();
}

/* A compiled function is captured in each mode, and gives what eager gives. */
TEST(test_autocast_compiled)
{
    static const char *const backends[] = {"eager", "c"};
    weft_scope_open();
    weft_seed(3);
    weft_module *net = weft_nn_linear(8, 8);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 8)), *plain, *low, *out;
    weft_tensor *weight = weft_module_param(net, "weight"), *want, *grad;
    CHECK_OK(count_casts(&x, 1, &plain, 1, net));
    WEFT_AUTOCAST(WEFT_BF16)
    {
        CHECK_OK(count_casts(&x, 1, &low, 1, net));
    }
    CHECK_OK(weft_gradients(&want, &weight, 1, &low, 1, NULL));
    for (size_t k = 0; k < 2; k++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        weft_compiled_info info;
        opts.backend = backends[k];
        opts.fullgraph = true;
        weft_compiled *fast = weft_compile(count_casts, net, &opts);
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weft_compiled_call(fast, &x, 1, &out, 1));
            CHECK(weft_allclose(weft_detach(out), weft_detach(plain), 1e-6, 0, false));
            WEFT_AUTOCAST(WEFT_BF16)
            {
                CHECK_OK(weft_compiled_call(fast, &x, 1, &out, 1));
            }
            CHECK(weft_allclose(weft_detach(out), weft_detach(low), 1e-6, 0, false));
            CHECK_OK(weft_gradients(&grad, &weight, 1, &out, 1, NULL));
            CHECK(weft_allclose(grad, want, 1e-2, 1e-2, false));
        }
        CHECK_OK(weft_compiled_describe(fast, &info));
        CHECK_INT(info.frames, 2);
        CHECK_CONTAINS(info.miss, "autocast converts otherwise than then");
    }
    weft_scope_close();
}

/* ---- master weights, loss scaling ---- */

/* Steps of a thousandth of bf16's last place: lost without a master. */
TEST(test_precision_master_weights)
{
    weft_scope_open();
    for (int master = 0; master < 2; master++) {
        weft_tensor *w = leaf(weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(3), 256));
        weft_named list[] = {{"w", w}}, state[8];
        weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
        opts.master = master;
        opts.decay = 0;
        weft_optim *adam = weft_optim_adamw_of(list, 1, 0.01, &opts);
        for (int i = 0; i < 300; i++) {
            CHECK_OK(weft_set_grad(w, weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(3))));
            CHECK_OK(weft_optim_step(adam));
        }
        CHECK_NEAR(weft_item(w, 0), master ? 253 : 256, 0.6);
        CHECK_INT(weft_optim_state(adam, state, 8), master ? 4 : 3);
        if (!master)
            continue;
        CHECK(!strcmp(state[3].name, "w.master"));
        CHECK_INT(weft_tensor_dtype(state[1].tensor), WEFT_F32);
        CHECK_NEAR(weft_item(state[3].tensor, 0), 253, 0.05);
        weft_tensor *v = leaf(weft_clone(weft_detach(w)));
        weft_named other[] = {{"w", v}};
        weft_optim *again = weft_optim_adamw_of(other, 1, 0.01, &opts);
        CHECK_OK(weft_optim_load(again, state, 4));
        for (int i = 0; i < 40; i++) {
            CHECK_OK(weft_set_grad(w, weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(3))));
            CHECK_OK(weft_set_grad(v, weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(3))));
            CHECK_OK(weft_optim_step(adam));
            CHECK_OK(weft_optim_step(again));
        }
        CHECK(weft_equal(weft_detach(v), weft_detach(w)));
    }
    weft_scope_close();
}

/* f32 parameters in the same optimizer have no master. */
TEST(test_precision_master_of_f32_is_none)
{
    weft_scope_open();
    weft_tensor *w = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    weft_named list[] = {{"w", w}};
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    opts.master = true;
    weft_optim *adam = weft_optim_adamw_of(list, 1, 0.01, &opts);
    CHECK_OK(weft_set_grad(w, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))));
    CHECK_OK(weft_optim_step(adam));
    CHECK_INT(weft_optim_state(adam, NULL, 0), 3);
    CHECK(weft_item(w, 0) < 1);
    weft_scope_close();
}

TEST(test_precision_loss_scale)
{
    weft_scope_open();
    weft_tensor *w = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)));
    weft_named list[] = {{"w", w}};
    weft_optim *sgd = weft_optim_sgd_of(list, 1, 0.5, NULL);
    weft_loss_scale scale = WEFT_LOSS_SCALE;
    scale.interval = 2;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_backward(weft_mul_scalar(weft_sum(w, NULL, 0, false), scale.scale)));
        CHECK_OK(weft_loss_scale_step(&scale, sgd));
    }
    CHECK_NEAR(weft_item(w, 0), 0, 1e-6);
    CHECK(scale.scale == 131072 && scale.good == 0);
    CHECK_OK(weft_set_grad(w, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), INFINITY)));
    CHECK_OK(weft_loss_scale_step(&scale, sgd));
    CHECK(scale.scale == 65536 && scale.skipped == 1 && !weft_grad(w));
    CHECK_NEAR(weft_item(w, 0), 0, 1e-6);
    scale.backoff = 0;
    CHECK_STATUS(weft_loss_scale_step(&scale, sgd), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_loss_scale_step(NULL, sgd), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
