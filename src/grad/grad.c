/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of weft/grad.h: questions, modes, hooks, and the ways into the engine. */
#include "weft/grad.h"

#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/engine.h"
#include "tensor/object/eye.h"

static weft_status refuse_null(const char *what)
{
    return weft_i_missing("%s: a tensor is NULL", what);
}

/* Of a stand-in: whether it stands for a tensor that was there before the capture. */
static bool is_input(const weft_tensor *x)
{
    return x->storage->fake && x->head.kind == WEFT_I_TENSOR && x->lifted;
}

/* ---- tensors ---- */

weft_status weft_require_grad(weft_tensor *x, bool required)
{
    int output;
    if (!x || !(x = weft_i_see(x)))
        return refuse_null(__func__);
    if (weft_i_eye_open && is_input(x))
        return weft_i_not_captured("weft_require_grad of a tensor that was not made here");
    if (weft_i_history_node(x, &output))
        return required ? WEFT_OK
                        : weft_i_fail(WEFT_ERR_STATE,
                                      "%s: the tensor was made by %s, and its gradient passes it; "
                                      "detach it (weft_detach) to have it without",
                                      __func__, weft_i_history_node(x, &output)->op->name);
    if (!required && !x->grad)
        return WEFT_OK;
    if (required && weft_i_dtype_kind_of(x->dtype) != WEFT_I_KIND_FLOAT)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: tensors of %s have no gradients", __func__,
                           weft_dtype_name(x->dtype));
    if (required && weft_i_grad_mode == WEFT_GRAD_INFERENCE)
        return weft_i_fail(WEFT_ERR_STATE, "%s: not inside WEFT_INFERENCE", __func__);
    weft_i_history *history = weft_i_history_of(x);
    if (!history)
        return weft_last_status();
    history->required = required;
    if (required) { /* a leaf stands for itself */
        weft_i_object_drop(x->base);
        x->base = NULL;
    }
    return WEFT_OK;
}

bool weft_requires_grad(weft_tensor *x)
{
    weft_i_edge edge;
    if (!x || !(x = weft_i_see(x))) {
        refuse_null(__func__);
        return false;
    }
    return weft_i_history_edge(x, &edge) >= 0 && edge.to;
}

bool weft_is_leaf(weft_tensor *x)
{
    weft_i_edge edge;
    if (!x || !(x = weft_i_see(x))) {
        refuse_null(__func__);
        return false;
    }
    return weft_i_history_edge(x, &edge) >= 0 && (!edge.to || !weft_i_is_node(edge.to));
}

static void destroy_retained(weft_i_object *object)
{
    weft_i_object_drop(((weft_i_retained *)object)->grad);
    weft_i_object_free(object);
}

weft_status weft_retain_grad(weft_tensor *x)
{
    WEFT_TRY(weft_i_not_captured("weft_retain_grad"));
    weft_i_edge edge;
    if (!x)
        return refuse_null(__func__);
    WEFT_TRY(weft_i_history_edge(x, &edge));
    if (!edge.to)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the tensor requires no gradients", __func__);
    if (!weft_i_is_node(edge.to))
        return WEFT_OK;
    weft_i_history *history = weft_i_history_of(x);
    if (!history)
        return weft_last_status();
    if (history->retained)
        return WEFT_OK;
    weft_i_retained *retained =
        weft_i_object_new_unscoped(WEFT_I_RETAINED, sizeof *retained, destroy_retained);
    if (!retained)
        return weft_last_status();
    weft_i_node *node = (weft_i_node *)edge.to;
    history->retained = weft_i_object_hold(retained);
    retained->output = edge.output;
    retained->next = node->retained;
    node->retained = retained;
    return WEFT_OK;
}

/* ---- modes ---- */

weft_grad_mode weft_grad_mode_now(void)
{
    return weft_i_grad_mode;
}

weft_grad_block weft_grad_block_enter(weft_grad_mode mode)
{
    weft_grad_block block = {weft_i_grad_mode, true};
    bool known = mode >= WEFT_GRAD_RECORDING && mode <= WEFT_GRAD_INFERENCE;
    if (known && weft_i_grad_mode != WEFT_GRAD_INFERENCE)
        weft_i_grad_mode = mode;
    return block;
}

void weft_grad_block_leave(weft_grad_block *block)
{
    if (block)
        weft_i_grad_mode = block->before;
}

