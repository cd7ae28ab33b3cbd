/* SPDX-License-Identifier: Apache-2.0 */
/* A tiny GPT that is trained in any of the ways of weft/parallel.h, with what it takes to stop and go on. */
#ifndef WEFT_TESTS_SPREAD_H
#define WEFT_TESTS_SPREAD_H

#include "../parallel/tiny_gpt.h"

#include "harness.h"

typedef enum way { ALONE, REPLICATED, SHARDED, CUT, BOTH } way; /* BOTH: cut and sharded, 2 x 2 */

typedef struct job {
    weft_group *group; /* of those that train together */
    weft_mesh *mesh, *data, *model;
    weft_module *net;
    weft_optim *optim;
    weft_checkpoint *checkpoint;
    int64_t position;
} job;

static const weft_plan spread_plan[] = {
    {"embed.symbol", WEFT_PLAN_VOCABULARY, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.attention.1", WEFT_PLAN_ATTENTION, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"body.3", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_WHOLE},
};

static void shard_all(weft_module *net, weft_mesh *mesh)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(weft_shard(weft_module_child(weft_module_child(net, "body"), name), mesh, NULL));
    }
    CHECK_OK(weft_shard(net, mesh, NULL));
}

/* Who trains with whom: groups of `ranks` ranks side by side, or the mesh of BOTH. */
static void find_meshes(job *j, weft_group *world, way how, int ranks)
{
    int size = weft_size(world);
    weft_mesh *grid = weft_mesh_init(
        world, WEFT_CPU, how == BOTH ? WEFT_SHAPE(2, size / 2) : WEFT_SHAPE(size / ranks, ranks),
        how == BOTH ? "data,model" : "outer,inner");
    if (!grid)
        FAIL("%s", weft_last_error());
    j->mesh = how == BOTH ? grid : weft_mesh_slice(grid, "inner");
    j->data = how == BOTH ? weft_mesh_slice(grid, "data") : how == CUT ? NULL : j->mesh;
    j->model = how == BOTH ? weft_mesh_slice(grid, "model") : how == CUT ? j->mesh : NULL;
    j->group = how == BOTH ? world : weft_mesh_group(j->mesh, 0);
}

static void spread(job *j, way how)
{
    if (j->model)
        CHECK_OK(weft_parallelize(j->net, j->model, spread_plan, 5, NULL));
    if (how == SHARDED || how == BOTH)
        shard_all(j->net, j->data);
    if (how == REPLICATED)
        CHECK_OK(weft_replicate(j->net, j->group, NULL));
}

/* `other`: with weights that must be loaded over. */
static job begin(weft_group *world, way how, int ranks, bool adam, const char *folder, bool other,
                 const weft_checkpoint_opts *opts)
{
    job j = {0};
    find_meshes(&j, world, how, ranks);
    j.net = new_gpt();
    weft_named list[PARAMS];
    int count = other ? weft_module_params(j.net, list, PARAMS) : 0;
    WEFT_NO_GRAD
    {
        for (int i = 0; i < count; i++)
            CHECK_OK(weft_fill(list[i].tensor, 0.25));
    }
    spread(&j, how);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    j.optim = adam ? weft_optim_adamw(j.net, 1e-2, NULL) : weft_optim_sgd(j.net, RATE, &momentum);
    if (folder) {
        j.checkpoint = weft_checkpoint_new(folder, j.group, opts);
        CHECK_OK(weft_checkpoint_add_module(j.checkpoint, "model", j.net));
        CHECK_OK(weft_checkpoint_add_optim(j.checkpoint, "optim", j.optim));
        /* The caller has the job elsewhere in the end: see add_position. */
    }
    return j;
}

__attribute__((unused)) static void add_position(job *j)
{
    CHECK_OK(
        weft_checkpoint_add_value(j->checkpoint, "position", &j->position, sizeof j->position));
}

/* A step; the mean loss of the whole batch. */
static double train_step(job *j, int s)
{
    int parts = j->data ? weft_size(weft_mesh_group(j->data, 0)) : 1;
    int part = j->data ? weft_rank(weft_mesh_group(j->data, 0)) : 0;
    double norm;
    CHECK_OK(weft_scope_open());
    weft_tensor *batch = batch_of(s);
    int64_t rows = weft_tensor_size(batch, 0) / parts;
    batch = weft_narrow(batch, 0, rows * part, rows);
    weft_tensor *loss =
        weft_cross_entropy(weft_module_call(j->net, inputs_of(batch)), labels_of(batch));
    CHECK_OK(weft_backward(loss));
    weft_tensor *all = weft_detach(loss);
    if (parts > 1)
        all = weft_all_reduce(all, WEFT_AVG, weft_mesh_group(j->data, 0));
    double value = weft_item(all, 0);
    CHECK_OK(weft_clip_grads(j->net, LIMIT, j->mesh, &norm));
    CHECK_OK(weft_optim_step(j->optim));
    CHECK_OK(weft_scope_close());
    j->position++;
    return value;
}

#endif
