/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/shard.c, parallel/unit.c, parallel/unit_reduce.c, parallel/unit_hooks.c */
/* Modules whose parameters exist in full only while they compute. */
#include "fork.h"
#include "tiny_gpt.h"

#include "harness.h"
#include "memory_count.h"

enum { STEPS = STEPS_TRAINED };

static weft_mesh *line(weft_group *world)
{
    return weft_mesh_init(world, DEVICE, WEFT_SHAPE(weft_size(world)), "data");
}

static weft_module *body_part(weft_module *net, int i)
{
    char name[8];
    snprintf(name, sizeof name, "%d", i);
    return weft_module_child(weft_module_child(net, "body"), name);
}

static void shard_gpt(weft_module *net, weft_mesh *mesh, const weft_shard_opts *opts)
{
    for (int i = 0; i < LAYERS; i++)
        CHECK_OK(weft_shard(body_part(net, i), mesh, opts));
    CHECK_OK(weft_shard(net, mesh, opts));
}

static void check_parts(const truth *t, int s, weft_module *net)
{
    weft_named list[PARAMS];
    int count = weft_module_params(net, list, PARAMS);
    CHECK_INT(count, t->count);
    for (int i = 0; i < count; i++) {
        weft_shard_place place;
        CHECK(weft_shard_place_of(list[i].tensor, &place));
        weft_tensor *whole = t->grad[s][find_param(t, list[i].name)],
                    *mine = weft_grad(list[i].tensor);
        if (!mine)
            FAIL("step %d: %s has no gradient", s, list[i].name);
        double d = distance(mine, part_of(whole, list[i].tensor, place.offset));
        if (!(d <= 1e-6))
            FAIL("step %d: the gradient of %s is off by %g", s, list[i].name, d);
    }
}

static weft_tensor *rows_of(weft_tensor *x, int part, int parts)
{
    int64_t rows = weft_tensor_size(x, 0) / parts;
    return weft_narrow(x, 0, rows * part, rows);
}

static void train(weft_group *world, weft_mesh *mesh, const weft_shard_opts *opts, int parts)
{
    truth t;
    int rank = weft_rank(world), size = weft_size(world);
    find_truth(&t, STEPS);
    weft_module *net = new_gpt();
    shard_gpt(net, mesh, opts);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    weft_optim *sgd = weft_optim_sgd(net, RATE, &momentum);
    for (int s = 0; s < STEPS; s++) {
        weft_tensor *mine = rows_of(batch_of(s), rank, size);
        double loss = 0, norm;
        for (int p = 0; p < parts; p++) {
            weft_tensor *piece = rows_of(mine, p, parts);
            CHECK_OK(weft_gradient_sync(net, p == parts - 1));
            weft_tensor *one =
                weft_cross_entropy(weft_module_call(net, inputs_of(piece)), labels_of(piece));
            one = weft_div_scalar(one, parts);
            CHECK_OK(weft_backward(one));
            loss += weft_item(weft_all_reduce(weft_detach(one), WEFT_AVG, world), 0);
        }
        CHECK_NEAR(loss, t.loss[s], 1e-6);
        check_parts(&t, s, net);
        CHECK_OK(weft_clip_grads(net, LIMIT, mesh, &norm));
        CHECK_NEAR(norm, t.norm[s], 1e-6);
        CHECK_OK(weft_optim_step(sgd));
    }
}

RANKS_TEST(test_shard_two, 2)
{
    weft_group *world = join(30000);
    train(world, line(world), NULL, 1);
    finish(world);
}

/* Rows that do not divide: 16 symbols, 64 features and biases over 3 would; 8 places over 4 do not
 * over 3. */
RANKS_TEST(test_shard_kept_and_alone, 4)
{
    weft_group *world = join(30000);
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    opts.keep = true;
    train(world, line(world), &opts, 1);
    opts.keep = false;
    opts.prefetch = 0;
    train(world, line(world), &opts, 1);
    finish(world);
}

RANKS_TEST(test_shard_accumulate, 2)
{
    weft_group *world = join(30000);
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    opts.prefetch = 3;
    train(world, line(world), &opts, 2);
    finish(world);
}