/* ---- hooks ---- */

static int64_t add_hook(const char *what, weft_tensor *x, weft_hook hook, void *user,
                        weft_held held, bool accumulated)
{
    weft_i_edge edge;
    if (!x || !(x = weft_i_see(x)))
        return refuse_null(what);
    if (!hook)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the hook is NULL", what);
    if (weft_i_eye_open && is_input(x))
        return weft_i_not_captured("a hook of a tensor that was not made here");
    WEFT_TRY(weft_i_history_edge(x, &edge));
    if (!edge.to)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the tensor requires no gradients", what);
    weft_i_node *node = weft_i_is_node(edge.to) ? (weft_i_node *)edge.to : NULL;
    if (node && accumulated)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: gradients are added up for leaves only; this tensor was made by %s",
                           what, node->op->name);
    weft_i_hook *made = weft_i_hook_new(what, hook, user, held, x);
    if (!made)
        return weft_last_status();
    made->output = edge.output;
    made->accumulated = accumulated;
    weft_i_history *leaf = node ? NULL : weft_i_history_if(x);
    int64_t number = made->number;
    if (weft_i_eye_open)
        weft_i_eye_open->hooked = true;
    weft_i_hook_append(node ? &node->hooks : accumulated ? &leaf->accumulated : &leaf->hooks, made);
    return number;
}

int64_t weft_tensor_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held)
{
    return add_hook(__func__, x, hook, user, held, false);
}

int64_t weft_accumulated_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held)
{
    return add_hook(__func__, x, hook, user, held, true);
}

static weft_i_hook *find_hook(weft_tensor *x, int64_t number)
{
    int output;
    weft_i_node *node = weft_i_history_node(x, &output);
    weft_i_history *history = weft_i_history_if(x);
    weft_i_hook *hook = node ? weft_i_hook_find(node->hooks, number) : NULL;
    if (!hook && history)
        hook = weft_i_hook_find(history->hooks, number);
    return hook || !history ? hook : weft_i_hook_find(history->accumulated, number);
}

int64_t weft_hook_opaque(weft_tensor *x, int64_t number)
{
    if (number < 0)
        return number;
    if (!x || !(x = weft_i_see(x)))
        return refuse_null(__func__);
    weft_i_hook *hook = find_hook(x, number);
    if (!hook)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "%s: the tensor has no hook %lld", __func__,
                           (long long)number);
    hook->opaque = true;
    return number;
}

weft_status weft_unhook(weft_tensor *x, int64_t number)
{
    WEFT_TRY(weft_i_not_captured("weft_unhook"));
    int output;
    if (!x)
        return refuse_null(__func__);
    weft_i_node *node = weft_i_history_node(x, &output);
    weft_i_history *history = weft_i_history_if(x);
    if ((node && weft_i_hook_remove(&node->hooks, number)) ||
        (history && (weft_i_hook_remove(&history->hooks, number) ||
                     weft_i_hook_remove(&history->accumulated, number))))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_NOT_FOUND, "%s: the tensor has no hook %lld", __func__,
                       (long long)number);
}

weft_status weft_backward_then(weft_hook hook, void *user, weft_held held)
{
    weft_i_backward_pass *run = weft_i_engine_now();
    if (run && run->frame)
        return weft_i_not_captured("weft_backward_then in a hook of a compiled function");
    if (!hook)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the callback is NULL", __func__);
    if (!run)
        return weft_i_fail(WEFT_ERR_STATE, "%s: no backward runs in this thread", __func__);
    weft_i_hook *made = weft_i_hook_new(__func__, hook, user, held, NULL);
    if (!made)
        return weft_last_status();
    weft_i_hook_append(&run->finally, made);
    return WEFT_OK;
}

weft_status weft_i_backward_finally(weft_hook hook, void *user)
{
    weft_i_backward_pass *run = weft_i_engine_now();
    if (!run)
        return weft_i_fail(WEFT_ERR_STATE, "%s: no backward runs in this thread", __func__);
    while (run->outer)
        run = run->outer;
    weft_i_hook *made = weft_i_hook_new(__func__, hook, user, (weft_held){0}, NULL);
    if (!made)
        return weft_last_status();
    weft_i_hook_append(&run->finally, made);
    return WEFT_OK;
}
