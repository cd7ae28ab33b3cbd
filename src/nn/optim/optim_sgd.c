/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic gradient descent. */
#include "nn/optim/optim.h"

#include "base/report/opts.h"
#include "tensor/op/ops.h"

static weft_status step(const weft_i_optim_group *group, weft_i_trained *trained, weft_tensor *grad)
{
    weft_tensor *list[] = {trained->param, trained->state[0]}, *outs[2];
    const weft_sgd_opts *opts = &group->sgd;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, (size_t)group->states + 1),
                         WEFT_I_TENSOR_ARG(grad),
                         WEFT_I_NUMBER_ARG(group->rate),
                         WEFT_I_NUMBER_ARG(opts->momentum),
                         WEFT_I_NUMBER_ARG(opts->decay),
                         WEFT_I_INTEGER_ARG(trained->steps == 1)};
    return weft_i_op_apply_list(&weft_i_op_sgd_, outs, args);
}

static const weft_i_optim_kind sgd = {"sgd", {"momentum_buffer"}, step};

static weft_status read_opts(const char *what, double rate, const weft_sgd_opts *given,
                             weft_i_optim_group *out)
{
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, what));
    if (!(opts.momentum >= 0 && opts.decay >= 0))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: momentum %g, decay %g", what, opts.momentum,
                           opts.decay);
    WEFT_TRY(weft_i_optim_check_rate(what, rate));
    *out = (weft_i_optim_group){
        .rate = rate, .states = opts.momentum != 0, .finite = opts.finite, .sgd = opts};
    return WEFT_OK;
}

weft_optim *weft_optim_sgd(weft_module *module, double rate, const weft_sgd_opts *opts)
{
    weft_i_optim_group group;
    if (read_opts("weft_optim_sgd", rate, opts, &group) < 0)
        return NULL;
    return weft_i_optim_new("weft_optim_sgd", &sgd, (weft_i_subject){.module = module}, group);
}

weft_optim *weft_optim_sgd_of(const weft_named *params, int count, double rate,
                              const weft_sgd_opts *opts)
{
    weft_i_optim_group group;
    weft_i_subject whom = {.params = params, .count = count, .listed = true};
    if (read_opts("weft_optim_sgd_of", rate, opts, &group) < 0)
        return NULL;
    return weft_i_optim_new("weft_optim_sgd_of", &sgd, whom, group);
}

int weft_optim_sgd_add(weft_optim *optim, const weft_named *params, int count, double rate,
                       const weft_sgd_opts *opts)
{
    weft_i_optim_group group;
    weft_i_subject whom = {.params = params, .count = count, .listed = true};
    WEFT_TRY(read_opts("weft_optim_sgd_add", rate, opts, &group));
    return weft_i_optim_add("weft_optim_sgd_add", &sgd, optim, whom, group);
}
