/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call of a module.  Its temporaries live in a scope of their own; what it returns goes to the
 * caller's.  A module with backward hooks is called between two nodes of the graph, one over all
 * its inputs and one over all its results, so that each sees the gradients of all of them at once:
 *
 *     in -> pass -> forward -> pass -> out
 *
 * In backward the second node runs the backward_pre hooks and keeps the gradients they leave; the
 * first runs the backward hooks with those.
 */
#include "grad/node.h"
#include "nn/module.h"
#include "tensor/object/eye.h"

#include <string.h>

/* Which of a call's values a node is over: none is over what is NULL. */
typedef struct passed {
    int count;
    int place[WEFT_MODULE_VALUES];
} passed;

/* What the two nodes of one call share; each holds it. */
typedef struct call {
    weft_i_object head;
    weft_module *module; /* held */
    int ins, outs;
    passed in, out;
    bool has_inputs;                           /* there is a node over the inputs */
    bool arrived;                              /* the results' gradients are here: */
    weft_tensor *gradient[WEFT_MODULE_VALUES]; /* held */
} call;

static void forget_gradients(call *c)
{
    for (int i = 0; i < c->outs; i++) {
        weft_i_object_drop(c->gradient[i]);
        c->gradient[i] = NULL;
    }
    c->arrived = false;
}

static void destroy(weft_i_object *object)
{
    call *c = (call *)object;
    forget_gradients(c);
    weft_i_object_drop(c->module);
    weft_i_object_free(object);
}

static call *new_call(weft_module *module, int ins, int outs)
{
    call *c = weft_i_object_new_unscoped(WEFT_I_MODULE_CALL, sizeof *c, destroy);
    if (!c)
        return NULL;
    c->module = weft_i_object_hold(module);
    c->ins = ins;
    c->outs = outs;
    return c;
}

/* -- in backward -- */

/* The gradients as the hooks left them.  Without their history: the graph of a second derivative
 * must not hold itself by way of this call. */
static weft_status keep_gradients(call *c, weft_tensor *const *g)
{
    forget_gradients(c);
    for (int i = 0; i < c->outs; i++) {
        weft_tensor *own = g[i] && weft_requires_grad(g[i]) ? weft_detach(g[i]) : g[i];
        if (g[i] && !own)
            return weft_last_status();
        c->gradient[i] = weft_i_object_hold(own);
    }
    c->arrived = true;
    return WEFT_OK;
}

static weft_status run_backward(call *c, weft_tensor **in)
{
    weft_hook_event event = {.in = in, .out = c->gradient, .ins = c->ins, .outs = c->outs};
    weft_status status = weft_i_module_run_hooks(c->module, WEFT_HOOK_BACKWARD, &event, NULL);
    forget_gradients(c);
    return status;
}

/* From the gradients of a node to those of all values, and back. */
static void spread(const passed *p, weft_tensor *const *g, weft_tensor **values)
{
    for (int i = 0; i < p->count; i++)
        values[p->place[i]] = g[i];
}

static void gather(const passed *p, weft_tensor **g, weft_tensor *const *values)
{
    for (int i = 0; i < p->count; i++)
        g[i] = values[p->place[i]];
}

/* The gradients of all results are there. */
static weft_status after_results(weft_tensor **g, size_t count, void *user)
{
    call *c = user;
    weft_tensor *in[WEFT_MODULE_VALUES] = {NULL}, *out[WEFT_MODULE_VALUES] = {NULL};
    (void)count;
    spread(&c->out, g, out);
    weft_hook_event event = {.in = in, .out = out, .ins = c->ins, .outs = c->outs};
    WEFT_TRY(weft_i_module_run_hooks(c->module, WEFT_HOOK_BACKWARD_PRE, &event, NULL));
    WEFT_TRY(keep_gradients(c, out));
    gather(&c->out, g, out);
    return c->has_inputs ? WEFT_OK : run_backward(c, in);
}

/* The gradients of all inputs are there.  If they came by another way than through the results (a
 * second derivative), this is not the module's backward. */
static weft_status after_inputs(weft_tensor **g, size_t count, void *user)
{
    call *c = user;
    weft_tensor *in[WEFT_MODULE_VALUES] = {NULL};
    (void)count;
    if (!c->arrived)
        return WEFT_OK;
    spread(&c->in, g, in);
    WEFT_TRY(run_backward(c, in));
    gather(&c->in, g, in);
    return WEFT_OK;
}

/* -- in forward -- */

/* What the hooks of a node do depends on the module and its structure. */
static const void *identity(const void *user, int64_t *number)
{
    const call *c = user;
    *number = weft_module_generation(c->module);
    return c->module;
}

/* Puts a node over the values; each node holds the call. */
static weft_status pass(call *c, passed *p, weft_tensor **values, int count, weft_i_node_hook hook,
                        bool *made)
{
    weft_tensor *in[WEFT_MODULE_VALUES], *out[WEFT_MODULE_VALUES];
    for (int i = 0; i < count; i++)
        if (values[i])
            p->place[p->count++] = i;
    gather(p, in, values);
    *made = false;
    weft_i_object_hold(c);
    weft_status status = p->count ? weft_i_pass(out, in, (size_t)p->count, hook, identity, c,
                                                weft_i_object_drop, made)
                                  : WEFT_OK;
    if (status < 0 || !*made)
        weft_i_object_drop(c);
    else
        spread(p, out, values);
    return status;
}

