/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/tensor/update.c, nn/optim/optim.c, nn/optim/optim_clip.c, nn/optim/optim_state.c */
/*
 * Training on CUDA devices: steps of optimizers give the bits of the CPU, and a small transformer
 * learns the same there.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#include "cuda/op_scene.h"

#include "tensor/op/ops.h"
#include "weft/weft.h"

enum { SGD, MOMENTUM, ADAMW, KINDS };
enum { PACKED, ODD, SPREAD, TURNED, LAYOUTS };

/* Numbers of both signs and several sizes. */
static weft_tensor *numbers(weft_dtype dtype, int64_t n, int seed)
{
    weft_seed((uint64_t)seed);
    weft_tensor *x = weft_mul_scalar(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(n)), 0.5);
    return weft_to_dtype(x, dtype);
}

/* x [n], n a multiple of 3, as a tensor of [n / 3, 3] on the device, laid out in one of four ways. */
static weft_tensor *laid_out(weft_tensor *x, int way, weft_device device)
{
    int64_t n = x->numel;
    weft_tensor *room = weft_zeros(x->dtype, device, WEFT_SHAPE(2 * n + 1)), *view;
    if (way == PACKED)
        view = weft_view(weft_slice(room, 0, 0, n, 1), WEFT_SHAPE(n / 3, 3));
    else if (way == ODD)
        view = weft_view(weft_slice(room, 0, 1, n + 1, 1), WEFT_SHAPE(n / 3, 3));
    else if (way == SPREAD)
        view = weft_slice(weft_view(weft_slice(room, 0, 0, 2 * n, 1), WEFT_SHAPE(n / 3, 6)), 1, 0,
                          6, 2);
    else
        view = weft_transpose(weft_view(weft_slice(room, 0, 0, n, 1), WEFT_SHAPE(3, n / 3)), 0, 1);
    CHECK_OK(weft_copy(view, weft_view(x, WEFT_SHAPE(n / 3, 3))));
    return view;
}

/* The rows themselves, so that the gradient may have another dtype and layout. */
static void step(int kind, weft_tensor **list, weft_tensor *grad, int number)
{
    weft_tensor *outs[3];
    weft_i_arg sgd[] = {WEFT_I_TENSORS_ARG(list, kind == SGD ? 1 : 2),
                        WEFT_I_TENSOR_ARG(grad),
                        WEFT_I_NUMBER_ARG(0.1),
                        WEFT_I_NUMBER_ARG(kind == SGD ? 0 : 0.9),
                        WEFT_I_NUMBER_ARG(0.01),
                        WEFT_I_INTEGER_ARG(number == 1)};
    weft_i_arg adamw[] = {WEFT_I_TENSORS_ARG(list, 3), WEFT_I_TENSOR_ARG(grad),
                          WEFT_I_NUMBER_ARG(0.1),      WEFT_I_NUMBER_ARG(0.9),
                          WEFT_I_NUMBER_ARG(0.999),    WEFT_I_NUMBER_ARG(1e-8),
                          WEFT_I_NUMBER_ARG(0.01),     WEFT_I_INTEGER_ARG(number)};
    CHECK_OK(kind == ADAMW ? weft_i_op_apply_list(&weft_i_op_adamw_, outs, adamw)
                           : weft_i_op_apply_list(&weft_i_op_sgd_, outs, sgd));
}

