/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer pair cut over the ranks: each has columns of the first weight and rows of the second, and
 * one all_reduce adds the parts up, in forward; its gradient is one in backward.
 * 05_tensor_parallel.py is the same in PyTorch.  Run: weft run -n 2 05_tensor_parallel
 */
#include <stdio.h>
#include <weft/weft.h>

typedef struct mlp {
    weft_module *up, *down;
    weft_group *world;
} mlp;

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    mlp *m = user;
    (void)self;
    weft_tensor *part = weft_module_call(m->down, weft_gelu(weft_module_call(m->up, x)));
    return weft_all_reduce(part, WEFT_SUM, m->world); /* under way; who uses it waits */
}

int main(void)
{
    weft_group *world = weft_init(NULL);
    int rank = weft_rank(world), n = weft_size(world) > 0 ? weft_size(world) : 1;
    weft_seed(7);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(32, 256)); /* the same everywhere */
    weft_seed((uint64_t)(100 + rank));                                    /* a shard of its own */
    mlp m = {weft_nn_linear_plain(256, 1024 / n), weft_nn_linear_plain(1024 / n, 256), world};
    weft_module *net = weft_module_new(forward, &m);
    weft_module_add(net, "up", m.up);
    weft_module_add(net, "down", m.down);

    weft_optim *sgd = weft_optim_sgd(net, 5, NULL);
    for (int step = 0; step < 4; step++) {
        weft_tensor *y = weft_module_call(net, x);
        weft_tensor *loss = weft_mean(weft_mul(y, y), NULL, 0, false);
        weft_backward(weft_div_scalar(loss, n)); /* of the sum of all ranks' losses */
        weft_tensor *up = weft_grad(weft_module_param(net, "up.weight"));
        printf("rank %d: step %d: loss %.5f, gradient %.4e\n", rank, step, weft_item(loss, 0),
               up ? weft_item(up, 0) : 0);
        weft_optim_step(sgd);
    }
    return weft_finish(world);
}