/* Shards of two ranks, and copies of them. */
RANKS_TEST(test_shard_hybrid, 4)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = weft_mesh_init(world, DEVICE, WEFT_SHAPE(2, 2), "copies,shards");
    train(world, mesh, NULL, 1);
    finish(world);
}

/* ---- sizes that do not divide ---- */

RANKS_TEST(test_shard_uneven, 4)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = line(world);
    weft_shard_place place;
    weft_seed(5);
    weft_module *net = weft_nn_linear(3, 5), *alone;
    weft_seed(5);
    alone = weft_nn_linear(3, 5);
    CHECK_OK(weft_shard(net, mesh, NULL));
    weft_tensor *mine = weft_module_param(net, "weight");
    CHECK_INT(weft_tensor_size(mine, 0), rank < 2 ? 2 : rank == 2 ? 1 : 0);
    CHECK(weft_shard_place_of(mine, &place));
    CHECK_INT(place.full.dim[0], 5);
    CHECK_INT(place.offset[0], rank < 2 ? 2 * rank : rank == 2 ? 4 : 5);
    weft_optim *a = weft_optim_adamw(net, 0.1, NULL), *b = weft_optim_adamw(alone, 0.1, NULL);
    for (int s = 0; s < 3; s++) {
        weft_seed(7);
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 3));
        weft_tensor *y = weft_module_call(net, weft_narrow(x, 0, rank, 1));
        CHECK_OK(weft_backward(weft_mean(weft_mul(y, y), NULL, 0, false)));
        weft_tensor *z = weft_module_call(alone, x);
        CHECK_OK(weft_backward(weft_mean(weft_mul(z, z), NULL, 0, false)));
        CHECK_OK(weft_optim_step(a));
        CHECK_OK(weft_optim_step(b));
    }
    mine = weft_module_param(net, "weight");
    CHECK(distance(mine, part_of(weft_module_param(alone, "weight"), mine, place.offset)) < 1e-6);
    finish(world);
}

/* ---- memory ---- */

/* Layers of equal size. */
static weft_module *new_tower(int64_t width, int layers)
{
    weft_module *layer[8];
    for (int i = 0; i < layers; i++)
        layer[i] = weft_nn_linear_plain(width, width);
    return weft_nn_sequential_of(layer, layers);
}

/* Each layer is a unit. */
static void shard_tower(weft_module *net, int layers, weft_mesh *mesh, const weft_shard_opts *opts)
{
    char name[16];
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(weft_shard(weft_module_child(net, name), mesh, opts));
    }
    CHECK_OK(weft_shard(net, mesh, opts));
}

/* Parameters, gradients and two states of all, of which this rank has its part, and the largest unit
 * once: a whole parameter is given up before its gradient takes memory. */
static void check_peak(int rank, int size)
{
    enum { WIDE = 512, TALL = 6 };
    if (DEVICE != WEFT_CPU)
        SKIP("what is counted is memory of the host");
    if (harness_in_threads)
        SKIP("the counter is of one thread");
    if (harness_hosts)
        SKIP("messages between hosts have buffers");
    setenv("WEFT_TENSOR_CACHE", "0", 1);
    weft_group *world = join(60000);
    weft_mesh *mesh = line(world);
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    opts.prefetch = 0;
    size_t unit = (size_t)WIDE * WIDE * 4, start = (size_t)1 << 40;
    weft_scope_open();
    count_begin();
    weft_module *net = new_tower(WIDE, TALL);
    shard_tower(net, TALL, mesh, &opts);
    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, WIDE));
    for (int s = 0; s < 3; s++) {
        weft_scope_open();
        most = in_use;
        CHECK_OK(weft_backward(weft_mean(weft_module_call(net, x), NULL, 0, false)));
        CHECK_OK(weft_optim_step(adam));
        weft_scope_close();
    }
    double formula = 4.0 * TALL * (double)unit / size + (double)unit;
    double peak = (double)(most - start);
    count_end();
    printf("# rank %d: peak %.0f bytes, state / ranks + largest unit %.0f: %.3f\n", rank, peak,
           formula, peak / formula);
    CHECK(peak <= 1.15 * formula);
    weft_scope_close();
    finish(world);
}

RANKS_TEST(test_shard_peak, 4)
{
    check_peak(rank, size);
}

