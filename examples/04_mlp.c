/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network of two layers that learns, with hooks: one clips the gradient of a weight, one looks at
 * the gradients that come out of the whole.  04_mlp.py is the same in PyTorch.  Run: 04_mlp
 */
#include <stdio.h>
#include <weft/weft.h>

static weft_status clip(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = weft_minimum_scalar(weft_maximum_scalar(*grad, -0.01), 0.01);
    return WEFT_OK; /* a NULL gradient is the error it stands for */
}

static weft_status watch(weft_hook_event *event)
{
    double *largest = event->user; /* gradient of a logit */
    weft_tensor *size = weft_max(weft_abs(event->out[0]), NULL, 0, false);
    *largest = weft_item(size, 0);
    return WEFT_OK;
}

int main(void)
{
    double largest = 0;
    weft_seed(1234);
    weft_module *net = weft_nn_sequential(weft_nn_linear(784, 128), weft_nn_op(weft_relu),
                                          weft_nn_linear(128, 10));
    weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 784));
    weft_tensor *label = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(64), 0, 10);
    weft_tensor_hook(weft_module_param(net, "0.weight"), clip, NULL, WEFT_HOLD());
    weft_module_hook_add(net, WEFT_HOOK_BACKWARD_PRE, 0, watch, &largest, WEFT_HOLD());

    for (int step = 0; step <= 50; step++) {
        weft_scope_open();
        weft_tensor *loss = weft_cross_entropy(weft_module_call(net, x), label);
        weft_backward(loss);
        weft_optim_step(adam); /* clears the gradients too */
        if (step % 10 == 0)
            printf("step %d: loss %.4f, largest gradient %.5f\n", step, weft_item(loss, 0),
                   largest);
        weft_scope_close();
    }
    if (weft_last_status() < 0)
        fprintf(stderr, "%s\n", weft_last_error());
    return weft_last_status() < 0;
}
