/* SPDX-License-Identifier: Apache-2.0 */
/* Adam with decoupled weight decay (Loshchilov and Hutter, 2019). */
#include "nn/optim/optim.h"

#include "base/report/opts.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

static weft_status step(const weft_i_optim_group *group, weft_i_trained *trained, weft_tensor *grad)
{
    bool master = group->master && weft_i_dtype_is_small_float(weft_tensor_dtype(trained->param));
    weft_tensor *list[] = {master ? trained->state[2] : trained->param, trained->state[0],
                           trained->state[1]},
                *outs[3];
    const weft_adamw_opts *opts = &group->adamw;
    weft_i_arg args[] = {WEFT_I_TENSORS_ARG(list, 3),    WEFT_I_TENSOR_ARG(grad),
                         WEFT_I_NUMBER_ARG(group->rate), WEFT_I_NUMBER_ARG(opts->beta1),
                         WEFT_I_NUMBER_ARG(opts->beta2), WEFT_I_NUMBER_ARG(opts->epsilon),
                         WEFT_I_NUMBER_ARG(opts->decay), WEFT_I_INTEGER_ARG(trained->steps)};
    WEFT_TRY(weft_i_op_apply_list(&weft_i_op_adamw_, outs, args));
    return master ? weft_copy(trained->param, trained->state[2]) : WEFT_OK;
}

static const weft_i_optim_kind adamw = {"adamw", {"exp_avg", "exp_avg_sq", "master"}, step};

static weft_status read_opts(const char *what, double rate, const weft_adamw_opts *given,
                             weft_i_optim_group *out)
{
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, what));
    if (!(opts.beta1 >= 0 && opts.beta1 < 1 && opts.beta2 >= 0 && opts.beta2 < 1 &&
          opts.epsilon >= 0 && opts.decay >= 0))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: beta1 %g, beta2 %g, epsilon %g, decay %g; betas are "
                           "in [0, 1), the others not negative",
                           what, opts.beta1, opts.beta2, opts.epsilon, opts.decay);
    WEFT_TRY(weft_i_optim_check_rate(what, rate));
    *out = (weft_i_optim_group){
        .rate = rate, .states = 2, .finite = opts.finite, .master = opts.master, .adamw = opts};
    return WEFT_OK;
}

weft_optim *weft_optim_adamw(weft_module *module, double rate, const weft_adamw_opts *opts)
{
    weft_i_optim_group group;
    if (read_opts("weft_optim_adamw", rate, opts, &group) < 0)
        return NULL;
    return weft_i_optim_new("weft_optim_adamw", &adamw, (weft_i_subject){.module = module}, group);
}

weft_optim *weft_optim_adamw_of(const weft_named *params, int count, double rate,
                                const weft_adamw_opts *opts)
{
    weft_i_optim_group group;
    weft_i_subject whom = {.params = params, .count = count, .listed = true};
    if (read_opts("weft_optim_adamw_of", rate, opts, &group) < 0)
        return NULL;
    return weft_i_optim_new("weft_optim_adamw_of", &adamw, whom, group);
}

int weft_optim_adamw_add(weft_optim *optim, const weft_named *params, int count, double rate,
                         const weft_adamw_opts *opts)
{
    weft_i_optim_group group;
    weft_i_subject whom = {.params = params, .count = count, .listed = true};
    WEFT_TRY(read_opts("weft_optim_adamw_add", rate, opts, &group));
    return weft_i_optim_add("weft_optim_adamw_add", &adamw, optim, whom, group);
}
