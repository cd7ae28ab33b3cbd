/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training over a mesh, two lines of code after the model is made: its layers are cut over pairs of
 * ranks, and what is left of them is sharded over the pairs.  The loss is that of one rank.
 * Run: weft run -n 4 16_parallel, or with -n 2 or 8
 */
#include <math.h>
#include <stdio.h>
#include <weft/weft.h>

enum { LAYERS = 4, WIDTH = 64, ROWS = 64, STEPS = 20 };

static weft_tensor *residual(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_layer(void)
{
    weft_module *layer = weft_module_new(residual, NULL);
    weft_module_add(layer, "mlp",
                    weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, 4 * WIDTH),
                                       weft_nn_op(weft_gelu), weft_nn_linear(4 * WIDTH, WIDTH)));
    return layer;
}

int main(void)
{
    weft_group *world = weft_init(NULL);
    int pairs = weft_size(world) / 2;
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(pairs, 2), "data,model");
    weft_mesh *data = weft_mesh_slice(mesh, "data"), *model = weft_mesh_slice(mesh, "model");
    weft_module *layer[LAYERS];
    weft_seed(1);
    for (int i = 0; i < LAYERS; i++)
        layer[i] = new_layer();
    weft_module *net = weft_nn_sequential_of(layer, LAYERS);

    weft_plan plan[] = {{"*.mlp.1", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
                        {"*.mlp.3", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL}};
    weft_parallelize(net, model, plan, 2, NULL);
    for (int i = 0; i < LAYERS; i++)
        weft_shard(layer[i], data, NULL); /* a layer is gathered while the one before it computes */
    weft_shard(net, data, NULL);

    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL); /* of this rank's parts alone */
    int64_t mine = pairs > 0 ? ROWS / pairs : 0;
    double norm = NAN, mean = NAN;
    for (int step = 0; step < STEPS; step++) {
        weft_scope_open();
        weft_seed(100 + (uint64_t)step);
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, WIDTH));
        x = weft_narrow(x, 0, mine * weft_mesh_local_rank(data, 0), mine);
        weft_tensor *off = weft_sub(weft_module_call(net, x), weft_sin(x)); /* it learns the sine */
        weft_tensor *loss = weft_mean(weft_mul(off, off), NULL, 0, false);
        weft_backward(loss);
        weft_clip_grads(net, 1, mesh, &norm);
        weft_optim_step(adam);
        mean = weft_item(weft_all_reduce(weft_detach(loss), WEFT_AVG, weft_mesh_group(data, 0)), 0);
        if (weft_rank(world) == 0 && step % 5 == 0)
            printf("step %d: loss %.4f, norm %.3f\n", step, mean, norm);
        weft_scope_close();
    }
    weft_tensor *part = weft_module_param(net, "0.mlp.1.weight");
    printf("rank %d: loss %.4f, has %lld of the %d numbers of 0.mlp.1.weight\n", weft_rank(world),
           mean, (long long)weft_tensor_numel(part), 4 * WIDTH * WIDTH);
    if (weft_last_status() < 0)
        fprintf(stderr, "%s\n", weft_last_error());
    return weft_finish(world);
}
