/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of leaves.  The first one is taken over if nobody else has it, without looking at
 * its elements: one that is a collective under way goes on behind the rest of backward, and whoever
 * uses the gradient first waits for it.
 */
#include "grad/engine.h"
#include "grad/ops.h"
#include "tensor/object/eye.h"

#include <string.h>

/* A stand-in's gradient is read when the program runs.  A gradient without a
 * value number belongs to the real tensor.  Whether there is one is fixed when the function is
 * captured. */
static weft_tensor *captured_grad(weft_tensor *x)
{
    weft_i_eye *eye = weft_i_eye_open;
    weft_tensor *twin = weft_i_see(x);
    const weft_i_history *history = twin ? weft_i_history_if(twin) : NULL;
    if (!twin || (history && history->retained && weft_i_not_captured("weft_retain_grad") < 0))
        return NULL;
    weft_tensor *grad = history ? history->grad : NULL;
    if ((!grad || grad->node < 0) && eye->read_grad(eye, twin, grad != NULL) < 0)
        return NULL;
    return grad ? WEFT_I_APPLY(grad, WEFT_I_TENSOR_ARG(twin),
                               WEFT_I_INTEGERS_ARG(grad->stride, grad->ndim))
                : NULL;
}

weft_tensor *weft_grad(weft_tensor *x)
{
    if (weft_i_eye_open && x)
        return captured_grad(x);
    const weft_i_history *history = x ? weft_i_history_if(x) : NULL;
    if (!x)
        weft_i_missing("%s: the tensor is NULL", __func__);
    return !history ? NULL : history->retained ? history->retained->grad : history->grad;
}

static int references(const weft_i_object *object)
{
    /* Acquire: what an operation under way let go of is seen to be let go of; see claim.h. */
    return atomic_load_explicit(&object->references, memory_order_acquire);
}

/* Whether the caller's reference to g is the only way to its memory, all of which it covers, but
 * for an operation that is still writing it. */
static bool is_sole(const weft_tensor *g)
{
    const weft_tensor *base = g->base;
    int own = references(&g->head), memory = references(&g->storage->head);
    int base_own = base ? references(&base->head) : 1;
    int writers = weft_i_claim_holders(g->storage); /* after the others: see there */
    size_t bytes = (size_t)g->numel * weft_i_dtype_size(g->dtype);
    return g->storage->table && g->storage->bytes == bytes && memory == (base ? 2 : 1) &&
           (base ? own == 1 && base_own <= 1 + writers : own <= 1 + writers);
}

static bool same_layout(const weft_tensor *g, const weft_tensor *leaf)
{
    if (!weft_i_tensor_is_dense(leaf))
        return g->packed;
    for (int i = 0; i < g->ndim; i++)
        if (g->dim[i] != 1 && g->stride[i] != leaf->stride[i])
            return false;
    return true;
}

/* With the strides of the leaf if its memory has no gaps. */
static weft_tensor *copy_for(weft_tensor *leaf, weft_tensor *g)
{
    if (same_layout(g, leaf) && weft_i_tensor_is_dense(g))
        return weft_clone(g);
    if (!weft_i_tensor_is_dense(leaf))
        return weft_clone(weft_contiguous(g));
    weft_tensor *copy =
        weft_empty_strided(g->dtype, weft_i_tensor_device(g), weft_i_tensor_shape(g), leaf->stride);
    return copy && weft_copy(copy, g) >= 0 ? copy : NULL;
}

static weft_status put(weft_i_history *history, weft_tensor *g)
{
    weft_tensor *old = history->grad;
    history->grad = weft_i_object_hold(g);
    weft_i_object_drop(old);
    return WEFT_OK;
}

/* A tensor of the user is held as an alias: it may get a history, or a gradient, that leads to the
 * leaf, and would hold it for ever. */
static weft_status put_alias(weft_i_history *history, weft_tensor *g)
{
    weft_tensor *alias = weft_detach(g);
    if (!alias)
        return weft_last_status();
    put(history, alias);
    weft_release(alias);
    return WEFT_OK;
}

weft_status weft_i_accumulate_shape(weft_i_op_call *call)
{
    (void)call; /* the engine fitted the gradient to the leaf */
    return WEFT_OK;
}

static weft_status start(weft_i_history *history, weft_tensor *leaf, weft_tensor *g)
{
    if (is_sole(g) && same_layout(g, leaf))
        return put(history, g);
    weft_tensor *copy = copy_for(leaf, g);
    return copy ? put(history, copy) : weft_last_status();
}

weft_status weft_i_accumulate_run(weft_i_op_call *call)
{
    weft_tensor *leaf = call->args[0].tensor, *g = call->args[1].tensor;
    weft_i_history *history = weft_i_history_of(leaf);
    if (!history)
        return weft_last_status();
    if (call->fake) /* there is one from here on */
        return put(history, g);
    if (!history->grad)
        return start(history, leaf, g);
    if (!call->args[2].integer)
        return weft_add_into(history->grad, history->grad, g);
    weft_tensor *both = weft_add(history->grad, g);
    return both ? put(history, both) : weft_last_status();
}