static weft_status run_forward(weft_module *module, const weft_hook_event *event)
{
    if (module->forward_list)
        return module->forward_list(module, event->in, event->ins, event->out, event->outs,
                                    module->user);
    event->out[0] = module->forward(module, event->in[0], module->user);
    return WEFT_OK;
}

/* A function of the user's may say anything. */
static weft_status check_results(const weft_hook_event *event)
{
    for (int i = 0; i < event->outs; i++) {
        if (!event->out[i])
            return weft_i_missing("forward left result %d NULL", i);
        if (event->out[i]->head.kind != WEFT_I_TENSOR)
            return weft_i_fail(WEFT_ERR_TYPE, "result %d of forward is no tensor", i);
    }
    return WEFT_OK;
}

/* From the forward_pre hooks to the forward hooks; `ran` counts the latter. */
static weft_status run_between(weft_module *module, weft_hook_event *event, call *c, int *ran)
{
    WEFT_TRY(weft_i_module_run_hooks(module, WEFT_HOOK_FORWARD_PRE, event, NULL));
    if (c)
        WEFT_TRY(pass(c, &c->in, event->in, event->ins, after_inputs, &c->has_inputs));
    WEFT_TRY(run_forward(module, event));
    WEFT_TRY(check_results(event));
    return weft_i_module_run_hooks(module, WEFT_HOOK_FORWARD, event, ran);
}

static int64_t read_generation(void *object, const char *name)
{
    (void)name;
    return weft_module_generation(object);
}

static weft_status run(weft_module *module, weft_hook_event *event)
{
    call *c = NULL;
    int ran = 0;
    bool made;
    weft_i_eye *eye = weft_i_eye_open;
    if (eye)
        WEFT_TRY(eye->depend(eye, module, read_generation, "its structure"));
    if (weft_i_module_has_backward(module) && weft_grad_mode_now() == WEFT_GRAD_RECORDING &&
        !(c = new_call(module, event->ins, event->outs)))
        return weft_last_status();
    weft_status status = run_between(module, event, c, &ran);
    if (status < 0) {
        memset(event->out, 0, (size_t)event->outs * sizeof *event->out);
        event->status = status;
        weft_i_module_run_always(module, event, ran);
        weft_i_explain(status, "in a %s", module->kind);
    } else if (c) {
        status = pass(c, &c->out, event->out, event->outs, after_results, &made);
    }
    weft_i_object_drop(c);
    return status;
}

/* Calls in a scope of its own; the results are the caller's references. */
static weft_status call_held(weft_module *module, weft_tensor **out, int outs,
                             weft_tensor *const *given, int ins)
{
    weft_tensor *in[WEFT_MODULE_VALUES] = {NULL};
    weft_hook_event event = {.in = in, .out = out, .ins = ins, .outs = outs};
    if (ins) /* there may be no list of none */
        memcpy(in, given, (size_t)ins * sizeof *in);
    memset(out, 0, (size_t)outs * sizeof *out);
    WEFT_TRY(weft_scope_open());
    weft_i_object_hold(module);
    weft_status status = run(module, &event);
    for (int i = 0; i < outs && status >= 0; i++)
        weft_i_object_hold(out[i]);
    weft_scope_close();
    weft_i_object_drop(module);
    return status;
}

static weft_status check_call(const weft_module *module, int outs, weft_tensor *const *in, int ins)
{
    WEFT_TRY(weft_i_module_check("weft_module_call", module));
    if (!module->forward && !module->forward_list)
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_module_call: this module is a container: it was made without a "
                           "function, so there is nothing to call but its children");
    bool one = !module->forward_list;
    if (outs < 1 || outs > WEFT_MODULE_VALUES || ins < 0 || ins > WEFT_MODULE_VALUES ||
        (ins && !in) || (one && (ins != 1 || outs != 1)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_module_call: %d inputs and %d results of a %s; it takes %s", ins,
                           outs, module->kind, one ? "one of each" : "up to 16, and gives 1 to 16");
    for (int i = 0; i < ins; i++)
        if (in[i] ? in[i]->head.kind != WEFT_I_TENSOR : one)
            return in[i] || weft_last_status() >= 0
                       ? weft_i_fail(WEFT_ERR_INVALID_ARG,
                                     "weft_module_call: input %d of a %s is no tensor", i,
                                     module->kind)
                       : weft_last_status();
    return WEFT_OK;
}

weft_tensor *weft_i_module_call_held(weft_module *module, weft_tensor *x)
{
    weft_tensor *out = NULL;
    if (check_call(module, 1, &x, 1) < 0 || call_held(module, &out, 1, &x, 1) < 0)
        return NULL;
    return out;
}

weft_tensor *weft_module_call(weft_module *module, weft_tensor *x)
{
    weft_tensor *out = weft_i_module_call_held(module, x);
    weft_i_scope_adopt(out);
    return out;
}

weft_status weft_module_call_list(weft_module *module, weft_tensor **out, int outs,
                                  weft_tensor *const *in, int ins)
{
    weft_tensor *made[WEFT_MODULE_VALUES];
    WEFT_TRY(check_call(module, outs, in, ins));
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_module_call: no room for the results");
    WEFT_TRY(call_held(module, made, outs, in, ins));
    for (int i = 0; i < outs; i++) {
        weft_i_scope_adopt(made[i]);
        out[i] = made[i];
    }
    return WEFT_OK;
}
