/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 05_tensor_parallel.c, compiled: the all_reduce in forward, and that of its gradient, become
 * one-shot operations on symmetric memory, into which the product before them writes directly.
 * Run: weft run -n 4 09_compiled_parallel
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

typedef struct mlp {
    weft_module *net, *up, *down;
    weft_group *world;
} mlp;

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    mlp *m = user;
    (void)self;
    weft_tensor *part = weft_module_call(m->down, weft_gelu(weft_module_call(m->up, x)));
    return weft_all_reduce(part, WEFT_SUM, m->world);
}

static weft_status step(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    mlp *m = user;
    (void)ins, (void)outs;
    weft_tensor *y = weft_module_call(m->net, in[0]);
    out[0] = weft_mean(weft_mul(y, y), NULL, 0, false);
    return WEFT_OK;
}

/* The lines of the explanation that tell of collectives and their memory. */
static void print_collectives(weft_compiled *fast)
{
    static char text[1 << 16];
    weft_compiled_details(fast, text, sizeof text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, "all_reduce %") || strstr(line, "lowered:") || strstr(line, "symmetric b"))
            printf("%s\n", line);
}

int main(void)
{
    weft_group *world = weft_init(NULL);
    int rank = weft_rank(world), n = weft_size(world) > 0 ? weft_size(world) : 1;
    weft_seed(7);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(32, 256)); /* the same everywhere */
    weft_seed((uint64_t)(100 + rank));                                    /* a shard of its own */
    mlp m = {NULL, weft_nn_linear_plain(256, 1024 / n), weft_nn_linear_plain(1024 / n, 256), world};
    m.net = weft_module_new(forward, &m);
    weft_module_add(m.net, "up", m.up);
    weft_module_add(m.net, "down", m.down);

    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.agree = true;
    weft_compiled *fast = weft_compile(step, &m, &opts);
    weft_optim *sgd = weft_optim_sgd(m.net, 5, NULL);
    for (int i = 0; i < 4; i++) {
        weft_tensor *loss = NULL;
        weft_compiled_call(fast, &x, 1, &loss, 1);
        weft_backward(weft_div_scalar(loss, n)); /* of the sum of all ranks' losses */
        printf("rank %d: step %d: loss %.5f\n", rank, i, weft_item(loss, 0));
        weft_optim_step(sgd);
    }
    if (rank == 0)
        print_collectives(fast);
    weft_release(fast);
    return weft_finish(world);
}
