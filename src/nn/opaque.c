/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of modules that captures do not enter (grad/opaque.h): the event of each run is put together
 * from the tensors that the node sees then. */
#include "grad/opaque.h"
#include "nn/module.h"
#include "tensor/object/eye.h"

#include <stdio.h>
#include <string.h>

enum { VALUES = 2 * WEFT_MODULE_VALUES };

/* Which values of an event are there: those of `in`, then those of `out`. */
typedef struct seen {
    int count;
    int place[VALUES];
    weft_tensor *x[VALUES];
} seen;

typedef struct called {
    weft_i_opaque head;
    weft_module *module;      /* held */
    weft_i_module_hook *hook; /* held */
    weft_hook_point point;
    weft_i_module_enter *enter;
    int ins, outs, count;
    int place[VALUES];
} called;

static void destroy(weft_i_object *object)
{
    called *c = (called *)object;
    weft_i_object_drop(c->hook);
    weft_i_object_drop(c->module);
    weft_i_object_free(object);
}

static void look(const weft_hook_event *event, seen *s)
{
    s->count = 0;
    for (int i = 0; i < VALUES; i++) {
        bool out = i >= WEFT_MODULE_VALUES;
        int at = out ? i - WEFT_MODULE_VALUES : i;
        weft_tensor *x = at >= (out ? event->outs : event->ins) ? NULL
                         : out                                  ? event->out[at]
                                                                : event->in[at];
        if (!x)
            continue;
        s->place[s->count] = i;
        s->x[s->count++] = x;
    }
}

static weft_status check_forward(weft_hook_point point, const seen *before, const seen *after)
{
    bool same = before->count == after->count &&
                !memcmp(before->x, after->x, (size_t)before->count * sizeof *before->x);
    if (same || point >= WEFT_HOOK_BACKWARD_PRE)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "an opaque hook replaces a value of forward, whose gradient nobody would "
                       "know; only those of backward may");
}

/* At every run: the event of then. */
static weft_status call_again(const weft_i_opaque *self, weft_tensor **x, weft_tensor *const *held)
{
    const called *c = (const called *)self;
    weft_tensor *values[VALUES] = {NULL};
    seen before, after;
    for (int i = 0; i < c->count; i++)
        values[c->place[i]] = x[i];
    weft_hook_event event = {
        .in = values, .out = values + WEFT_MODULE_VALUES, .ins = c->ins, .outs = c->outs};
    look(&event, &before);
    WEFT_TRY(c->enter(c->module, c->point, c->hook, &event, held));
    look(&event, &after);
    WEFT_TRY(check_forward(c->point, &before, &after));
    for (int i = 0; i < c->count; i++)
        x[i] = values[c->place[i]];
    return WEFT_OK;
}

static called *new_called(weft_module *module, weft_hook_point point, weft_i_module_hook *hook,
                          const weft_hook_event *event, const seen *s)
{
    static const char *const names[] = {"forward_pre", "forward", "backward_pre", "backward"};
    char name[64];
    snprintf(name, sizeof name, "%s hook of a %s", names[point], module->kind);
    called *c = weft_i_opaque_new(sizeof *c, destroy, call_again, name);
    if (!c)
        return NULL;
    c->module = weft_i_object_hold(module);
    c->hook = weft_i_object_hold(hook);
    c->point = point;
    c->ins = event->ins;
    c->outs = event->outs;
    c->count = s->count;
    memcpy(c->place, s->place, sizeof c->place);
    return c;
}

/* What the node gives takes the places of gradients; values of forward stay. */
static weft_status write_down(weft_module *module, weft_hook_point point, weft_i_module_hook *hook,
                              weft_hook_event *event, weft_i_module_enter *enter)
{
    seen s;
    look(event, &s);
    if (!s.count)
        return weft_i_not_captured("an opaque hook of a module that sees no tensor");
    called *c = new_called(module, point, hook, event, &s);
    if (!c)
        return weft_last_status();
    c->enter = enter;
    weft_status status =
        weft_i_opaque_write(&c->head, s.x, (size_t)s.count, hook->held, (size_t)hook->count);
    bool in = point == WEFT_HOOK_BACKWARD;
    for (int i = 0; i < s.count && status >= 0; i++) {
        int at = s.place[i] - (in ? 0 : WEFT_MODULE_VALUES);
        if (point >= WEFT_HOOK_BACKWARD_PRE && at >= 0 && at < WEFT_MODULE_VALUES)
            (in ? event->in : event->out)[at] = s.x[i];
    }
    weft_i_object_drop(c);
    return status;
}

weft_status weft_i_module_hook_opaque(weft_module *module, weft_hook_point point,
                                      weft_i_module_hook *hook, weft_hook_event *event,
                                      weft_i_module_enter *enter)
{
    if (weft_i_eye_open)
        return write_down(module, point, hook, event, enter);
    seen s, after;
    look(event, &s);
    size_t count = (size_t)s.count, held = (size_t)hook->count;
    weft_i_opaque_mark before = weft_i_opaque_mark_of(s.x, count, hook->held, held);
    WEFT_TRY(enter(module, point, hook, event, hook->held));
    WEFT_TRY(weft_i_opaque_check(before, weft_i_opaque_mark_of(s.x, count, hook->held, held)));
    look(event, &after);
    return check_forward(point, &s, &after);
}
