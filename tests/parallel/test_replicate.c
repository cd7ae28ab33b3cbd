/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/replicate.c, parallel/accord.c, parallel/unused.c, parallel/sync.c */
/* Copies of a module that train as one: gradients, accumulation, unused parameters, bad starts. */
#include "fork.h"
#include "tiny_gpt.h"

#include "harness.h"

enum { STEPS = STEPS_TRAINED };

static weft_tensor *rows_of(weft_tensor *x, int part, int parts)
{
    int64_t rows = weft_tensor_size(x, 0) / parts;
    return weft_narrow(x, 0, rows * part, rows);
}

static double mean_over(weft_group *group, weft_tensor *loss)
{
    return weft_item(weft_all_reduce(weft_detach(loss), WEFT_AVG, group), 0);
}

static void check_gradients(const truth *t, int s, weft_module *net)
{
    weft_named list[PARAMS];
    int count = weft_module_params(net, list, PARAMS);
    for (int i = 0; i < count; i++) {
        weft_tensor *mine = weft_grad(list[i].tensor), *whole = t->grad[s][i];
        if (!mine)
            FAIL("step %d: %s has no gradient", s, list[i].name);
        double d = distance(mine, whole);
        if (!(d <= 1e-6))
            FAIL("step %d: the gradient of %s is off by %g", s, list[i].name, d);
    }
}

/* Trains with the rows of a batch in `parts` parts on each rank. */
static void train(weft_group *world, const weft_replicate_opts *opts, int parts)
{
    truth t;
    int rank = weft_rank(world), size = weft_size(world);
    find_truth(&t, STEPS);
    weft_module *net = new_gpt();
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    if (rank && opts->start == WEFT_START_COPY) { /* rank 0's values count */
        weft_named list[PARAMS];
        int count = weft_module_params(net, list, PARAMS);
        WEFT_NO_GRAD
        {
            for (int i = 0; i < count; i++)
                CHECK_OK(weft_fill(list[i].tensor, rank));
        }
    }
    CHECK_OK(weft_replicate(net, world, opts));
    weft_optim *sgd = weft_optim_sgd(net, RATE, &momentum);
    for (int s = 0; s < STEPS; s++) {
        weft_tensor *batch = batch_of(s), *mine = rows_of(batch, rank, size);
        double loss = 0, norm;
        for (int p = 0; p < parts; p++) {
            weft_tensor *piece = rows_of(mine, p, parts);
            CHECK_OK(weft_gradient_sync(net, p == parts - 1));
            weft_tensor *one =
                weft_cross_entropy(weft_module_call(net, inputs_of(piece)), labels_of(piece));
            one = weft_div_scalar(one, parts);
            CHECK_OK(weft_backward(one));
            loss += mean_over(world, one);
        }
        CHECK_NEAR(loss, t.loss[s], 1e-6);
        check_gradients(&t, s, net);
        weft_named list[PARAMS];
        int count = weft_module_params(net, list, PARAMS);
        CHECK_OK(weft_clip_grad_norm(list, count, LIMIT, NULL, &norm));
        CHECK_NEAR(norm, t.norm[s], 1e-6);
        CHECK_OK(weft_optim_step(sgd));
    }
}

RANKS_TEST(test_replicate_two, 2)
{
    weft_group *world = join(30000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    train(world, &opts, 1);
    finish(world);
}

RANKS_TEST(test_replicate_eight, 8)
{
    if (TINY_SLOW)
        SKIP("eight ranks on a GPU that is a program take minutes");
    weft_group *world = join(60000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    train(world, &opts, 1);
    finish(world);
}

/* Many buckets, whose order changes after the first step. */
RANKS_TEST(test_replicate_buckets, 4)
{
    weft_group *world = join(30000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    opts.bucket_bytes = 600;
    opts.start = WEFT_START_CHECK;
    train(world, &opts, 1);
    finish(world);
}

RANKS_TEST(test_replicate_accumulate, 2)
{
    weft_group *world = join(30000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    opts.bucket_bytes = 5000;
    train(world, &opts, 2);
    finish(world);
}

/* ---- parameters that are not used ---- */

/* The error is the same on all ranks; when all use all again, training goes on. */
RANKS_TEST(test_replicate_unused, 4)
{
    weft_group *world = join(30000);
    fork_state f = {true, rank != 1 && rank != 2};
    weft_module *net = new_fork(&f);
    CHECK_OK(weft_replicate(net, world, NULL));
    CHECK_STATUS(backward_of(net), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "\"right.weight\"");
    CHECK_CONTAINS(weft_last_error(), "rank 1, 2");
    CHECK(!strstr(weft_last_error(), "left"));
    f.right = true;
    CHECK_OK(backward_of(net));
    weft_clear_error();
    finish(world);
}

/* With the option zeros count, and what nobody uses has no gradient at all. */
RANKS_TEST(test_replicate_unused_zeros, 2)
{
    weft_group *world = join(30000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    opts.unused = true;
    opts.bucket_bytes = 1;
    fork_state f = {false, rank == 0};
    weft_module *net = new_fork(&f);
    CHECK_OK(weft_replicate(net, world, &opts));
    for (int s = 0; s < 3; s++) {
        weft_tensor *right = weft_module_param(net, "right.weight");
        CHECK_OK(backward_of(net));
        CHECK(!weft_grad(weft_module_param(net, "left.weight")));
        CHECK(weft_grad(right));
        weft_tensor *same = weft_all_reduce(weft_grad(right), WEFT_MAX, world);
        CHECK(weft_equal(same, weft_grad(right)));
        CHECK_OK(weft_set_grad(right, NULL));
        weft_module *both = weft_module_child(net, "both");
        CHECK_OK(weft_set_grad(weft_module_param(both, "weight"), NULL));
        CHECK_OK(weft_set_grad(weft_module_param(both, "bias"), NULL));
    }
    finish(world);
}

/* ---- bad starts ---- */

RANKS_TEST(test_replicate_refuses, 2)
{
    weft_group *world = join(30000);
    weft_replicate_opts opts = WEFT_REPLICATE_OPTS_INIT;
    opts.start = WEFT_START_CHECK;
    fork_state f = {true, true};
    weft_module *net = new_fork(&f), *other = weft_nn_linear(3 + rank, 4);
    CHECK_STATUS(weft_replicate(other, world, NULL), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(),
                   "rank 0 has \"weight\": f32 [4, 3]; rank 1 has \"weight\": f32 [4, 4]");
    weft_module *drawn = weft_nn_linear(3, 3);
    weft_seed((uint64_t)rank);
    drawn = weft_nn_linear(3, 3);
    CHECK_STATUS(weft_replicate(drawn, world, &opts), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "\"weight\"");
    CHECK_OK(weft_replicate(net, world, &opts));
    CHECK_STATUS(weft_replicate(net, world, &opts), WEFT_ERR_EXISTS);
    CHECK_STATUS(weft_replicate(weft_nn_sequential(net), world, &opts), WEFT_ERR_EXISTS);
    CHECK_CONTAINS(weft_last_error(), "\"0\"");
    CHECK_STATUS(weft_replicate(rank ? net : drawn, world, &opts), WEFT_ERR_EXISTS);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    weft_clear_error();
    CHECK_STATUS(weft_replicate(NULL, world, &opts), WEFT_ERR_INVALID_ARG);
    opts.size = 3;
    CHECK_STATUS(weft_replicate(drawn, world, &opts), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_gradient_sync(NULL, true), WEFT_ERR_INVALID_ARG);
    finish(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
