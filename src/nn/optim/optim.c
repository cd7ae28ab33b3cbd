/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: the step that all kinds have in common. */
#include "nn/optim/optim.h"

#include "tensor/object/eye.h"
#include "weft/op.h"
#include "weft/view.h"

weft_status weft_i_optim_check(const char *what, const weft_optim *optim)
{
    if (optim && optim->head.kind == WEFT_I_OPTIM)
        return WEFT_OK;
    if (optim)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: that is no optimizer", what);
    return weft_i_missing("%s: the optimizer is NULL", what);
}

weft_status weft_i_optim_check_rate(const char *what, double rate)
{
    return rate >= 0 ? WEFT_OK : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a rate of %g", what, rate);
}

bool weft_i_optim_has_master(const weft_optim *optim, const weft_i_trained *trained)
{
    return optim->group[trained->group].master &&
           weft_i_dtype_is_small_float(weft_tensor_dtype(trained->param));
}

int weft_i_optim_states(const weft_optim *optim, const weft_i_trained *trained)
{
    return optim->group[trained->group].states + weft_i_optim_has_master(optim, trained);
}

/* Zeros; beside a master f32, and the last of them is the master, which starts as the parameter. */
static weft_tensor *new_state(const weft_i_trained *trained, int k, bool master)
{
    weft_tensor *param = trained->param;
    if (!master)
        return weft_zeros_like(param);
    return k < WEFT_I_OPTIM_STATES - 1
               ? weft_zeros(WEFT_F32, weft_tensor_device(param), weft_tensor_shape(param))
               : weft_to_dtype(weft_detach(param), WEFT_F32);
}

/* The states are made when they are needed first: parameters that get no gradient have none.  They
 * follow a parameter that has moved to another device (weft_module_to). */
static inline weft_status make_states(weft_i_trained *trained, int states, bool master)
{
    weft_device device = weft_tensor_device(trained->param);
    for (int k = 0; k < states; k++) {
        weft_tensor *old = trained->state[k];
        if (old && weft_tensor_device(old) == device)
            continue;
        weft_tensor *state =
            old ? weft_to(old, weft_tensor_dtype(old), device) : new_state(trained, k, master);
        if (!state)
            return weft_last_status();
        trained->state[k] = weft_keep(state);
        weft_i_object_drop(old);
    }
    return WEFT_OK;
}

weft_status weft_i_optim_make_states(const weft_optim *optim, weft_i_trained *trained)
{
    return make_states(trained, weft_i_optim_states(optim, trained),
                       weft_i_optim_has_master(optim, trained));
}

static weft_status step_one(weft_optim *optim, int i, weft_tensor *grad)
{
    char label[WEFT_I_OPTIM_LABEL];
    weft_i_trained *trained = &optim->trained[i];
    const weft_i_optim_group *group = &optim->group[trained->group];
    WEFT_TRY(weft_i_optim_make_states(optim, trained));
    trained->steps++;
    weft_status status = optim->kind->step(group, trained, grad);
    if (status >= 0)
        return weft_set_grad(trained->param, NULL);
    trained->steps--;
    return weft_i_explain(status, "%s of parameter %s", optim->kind->name,
                          weft_i_optim_label(trained->name, i, label));
}

/* No error: a batch may have nothing to teach, and parameters may be frozen for a while.  But more
 * often weft_backward was forgotten, or the gradients are those of other tensors. */
static void tell_of_none(weft_optim *optim)
{
    if (optim->told || weft_i_eye_open)
        return;
    optim->told = true;
    weft_i_log(WEFT_LOG_WARN,
               "weft_optim_step: none of the %d parameters of this %s has a gradient, so nothing "
               "was updated.  weft_backward makes gradients, and each step clears them (said once "
               "for an optimizer)",
               optim->count, optim->kind->name);
}

/* A program would have the number of this step in it, and states that are stand-ins. */
static weft_status check_captured(const weft_optim *optim)
{
    char what[64];
    bool remembers = false;
    for (int i = 0; i < optim->groups; i++)
        remembers |= optim->group[i].states != 0;
    snprintf(what, sizeof what, "weft_optim_step of %s, which counts its steps", optim->kind->name);
    return remembers ? weft_i_not_captured(what) : WEFT_OK;
}

static weft_status step_all(weft_optim *optim)
{
    int found = 0;
    if (weft_i_eye_open)
        WEFT_TRY(check_captured(optim));
    if (optim->finite)
        WEFT_TRY(weft_i_optim_check_finite(optim));
    for (int i = 0; i < optim->count; i++) {
        weft_tensor *grad = weft_grad(optim->trained[i].param);
        if (!grad)
            continue;
        found++;
        WEFT_TRY(step_one(optim, i, grad));
    }
    if (!found)
        tell_of_none(optim);
    return WEFT_OK;
}

weft_status weft_optim_step(weft_optim *optim)
{
    WEFT_TRY(weft_i_optim_check("weft_optim_step", optim));
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = step_all(optim);
    }
    return status;
}

weft_status weft_optim_set_rate(weft_optim *optim, double rate)
{
    WEFT_TRY(weft_i_optim_check("weft_optim_set_rate", optim));
    WEFT_TRY(weft_i_optim_check_rate("weft_optim_set_rate", rate));
    for (int i = 0; i < optim->groups; i++)
        optim->group[i].rate = rate;
    return WEFT_OK;
}

weft_status weft_optim_set_group_rate(weft_optim *optim, int group, double rate)
{
    WEFT_TRY(weft_i_optim_check("weft_optim_set_group_rate", optim));
    WEFT_TRY(weft_i_optim_check_rate("weft_optim_set_group_rate", rate));
    if (group < 0 || group >= optim->groups)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "weft_optim_set_group_rate: group %d of an optimizer with %d (from 0 on)", group,
            optim->groups);
    optim->group[group].rate = rate;
    return WEFT_OK;
}