RANKS_TEST(test_shard_peak_eight, 8)
{
    check_peak(rank, size);
}

/* ---- calls inside backward ---- */

typedef struct again {
    weft_module *net;
    weft_tensor *x, *y;
    bool calls; /* in backward; and it has called */
    int called;
} again;

/* When the second layer's weight is needed no more: all of the module is there for another call. */
static weft_status call_inside(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    again *a = user;
    (void)grad, (void)held;
    if (!a->calls)
        return WEFT_OK;
    a->calls = false;
    a->called++;
    WEFT_NO_GRAD
    {
        weft_tensor *y = weft_module_call(a->net, a->x);
        CHECK(y && distance(y, a->y) == 0);
    }
    return WEFT_OK;
}

/* One layer, then another twice: the first gradient of its weight is not the last. */
static weft_tensor *repeat(weft_module *self, weft_tensor *x, void *user)
{
    weft_module *layer = weft_module_child(self, "1");
    weft_tensor *h = weft_module_call(weft_module_child(self, "0"), x);
    if (weft_grad_mode_now() == WEFT_GRAD_RECORDING)
        CHECK(weft_tensor_hook(h, call_inside, user, WEFT_HOLD()) > 0);
    return weft_module_call(layer, weft_module_call(layer, h));
}

static weft_module *new_repeat(again *a)
{
    weft_seed(13);
    weft_module *net = weft_module_new(repeat, a);
    weft_module_add(net, "0", weft_nn_linear(4, 4));
    weft_module_add(net, "1", weft_nn_linear(4, 4));
    return net;
}

RANKS_TEST(test_shard_called_inside_backward, 2)
{
    weft_group *world = join(30000);
    again alone = {.calls = false}, ours = {.calls = true};
    weft_module *whole = new_repeat(&alone);
    ours.net = new_repeat(&ours);
    CHECK_OK(weft_shard(ours.net, line(world), NULL));
    ours.x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4));
    for (int s = 0; s < 2; s++) {
        ours.calls = true;
        ours.y = weft_module_call(ours.net, ours.x);
        CHECK_OK(weft_backward(weft_sum(ours.y, NULL, 0, false)));
        CHECK_OK(weft_backward(weft_sum(weft_module_call(whole, ours.x), NULL, 0, false)));
        CHECK_INT(ours.called, s + 1);
    }
    for (int i = 0; i < 2; i++) {
        weft_tensor *mine = weft_grad(weft_module_param(ours.net, i ? "1.weight" : "0.weight"));
        weft_tensor *all = weft_grad(weft_module_param(whole, i ? "1.weight" : "0.weight"));
        CHECK(mine && distance(mine, weft_narrow(all, 0, 2 * rank, 2)) < 1e-6);
    }
    finish(world);
}

/* ---- parameters that are not used ---- */

/* The error is the same on all ranks, and the others have their gradients; when all use all again,
 * training goes on. */
RANKS_TEST(test_shard_unused, 4)
{
    weft_group *world = join(30000);
    fork_state f = {true, rank != 1 && rank != 2};
    weft_module *net = new_fork(&f);
    CHECK_OK(weft_shard(net, line(world), NULL));
    CHECK_STATUS(backward_of(net), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "\"right.weight\"");
    CHECK_CONTAINS(weft_last_error(), "rank 1, 2");
    CHECK(!strstr(weft_last_error(), "left"));
    CHECK(weft_grad(weft_module_param(net, "left.weight")));
    f.right = true;
    CHECK_OK(backward_of(net));
    weft_clear_error();
    finish(world);
}

/* With the option zeros count, and what no rank used has no gradient at all. */
RANKS_TEST(test_shard_unused_zeros, 2)
{
    weft_group *world = join(30000);
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    opts.unused = true;
    fork_state f = {false, rank == 0}, g = {false, true};
    weft_module *net = new_fork(&f), *whole = new_fork(&g);
    CHECK_OK(weft_shard(net, line(world), &opts));
    CHECK_OK(backward_of(net));
    CHECK_OK(backward_of(whole));
    CHECK(!weft_grad(weft_module_param(net, "left.weight")));
    weft_tensor *half = weft_mul_scalar(weft_grad(weft_module_param(whole, "right.weight")), 0.5);
    weft_tensor *mine = weft_grad(weft_module_param(net, "right.weight"));
    CHECK(mine && distance(mine, weft_narrow(half, 0, 2 * rank, 2)) < 1e-6);
    finish(world);
}

