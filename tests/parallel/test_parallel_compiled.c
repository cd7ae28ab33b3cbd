/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/unit_captured.c, parallel/replicate.c, parallel/flow.c */
/* Modules that are spread over ranks, called in compiled functions: the losses and gradients of one
 * rank, as without. */
#include "tiny_gpt.h"

#include "harness.h"

enum { STEPS = STEPS_TRAINED };

typedef enum way { REPLICATED, SHARDED, CUT } way;

typedef struct job {
    weft_module *net;
    weft_group *group;
    way how;
} job;

static weft_status forward(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const job *j = user;
    (void)ins, (void)outs;
    weft_tensor *logits = weft_module_call(j->net, in[0]);
    out[0] = j->how == CUT ? weft_parallel_cross_entropy(logits, in[1], j->group)
                           : weft_cross_entropy(logits, in[1]);
    return out[0] ? WEFT_OK : weft_last_status();
}

static void spread(job *j, weft_mesh *mesh)
{
    static const weft_plan plan[] = {
        {"embed.symbol", WEFT_PLAN_VOCABULARY, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
        {"body.*.attention.1", WEFT_PLAN_ATTENTION, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
        {"body.*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
        {"body.*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
        {"body.3", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    };
    weft_module *body = weft_module_child(j->net, "body");
    if (j->how == REPLICATED) {
        CHECK_OK(weft_replicate(j->net, j->group, NULL));
    } else if (j->how == CUT) {
        CHECK_OK(weft_parallelize(j->net, mesh, plan, 5, NULL));
    } else {
        CHECK_OK(weft_shard(weft_module_child(body, "0"), mesh, NULL));
        CHECK_OK(weft_shard(weft_module_child(body, "1"), mesh, NULL));
        CHECK_OK(weft_shard(j->net, mesh, NULL));
    }
}

static void check_parts(const truth *t, int s, weft_module *net)
{
    weft_named list[PARAMS];
    int count = weft_module_params(net, list, PARAMS);
    for (int i = 0; i < count; i++) {
        weft_shard_place place;
        weft_shard_place_of(list[i].tensor, &place);
        weft_tensor *whole = t->grad[s][find_param(t, list[i].name)];
        weft_tensor *mine = weft_grad(list[i].tensor);
        if (!mine)
            FAIL("step %d: %s has no gradient", s, list[i].name);
        double d = distance(mine, part_of(whole, list[i].tensor, place.offset));
        if (!(d <= 1e-6))
            FAIL("step %d: the gradient of %s is off by %g", s, list[i].name, d);
    }
}

static weft_compiled *compiled(bool wanted, weft_compile_opts *opts)
{
    weft_compiled *back = wanted ? weft_compile_backward(opts) : NULL;
    CHECK(back || !wanted);
    return back;
}

/* `both`: backward is captured too, with the hooks as part of it. */
static void train(weft_group *world, way how, const char *backend, bool both)
{
    truth t;
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(weft_size(world)), NULL);
    job j = {.net = NULL, .group = world, .how = how};
    find_truth(&t, STEPS);
    j.net = new_gpt();
    spread(&j, mesh);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    weft_compiled *fast = weft_compile(forward, &j, &opts), *back = compiled(both, &opts);
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT;
    momentum.momentum = 0.9;
    weft_optim *sgd = weft_optim_sgd(j.net, RATE, &momentum);
    int parts = how == CUT ? 1 : weft_size(world), part = how == CUT ? 0 : weft_rank(world);
    for (int s = 0; s < STEPS; s++) {
        double norm;
        weft_tensor *batch = weft_narrow(batch_of(s), 0, BATCH / parts * part, BATCH / parts);
        weft_tensor *in[] = {weft_contiguous(inputs_of(batch)), labels_of(batch)}, *loss = NULL;
        CHECK_OK(weft_compiled_call(fast, in, 2, &loss, 1));
        CHECK_OK(both ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss));
        weft_tensor *mean = weft_all_reduce(weft_detach(loss), WEFT_AVG, world);
        CHECK_NEAR(weft_item(mean, 0), t.loss[s], 1e-6);
        check_parts(&t, s, j.net);
        CHECK_OK(weft_clip_grads(j.net, LIMIT, mesh, &norm));
        CHECK_NEAR(norm, t.norm[s], 1e-6);
        CHECK_OK(weft_optim_step(sgd));
    }
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(fast, &info));
    if (info.frames != 1)
        FAIL("%d frames: %s", info.frames, info.miss);
    CHECK_INT(info.plain, 0);
    weft_release(fast);
    weft_release(back);
}

RANKS_TEST(test_compiled_replicas, 2)
{
    weft_group *world = join(60000);
    train(world, REPLICATED, "aot_eager", false);
    train(world, REPLICATED, "c", false);
    train(world, REPLICATED, "aot_eager", true);
    finish(world);
}

RANKS_TEST(test_compiled_plan, 2)
{
    weft_group *world = join(60000);
    train(world, CUT, "aot_eager", false);
    train(world, CUT, "c", false);
    train(world, CUT, "aot_eager", true);
    finish(world);
}

RANKS_TEST(test_compiled_shards, 2)
{
    weft_group *world = join(60000);
    train(world, SHARDED, "aot_eager", false);
    train(world, SHARDED, "c", false);
    train(world, SHARDED, "aot_eager", true);
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
