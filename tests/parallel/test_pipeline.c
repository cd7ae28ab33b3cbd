/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/pipeline.c */
/* The stages of a tiny GPT on several ranks, one or several on each, alone and with the other ways. */
#include "tiny_gpt.h"

#include "harness.h"

enum { STAGES = 4, STEPS = STEPS_TRAINED };

typedef struct layout {
    weft_mesh *mesh, *stages, *data, *model; /* all; a dimension each, or NULL */
    bool sharded;
    int parts;
} layout;

/* The model as four stages: what its symbols are, two blocks, and the head. */
static weft_module *stage_of(weft_module *net, int number)
{
    weft_module *body = weft_module_child(net, "body");
    switch (number) {
    case 0:
        return weft_module_child(net, "embed");
    case 1:
        return weft_module_child(body, "0");
    case 2:
        return weft_module_child(body, "1");
    default:
        return weft_nn_sequential(weft_module_child(body, "2"), weft_module_child(body, "3"));
    }
}

/* "3.1.weight", of the stages, is "body.3.weight" of the model. */
static void full_name(const char *name, char out[2 * WEFT_NAME_MAX])
{
    static const char *const heads[] = {"embed", "body.0", "body.1"};
    int stage = atoi(name);
    const char *rest = strchr(name, '.') + 1;
    if (stage < 3)
        snprintf(out, 2 * WEFT_NAME_MAX, "%s.%s", heads[stage], rest);
    else
        snprintf(out, 2 * WEFT_NAME_MAX, "body.%d.%s", atoi(rest) + 2, strchr(rest, '.') + 1);
}

/* Only the blocks: lines that fit nothing in the other stages are an error. */
static void cut_stage(weft_module *stage, int number, const layout *l)
{
    weft_plan lines[] = {{"attention.1", WEFT_PLAN_ATTENTION, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
                         {"mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
                         {"mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL}};
    if (l->model)
        CHECK_OK(
            weft_parallelize(stage, l->model, lines, number == 1 || number == 2 ? 3 : 0, NULL));
    if (l->data && l->sharded)
        CHECK_OK(weft_shard(stage, l->data, NULL));
    else if (l->data)
        CHECK_OK(weft_replicate(stage, weft_mesh_group(l->data, 0), NULL));
}

static void check_parts(const truth *t, int s, weft_module *module)
{
    weft_named list[PARAMS];
    char name[2 * WEFT_NAME_MAX];
    int count = weft_module_params(module, list, PARAMS);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        weft_shard_place place;
        weft_shard_place_of(list[i].tensor, &place);
        full_name(list[i].name, name);
        weft_tensor *whole = t->grad[s][find_param(t, name)], *mine = weft_grad(list[i].tensor);
        if (!mine)
            FAIL("step %d: %s has no gradient", s, name);
        double d = distance(mine, part_of(whole, list[i].tensor, place.offset));
        if (!(d <= 1e-6))
            FAIL("step %d: the gradient of %s is off by %g", s, name, d);
    }
}

static weft_tensor *loss_of(weft_tensor *y, weft_tensor *labels, void *user)
{
    ++*(int *)user;
    return weft_cross_entropy(y, labels);
}

static void train(const layout *l)
{
    truth t;
    weft_group *group = weft_mesh_group(l->stages, 0);
    int ranks = weft_size(group), rank = weft_rank(group), count = STAGES / ranks, calls = 0;
    int data = l->data ? weft_mesh_size(l->data, 0) : 1;
    int at = l->data ? weft_mesh_local_rank(l->data, 0) : 0;
    weft_module *stage[STAGES], *net;
    weft_pipeline_opts opts = WEFT_PIPELINE_OPTS_INIT;
    find_truth(&t, STEPS);
    net = new_gpt();
    for (int i = 0; i < count; i++) {
        stage[i] = stage_of(net, i * ranks + rank);
        cut_stage(stage[i], i * ranks + rank, l);
    }
    opts.parts = l->parts;
    weft_pipeline *pipeline = weft_pipeline_new(stage, count, group, &opts);
    if (!pipeline)
        FAIL("%s", weft_last_error());
    weft_module *own = weft_pipeline_module(pipeline);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    weft_optim *sgd = weft_optim_sgd(own, RATE, &momentum);
    for (int s = 0; s < STEPS; s++) {
        double loss, norm;
        weft_scope_open();
        weft_tensor *batch = weft_narrow(batch_of(s), 0, BATCH / data * at, BATCH / data);
        weft_tensor *x = rank == 0 ? inputs_of(batch) : NULL;
        weft_tensor *labels = rank == ranks - 1 ? labels_of(batch) : NULL;
        CHECK_OK(weft_pipeline_step(pipeline, x, labels, loss_of, &calls, &loss));
        if (l->data) {
            weft_tensor *sum = weft_tensor_from(WEFT_F64, WEFT_SHAPE(1), &loss);
            loss = weft_item(weft_all_reduce(sum, WEFT_AVG, weft_mesh_group(l->data, 0)), 0);
        }
        CHECK_NEAR(loss, t.loss[s], 1e-6);
        check_parts(&t, s, own);
        CHECK_OK(weft_clip_grads(own, LIMIT, l->mesh, &norm));
        CHECK_NEAR(norm, t.norm[s], 1e-6);
        CHECK_OK(weft_optim_step(sgd));
        weft_scope_close();
    }
    CHECK_INT(calls, rank == ranks - 1 ? STEPS * l->parts : 0);
}

/* ---- alone ---- */

static void train_line(weft_group *world, int parts)
{
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(weft_size(world)), NULL);
    layout l = {.mesh = mesh, .stages = mesh, .parts = parts};
    train(&l);
}

/* Two stages on each rank; more parts than ranks, and as many. */
RANKS_TEST(test_pipeline_interleaved, 2)
{
    weft_group *world = join(30000);
    train_line(world, 8);
    train_line(world, 2);
    finish(world);
}

/* One stage on each; also fewer parts than ranks. */
RANKS_TEST(test_pipeline_one_by_one, 4)
{
    weft_group *world = join(30000);
    train_line(world, 8);
    train_line(world, 1);
    finish(world);
}

RANKS_TEST(test_pipeline_of_one_rank, 1)
{
    weft_group *world = join(30000);
    train_line(world, 4);
    finish(world);
}

/* ---- with the other ways ---- */

RANKS_TEST(test_pipeline_and_replicate, 4)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "stages,data");
    layout l = {.mesh = mesh,
                .stages = weft_mesh_slice(mesh, "stages"),
                .data = weft_mesh_slice(mesh, "data"),
                .parts = 2};
    train(&l);
    finish(world);
}

