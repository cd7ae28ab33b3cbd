/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: what they train, and the step that all kinds have in common. */
#include "nn/optim.h"

#include "base/os.h"
#include "weft/op.h"

static weft_status check(const char *what, const weft_optim *optim)
{
    if (optim && optim->head.kind == WEFT_I_OPTIM)
        return WEFT_OK;
    if (optim)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: that is no optimizer", what);
    return weft_i_missing("%s: the optimizer is NULL", what);
}

static weft_status check_rate(const char *what, double rate)
{
    return rate >= 0 ? WEFT_OK : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a rate of %g", what, rate);
}

static void destroy(weft_i_object *object)
{
    weft_optim *optim = (weft_optim *)object;
    for (int i = 0; i < optim->count; i++) {
        weft_i_object_drop(optim->trained[i].param);
        for (int k = 0; k < WEFT_I_OPTIM_STATES; k++)
            weft_i_object_drop(optim->trained[i].state[k]);
    }
    weft_i_object_free(object);
}

weft_optim *weft_i_optim_new(const char *kind, weft_module *module, double rate)
{
    int count = weft_module_params(module, NULL, 0);
    if (count < 0 || check_rate(kind, rate) < 0)
        return NULL;
    weft_named *params = WEFT_OS->alloc((size_t)(count ? count : 1) * sizeof *params);
    if (!params)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "%s: no memory for %d names", kind, count);
    size_t bytes = sizeof(weft_optim) + (size_t)count * sizeof(weft_i_trained);
    weft_optim *optim = weft_i_object_new(WEFT_I_OPTIM, bytes, destroy);
    if (optim) {
        weft_module_params(module, params, count);
        optim->kind = kind;
        optim->rate = rate;
        optim->count = count;
        for (int i = 0; i < count; i++)
            optim->trained[i].param = weft_i_object_hold(params[i].tensor);
    }
    WEFT_OS->free(params);
    return optim;
}

/* The states are made when they are needed first: parameters that get no gradient have none.  They
 * follow a parameter that has moved to another device (weft_module_to). */
static weft_status make_states(const weft_optim *optim, weft_i_trained *trained)
{
    weft_device device = weft_tensor_device(trained->param);
    for (int k = 0; k < optim->states; k++) {
        weft_tensor *old = trained->state[k];
        if (old && weft_tensor_device(old) == device)
            continue;
        weft_tensor *state =
            old ? weft_to(old, weft_tensor_dtype(old), device) : weft_zeros_like(trained->param);
        if (!state)
            return weft_last_status();
        trained->state[k] = weft_keep(state);
        weft_i_object_drop(old);
    }
    return WEFT_OK;
}

static weft_status step_all(weft_optim *optim)
{
    for (int i = 0; i < optim->count; i++) {
        weft_i_trained *trained = &optim->trained[i];
        weft_tensor *grad = weft_grad(trained->param);
        if (!grad)
            continue;
        WEFT_TRY(make_states(optim, trained));
        trained->steps++;
        weft_status status = optim->step(optim, trained, grad);
        if (status < 0) {
            trained->steps--;
            return weft_i_explain(status, "%s of parameter %d", optim->kind, i);
        }
        WEFT_TRY(weft_set_grad(trained->param, NULL));
    }
    return WEFT_OK;
}

weft_status weft_optim_step(weft_optim *optim)
{
    WEFT_TRY(check("weft_optim_step", optim));
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = step_all(optim);
    }
    return status;
}

weft_status weft_optim_set_rate(weft_optim *optim, double rate)
{
    WEFT_TRY(check("weft_optim_set_rate", optim));
    WEFT_TRY(check_rate("weft_optim_set_rate", rate));
    optim->rate = rate;
    return WEFT_OK;
}