/* Parameter, gradient and states each lie in another way. */
static void check_steps(int kind, weft_dtype dtype, weft_dtype other, int way)
{
    enum { COUNT = 99, STEPS = 3 };
    char what[96];
    snprintf(what, sizeof what, "optimizer %d of %s with gradients of %s, layout %d", kind,
             weft_dtype_name(dtype), weft_dtype_name(other), way);
    CHECK_OK(weft_scope_open());
    weft_tensor *param = numbers(dtype, COUNT, 1),
                *junk = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(COUNT), 5);
    weft_tensor *zeros = weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(COUNT)), *list[2][3];
    for (int d = 0; d < 2; d++) {
        weft_device device = d ? GPU : WEFT_CPU;
        list[d][0] = laid_out(param, way, device);
        /* the first velocity is not read */
        list[d][1] = laid_out(kind == MOMENTUM ? junk : zeros, (way + 1) % LAYOUTS, device);
        list[d][2] = laid_out(zeros, way, device);
        for (int k = 1; k <= STEPS; k++)
            step(kind, list[d],
                 laid_out(numbers(other, COUNT, 10 + k), (way + k) % LAYOUTS, device), k);
    }
    for (int k = 0; k < (kind == SGD ? 1 : kind == MOMENTUM ? 2 : 3); k++)
        check_near(what, list[1][k], weft_contiguous(list[0][k]), 0);
    CHECK(!weft_equal(list[0][0], weft_view(param, WEFT_SHAPE(COUNT / 3, 3)))); /* it has moved */
    CHECK_OK(weft_scope_close());
}

TEST(test_cuda_optim_bits)
{
    static const weft_dtype dtypes[] = {WEFT_F64,  WEFT_F32,    WEFT_F16,
                                        WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2};
    begin();
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            for (int way = 0; way < LAYOUTS; way++)
                check_steps(kind, dtypes[i], dtypes[(i + (size_t)(way == SPREAD)) % 6], way);
    end();
}

TEST(test_cuda_optim_without_elements)
{
    begin();
    weft_tensor *x = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(0, 3)), *list[] = {x, x, x};
    for (int kind = 0; kind < KINDS; kind++)
        step(kind, list, weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(0, 3)), 1);
    end();
}

/* -- modules -- */

enum { SYMBOLS = 11, WIDTH = 8, TIME = 6, BATCH = 3 };

static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    x = weft_add(x, weft_module_call(weft_module_child(self, "attention"), x));
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_net(void)
{
    weft_seed(5);
    weft_module *inner = weft_module_new(block, NULL);
    CHECK_OK(weft_module_add(
        inner, "attention",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_attention(WIDTH, 2, 0))));
    CHECK_OK(weft_module_add(
        inner, "mlp",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, 2 * WIDTH),
                           weft_nn_op(weft_gelu), weft_nn_linear(2 * WIDTH, WIDTH))));
    return weft_nn_sequential(weft_nn_embedding(SYMBOLS, WIDTH), inner, weft_nn_layer_norm(WIDTH),
                              weft_nn_linear(WIDTH, SYMBOLS));
}

static weft_tensor *batch_of(int k)
{
    int64_t symbols[BATCH][TIME + 1];
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t <= TIME; t++)
            symbols[b][t] = (k * 5 + b * 3 + t * t) % SYMBOLS;
    return weft_tensor_from(WEFT_I64, WEFT_SHAPE(BATCH, TIME + 1), symbols);
}

/* The loss of the step, computed before it. */
static double train_once(weft_module *net, weft_optim *optim, int k, weft_device device)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *batch = weft_to(batch_of(k), WEFT_I64, device);
    weft_tensor *logits = weft_module_call(net, weft_narrow(batch, 1, 0, TIME));
    weft_tensor *loss = weft_cross_entropy(logits, weft_narrow(batch, 1, 1, TIME));
    if (!loss)
        FAIL("step %d: %s", k, weft_last_error());
    CHECK_INT(weft_tensor_device(loss), device);
    CHECK_OK(weft_backward(loss));
    CHECK_OK(weft_optim_step(optim));
    double value = weft_item(loss, 0);
    CHECK_OK(weft_scope_close());
    return value;
}

static weft_optim *new_optim(weft_module *net, bool adam)
{
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    opts.momentum = 0.9;
    return adam ? weft_optim_adamw(net, 1e-2, NULL) : weft_optim_sgd(net, 0.05, &opts);
}

