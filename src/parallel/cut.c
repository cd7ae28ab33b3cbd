/* SPDX-License-Identifier: Apache-2.0 */
/* What layers compute when they are cut over ranks; see cut.h and flow.h. */
#include "parallel/cut.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "nn/layer.h"
#include "parallel/flow.h"
#include "weft/functional.h"
#include "weft/fused.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

static void destroy(weft_i_object *object)
{
    weft_i_cut_layer *cut = (weft_i_cut_layer *)object;
    for (int i = 0; i < cut->summed; i++) {
        weft_unhook(cut->sum[i].param, cut->sum[i].hook);
        weft_i_object_drop(cut->sum[i].param);
    }
    WEFT_OS->free(cut->sum);
    weft_i_object_drop(cut->group);
    weft_i_object_free(object);
}

weft_i_cut_layer *weft_i_cut_new(weft_group *group, const char *layer)
{
    weft_i_cut_layer *cut = weft_i_object_new_unscoped(WEFT_I_CUT, sizeof *cut, destroy);
    if (!cut)
        return NULL;
    cut->group = weft_i_object_hold(group);
    snprintf(cut->layer, sizeof cut->layer, "%s", layer);
    return cut;
}

/* ---- what layers compute ---- */

static weft_tensor *plus(weft_tensor *x, weft_tensor *bias)
{
    return bias && x ? weft_add(x, bias) : x;
}

/* All of the sequence times this rank's columns: communication hides behind the product. */
static weft_tensor *gather_product(const weft_i_cut_layer *cut, weft_tensor *x, weft_tensor *weight)
{
    weft_tensor *y = NULL, *turned = weft_transpose(weight, 0, 1);
    if (!x || !turned ||
        weft_all_gather_matmul(NULL, &y, x, &turned, 1, cut->sequence, cut->group) < 0)
        return NULL;
    return weft_contiguous(y); /* layers after it take views */
}

static weft_tensor *column(weft_module *self, weft_tensor *x, void *user)
{
    const weft_i_cut_layer *cut = weft_i_cut_of(self);
    weft_tensor *bias = weft_i_linear_bias(self), *y;
    (void)user;
    if (cut->in == WEFT_FLOW_SEQUENCE) {
        y = plus(gather_product(cut, x, weft_i_module_tensor(self, 0)), bias);
    } else {
        if (cut->in == WEFT_FLOW_WHOLE)
            x = weft_i_flow_enter(x, cut->group);
        y = weft_i_linear_product(self, x, bias);
    }
    return cut->out == WEFT_FLOW_WHOLE ? weft_i_flow_join(y, -1, cut->group) : y;
}

static weft_tensor *row(weft_module *self, weft_tensor *x, void *user)
{
    const weft_i_cut_layer *cut = weft_i_cut_of(self);
    weft_tensor *bias = weft_i_linear_bias(self);
    (void)user;
    if (cut->in == WEFT_FLOW_WHOLE)
        x = weft_i_flow_split(cut->layer, x, -1, cut->group);
    if (cut->out == WEFT_FLOW_SEQUENCE)
        return plus(weft_matmul_reduce_scatter(x,
                                               weft_transpose(weft_i_module_tensor(self, 0), 0, 1),
                                               WEFT_SUM, cut->sequence, cut->group),
                    bias);
    return plus(weft_i_flow_sum(weft_i_linear_product(self, x, NULL), cut->group), bias);
}

static weft_tensor *vocabulary(weft_module *self, weft_tensor *x, void *user)
{
    const weft_i_cut_layer *cut = weft_i_cut_of(self);
    weft_tensor *weight = weft_i_module_tensor(self, 0), *inside;
    (void)user;
    weft_tensor *own =
        weft_i_flow_own_indices(cut->layer, x, weft_tensor_size(weight, 0), cut->group, &inside);
    if (!own)
        return NULL;
    weft_tensor *y = weft_i_flow_only(weft_unsqueeze(inside, -1), weft_embedding(weight, own));
    if (cut->out == WEFT_FLOW_SEQUENCE)
        return weft_reduce_scatter_tensor(y, WEFT_SUM, cut->sequence, cut->group);
    return weft_i_flow_sum(y, cut->group);
}

/* ---- around modules that are not cut themselves ---- */

