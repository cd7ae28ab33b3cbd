/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of modules: their lists, and how a list runs. */
#include "nn/module.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "tensor/object/eye.h"

#include <string.h>

static const char *const points[WEFT_I_HOOK_POINTS] = {
    [WEFT_HOOK_FORWARD_PRE] = "forward_pre",
    [WEFT_HOOK_FORWARD] = "forward",
    [WEFT_HOOK_BACKWARD_PRE] = "backward_pre",
    [WEFT_HOOK_BACKWARD] = "backward",
};

static void destroy(weft_i_object *object)
{
    weft_i_module_hook *hook = (weft_i_module_hook *)object;
    for (int i = 0; i < hook->count; i++)
        weft_i_object_drop(hook->held[i]);
    weft_i_object_free(object);
}

static weft_status check_new(const weft_module *module, weft_hook_point point, unsigned flags,
                             weft_module_hook hook)
{
    WEFT_TRY(weft_i_module_check("weft_module_hook_add", module));
    if ((int)point < 0 || (int)point >= WEFT_I_HOOK_POINTS || !hook)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_hook_add: %s",
                           hook ? "there is no such point" : "no function");
    if (flags & ~(unsigned)(WEFT_HOOK_PREPEND | WEFT_HOOK_ALWAYS | WEFT_HOOK_OPAQUE) ||
        (flags & WEFT_HOOK_ALWAYS && point != WEFT_HOOK_FORWARD))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_module_hook_add: flags %#x; WEFT_HOOK_ALWAYS is for "
                           "WEFT_HOOK_FORWARD, and there are no others than it, "
                           "WEFT_HOOK_PREPEND and WEFT_HOOK_OPAQUE",
                           flags);
    if (module->hook_count[point] == WEFT_I_HOOKS_MAX)
        return weft_i_fail(WEFT_ERR_LIMIT, "weft_module_hook_add: the %s has %d %s hooks already",
                           module->kind, WEFT_I_HOOKS_MAX, points[point]);
    return WEFT_OK;
}

/* NULL is the error that made it NULL. */
static weft_status check_held(weft_held hold)
{
    for (size_t i = 0; i < hold.count; i++) {
        const weft_tensor *x = hold.tensors ? hold.tensors[i] : NULL;
        if (!x && weft_last_status() < 0)
            return weft_last_status();
        if (!x || x->head.kind != WEFT_I_TENSOR)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "weft_module_hook_add: number %zu of what it holds is no tensor", i);
    }
    return WEFT_OK;
}

static weft_i_module_hook *new_hook(weft_held hold)
{
    size_t bytes = sizeof(weft_i_module_hook) + (size_t)hold.count * sizeof(weft_tensor *);
    weft_i_module_hook *hook = weft_i_object_new_unscoped(WEFT_I_MODULE_HOOK, bytes, destroy);
    if (!hook)
        return NULL;
    for (size_t i = 0; i < hold.count; i++)
        hook->held[i] = weft_i_object_hold(hold.tensors[i]);
    hook->count = (int)hold.count;
    return hook;
}

int64_t weft_module_hook_add(weft_module *module, weft_hook_point point, unsigned flags,
                             weft_module_hook function, void *user, weft_held hold)
{
    WEFT_TRY(check_new(module, point, flags, function));
    WEFT_TRY(check_held(hold));
    weft_i_module_hook *hook = new_hook(hold);
    if (!hook)
        return weft_last_status();
    hook->number = ++module->hooks_made;
    hook->hook = function;
    hook->user = user;
    hook->flags = flags;
    weft_i_module_hook **list = module->hooks[point];
    WEFT_ASSERT(module->hook_count[point] < WEFT_I_HOOKS_MAX); /* check_new */
    int count = module->hook_count[point]++, at = flags & WEFT_HOOK_PREPEND ? 0 : count;
    memmove(list + at + 1, list + at, (size_t)(count - at) * sizeof *list);
    list[at] = hook;
    module->changes++;
    return hook->number;
}

weft_status weft_module_hook_remove(weft_module *module, int64_t number)
{
    WEFT_TRY(weft_i_module_check("weft_module_hook_remove", module));
    for (int point = 0; point < WEFT_I_HOOK_POINTS; point++)
        for (int i = 0; i < module->hook_count[point]; i++) {
            weft_i_module_hook **at = &module->hooks[point][i], *hook = *at;
            if (hook->number != number)
                continue;
            int after = --module->hook_count[point] - i;
            memmove(at, at + 1, (size_t)after * sizeof *at);
            hook->removed = true;
            module->changes++;
            weft_i_object_drop(hook);
            return WEFT_OK;
        }
    return weft_i_fail(WEFT_ERR_NOT_FOUND, "weft_module_hook_remove: the %s has no hook %lld",
                       module->kind, (long long)number);
}

/* -- running -- */