/* ---- refusals, and failures in the middle ---- */

RANKS_TEST(test_shard_refuses, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = line(world);
    weft_module *net = weft_nn_sequential(weft_nn_linear(4, 4), weft_nn_linear(4, 4));
    CHECK_OK(weft_shard(weft_module_child(net, "0"), mesh, NULL));
    CHECK_STATUS(weft_shard(weft_module_child(net, "0"), mesh, NULL), WEFT_ERR_EXISTS);
    CHECK_CONTAINS(weft_last_error(), "sharded unit already");
    CHECK_STATUS(weft_replicate(net, world, NULL), WEFT_ERR_EXISTS);
    weft_clear_error();
    CHECK_STATUS(weft_shard(NULL, mesh, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_shard(net, NULL, NULL), WEFT_ERR_INVALID_ARG);
    weft_module *tied = weft_nn_sequential(weft_nn_linear_plain(4, 4), weft_nn_linear_plain(4, 4));
    CHECK_OK(weft_module_bind(weft_module_child(tied, "1"), "weight",
                              weft_module_param(tied, "0.weight")));
    CHECK_OK(weft_shard(weft_module_child(tied, "0"), mesh, NULL));
    weft_module *one = weft_nn_linear_plain(4, 4);
    if (rank == 1)
        CHECK_OK(weft_set_grad(weft_module_param(one, "weight"),
                               weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4))));
    CHECK_STATUS(weft_shard(one, mesh, NULL), WEFT_ERR_STATE); /* on both */
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    finish(world);
}

/* Tied weights inside a unit are one piece. */
RANKS_TEST(test_shard_tied, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = line(world);
    weft_seed(9);
    weft_module *net = weft_nn_sequential(weft_nn_linear_plain(4, 4), weft_nn_linear_plain(4, 4));
    CHECK_OK(weft_module_bind(weft_module_child(net, "1"), "weight",
                              weft_module_param(net, "0.weight")));
    weft_tensor *whole = weft_clone(weft_detach(weft_module_param(net, "0.weight")));
    CHECK_OK(weft_shard(net, mesh, NULL));
    CHECK(weft_module_param(net, "0.weight") == weft_module_param(net, "1.weight"));
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 4));
    weft_tensor *y = weft_module_call(net, x);
    weft_tensor *twice = weft_linear(weft_linear(x, whole, NULL), whole, NULL);
    CHECK(distance(y, twice) < 1e-6);
    CHECK_OK(weft_require_grad(whole, true));
    twice = weft_linear(weft_linear(x, whole, NULL), whole, NULL);
    CHECK_OK(weft_backward(weft_sum(twice, NULL, 0, false)));
    CHECK_OK(weft_backward(weft_sum(y, NULL, 0, false)));
    weft_tensor *mine = weft_grad(weft_module_param(net, "0.weight"));
    CHECK(distance(mine, weft_narrow(weft_grad(whole), 0, 2 * rank, 2)) < 1e-6);
    finish(world);
}

static weft_status fail_once(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    bool *left = user;
    (void)grad, (void)held;
    bool now = *left;
    *left = false;
    return now ? WEFT_ERR_CANCELLED : WEFT_OK;
}

/* A backward that fails on all ranks leaves a module that trains on. */
RANKS_TEST(test_shard_goes_on, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = line(world);
    bool fails = true;
    weft_seed(1);
    weft_module *net = new_tower(8, 3);
    shard_tower(net, 3, mesh, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 8));
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_tensor_hook(x, fail_once, &fails, WEFT_HOLD()));
    CHECK_STATUS(weft_backward(weft_sum(weft_module_call(net, x), NULL, 0, false)),
                 WEFT_ERR_CANCELLED);
    weft_clear_error();
    CHECK_OK(weft_backward(weft_sum(weft_module_call(net, x), NULL, 0, false)));
    CHECK(weft_grad(weft_module_param(net, "0.weight")));
    WEFT_NO_GRAD
    {
        CHECK(weft_module_call(net, x));
    }
    finish(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
