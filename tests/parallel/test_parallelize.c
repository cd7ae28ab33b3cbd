/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/plan.c, parallel/cut.c, parallel/cut_loss.c, parallel/flow.c, parallel/clip.c */
/* A tiny GPT by every mixture: layers cut by plans, sequences in parts, shards and copies, in one, two
 * and three dimensions, with the losses, gradients and norms of one rank. */
#include "tiny_gpt.h"

#include "harness.h"

typedef enum model_cut { NO_PLAN, BY_FEATURES, BY_SEQUENCE, BY_HAND } model_cut;

typedef struct mixture {
    weft_mesh *mesh, *data,
        *model; /* all; what shares the batch; what shares the layers, or NULL */
    model_cut cut;
    bool sharded, loss_parallel;
} mixture;

/* ---- plans ---- */

static const weft_plan by_features[] = {
    {"embed.symbol", WEFT_PLAN_VOCABULARY, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.attention.1", WEFT_PLAN_ATTENTION, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.3", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
};

static const weft_plan by_sequence[] = {
    {"embed.symbol", WEFT_PLAN_VOCABULARY, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body", WEFT_PLAN_SEQUENCE, WEFT_FLOW_WHOLE, WEFT_FLOW_USUAL},
    {"body.*.attention.0", WEFT_PLAN_SEQUENCE, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.attention.1", WEFT_PLAN_ATTENTION, WEFT_FLOW_SEQUENCE, WEFT_FLOW_SEQUENCE},
    {"body.*.mlp.0", WEFT_PLAN_SEQUENCE, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_SEQUENCE, WEFT_FLOW_USUAL},
    {"body.*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_SEQUENCE},
    {"body.2", WEFT_PLAN_SEQUENCE, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.3", WEFT_PLAN_COLUMN, WEFT_FLOW_SEQUENCE, WEFT_FLOW_USUAL},
};

/* The same without the style for attention, and layers that take and give whole values. */
static const weft_plan by_hand[] = {
    {"body.*.attention.1", WEFT_PLAN_ENTER, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.attention.1.query", WEFT_PLAN_COLUMN, WEFT_FLOW_ENTERED, WEFT_FLOW_USUAL},
    {"body.*.attention.1.key", WEFT_PLAN_COLUMN, WEFT_FLOW_ENTERED, WEFT_FLOW_USUAL},
    {"body.*.attention.1.value", WEFT_PLAN_COLUMN, WEFT_FLOW_ENTERED, WEFT_FLOW_USUAL},
    {"body.*.attention.1.out", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_WHOLE},
    {"body.*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_WHOLE, WEFT_FLOW_USUAL},
    {"body.2", WEFT_PLAN_SEQUENCE, WEFT_FLOW_WHOLE, WEFT_FLOW_WHOLE},
};

#define LINES(plan_) (int)(sizeof plan_ / sizeof *plan_)

static void parallelize(weft_module *net, const mixture *m)
{
    if (m->cut == BY_FEATURES) {
        weft_plan plan[LINES(by_features)];
        memcpy(plan, by_features, sizeof plan);
        if (!m->loss_parallel)
            plan[LINES(by_features) - 1].out = WEFT_FLOW_WHOLE;
        CHECK_OK(weft_parallelize(net, m->model, plan, LINES(by_features), NULL));
    } else if (m->cut == BY_SEQUENCE) {
        CHECK_OK(weft_parallelize(net, m->model, by_sequence, LINES(by_sequence), NULL));
    } else if (m->cut == BY_HAND) {
        CHECK_OK(weft_parallelize(net, m->model, by_hand, LINES(by_hand), NULL));
    }
}

static void spread(weft_module *net, const mixture *m)
{
    char name[16];
    parallelize(net, m);
    if (!m->sharded) {
        if (m->data)
            CHECK_OK(weft_replicate(net, weft_mesh_group(m->data, WEFT_MESH_ONLY), NULL));
        return;
    }
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        weft_module *layer = weft_module_child(weft_module_child(net, "body"), name);
        CHECK_OK(weft_shard(layer, m->data, NULL));
    }
    CHECK_OK(weft_shard(net, m->data, NULL));
}

/* ---- steps ---- */

/* Which part of the batch this rank has, and of how many. */
static int part_of_batch(const mixture *m, int *parts)
{
    int at[WEFT_MAX_DIMS], part = 0;
    *parts = 1;
    if (!m->data)
        return 0;
    CHECK_OK(weft_mesh_coordinate(m->data, at));
    for (int i = 0; i < weft_mesh_ndim(m->data); i++) {
        part = part * weft_mesh_size(m->data, i) + at[i];
        *parts *= weft_mesh_size(m->data, i);
    }
    return part;
}

static weft_tensor *loss_of(weft_module *net, const mixture *m, weft_tensor *batch)
{
    weft_tensor *logits = weft_module_call(net, inputs_of(batch)), *labels = labels_of(batch);
    bool cut = m->cut == BY_SEQUENCE || (m->cut == BY_FEATURES && m->loss_parallel);
    return cut ? weft_parallel_cross_entropy(logits, labels, weft_mesh_group(m->model, 0))
               : weft_cross_entropy(logits, labels);
}

static double mean_over_data(const mixture *m, weft_tensor *loss)
{
    weft_tensor *x = weft_detach(loss);
    for (int i = 0; m->data && i < weft_mesh_ndim(m->data); i++)
        x = weft_all_reduce(x, WEFT_AVG, weft_mesh_group(m->data, i));
    return weft_item(x, 0);
}

static void check_parts(const truth *t, int s, weft_module *net)
{
    weft_named list[PARAMS];
    int count = weft_module_params(net, list, PARAMS);
    CHECK_INT(count, t->count);
    for (int i = 0; i < count; i++) {
        weft_shard_place place;
        weft_shard_place_of(list[i].tensor, &place);
        weft_tensor *whole = t->grad[s][find_param(t, list[i].name)];
        weft_tensor *mine = weft_grad(list[i].tensor);
        CHECK(weft_i_shape_equal(place.full, weft_tensor_shape(whole)));
        if (!mine)
            FAIL("step %d: %s has no gradient", s, list[i].name);
        double d = distance(mine, part_of(whole, list[i].tensor, place.offset));
        if (!(d <= 1e-6))
            FAIL("step %d: the gradient of %s is off by %g", s, list[i].name, d);
    }
}

static void train(const truth *t, const mixture *m)
{
    int parts, part = part_of_batch(m, &parts);
    weft_module *net = new_gpt();
    spread(net, m);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    weft_optim *sgd = weft_optim_sgd(net, RATE, &momentum);
    for (int s = 0; s < STEPS_TRAINED; s++) {
        double norm;
        weft_scope_open();
        weft_tensor *batch = weft_narrow(batch_of(s), 0, BATCH / parts * part, BATCH / parts);
        weft_tensor *loss = loss_of(net, m, batch);
        CHECK_OK(weft_backward(loss));
        CHECK_NEAR(mean_over_data(m, loss), t->loss[s], 1e-6);
        check_parts(t, s, net);
        CHECK_OK(weft_clip_grads(net, LIMIT, m->mesh, &norm));
        CHECK_NEAR(norm, t->norm[s], 1e-6);
        CHECK_OK(weft_optim_step(sgd));
        weft_scope_close();
    }
}

static weft_mesh *mesh_of(weft_group *world, weft_shape shape, const char *names)
{
    weft_mesh *mesh = weft_mesh_init(world, DEVICE, shape, names);
    if (!mesh)
        FAIL("%s", weft_last_error());
    return mesh;
}

/* ---- one dimension: layers alone ---- */

static void train_model(weft_group *world, const truth *t, model_cut cut, bool loss_parallel)
{
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(weft_size(world)), "model");
    mixture m = {.mesh = mesh, .model = mesh, .cut = cut, .loss_parallel = loss_parallel};
    train(t, &m);
}

RANKS_TEST(test_parallelize_features, 2)
{
    weft_group *world = join(30000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    train_model(world, &t, BY_FEATURES, false);
    train_model(world, &t, BY_FEATURES, true);
    finish(world);
}

RANKS_TEST(test_parallelize_features_eight, 8)
{
    weft_group *world = join(60000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    train_model(world, &t, BY_FEATURES, true);
    finish(world);
}

RANKS_TEST(test_parallelize_sequence, 4)
{
    weft_group *world = join(30000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    train_model(world, &t, BY_SEQUENCE, true);
    weft_fused_use(WEFT_FUSED_PIPELINE);
    train_model(world, &t, BY_SEQUENCE, true);
    weft_fused_use(WEFT_FUSED_CHOOSE);
    finish(world);
}

RANKS_TEST(test_parallelize_by_hand, 2)
{
    weft_group *world = join(30000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    train_model(world, &t, BY_HAND, false);
    finish(world);
}

/* ---- two and three dimensions ---- */

RANKS_TEST(test_parallelize_and_replicate, 4)
{
    weft_group *world = join(30000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2, 2), "data,model");
    mixture m = {.mesh = mesh,
                 .data = weft_mesh_slice(mesh, "data"),
                 .model = weft_mesh_slice(mesh, "model"),
                 .cut = BY_SEQUENCE};
    train(&t, &m);
    m.cut = BY_FEATURES;
    train(&t, &m);
    finish(world);
}

RANKS_TEST(test_parallelize_and_shard, 4)
{
    weft_group *world = join(30000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2, 2), "data,model");
    mixture m = {.mesh = mesh,
                 .data = weft_mesh_slice(mesh, "data"),
                 .model = weft_mesh_slice(mesh, "model"),
                 .cut = BY_SEQUENCE,
                 .sharded = true};
    train(&t, &m);
    m.cut = BY_FEATURES;
    m.loss_parallel = true;
    train(&t, &m);
    finish(world);
}

RANKS_TEST(test_three_dimensions, 8)
{
    weft_group *world = join(60000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2, 2, 2), "copies,shards,model");
    mixture m = {.mesh = mesh,
                 .data = weft_mesh_slice(mesh, "copies,shards"),
                 .model = weft_mesh_slice(mesh, "model"),
                 .cut = BY_SEQUENCE,
                 .sharded = true};
    train(&t, &m);
    finish(world);
}

/* Shards alone, over so many ranks that there are fewer rows than those. */
RANKS_TEST(test_eight_shards, 8)
{
    weft_group *world = join(60000);
    truth t;
    find_truth(&t, STEPS_TRAINED);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(8), "data");
    mixture m = {.mesh = mesh, .data = mesh, .sharded = true};
    train(&t, &m);
    finish(world);
}

/* ---- weights that are tied ---- */

static weft_tensor *tied_forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_module_call(weft_module_child(self, "head"),
                            weft_module_call(weft_module_child(self, "symbol"), x));
}

static weft_module *new_tied(void)
{
    weft_seed(11);
    weft_module *net = weft_module_new(tied_forward, NULL);
    weft_module_add(net, "symbol", weft_nn_embedding(8, 4));
    weft_module_add(net, "head", weft_nn_linear_plain(4, 8));
    CHECK_OK(weft_module_bind(net, "head.weight", weft_module_param(net, "symbol.weight")));
    return net;
}

RANKS_TEST(test_parallelize_tied, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2), NULL);
    weft_plan plan[] = {{"symbol", WEFT_PLAN_VOCABULARY, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
                        {"head", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL}};
    int64_t symbols[] = {3, 1, 7, 5}, next[] = {1, 7, 5, 0};
    weft_tensor *x = weft_tensor_from(WEFT_I64, WEFT_SHAPE(4), symbols);
    weft_tensor *y = weft_tensor_from(WEFT_I64, WEFT_SHAPE(4), next);
    weft_module *alone = new_tied(), *net = new_tied();
    CHECK_STATUS(weft_parallelize(net, mesh, plan, 1, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "tied");
    CHECK_OK(weft_parallelize(net, mesh, plan, 2, NULL));
    CHECK(weft_module_param(net, "symbol.weight") == weft_module_param(net, "head.weight"));
    weft_tensor *loss = weft_cross_entropy(weft_module_call(alone, x), y);
    weft_tensor *ours = weft_parallel_cross_entropy(weft_module_call(net, x), y, world);
    CHECK_NEAR(weft_item(ours, 0), weft_item(loss, 0), 1e-6);
    CHECK_OK(weft_backward(loss));
    CHECK_OK(weft_backward(ours));
    CHECK(distance(weft_grad(weft_module_param(net, "head.weight")),
                   weft_narrow(weft_grad(weft_module_param(alone, "head.weight")), 0, 4 * rank,
                               4)) < 1e-6);
    finish(world);
}

/* ---- plans that are wrong ---- */

static void refuse(weft_module *net, weft_mesh *mesh, weft_plan line, weft_status status,
                   const char *text)
{
    CHECK_STATUS(weft_parallelize(net, mesh, &line, 1, NULL), status);
    CHECK_CONTAINS(weft_last_error(), text);
}

#define LINE(layer_, style_, in_, out_) \
    ((weft_plan){(layer_), WEFT_PLAN_##style_, WEFT_FLOW_##in_, WEFT_FLOW_##out_})

RANKS_TEST(test_parallelize_refuses, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2), NULL);
    weft_seed(1);
    weft_module *net = weft_nn_sequential(weft_nn_linear(6, 5), weft_nn_linear(5, 6),
                                          weft_nn_attention(9, 3, 0), weft_nn_embedding(7, 2));
    refuse(net, mesh, LINE("nobody", COLUMN, USUAL, USUAL), WEFT_ERR_NOT_FOUND, "\"nobody\"");
    refuse(net, mesh, LINE("*.*", COLUMN, USUAL, USUAL), WEFT_ERR_INVALID_ARG, "\"2.query\"");
    refuse(net, mesh, LINE("0", COLUMN, USUAL, USUAL), WEFT_ERR_INVALID_ARG,
           "layer \"0\": dimension 0 of its weight has 5 entries, which 2 ranks do not divide");
    refuse(net, mesh, LINE("1", ROW, USUAL, USUAL), WEFT_ERR_INVALID_ARG, "layer \"1\"");
    refuse(net, mesh, LINE("2", ATTENTION, USUAL, USUAL), WEFT_ERR_INVALID_ARG,
           "layer \"2\": 3 heads");
    refuse(net, mesh, LINE("3", VOCABULARY, USUAL, USUAL), WEFT_ERR_INVALID_ARG, "layer \"3\"");
    refuse(net, mesh, LINE("3", COLUMN, USUAL, USUAL), WEFT_ERR_TYPE,
           "layer \"3\" is a embedding; style COLUMN is for a linear");
    refuse(net, mesh, LINE("0", ROW, SEQUENCE, USUAL), WEFT_ERR_INVALID_ARG,
           "`in` cannot be SEQUENCE");
    refuse(net, mesh, LINE("0", COLUMN, USUAL, SEQUENCE), WEFT_ERR_INVALID_ARG,
           "`out` cannot be SEQUENCE");
    weft_plan twice[] = {LINE("0", ROW, USUAL, USUAL), LINE("*", ROW, USUAL, USUAL)};
    CHECK_STATUS(weft_parallelize(net, mesh, twice, 2, NULL), WEFT_ERR_EXISTS);
    weft_plan mine = rank ? LINE("0", ROW, USUAL, USUAL) : LINE("1", COLUMN, USUAL, USUAL);
    CHECK_STATUS(weft_parallelize(net, mesh, &mine, 1, NULL), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "layer \"1\": style COLUMN");
    weft_plan bad = rank ? LINE("nobody", ROW, USUAL, USUAL) : LINE("0", ROW, USUAL, USUAL);
    CHECK_STATUS(weft_parallelize(net, mesh, &bad, 1, NULL), WEFT_ERR_NOT_FOUND); /* on both */
    CHECK_CONTAINS(weft_last_error(), "rank 1: line \"nobody\"");
    weft_plan good = LINE("0", ROW, USUAL, USUAL);
    CHECK_OK(weft_parallelize(net, mesh, &good, 1, NULL));
    CHECK_STATUS(weft_parallelize(net, mesh, &good, 1, NULL), WEFT_ERR_EXISTS);
    CHECK_OK(weft_shard(net, mesh, NULL));
    CHECK_STATUS(weft_parallelize(net, mesh, &good, 1, NULL), WEFT_ERR_STATE);
    finish(world);
}

/* Indices that are of no rank, and a mesh that has not all ranks. */
RANKS_TEST(test_parallelize_values, 2)
{
    weft_group *world = join(30000);
    weft_mesh *mesh = mesh_of(world, WEFT_SHAPE(2), NULL);
    int64_t symbols[] = {3, 8};
    weft_module *net = weft_nn_sequential(weft_nn_embedding(8, 2));
    weft_plan line = LINE("0", VOCABULARY, USUAL, USUAL);
    CHECK_OK(weft_parallelize(net, mesh, &line, 1, NULL));
    weft_tensor *x = weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), symbols);
    CHECK(!weft_module_call(net, x));
    CHECK_CONTAINS(weft_last_error(), "index 8; there are 8");
    weft_clear_error();
    weft_tensor *logits = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4));
    CHECK(!weft_parallel_cross_entropy(logits, x, world));
    CHECK(
        !weft_parallel_cross_entropy(logits, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), world));
    CHECK(!weft_parallel_cross_entropy(logits, logits, world));
    weft_clear_error();
    weft_group *own = weft_group_split(world, rank, 0);
    weft_mesh *small = weft_mesh_from_groups(&own, 1, WEFT_CPU, WEFT_SHAPE(1), NULL, NULL);
    CHECK_STATUS(weft_clip_grads(net, 1, small, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"0.weight\" is cut into 2 parts");
    CHECK_STATUS(weft_clip_grads(net, -1, mesh, NULL), WEFT_ERR_INVALID_ARG);
    finish(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
