/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activation checkpointing: a module is called without being recorded, and called again when its
 * gradient is needed, with the same input and the same random numbers.
 *
 * The node of the graph has the input and the module's parameters as arguments, and an alias of the
 * result.  What it needs beside them is held as an object.
 */
#include "base/os/os.h"
#include "grad/rule.h"
#include "nn/module.h"
#include "nn/ops.h"
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/nn.h"
#include "weft/op.h"

#include <string.h>

typedef struct again {
    weft_i_object head;
    weft_module *module;        /* held */
    weft_i_generator generator; /* as it was before the call */
    int count;                  /* of parameters that require gradients */
    weft_tensor *params[];      /* the module holds them; held, for it may be given others */
} again;

static void destroy(weft_i_object *object)
{
    again *a = (again *)object;
    for (int i = 0; i < a->count; i++)
        weft_i_object_drop(a->params[i]);
    weft_i_object_drop(a->module);
    weft_i_object_free(object);
}

static again *new_again(weft_module *module)
{
    int all = weft_module_params(module, NULL, 0);
    weft_named *list = all < 0 ? NULL : WEFT_OS->alloc(((size_t)all + 1) * sizeof *list);
    size_t bytes = sizeof(again) + (size_t)(all < 0 ? 0 : all) * sizeof(weft_tensor *);
    again *a = list ? weft_i_object_new_unscoped(WEFT_I_OPAQUE, bytes, destroy) : NULL;
    if (all >= 0 && !list)
        weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_nn_recompute: no memory for %d parameters", all);
    int found = a ? weft_module_params(module, list, all) : -1;
    if (a)
        a->module = weft_i_object_hold(module);
    for (int i = 0; i < found; i++)
        if (weft_requires_grad(list[i].tensor))
            a->params[a->count++] = weft_i_object_hold(list[i].tensor);
    WEFT_OS->free(list);
    if (found >= 0)
        return a;
    weft_i_object_drop(a);
    return NULL;
}

/* ---- the row: y as a tensor of its own over the same memory ---- */

weft_status weft_i_recompute_shape(weft_i_op_call *call)
{
    const weft_tensor *y = call->args[0].tensor;
    weft_i_result *result = &call->result;
    result->dtype = y->dtype;
    result->shape = weft_i_tensor_shape(y);
    result->offset = y->offset;
    result->fresh_version = true;
    memcpy(result->stride, y->stride, sizeof y->stride);
    return WEFT_OK;
}

weft_status weft_i_recompute_run(weft_i_op_call *call)
{
    return weft_i_fail(WEFT_ERR_INTERNAL, "%s: views do not run", call->op->name);
}

/* The gradients of the input (0) and the parameters, by a call that is recorded. */
static weft_status call_again(const again *a, weft_i_back *c, weft_tensor *x, weft_tensor **grads)
{
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    weft_tensor *leaf = weft_detach(x), **of = NULL;
    weft_tensor *y = NULL, *seed = weft_i_back_g(c, 0);
    bool wanted = weft_i_back_needs_item(c, 0);
    if (!leaf || (wanted && weft_require_grad(leaf, true) < 0))
        return weft_last_status();
    weft_i_generator now = weft_i_random_swap(a->generator);
    y = weft_module_call(a->module, leaf);
    weft_i_random_swap(now);
    if (!y || !(of = WEFT_OS->alloc(((size_t)a->count + 1) * sizeof *of)))
        return y ? weft_i_fail(WEFT_ERR_NO_MEMORY, "recompute: no memory") : weft_last_status();
    memcpy(of + 1, a->params, (size_t)a->count * sizeof *of);
    of[0] = leaf;
    opts.seeds = &seed;
    opts.allow_unused = true;
    weft_status status =
        weft_gradients(grads + !wanted, of + !wanted, (size_t)(a->count + wanted), &y, 1, &opts);
    WEFT_OS->free(of);
    return status;
}

static weft_status back(weft_i_back *c)
{
    const again *a = ARG(2)->group.handle;
    weft_status status = WEFT_OK;
    if (weft_grad_mode_now() == WEFT_GRAD_RECORDING)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "recompute: it has no second gradient (create_graph)");
    WEFT_ENABLE_GRAD
    {
        status = call_again(a, c, ARG(1)->tensors[0], c->list);
    }
    return status;
}

const weft_i_gradient weft_i_recompute_gradient = {.save = 1u << 1, .back = back};

/* ---- the call ---- */

static weft_tensor *attach(again *a, weft_tensor *x, weft_tensor *y)
{
    weft_tensor **list = WEFT_OS->alloc(((size_t)a->count + 1) * sizeof *list);
    if (!list)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_recompute: no memory");
    list[0] = x;
    memcpy(list + 1, a->params, (size_t)a->count * sizeof *list);
    weft_tensor *out = WEFT_I_APPLY(recompute, WEFT_I_TENSOR_ARG(y),
                                    WEFT_I_TENSORS_ARG(list, (size_t)a->count + 1),
                                    WEFT_I_GROUP_ARG(a, "module", 1));
    WEFT_OS->free(list);
    return out;
}

weft_tensor *weft_nn_recompute(weft_module *module, weft_tensor *x)
{
    if (weft_i_module_check("weft_nn_recompute", module) < 0)
        return NULL;
    if (!x || weft_i_eye_open || weft_grad_mode_now() != WEFT_GRAD_RECORDING)
        return weft_module_call(module, x);
    again *a = new_again(module);
    weft_tensor *y = NULL, *out = NULL;
    if (!a)
        return NULL;
    a->generator = weft_i_random_take(0);
    WEFT_NO_GRAD
    {
        y = weft_module_call(module, x);
    }
    /* `y` stays with the scope: a module without layers returns its input. */
    if (y)
        out = attach(a, x, y);
    weft_i_object_drop(a);
    return out;
}
