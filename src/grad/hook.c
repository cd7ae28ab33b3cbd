/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of hooks.  A hook may remove hooks, also itself, so one that is removed while a backward
 * runs is only marked, and freed later.
 */
#include "grad/hook.h"

#include "base/os/os.h"
#include "grad/engine.h"
#include "grad/node.h"
#include "grad/opaque.h"
#include "tensor/object/eye.h"

static int64_t next_number(void)
{
    static atomic_int_least64_t last; /* relaxed: numbers need only differ */
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* The tensor as the hook holds it: without its history if that leads to the hooked tensor. */
static weft_tensor *hold(weft_tensor *x, weft_tensor *self)
{
    int output;
    weft_i_node *from, *to;
    if (x == self)
        return x; /* not held: it is there whenever the hook runs */
    from = weft_i_history_node(x, &output);
    to = self ? weft_i_history_node(self, &output) : NULL;
    bool cycle =
        from && self && weft_i_node_reaches(from, to ? (weft_i_object *)to : (weft_i_object *)self);
    return cycle ? weft_keep(weft_detach(x)) : weft_i_object_hold(x);
}

/* Of a tensor with a history the node has the hook, and does not hold the tensor. */
static weft_tensor *hold_for(weft_tensor *x, weft_tensor *self)
{
    int output;
    if (x == self && weft_i_history_node(self, &output))
        return weft_keep(weft_detach(x));
    return hold(x, self);
}

weft_i_hook *weft_i_hook_new(const char *what, weft_hook hook, void *user, weft_held held,
                             weft_tensor *self)
{
    if (held.count && !held.tensors)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: the tensors to be held are NULL", what);
    for (size_t i = 0; i < held.count; i++)
        if (!held.tensors[i] && weft_i_missing("%s: a tensor to be held is NULL", what) < 0)
            return NULL;
    weft_i_hook *made = WEFT_OS->alloc(sizeof *made + held.count * sizeof *made->held);
    if (!made)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "%s: no memory for a hook", what);
    made->number = next_number();
    made->hook = hook;
    made->user = user;
    made->self = self;
    for (; made->count < held.count; made->count++)
        if (!(made->held[made->count] = hold_for(held.tensors[made->count], self))) {
            weft_i_hook_free(made);
            return NULL;
        }
    return made;
}

void weft_i_hook_append(weft_i_hook **list, weft_i_hook *hook)
{
    while (*list)
        list = &(*list)->next;
    *list = hook;
}

void weft_i_hook_free(weft_i_hook *hook)
{
    for (size_t i = 0; i < hook->count; i++)
        if (hook->held[i] != hook->self)
            weft_i_object_drop(hook->held[i]);
    if (hook->done)
        hook->done(hook->user);
    WEFT_OS->free(hook);
}

void weft_i_hook_free_all(weft_i_hook **list)
{
    while (*list) {
        weft_i_hook *hook = *list;
        *list = hook->next;
        weft_i_hook_free(hook);
    }
}

bool weft_i_hook_is_removed(const weft_i_hook *hook)
{
    return !hook->hook && !hook->on_all;
}

static void sweep(weft_i_hook **list)
{
    while (*list) {
        weft_i_hook *hook = *list;
        if (weft_i_hook_is_removed(hook)) {
            *list = hook->next;
            weft_i_hook_free(hook);
        } else {
            list = &hook->next;
        }
    }
}

weft_i_hook *weft_i_hook_find(weft_i_hook *list, int64_t number)
{
    while (list && (list->number != number || weft_i_hook_is_removed(list)))
        list = list->next;
    return list;
}

bool weft_i_hook_remove(weft_i_hook **list, int64_t number)
{
    weft_i_hook *hook = weft_i_hook_find(*list, number);
    if (!hook)
        return false;
    hook->hook = NULL;
    hook->on_all = NULL;
    if (!weft_i_engine_runs())
        sweep(list);
    return true;
}

