/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/shard.c, parallel/unit.c, parallel/unit_reduce.c, parallel/unit_hooks.c */
/* Modules whose parameters exist in full only while they compute. */
#include "tiny_gpt.h"

#include "harness.h"
#include "memory_count.h"

enum { STEPS = 5 };

static weft_mesh *line(weft_group *world)
{
    return weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(weft_size(world)), "data");
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
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "copies,shards");
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

/* Layers of equal size, each a unit: at most one is there in full, with its gradients. */
static weft_module *new_tower(int64_t width, int layers)
{
    weft_module *layer[8];
    for (int i = 0; i < layers; i++)
        layer[i] = weft_nn_linear_plain(width, width);
    return weft_nn_sequential_of(layer, layers);
}

RANKS_TEST(test_shard_peak, 4)
{
    enum { WIDE = 512, TALL = 6 };
    if (harness_in_threads)
        SKIP("the counter is of one thread");
    setenv("WEFT_TENSOR_CACHE", "0", 1);
    weft_group *world = join(30000);
    weft_mesh *mesh = line(world);
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    opts.prefetch = 0;
    size_t unit = (size_t)WIDE * WIDE * 4, start = (size_t)1 << 40;
    weft_scope_open();
    count_begin();
    weft_module *net = new_tower(WIDE, TALL);
    for (int i = 0; i < TALL; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(weft_shard(weft_module_child(net, name), mesh, &opts));
    }
    CHECK_OK(weft_shard(net, mesh, &opts));
    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, WIDE));
    for (int s = 0; s < 3; s++) {
        weft_scope_open();
        most = in_use;
        CHECK_OK(weft_backward(weft_mean(weft_module_call(net, x), NULL, 0, false)));
        CHECK_OK(weft_optim_step(adam));
        weft_scope_close();
    }
    /* parameters, gradients and two states of all; then the largest unit and its gradient */
    double state = 4.0 * TALL * (double)unit / size, largest = 2.0 * (double)unit;
    double peak = (double)(most - start);
    count_end();
    printf("# rank %d: peak %.0f bytes, state / ranks + largest unit %.0f: %.3f\n", rank, peak,
           state + largest, peak / (state + largest));
    CHECK(peak <= 1.15 * (state + largest));
    weft_scope_close();
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
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(weft_shard(weft_module_child(net, name), mesh, NULL));
    }
    CHECK_OK(weft_shard(net, mesh, NULL));
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
    return harness_main(argc, argv);
}