/* What a hook of this point may replace. */
static weft_tensor **values_of(weft_hook_point point, const weft_hook_event *event, int *count)
{
    bool in = point == WEFT_HOOK_FORWARD_PRE || point == WEFT_HOOK_BACKWARD;
    *count = in ? event->ins : event->outs;
    return in ? event->in : event->out;
}

static bool is_backward(weft_hook_point point)
{
    return point >= WEFT_HOOK_BACKWARD_PRE;
}

static weft_status check_gradient(int i, const weft_tensor *old, const weft_tensor *new)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (!old)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "gives value %d a gradient, where none is asked for; it must stay NULL",
                           i);
    if (weft_i_shape_equal(weft_i_tensor_shape(old), weft_i_tensor_shape(new)) &&
        old->dtype == new->dtype && weft_i_tensor_device(old) == weft_i_tensor_device(new))
        return WEFT_OK;
    return weft_i_fail(
        WEFT_ERR_INVALID_ARG,
        "replaces gradient %d, %s %s, by one of %s %s; dtype, shape and device must stay", i,
        weft_dtype_name(old->dtype), weft_i_shape_text(weft_i_tensor_shape(old), a),
        weft_dtype_name(new->dtype), weft_i_shape_text(weft_i_tensor_shape(new), b));
}

static weft_status check_value(weft_hook_point point, int i, weft_tensor *old, weft_tensor *new)
{
    if (new == old)
        return WEFT_OK;
    if (!new)
        return weft_i_missing("replaces value %d by NULL", i);
    if (new->head.kind != WEFT_I_TENSOR)
        return weft_i_fail(WEFT_ERR_TYPE, "replaces value %d by something that is no tensor", i);
    return is_backward(point) ? check_gradient(i, old, new) : WEFT_OK;
}

static weft_status enter(weft_module *module, weft_hook_point point, weft_i_module_hook *hook,
                         weft_hook_event *event, weft_tensor *const *held)
{
    weft_tensor *before[WEFT_MODULE_VALUES];
    int count;
    weft_tensor **values = values_of(point, event, &count);
    memcpy(before, values, (size_t)count * sizeof *values);
    event->module = module;
    event->held = held;
    event->user = hook->user;
    weft_i_eye *eye = weft_i_eye_open;
    if (eye)
        eye->entered++;
    weft_status status = hook->hook(event);
    if (eye)
        eye->entered--;
    if (status < 0 && weft_last_status() != status) /* the hook's own; it has no message */
        weft_i_fail(status, "returned %s", weft_status_name(status));
    for (int i = 0; i < count && status >= 0; i++)
        status = check_value(point, i, before[i], values[i]);
    return status;
}

static weft_status run_one(weft_module *module, weft_hook_point point, weft_i_module_hook *hook,
                           weft_hook_event *event)
{
    weft_status status = hook->flags & WEFT_HOOK_OPAQUE
                             ? weft_i_module_hook_opaque(module, point, hook, event, enter)
                             : enter(module, point, hook, event, hook->held);
    return status < 0 ? weft_i_explain(status, "%s hook %lld of a %s", points[point],
                                       (long long)hook->number, module->kind)
                      : WEFT_OK;
}

/* A hook may add and remove hooks: the run goes over a list of its own. */
static int hold_list(const weft_module *module, weft_hook_point point,
                     weft_i_module_hook *list[WEFT_I_HOOKS_MAX])
{
    int count = module->hook_count[point];
    for (int i = 0; i < count; i++)
        list[i] = weft_i_object_hold(module->hooks[point][i]);
    return count;
}

weft_status weft_i_module_run_hooks(weft_module *module, weft_hook_point point,
                                    weft_hook_event *event, int *ran)
{
    weft_i_module_hook *list[WEFT_I_HOOKS_MAX];
    weft_status status = WEFT_OK;
    int count = hold_list(module, point, list);
    for (int i = 0; i < count && status >= 0; i++) {
        if (ran)
            *ran = i + 1;
        if (!list[i]->removed)
            status = run_one(module, point, list[i], event);
    }
    for (int i = 0; i < count; i++)
        weft_i_object_drop(list[i]);
    return status;
}

void weft_i_module_run_always(weft_module *module, weft_hook_event *event, int from)
{
    weft_i_module_hook *list[WEFT_I_HOOKS_MAX];
    int count = hold_list(module, WEFT_HOOK_FORWARD, list);
    for (int i = 0; i < count; i++)
        if (i >= from && !list[i]->removed && list[i]->flags & WEFT_HOOK_ALWAYS) {
            weft_i_errors saved;
            weft_i_errors_save(&saved);
            run_one(module, WEFT_HOOK_FORWARD, list[i], event);
            weft_i_errors_restore(&saved);
        }
    for (int i = 0; i < count; i++)
        weft_i_object_drop(list[i]);
}
