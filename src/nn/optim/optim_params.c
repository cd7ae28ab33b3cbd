/* SPDX-License-Identifier: Apache-2.0 */
/* Whom an optimizer trains: the parameters of a module, or a list of tensors. */
#include "base/os/os.h"
#include "nn/optim/optim.h"
#include "tensor/object/eye.h"

#include <string.h>

const char *weft_i_optim_label(const char *name, int i, char out[WEFT_I_OPTIM_LABEL])
{
    if (name[0])
        snprintf(out, WEFT_I_OPTIM_LABEL, "\"%.*s\"", WEFT_NAME_MAX - 1, name);
    else
        snprintf(out, WEFT_I_OPTIM_LABEL, "%d", i);
    return out;
}

static weft_status check_trainable(const char *what, const char *label, weft_tensor *x)
{
    if (!x)
        return weft_i_missing("%s: parameter %s is NULL", what, label);
    WEFT_TRY(weft_i_tensor_check_live(what, x));
    if (!weft_is_leaf(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: parameter %s is the result of an operation; a step changes leaves, "
                           "such as what it was computed from",
                           what, label);
    if (!weft_requires_grad(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: parameter %s does not require gradients and would never change "
                           "(weft_require_grad)",
                           what, label);
    return WEFT_OK;
}

static weft_status check_list(const char *what, const weft_named *params, int count)
{
    char a[WEFT_I_OPTIM_LABEL], b[WEFT_I_OPTIM_LABEL];
    if (count < 1 || !params)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of %d parameters", what,
                           params ? count : 0);
    for (int i = 0; i < count; i++) {
        WEFT_TRY(check_trainable(what, weft_i_optim_label(params[i].name, i, a), params[i].tensor));
        for (int k = 0; k < i; k++)
            if (params[k].tensor == params[i].tensor)
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "%s: parameters %s and %s are the same tensor, which would be "
                                   "updated twice",
                                   what, weft_i_optim_label(params[k].name, k, b), a);
    }
    return WEFT_OK;
}

/* None of them is in a group already: it would be updated twice in a step. */
static weft_status check_new(const char *what, const weft_optim *optim, const weft_named *params,
                             int count)
{
    char a[WEFT_I_OPTIM_LABEL], b[WEFT_I_OPTIM_LABEL];
    for (int i = 0; i < count; i++)
        for (int k = 0; k < optim->count; k++)
            if (optim->trained[k].param == params[i].tensor)
                return weft_i_fail(
                    WEFT_ERR_INVALID_ARG,
                    "%s: parameter %s is parameter %s of group %d already, and would "
                    "be updated twice",
                    what, weft_i_optim_label(params[i].name, i, a),
                    weft_i_optim_label(optim->trained[k].name, k, b), optim->trained[k].group);
    return WEFT_OK;
}

static void destroy(weft_i_object *object)
{
    weft_optim *optim = (weft_optim *)object;
    for (int i = 0; i < optim->count; i++) {
        weft_i_object_drop(optim->trained[i].param);
        weft_i_object_drop(optim->trained[i].listed_steps);
        for (int k = 0; k < WEFT_I_OPTIM_STATES; k++)
            weft_i_object_drop(optim->trained[i].state[k]);
    }
    WEFT_OS->free(optim->trained);
    WEFT_OS->free(optim->group);
    weft_i_object_free(object);
}

static void start(weft_i_trained *trained, const weft_named *named, int group)
{
    size_t length = strnlen(named->name, sizeof trained->name - 1);
    *trained = (weft_i_trained){.param = weft_i_object_hold(named->tensor), .group = group};
    memcpy(trained->name, named->name, length); /* the rest is zero */
}

/* All memory first: then nothing can fail. */
static weft_status append(const char *what, weft_optim *optim, const weft_named *params, int count,
                          const weft_i_optim_group *group)
{
    size_t all = (size_t)optim->count + (size_t)count;
    weft_i_trained *trained = WEFT_OS->resize(optim->trained, all * sizeof *trained);
    if (trained)
        optim->trained = trained; /* with room that is not used yet */
    weft_i_optim_group *groups =
        trained ? WEFT_OS->resize(optim->group, ((size_t)optim->groups + 1) * sizeof *groups)
                : NULL;
    if (!groups)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d parameters", what, count);
    optim->group = groups;
    groups[optim->groups] = *group;
    for (int i = 0; i < count; i++)
        start(&trained[optim->count + i], &params[i], optim->groups);
    optim->count += count;
    optim->groups++;
    optim->finite |= group->finite;
    return WEFT_OK;
}

static weft_status append_module(const char *what, weft_optim *optim, weft_module *module,
                                 const weft_i_optim_group *group)
{
    int count = weft_module_params(module, NULL, 0);
    WEFT_TRY(count);
    if (count == 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the %s has no parameters, nor has anything below it", what,
                           module->kind);
    weft_named *params = WEFT_OS->alloc((size_t)count * sizeof *params);
    if (!params)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d names", what, count);
    weft_module_params(module, params, count);
    weft_status status = append(what, optim, params, count, group);
    WEFT_OS->free(params);
    return status;
}

weft_optim *weft_i_optim_new(const char *what, const weft_i_optim_kind *kind, weft_i_subject whom,
                             weft_i_optim_group group)
{
    if (whom.listed && check_list(what, whom.params, whom.count) < 0)
        return NULL;
    weft_optim *optim = weft_i_object_new(WEFT_I_OPTIM, sizeof *optim, destroy);
    if (!optim)
        return NULL;
    optim->kind = kind;
    weft_status status = whom.listed ? append(what, optim, whom.params, whom.count, &group)
                                     : append_module(what, optim, whom.module, &group);
    if (status >= 0)
        return optim;
    weft_release(optim);
    return NULL;
}

int weft_i_optim_add(const char *what, const weft_i_optim_kind *kind, weft_optim *optim,
                     weft_i_subject whom, weft_i_optim_group group)
{
    WEFT_TRY(weft_i_optim_check(what, optim));
    if (optim->kind != kind)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the optimizer is of the kind %s, not %s", what,
                           optim->kind->name, kind->name);
    WEFT_TRY(weft_i_not_captured(what));
    WEFT_TRY(check_list(what, whom.params, whom.count));
    WEFT_TRY(check_new(what, optim, whom.params, whom.count));
    WEFT_TRY(append(what, optim, whom.params, whom.count, &group));
    return optim->groups - 1;
}
