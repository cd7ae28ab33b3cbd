/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic gradient descent. */
#include "nn/optim.h"

#include "base/opts.h"
#include "tensor/ops.h"

static weft_status step(const weft_optim *optim, weft_i_trained *trained, weft_tensor *grad)
{
    weft_tensor *list[] = {trained->param, trained->state[0]}, *outs[2];
    const weft_sgd_opts *opts = &optim->sgd;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, (size_t)optim->states + 1),
                         WEFT_I_TENSOR_ARG(grad),
                         WEFT_I_NUMBER_ARG(optim->rate),
                         WEFT_I_NUMBER_ARG(opts->momentum),
                         WEFT_I_NUMBER_ARG(opts->decay),
                         WEFT_I_INTEGER_ARG(trained->steps == 1)};
    return weft_i_op_apply_list(&weft_i_op_sgd_, outs, args);
}

weft_optim *weft_optim_sgd(weft_module *module, double rate, const weft_sgd_opts *given)
{
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_optim_sgd") < 0)
        return NULL;
    if (!(opts.momentum >= 0 && opts.decay >= 0))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_optim_sgd: momentum %g, decay %g",
                           opts.momentum, opts.decay);
    weft_optim *optim = weft_i_optim_new("sgd", module, rate);
    if (!optim)
        return NULL;
    optim->step = step;
    optim->sgd = opts;
    optim->states = opts.momentum != 0;
    return optim;
}
