/* SPDX-License-Identifier: Apache-2.0 */
/* A program from outside in C++: every macro of the headers that C++ may use, without a warning of
 * a strict compiler, from C++11 on. */
#include <weft/weft.h>

static weft_status count_hook(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    *static_cast<int *>(user) += *grad && held[0];
    return WEFT_OK;
}

/* 1 + 2 + 3 as the gradient of a network of two modules, with options as their macros make them. */
static bool differentiates()
{
    weft_backward_opts backward = WEFT_BACKWARD_OPTS;
    weft_sgd_opts sgd = WEFT_SGD_OPTS_INIT;
    int calls = 0;
    weft_module *net = weft_nn_sequential(weft_nn_linear_plain(3, 1), weft_nn_op(weft_relu));
    weft_tensor *weight = weft_module_param(net, "0.weight");
    WEFT_NO_GRAD weft_fill(weight, 1);
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 1, 4, 1);
    weft_tensor *y = weft_module_call(net, weft_reshape(x, WEFT_SHAPE(1, 3)));
    weft_tensor_hook(weight, count_hook, &calls, WEFT_HOLD(x));
    if (weft_backward_all(&y, 1, &backward) != WEFT_OK || calls != 1)
        return false;
    double sum = weft_item(weft_sum(weft_grad(weight), nullptr, 0, false), 0);
    weft_optim *optim = weft_optim_sgd(net, 0.5, &sgd);
    return sum == 6 && weft_item(y, 0) == 6 && weft_optim_step(optim) == WEFT_OK;
}

static bool keeps_modes()
{
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR);
    weft_require_grad(x, true);
    WEFT_NO_GRAD
    {
        if (weft_requires_grad(weft_neg(x)))
            return false;
        WEFT_ENABLE_GRAD
        {
            if (!weft_requires_grad(weft_neg(x)))
                return false;
        }
    }
    return weft_requires_grad(weft_neg(x));
}

/* A fake world knows what a real one does of groups, and needs no other rank. */
static bool makes_groups()
{
    weft_fake_opts fake = WEFT_FAKE_OPTS(1, 4);
    weft_group_opts group = WEFT_GROUP_OPTS_INIT;
    weft_init_opts init = WEFT_INIT_OPTS;
    weft_launch_opts launch = WEFT_LAUNCH_OPTS_INIT;
    weft_compile_opts compile = WEFT_COMPILE_OPTS;
    weft_gradcheck_opts gradcheck = WEFT_GRADCHECK_OPTS;
    weft_adamw_opts adamw = WEFT_ADAMW_OPTS_INIT;
    if (!init.size || !launch.size || !compile.size || !gradcheck.size || !adamw.size)
        return false;
    if (WEFT_CPU != 0 || WEFT_META == WEFT_CUDA(0) || WEFT_CUDA(1) != WEFT_CUDA(0) + 1)
        return false;
    weft_group *world = weft_fake_init(&fake);
    int pair[] = {1, 3};
    weft_group *part = weft_group_new_with(world, pair, 2, &group);
    return weft_rank(part) == 0 && weft_size(part) == 2 && weft_finish(world) == 0;
}

int main()
{
    return !(differentiates() && keeps_modes() && makes_groups());
}