static weft_status run_hooks(weft_tensor *leaf, bool create)
{
    weft_i_history *history = weft_i_history_if(leaf);
    weft_tensor *grad = weft_grad(leaf), *before = grad;
    if (!grad)
        return weft_last_status();
    WEFT_TRY(weft_i_hook_run(history->accumulated, 0, &grad));
    if (weft_i_eye_open)
        return grad == before ? WEFT_OK : weft_set_grad(leaf, grad);
    if (!history->grad || grad == history->grad)
        return WEFT_OK;
    return create ? put(history, grad) : put_alias(history, grad);
}

weft_status weft_i_accumulate(weft_tensor *leaf, weft_tensor *g, bool create)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = WEFT_I_ACT(accumulate, WEFT_I_TENSOR_ARG(leaf), WEFT_I_TENSOR_ARG(g),
                                    WEFT_I_INTEGER_ARG(create));
    if (status >= 0 && weft_i_history_if(leaf)->accumulated)
        status = run_hooks(leaf, create);
    weft_scope_close();
    return status;
}

/* ---- in programs ---- */

weft_status weft_i_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    if (call->args[1].count != (size_t)x->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "grad: %zu strides for %d dimensions",
                           call->args[1].count, x->ndim);
    call->result.dtype = x->dtype;
    call->result.shape = weft_i_tensor_shape(x);
    memcpy(call->result.stride, call->args[1].integers, (size_t)x->ndim * sizeof(int64_t));
    return WEFT_OK;
}

weft_status weft_i_grad_run(weft_i_op_call *call)
{
    return call->fake ? WEFT_OK
                      : weft_i_fail(WEFT_ERR_INTERNAL, "grad: what it gives is not its own");
}

weft_tensor *weft_i_grad_alias(weft_tensor *x)
{
    weft_tensor *grad = weft_grad(x);
    if (!grad && weft_last_status() >= 0)
        weft_i_fail(WEFT_ERR_STATE, "grad: the tensor has no gradient, but had one when the "
                                    "program was captured");
    return weft_detach(grad);
}

weft_status weft_i_hand_out_shape(weft_i_op_call *call)
{
    (void)call;
    return WEFT_OK;
}

weft_status weft_i_hand_out_run(weft_i_op_call *call)
{
    return call->fake
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_STATE, "hand_out: the backward of a function runs by itself");
}

/* ---- setting it ---- */

weft_status weft_i_set_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    const weft_tensor *grad = call->args[1].kind == WEFT_I_ARG_TENSOR ? call->args[1].tensor : NULL;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    int output;
    if (grad && (grad->dtype != x->dtype ||
                 !weft_i_shape_equal(weft_i_tensor_shape(x), weft_i_tensor_shape(grad))))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "set_grad: a %s tensor of shape %s is no gradient of a %s tensor of "
                           "shape %s",
                           weft_dtype_name(grad->dtype),
                           weft_i_shape_text(weft_i_tensor_shape(grad), a),
                           weft_dtype_name(x->dtype), weft_i_shape_text(weft_i_tensor_shape(x), b));
    if (grad && weft_i_history_node(x, &output))
        return weft_i_fail(WEFT_ERR_STATE,
                           "set_grad: only leaves have a gradient that can be set; this tensor "
                           "was made by %s",
                           weft_i_history_node(x, &output)->op->name);
    return WEFT_OK;
}

/* Whether it is the gradient already, by another handle: whoever has that keeps it. */
static bool is_there(const weft_i_history *history, const weft_tensor *grad)
{
    const weft_tensor *old = history->grad;
    return old && grad && old->storage == grad->storage && old->version == grad->version &&
           weft_i_tensor_same_view(old, grad);
}

weft_status weft_i_set_grad_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    weft_tensor *grad = call->args[1].kind == WEFT_I_ARG_TENSOR ? call->args[1].tensor : NULL;
    weft_i_history *history = grad ? weft_i_history_of(x) : weft_i_history_if(x);
    if (!history)
        return grad ? weft_last_status() : WEFT_OK;
    if (call->fake)
        return put(history, grad);
    if (is_there(history, grad))
        return WEFT_OK;
    if (!grad && history->retained) {
        weft_i_object_drop(history->retained->grad);
        history->retained->grad = NULL;
    }
    return grad ? put_alias(history, grad) : put(history, NULL);
}

weft_status weft_set_grad(weft_tensor *x, weft_tensor *grad)
{
    return WEFT_I_ACT(set_grad, WEFT_I_TENSOR_ARG(x), WEFT_I_OPTIONAL_ARG(grad));
}
