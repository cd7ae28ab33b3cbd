/* SPDX-License-Identifier: Apache-2.0 */
/* Adam with decoupled weight decay (Loshchilov and Hutter, 2019). */
#include "nn/optim.h"

#include "base/opts.h"
#include "tensor/ops.h"

static weft_status step(const weft_optim *optim, weft_i_trained *trained, weft_tensor *grad)
{
    weft_tensor *list[] = {trained->param, trained->state[0], trained->state[1]}, *outs[3];
    const weft_adamw_opts *opts = &optim->adamw;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, 3),    WEFT_I_TENSOR_ARG(grad),
                         WEFT_I_NUMBER_ARG(optim->rate), WEFT_I_NUMBER_ARG(opts->beta1),
                         WEFT_I_NUMBER_ARG(opts->beta2), WEFT_I_NUMBER_ARG(opts->epsilon),
                         WEFT_I_NUMBER_ARG(opts->decay), WEFT_I_INTEGER_ARG(trained->steps)};
    return weft_i_op_apply_list(&weft_i_op_adamw_, outs, args);
}

weft_optim *weft_optim_adamw(weft_module *module, double rate, const weft_adamw_opts *given)
{
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_optim_adamw") < 0)
        return NULL;
    if (!(opts.beta1 >= 0 && opts.beta1 < 1 && opts.beta2 >= 0 && opts.beta2 < 1 &&
          opts.epsilon >= 0 && opts.decay >= 0))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "weft_optim_adamw: beta1 %g, beta2 %g, epsilon %g, decay %g; betas are "
                           "in [0, 1), the others not negative",
                           opts.beta1, opts.beta2, opts.epsilon, opts.decay);
    weft_optim *optim = weft_i_optim_new("adamw", module, rate);
    if (!optim)
        return NULL;
    optim->step = step;
    optim->adamw = opts;
    optim->states = 2;
    return optim;
}
