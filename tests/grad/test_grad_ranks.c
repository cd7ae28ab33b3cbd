/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/engine.c, grad/task.c */
/*
 * Gradients and collectives: ranks that train at once, gradients that are collectives under way,
 * and a rank that dies in the middle of backward.
 */
#include "jobs.h"
#include "leaf.h"

#include "tensor/object/tensor.h"
#include "weft/weft.h"

/* The group's first collective makes its shared memory, and waits for all. */
static weft_group *join_and_meet(void)
{
    weft_group *world = join(20000);
    CHECK(weft_wait_tensor(weft_all_reduce(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), WEFT_SUM,
                                           world)) != NULL);
    return world;
}

/* The gradient of all ranks, under way when the hook returns. */
static weft_status reduce(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    *grad = weft_all_reduce(*grad, WEFT_SUM, user);
    return WEFT_OK;
}

/*
 * Rank 1 begins its backward when rank 0 has come through its own: had rank 0 waited for the
 * reduction, it would never have.  Large and small operands take different ways to the work.
 */
static void overtake(weft_group *world, int rank, int64_t count)
{
    weft_tensor *w = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), 2));
    CHECK(weft_tensor_hook(w, reduce, world, WEFT_HOLD()) > 0);
    weft_tensor *loss = total(weft_mul_scalar(w, rank + 1));
    int marks = harness_marks_of(0);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1)
        CHECK(harness_await(0, marks + 1));
    CHECK_OK(weft_backward(loss));
    CHECK(weft_grad(w) != NULL);
    if (rank == 0) {
        CHECK_INT(weft_unwaited(world), 1); /* still under way, and the leaf's: not a copy of it */
        harness_mark();
    }
    CHECK_NEAR(weft_item(weft_grad(w), count - 1), 3, 0);
    CHECK_INT(weft_unwaited(world), 0);
}

RANKS_TEST(test_gradient_under_way_is_taken_over, 2)
{
    weft_group *world = join_and_meet();
    overtake(world, rank, 3);
    overtake(world, rank, 50000);
    (void)size;
    CHECK_INT(weft_finish(world), 0);
}

/* A tensor that the hook's owner keeps is not taken over: adding to the leaf must not change it. */
static weft_status reduce_and_keep(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    weft_tensor **kept = user;
    (void)held;
    *grad = weft_all_reduce(*grad, WEFT_SUM, (weft_group *)kept[1]);
    kept[0] = weft_keep(weft_view(*grad, weft_tensor_shape(*grad)));
    return WEFT_OK;
}

RANKS_TEST(test_kept_gradient_is_not_taken_over, 2)
{
    weft_group *world = join(20000);
    weft_tensor *w = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000)));
    weft_tensor *user[2] = {NULL, (weft_tensor *)(void *)world}, *first;
    CHECK(weft_tensor_hook(w, reduce_and_keep, user, WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(weft_mul_scalar(w, rank + 1))));
    first = user[0];
    CHECK_OK(weft_backward(total(weft_mul_scalar(w, rank + 1))));
    CHECK_NEAR(weft_item(weft_grad(w), 0), 6, 0);
    CHECK_NEAR(weft_item(first, 0), 3, 0);
    weft_release(first);
    weft_release(user[0]);
    (void)size;
    CHECK_INT(weft_finish(world), 0);
}

/* Two layers, data parallel, against the same training on one rank with all data. */
static double train(weft_group *world, int rank, int size, bool alone)
{
    weft_tensor *w[2], *x[4];
    weft_seed(1);
    for (int i = 0; i < 2; i++)
        w[i] = leaf(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(8, 8)));
    for (int i = 0; i < size; i++)
        x[i] = weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(5, 8));
    for (int i = 0; i < 2 && !alone; i++)
        CHECK(weft_tensor_hook(w[i], reduce, world, WEFT_HOLD()) > 0);
    for (int step = 0; step < 10; step++) {
        CHECK_OK(weft_scope_open());
        for (int i = 0; i < size; i++) {
            if (!alone && i != rank)
                continue;
            weft_tensor *y = weft_mm(weft_sin(weft_mm(x[i], w[0])), w[1]);
            CHECK_OK(weft_backward(total(weft_mul(y, y))));
        }
        WEFT_NO_GRAD
        {
            for (int i = 0; i < 2; i++) {
                CHECK_OK(weft_add_into(w[i], w[i], weft_mul_scalar(weft_grad(w[i]), -1e-3)));
                CHECK_OK(weft_set_grad(w[i], NULL));
            }
        }
        CHECK_OK(weft_scope_close());
    }
    double sum = 0;
    for (int i = 0; i < 2; i++)
        sum += weft_item(total(weft_mul(w[i], w[i])), 0);
    return sum;
}