static weft_status before(weft_hook_event *event)
{
    const weft_i_cut_layer *cut = event->user;
    weft_tensor *x = event->ins ? event->in[0] : NULL;
    bool whole = cut->in == WEFT_FLOW_WHOLE;
    if (!x)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer \"%s\" has no input", cut->layer);
    if (cut->style == WEFT_PLAN_SEQUENCE)
        x = whole ? weft_i_flow_split(cut->layer, x, cut->sequence, cut->group) : x;
    else
        x = whole ? weft_i_flow_enter(x, cut->group)
                  : weft_all_gather_tensor(x, cut->sequence, cut->group);
    event->in[0] = x;
    return x ? WEFT_OK : weft_last_status();
}

static weft_status after(weft_hook_event *event)
{
    const weft_i_cut_layer *cut = event->user;
    event->out[0] = weft_i_flow_join(event->out[0], cut->sequence, cut->group);
    return event->out[0] ? WEFT_OK : weft_last_status();
}

/* ---- gradients that are added up ---- */

static weft_status add_up(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    const weft_i_cut_layer *cut = user;
    (void)held;
    *grad = weft_all_reduce(*grad, WEFT_SUM, cut->group);
    return *grad ? WEFT_OK : weft_last_status();
}

static weft_status sum_gradients(weft_i_cut_layer *cut, const char *key, weft_tensor *param)
{
    if (!weft_requires_grad(param))
        return WEFT_OK;
    if (cut->summed == cut->room) {
        int room = cut->room ? 2 * cut->room : 4;
        weft_i_summed *more = WEFT_OS->resize(cut->sum, (size_t)room * sizeof *more);
        if (!more)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a hook");
        cut->sum = more;
        cut->room = room;
    }
    int64_t hook = weft_tensor_hook(param, add_up, cut, WEFT_HOLD());
    if (hook < 0)
        return (weft_status)hook;
    weft_i_summed *s = &cut->sum[cut->summed++];
    *s = (weft_i_summed){.param = weft_i_object_hold(param), .hook = hook};
    snprintf(s->key, sizeof s->key, "%s", key);
    return WEFT_OK;
}

weft_status weft_i_cut_replace(weft_module *module, const char *key, weft_tensor *param)
{
    weft_i_cut_layer *cut = weft_i_cut_of(module);
    for (int i = 0; cut && i < cut->summed; i++)
        if (!strcmp(cut->sum[i].key, key))
            return sum_gradients(cut, key, param);
    return WEFT_OK;
}

/* ---- applying ---- */

static weft_status add_hook(weft_module *module, weft_i_cut_layer *cut, weft_hook_point point,
                            unsigned flags, weft_module_hook hook)
{
    int64_t number = weft_module_hook_add(module, point, flags, hook, cut, WEFT_HOLD());
    return number < 0 ? (weft_status)number : WEFT_OK;
}

static weft_status sum_own(weft_module *module, weft_i_cut_layer *cut)
{
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_PARAM)
            WEFT_TRY(sum_gradients(cut, module->entries[i].name, module->entries[i].tensor));
    return WEFT_OK;
}

weft_status weft_i_cut_apply(weft_module *module, weft_i_cut_layer *cut)
{
    module->part[WEFT_I_PART_CUT] = (weft_i_object *)cut;
    module->changes++;
    switch (cut->style) {
    case WEFT_PLAN_COLUMN:
        module->forward = column;
        return WEFT_OK;
    case WEFT_PLAN_ROW:
        module->forward = row;
        return cut->out == WEFT_FLOW_SEQUENCE && module->count > 1
                   ? sum_gradients(cut, module->entries[1].name, module->entries[1].tensor)
                   : WEFT_OK;
    case WEFT_PLAN_VOCABULARY:
        module->forward = vocabulary;
        return WEFT_OK;
    case WEFT_PLAN_SEQUENCE:
        WEFT_TRY(sum_own(module, cut));
        if (cut->out == WEFT_FLOW_WHOLE)
            WEFT_TRY(add_hook(module, cut, WEFT_HOOK_FORWARD, 0, after));
        return cut->in == WEFT_FLOW_WHOLE
                   ? add_hook(module, cut, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_PREPEND, before)
                   : WEFT_OK;
    default:
        return add_hook(module, cut, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_PREPEND, before);
    }
}
