/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 04_mlp.c, compiled: the network and its loss are captured at the first call, backward with them,
 * and what is computed element by element becomes C.  A hook on a gradient works as it did.  The
 * losses are those of the function as it is, bit for bit.
 */
#include <stdio.h>
#include <weft/weft.h>

static weft_status clip(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = weft_minimum_scalar(weft_maximum_scalar(*grad, -0.01), 0.01);
    return WEFT_OK; /* a NULL gradient is the error it stands for */
}

/* in: a batch and its labels; out: the loss. */
static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *net)
{
    (void)ins, (void)outs;
    out[0] = weft_cross_entropy(weft_module_call(net, in[0]), in[1]);
    return WEFT_OK;
}

static int train(const char *backend, double *losses, int steps)
{
    weft_scope_open();
    weft_seed(1234);
    weft_module *net = weft_nn_sequential(weft_nn_linear(784, 128), weft_nn_op(weft_relu),
                                          weft_nn_linear(128, 10));
    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
    weft_tensor *in[] = {weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 784)),
                         weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(64), 0, 10)};
    weft_tensor_hook(weft_module_param(net, "0.weight"), clip, NULL, WEFT_HOLD());
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    weft_compiled *loss_by = backend ? weft_compile(loss_of, net, &opts) : NULL;
    for (int step = 0; step < steps; step++) {
        weft_scope_open();
        weft_tensor *loss = NULL;
        if (loss_by)
            weft_compiled_call(loss_by, in, 2, &loss, 1);
        else
            loss_of(in, 2, &loss, 1, net);
        weft_backward(loss);
        weft_optim_step(adam); /* clears the gradients too */
        losses[step] = weft_item(loss, 0);
        weft_scope_close();
    }
    weft_scope_close();
    return weft_last_status() < 0;
}

int main(void)
{
    enum { STEPS = 10 };
    double eager[STEPS], compiled[STEPS];
    if (train(NULL, eager, STEPS) || train("c", compiled, STEPS)) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    int same = 1;
    for (int step = 0; step < STEPS; step++) {
        printf("%d: %g\n", step, compiled[step]);
        same &= compiled[step] == eager[step];
    }
    printf("%s\n", same ? "the same as without compiling" : "not the same as without compiling");
    return !same;
}