RANKS_TEST(test_ranks_train_at_once, 4)
{
    weft_group *world = join(20000);
    double together = train(world, rank, size, false), alone = train(world, rank, size, true);
    CHECK_NEAR(together, alone, 1e-9 * alone);
    CHECK_INT(weft_finish(world), 0);
}

/* Every parameter's gradient is reduced by its own hook. */
static void reduce_all(weft_module *net, weft_group *world)
{
    weft_named params[16];
    int count = weft_module_params(net, params, 16);
    CHECK_INT(count, 6);
    for (int i = 0; i < count; i++)
        CHECK(weft_tensor_hook(params[i].tensor, reduce, world, WEFT_HOLD()) > 0);
}

static void check_equal_everywhere(weft_module *net, weft_group *world)
{
    weft_named params[16];
    int count = weft_module_params(net, params, 16);
    for (int i = 0; i < count; i++) {
        weft_tensor *own = weft_detach(params[i].tensor);
        CHECK(weft_equal(weft_all_reduce(own, WEFT_MIN, world), own));
        CHECK(weft_equal(weft_all_reduce(own, WEFT_MAX, world), own));
    }
}

/* Modules, layers and optimizers on all ranks at once: the same weights, other data and other draws
 * of dropout; gradients are reduced while backward goes on.  For ThreadSanitizer above all. */
RANKS_TEST(test_modules_train_at_once, 3)
{
    weft_group *world = join_and_meet();
    weft_seed(11);
    weft_module *net =
        weft_nn_sequential(weft_nn_linear(6, 16), weft_nn_layer_norm(16), weft_nn_op(weft_gelu),
                           weft_nn_dropout(0.25), weft_nn_linear(16, 3));
    weft_optim *adam = weft_optim_adamw(net, 1e-2, NULL);
    weft_tensor *before = weft_clone(weft_detach(weft_module_param(net, "0.weight")));
    reduce_all(net, world);
    weft_seed(100 + (uint64_t)rank);
    for (int step = 0; step < 5; step++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 6));
        weft_tensor *label = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(8), 0, 3);
        CHECK_OK(weft_backward(weft_cross_entropy(weft_module_call(net, x), label)));
        CHECK_OK(weft_optim_step(adam));
        CHECK_OK(weft_scope_close());
    }
    check_equal_everywhere(net, world);
    CHECK(!weft_equal(weft_detach(weft_module_param(net, "0.weight")), before));
    (void)size;
    CHECK_INT(weft_finish(world), 0);
}

/* ---- a rank that dies in the middle ---- */

static weft_status die(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held, (void)user;
    harness_rank_dies();
    raise(SIGKILL);
    return WEFT_OK;
}

RANKS_TEST(test_death_in_backward, 3)
{
    if (harness_in_threads)
        SKIP("ranks that are threads die together");
    weft_group *world = join_and_meet();
    weft_tensor *w = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5))), *y = weft_sin(w);
    if (rank == 1)
        CHECK(weft_tensor_hook(y, die, NULL, WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(w, reduce, world, WEFT_HOLD()) > 0);
    weft_tensor *loss = total(weft_mul(y, y));
    weft_status status = weft_backward(loss);
    if (status >= 0) /* the gradient was taken over; using it tells */
        status = weft_wait_tensor(weft_grad(w)) ? WEFT_OK : weft_last_status();
    CHECK_STATUS(status, WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    CHECK(weft_grad_mode_now() == WEFT_GRAD_RECORDING);
    (void)size;
    weft_finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