RANKS_TEST(test_pipeline_in_three_dimensions, 8)
{
    weft_group *world = join(60000);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2, 2), "stages,data,model");
    layout l = {.mesh = mesh,
                .stages = weft_mesh_slice(mesh, "stages"),
                .data = weft_mesh_slice(mesh, "data"),
                .model = weft_mesh_slice(mesh, "model"),
                .sharded = true,
                .parts = 4};
    train(&l);
    finish(world);
}

/* ---- messages that do not fit into the channel ---- */

static weft_tensor *square_of(weft_tensor *y, weft_tensor *labels, void *user)
{
    (void)labels, (void)user;
    return weft_mean(weft_mul(y, y), NULL, 0, false);
}

RANKS_TEST(test_pipeline_large, 2)
{
    enum { ROWS = 64, WIDE = 256 }; /* 64 KiB a part in each direction */
    weft_group *world = join(30000);
    weft_seed(3);
    weft_module *stage[2] = {weft_nn_linear(WIDE, WIDE), weft_nn_linear(WIDE, WIDE)};
    weft_pipeline *pipeline = weft_pipeline_new(stage, 2, world, NULL);
    double loss;
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4 * ROWS, WIDE));
    CHECK(pipeline);
    CHECK_OK(weft_pipeline_step(pipeline, x, NULL, square_of, NULL, &loss));
    CHECK(loss > 0);
    CHECK(weft_grad(weft_module_param(stage[0], "weight")));
    finish(world);
}

/* ---- refusals and failures ---- */

RANKS_TEST(test_pipeline_refuses, 2)
{
    weft_group *world = join(30000);
    weft_pipeline_opts opts = WEFT_PIPELINE_OPTS_INIT;
    weft_module *stage[2] = {weft_nn_linear(4, 4), weft_nn_linear(4, 4)};
    CHECK(!weft_pipeline_new(stage, 1 + rank, world, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 1 has 2 stages, 4 parts");
    opts.parts = 3;
    CHECK(!weft_pipeline_new(stage, 2, world, &opts));
    CHECK_CONTAINS(weft_last_error(), "3 parts with 2 stages on each of 2 ranks");
    opts.parts = 0;
    CHECK(!weft_pipeline_new(stage, 1, world, &opts));
    weft_clear_error();
    CHECK(!weft_pipeline_new(stage, 1, NULL, &opts));
    weft_clear_error();
    CHECK(!weft_pipeline_module(NULL));
    opts.parts = 2;
    weft_pipeline *pipeline = weft_pipeline_new(stage, 1, world, &opts);
    CHECK(pipeline && weft_module_child(weft_pipeline_module(pipeline), rank ? "1" : "0"));
    weft_tensor *odd = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4));
    CHECK_STATUS(weft_pipeline_step(pipeline, odd, NULL, square_of, NULL, NULL),
                 WEFT_ERR_INVALID_ARG); /* on both, though only rank 0 reads it */
    CHECK_CONTAINS(weft_last_error(), "rank 0");
    CHECK_STATUS(weft_pipeline_step(pipeline, weft_narrow(odd, 0, 0, 2), NULL,
                                    rank ? NULL : square_of, NULL, NULL),
                 WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    finish(world);
}

static weft_tensor *no_loss(weft_tensor *y, weft_tensor *labels, void *user)
{
    (void)labels, (void)user;
    return weft_view(y, WEFT_SHAPE(7, 7));
}

/* A rank whose function fails: the others need not wait for their limit. */
RANKS_TEST(test_pipeline_fails, 2)
{
    weft_group *world = join(60000), *group = fresh_group(world);
    weft_module *stage = weft_nn_linear(4, 4);
    weft_pipeline *pipeline = weft_pipeline_new(&stage, 1, group, NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 4));
    weft_status status = weft_pipeline_step(pipeline, x, NULL, no_loss, NULL, NULL);
    CHECK_INT(status, rank ? WEFT_ERR_INVALID_ARG : WEFT_ERR_REVOKED);
    if (rank)
        CHECK_CONTAINS(weft_last_error(), "stage 1, part 0");
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