/* Products add in another order on a GPU, and AdamW makes steps of one size of small gradients. */
static void check_training(bool adam)
{
    enum { STEPS = 6 };
    begin();
    weft_module *here = new_net(), *there = new_net();
    CHECK_OK(weft_module_to(there, GPU));
    weft_optim *on_cpu = new_optim(here, adam), *on_gpu = new_optim(there, adam);
    double first = 0, last = 0;
    for (int k = 0; k < STEPS; k++) {
        last = train_once(here, on_cpu, 0, WEFT_CPU);
        CHECK_NEAR(train_once(there, on_gpu, 0, GPU), last,
                   (scene.real ? 1e-4 : 1e-5) * fabs(last));
        first = k ? first : last;
    }
    CHECK(last < first); /* it learns */
    weft_named params[64];
    int count = weft_module_params(there, params, 64);
    CHECK(count > 10);
    for (int i = 0; i < count; i++)
        CHECK_INT(weft_tensor_device(params[i].tensor), GPU);
    end();
}

TEST(test_cuda_optim_trains_by_sgd)
{
    check_training(false);
}

TEST(test_cuda_optim_trains_by_adamw)
{
    check_training(true);
}

static void set_gradients(weft_module *net, int k)
{
    weft_named params[64];
    int count = weft_module_params(net, params, 64);
    for (int i = 0; i < count; i++) {
        weft_tensor *p = params[i].tensor;
        weft_tensor *g =
            weft_view(numbers(WEFT_F32, p->numel, 100 * k + i), weft_i_tensor_shape(p));
        CHECK_OK(weft_set_grad(p, weft_to(g, WEFT_F32, weft_tensor_device(p))));
    }
}

/* Moments and velocities go where the parameters go: a module that moves between steps, there and
 * back, ends with the bits of one that stayed. */
TEST(test_cuda_optim_follows_the_module)
{
    begin();
    for (int adam = 0; adam < 2; adam++) {
        weft_module *stays = weft_nn_linear(5, 7), *moves = weft_nn_linear(5, 7);
        for (int i = 0; i < 2; i++)
            WEFT_NO_GRAD
            {
                CHECK_OK(weft_copy(weft_module_param(moves, i ? "bias" : "weight"),
                                   weft_module_param(stays, i ? "bias" : "weight")));
            }
        weft_optim *a = new_optim(stays, adam), *b = new_optim(moves, adam);
        for (int k = 0; k < 6; k++) {
            CHECK_OK(weft_module_to(moves, k % 4 >= 2 ? GPU : WEFT_CPU));
            set_gradients(stays, k);
            set_gradients(moves, k);
            CHECK_OK(weft_optim_step(a));
            CHECK_OK(weft_optim_step(b));
        }
        CHECK_OK(weft_module_to(moves, WEFT_CPU));
        CHECK(weft_equal(weft_module_param(moves, "weight"), weft_module_param(stays, "weight")));
        CHECK(weft_equal(weft_module_param(moves, "bias"), weft_module_param(stays, "bias")));
    }
    end();
}

/* Gradients on the device are looked at there, and nothing is updated anywhere. */
TEST(test_cuda_optim_finite)
{
    begin();
    weft_tensor *here = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *there = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(40)),
                *half = weft_ones(WEFT_BF16, GPU, WEFT_SHAPE(6));
    weft_named list[] = {{"here", here}, {"there", there}, {"half", half}};
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    opts.finite = true;
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_require_grad(list[i].tensor, true));
    weft_optim *adam = weft_optim_adamw_of(list, 3, 0.1, &opts);
    for (int bad = 0; bad < 4; bad++) { /* 3: none */
        for (int i = 0; i < 3; i++)
            CHECK_OK(
                weft_set_grad(list[i].tensor, weft_add_scalar(weft_zeros_like(list[i].tensor), 1)));
        if (bad < 3)
            CHECK_OK(weft_fill(weft_narrow(weft_grad(list[bad].tensor), 0, 1, 1),
                               bad ? NAN : -INFINITY));
        CHECK_STATUS(weft_optim_step(adam), bad < 3 ? WEFT_ERR_NUMERIC : WEFT_OK);
        if (bad < 3)
            CHECK_CONTAINS(weft_last_error(), list[bad].name);
        CHECK((weft_item(here, 0) == 1) == (bad < 3) && (weft_item(there, 39) == 1) == (bad < 3) &&
              (weft_item(half, 0) == 1) == (bad < 3));
    }
    end();
}