/* A replacement has the shape of what it replaces; its dtype is brought to that. */
static weft_status check_replacement(weft_tensor *before, weft_tensor **grad)
{
    char was[WEFT_I_SHAPE_TEXT], is[WEFT_I_SHAPE_TEXT];
    if (!*grad)
        return weft_i_missing("a hook left NULL for the gradient; leave it as it is instead");
    if (!weft_i_shape_equal(weft_i_tensor_shape(before), weft_i_tensor_shape(*grad)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "a hook replaced a gradient of shape %s by one of shape %s",
                           weft_i_shape_text(weft_i_tensor_shape(before), was),
                           weft_i_shape_text(weft_i_tensor_shape(*grad), is));
    if (weft_i_tensor_device(before) != weft_i_tensor_device(*grad))
        return weft_i_fail(WEFT_ERR_TYPE, "a hook replaced a gradient on %s by one on %s",
                           weft_device_name(weft_i_tensor_device(before), was),
                           weft_device_name(weft_i_tensor_device(*grad), is));
    if ((*grad)->dtype != before->dtype && !(*grad = weft_to_dtype(*grad, before->dtype)))
        return weft_last_status();
    return WEFT_OK;
}

/* What is called, of a hook that may be gone when a graph calls it again. */
typedef struct called {
    weft_i_opaque head;
    weft_hook hook;
    void *user;
} called;

static weft_status call_hook(weft_hook hook, void *user, weft_tensor **grad,
                             weft_tensor *const *held)
{
    weft_tensor *before = *grad;
    weft_i_eye *eye = weft_i_eye_open;
    if (eye)
        eye->entered++;
    weft_status status = hook(grad, held, user);
    if (eye)
        eye->entered--;
    if (status < 0)
        return weft_last_status() == status
                   ? weft_i_explain(status, "a hook of a gradient")
                   : weft_i_fail(status, "a hook of a gradient returned %s",
                                 weft_status_name(status));
    return before && *grad != before ? check_replacement(before, grad) : WEFT_OK;
}

static weft_status call_again(const weft_i_opaque *self, weft_tensor **x, weft_tensor *const *held)
{
    const called *c = (const called *)self;
    return call_hook(c->hook, c->user, x, held);
}

/* The graph gets a call in the place of what the hook does. */
static weft_status write_down(const weft_i_hook *hook, weft_tensor **grad)
{
    called *c = weft_i_opaque_new(sizeof *c, weft_i_object_free, call_again,
                                  hook->accumulated ? "hook of an accumulated gradient"
                                                    : "hook of a gradient");
    if (!c)
        return weft_last_status();
    c->hook = hook->hook;
    c->user = hook->user;
    weft_status status = weft_i_opaque_write(&c->head, grad, 1, hook->held, hook->count);
    weft_i_object_drop(c);
    return status;
}

static weft_status run_one(const weft_i_hook *hook, weft_tensor **grad)
{
    if (!hook->opaque)
        return call_hook(hook->hook, hook->user, grad, hook->held);
    if (weft_i_eye_open)
        return write_down(hook, grad);
    weft_tensor *given = *grad;
    weft_i_opaque_mark before = weft_i_opaque_mark_of(&given, 1, hook->held, hook->count);
    WEFT_TRY(call_hook(hook->hook, hook->user, grad, hook->held));
    return weft_i_opaque_check(before, weft_i_opaque_mark_of(&given, 1, hook->held, hook->count));
}

/* Hooks that are added meanwhile wait for the next gradient. */
static int64_t last_of(const weft_i_hook *list)
{
    int64_t last = 0;
    for (; list; list = list->next)
        last = list->number;
    return last;
}

weft_status weft_i_hook_run(const weft_i_hook *list, int output, weft_tensor **grad)
{
    int64_t last = last_of(list);
    for (; list && list->number <= last; list = list->next)
        if (list->hook && list->output == output)
            WEFT_TRY(run_one(list, grad));
    return WEFT_OK;
}

weft_status weft_i_hook_run_all(const weft_i_hook *list, weft_tensor **g, size_t count)
{
    int64_t last = last_of(list);
    for (; list && list->number <= last; list = list->next)
        if (list->on_all)
            WEFT_TRY(list->on_all(g, count, list->user));
    return WEFT_OK;
}
