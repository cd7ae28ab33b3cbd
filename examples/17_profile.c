/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the time of a training step goes: a small network is trained eagerly and compiled, each under a
 * profile; both tables are printed.  With a name as argument the compiled steps are written there as a
 * trace for Perfetto or chrome://tracing.
 * Run: ./17_profile [trace.json]
 */
#include <stdio.h>
#include <weft/weft.h>

enum { ROWS = 64, STEPS = 10 };

/* in: a batch and its labels; out: the loss. */
static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *net)
{
    (void)ins, (void)outs;
    out[0] = weft_cross_entropy(weft_module_call(net, in[0]), in[1]);
    return WEFT_OK;
}

static weft_status train(weft_compiled *fast, weft_module *net, weft_optim *adam,
                         weft_tensor *const *in)
{
    for (int step = 0; step < STEPS; step++) {
        weft_scope_open();
        weft_tensor *loss = NULL;
        if (fast)
            weft_compiled_call(fast, in, 2, &loss, 1);
        else
            loss_of(in, 2, &loss, 1, net);
        weft_backward(loss);
        weft_optim_step(adam);
        weft_scope_close();
    }
    return weft_last_status();
}

int main(int argc, char **argv)
{
    weft_module *net = weft_nn_sequential(weft_nn_linear(784, 256), weft_nn_op(weft_gelu),
                                          weft_nn_layer_norm(256), weft_nn_linear(256, 10));
    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
    weft_tensor *in[] = {weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, 784)),
                         weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(ROWS), 0, 10)};
    weft_compile_opts how = WEFT_COMPILE_OPTS;
    how.backend = "c";
    weft_compiled *fast = weft_compile(loss_of, net, &how);
    train(fast, net, adam, in); /* captures and compiles, which is not what a step takes */

    weft_profile *eager = weft_profile_open(NULL);
    train(NULL, net, adam, in);
    weft_profile_close(eager);
    weft_profile_opts opts = WEFT_PROFILE_OPTS;
    opts.trace = argc > 1 ? argv[1] : NULL;
    weft_profile *compiled = weft_profile_open(&opts);
    train(fast, net, adam, in);
    weft_profile_close(compiled);

    printf("eagerly, %d steps:\n", STEPS);
    weft_profile_print(eager, stdout);
    printf("\ncompiled, %d steps:\n", STEPS);
    weft_profile_print(compiled, stdout);
    if (weft_last_status() < 0)
        fprintf(stderr, "%s\n", weft_last_error());
    return weft_last_status() < 0;
}