/* Steps on the device, a state that goes through the host, more steps on the device: the bits of
 * steps in one go, in two groups. */
static weft_optim *new_groups(weft_module *net)
{
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    weft_named params[2];
    opts.decay = 0;
    CHECK_INT(weft_module_params(net, params, 2), 2);
    weft_optim *adam = weft_optim_adamw_of(params, 1, 1e-2, NULL);
    CHECK_INT(weft_optim_adamw_add(adam, params + 1, 1, 3e-2, &opts), 1);
    return adam;
}

static void step_from(weft_module *net, weft_optim *optim, int from, int to)
{
    for (int k = from; k < to; k++) {
        set_gradients(net, k);
        CHECK_OK(weft_optim_step(optim));
    }
}

TEST(test_cuda_optim_resumes)
{
    begin();
    weft_module *net[3]; /* in one go on the CPU, the first half, the second half */
    weft_optim *adam[3];
    weft_named state[6], now[6], weights[2];
    for (int i = 0; i < 3; i++) {
        weft_seed(9);
        net[i] = weft_nn_linear(5, 7);
        adam[i] = new_groups(net[i]);
        CHECK_OK(weft_module_to(net[i], i ? GPU : WEFT_CPU));
    }
    step_from(net[0], adam[0], 0, 6);
    step_from(net[1], adam[1], 0, 3);
    CHECK_INT(weft_optim_state(adam[1], state, 6), 6);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(weft_tensor_device(state[i].tensor), i % 3 ? GPU : WEFT_CPU);
        state[i].tensor = weft_clone(weft_to(state[i].tensor, state[i].tensor->dtype, WEFT_CPU));
    }
    CHECK_INT(weft_module_state(net[1], weights, 2), 2);
    CHECK_OK(weft_module_load(net[2], weights, 2));
    CHECK_OK(weft_optim_load(adam[2], state, 6));
    step_from(net[2], adam[2], 3, 6);
    CHECK_INT(weft_optim_state(adam[0], state, 6), 6);
    CHECK_INT(weft_optim_state(adam[2], now, 6), 6);
    for (int i = 0; i < 6; i++)
        CHECK(weft_equal(weft_to(now[i].tensor, now[i].tensor->dtype, WEFT_CPU), state[i].tensor));
    CHECK_OK(weft_module_to(net[2], WEFT_CPU));
    CHECK(weft_equal(weft_module_param(net[2], "weight"), weft_module_param(net[0], "weight")));
    CHECK(weft_equal(weft_module_param(net[2], "bias"), weft_module_param(net[0], "bias")));
    end();
}

/* The norm and the scaled gradients have the bits of the CPU, wherever each gradient lies. */
TEST(test_cuda_optim_clip)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    enum { COUNT = 4, LENGTH = 1999 };
    double norm[2] = {-1, -2};
    begin();
    weft_named list[2][COUNT];
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < COUNT; i++) {
            weft_device device = d && i != 1 ? GPU : WEFT_CPU;
            weft_tensor *g = weft_to(numbers(dtypes[i], LENGTH, i), dtypes[i], device);
            weft_tensor *p = weft_zeros_like(g);
            CHECK_OK(weft_require_grad(p, true));
            CHECK_OK(weft_set_grad(p, weft_clone(g)));
            list[d][i] = (weft_named){"", p};
        }
        CHECK_OK(weft_clip_grad_norm(list[d], COUNT, 1.5, NULL, &norm[d]));
    }
    CHECK(norm[0] == norm[1] && norm[0] > 1.5);
    for (int i = 0; i < COUNT; i++)
        CHECK(weft_equal(weft_to(weft_grad(list[1][i].tensor), dtypes[i], WEFT_CPU),
                         weft_grad(list[0][i].tensor)));
    CHECK_OK(weft_fill(weft_narrow(weft_grad(list[1][2].tensor), 0, 7, 1), NAN));
    CHECK_STATUS(weft_clip_grad_norm(list[1], COUNT, 1, NULL, NULL), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "the gradient of parameter 2 has");
    end();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
