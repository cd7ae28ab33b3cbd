/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When units are filled and emptied, and when their gradients go:
 *
 *     forward pre     fill, bind the wholes; start to fill the next
 *     forward         bind the shards; empty, unless it is kept
 *     backward pre    fill; start to fill the one before
 *     gradients       when the last of a unit is there: send them, empty
 *     end             send what has not gone, with zeros; deliver all; empty all
 *
 * The next unit is the one that came behind this one in the first forward, so all ranks start their
 * gathers in one order.  A unit computes again inside backward, where it stays full until its
 * gradients are there.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "grad/engine.h"
#include "parallel/unit.h"
#include "tensor/object/eye.h"
#include "weft/grad.h"
#include "weft/op.h"

#include <string.h>

/* ---- the schedule ---- */

static void destroy(weft_i_object *object)
{
    WEFT_OS->free(((weft_i_schedule *)object)->unit);
    weft_i_object_free(object);
}

weft_i_schedule *weft_i_schedule_new(void)
{
    return weft_i_object_new_unscoped(WEFT_I_SCHEDULE, sizeof(weft_i_schedule), destroy);
}

static int index_of(const weft_i_schedule *s, const weft_i_unit *unit)
{
    for (int i = 0; i < s->count; i++)
        if (s->unit[i] == unit)
            return i;
    return -1;
}

void weft_i_schedule_leave(weft_i_unit *unit)
{
    weft_i_schedule *s = unit->schedule;
    int at = s ? index_of(s, unit) : -1;
    if (at < 0)
        return;
    memmove(s->unit + at, s->unit + at + 1, (size_t)(--s->count - at) * sizeof *s->unit);
    s->pending = s->pending == unit ? NULL : s->pending;
}

/* Its place in the order, which it gets when forward first comes to it. */
static int place_of(weft_i_unit *unit)
{
    weft_i_schedule *s = unit->schedule;
    int at = index_of(s, unit);
    if (at >= 0)
        return at;
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 16;
        weft_i_unit **more = WEFT_OS->resize(s->unit, (size_t)room * sizeof(weft_i_unit *));
        if (!more)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_shard: no memory for %d units", room);
        s->unit = more;
        s->room = room;
    }
    s->unit[s->count] = unit;
    return s->count++;
}

/* Starts to fill the units that follow in the direction of `by`, 1 or -1. */
static weft_status look_ahead(weft_i_unit *unit, int at, int by)
{
    weft_i_schedule *s = unit->schedule;
    for (int k = 1; k <= unit->prefetch; k++) {
        int next = at + k * by;
        if (next >= 0 && next < s->count)
            WEFT_TRY(weft_i_unit_start_gather(s->unit[next]));
    }
    return WEFT_OK;
}

/* A backward that failed leaves units full, and gradients on their way: the next forward begins
 * anew. */
static void begin_anew(weft_i_schedule *s)
{
    if (!s->armed || weft_i_engine_runs())
        return;
    for (int i = 0; i < s->count; i++)
        weft_i_unit_abandon(s->unit[i]);
    s->pending = NULL;
    s->armed = false;
    s->depth = 0;
}

/* ---- forward ---- */

static weft_status before_forward(weft_hook_event *event)
{
    weft_i_unit *unit = event->user;
    int at = place_of(unit);
    WEFT_TRY(at < 0 ? (weft_status)at : WEFT_OK);
    if (weft_i_eye_open) {
        unit->captured = true;
        return weft_i_unit_captured_fill(unit, true);
    }
    begin_anew(unit->schedule);
    unit->schedule->depth++;
    if (unit->state == WEFT_I_UNIT_PARTLY) /* a call inside backward: all of it, once more */
        unit->state = WEFT_I_UNIT_EMPTY;
    WEFT_TRY(weft_i_unit_fill(unit));
    WEFT_TRY(weft_i_unit_bind(unit, true));
    return weft_i_engine_runs() ? WEFT_OK : look_ahead(unit, at, 1);
}

/* The outermost call is over: what was filled ahead and never used is emptied. */
static weft_status end_outermost(weft_i_schedule *s, bool all)
{
    weft_status first = WEFT_OK;
    for (int i = 0; i < s->count; i++) {
        if (s->unit[i]->keep && !all && s->unit[i]->state == WEFT_I_UNIT_FULL)
            continue;
        weft_status status = weft_i_unit_empty(s->unit[i]);
        first = first < 0 ? first : status;
    }
    return first;
}

static weft_status after_forward(weft_hook_event *event)
{
    weft_i_unit *unit = event->user;
    weft_i_schedule *s = unit->schedule;
    if (weft_i_eye_open)
        return weft_i_unit_captured_empty(unit, true);
    bool again = weft_i_engine_runs(), failed = event->status < 0;
    bool recorded = weft_grad_mode_now() == WEFT_GRAD_RECORDING;
    weft_status status = weft_i_unit_bind(unit, false), other = WEFT_OK;
    s->depth -= s->depth > 0;
    if (!again && (!unit->keep || !recorded || failed))
        other = weft_i_unit_empty(unit);
    if (status >= 0)
        status = other;
    if (!again && s->depth == 0)
        other = end_outermost(s, failed || !recorded);
    return status < 0 ? status : other;
}

/* ---- backward ---- */

/* Waits for the gradients that were sent last: two units' at a time are enough. */
static weft_status settle_pending(weft_i_schedule *s)
{
    weft_i_unit *unit = s->pending;
    s->pending = NULL;
    return unit ? weft_i_unit_receive(unit) : WEFT_OK;
}

static weft_status send_unit(weft_i_unit *unit)
{
    weft_i_schedule *s = unit->schedule;
    if (!unit->captured) /* a program may read it after it has handed out the gradient */
        WEFT_TRY(weft_i_unit_empty(unit));
    WEFT_TRY(settle_pending(s));
    WEFT_TRY(weft_i_unit_send(unit));
    s->pending = unit;
    return unit->prefetch ? WEFT_OK : settle_pending(s);
}

/* The rest of all units; ranks come to it in one order, that of the schedule. */
static weft_status finish_all(weft_i_schedule *s)
{
    weft_status first = WEFT_OK;
    for (int i = 0; i < s->count; i++) {
        weft_i_unit *unit = s->unit[i];
        if (unit->backward && unit->sync && !unit->reduced)
            WEFT_TRY(send_unit(unit));
    }
    WEFT_TRY(settle_pending(s));
    for (int i = 0; i < s->count; i++) {
        weft_status status = weft_i_unit_deliver(s->unit[i]);
        if (status < 0 && status != WEFT_ERR_STATE)
            return status;
        first = first < 0 ? first : status;
    }
    WEFT_TRY(end_outermost(s, true));
    return first;
}

static weft_status finish(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    weft_i_schedule *s = user;
    (void)grad, (void)held;
    weft_status status = finish_all(s);
    if (status < 0 && status != WEFT_ERR_STATE)
        return status; /* begin_anew sees to the rest */
    for (int i = 0; i < s->count; i++) {
        weft_i_unit *unit = s->unit[i];
        unit->backward = unit->reduced = false;
        unit->arrivals = 0;
        for (int k = 0; k < unit->count; k++)
            unit->piece[k].arrived = false;
    }
    s->armed = false;
    return status;
}

static weft_status begin_backward(weft_i_unit *unit)
{
    weft_i_schedule *s = unit->schedule;
    if (!s->armed)
        WEFT_TRY(weft_i_backward_finally(finish, s));
    s->armed = true;
    unit->backward = true;
    return WEFT_OK;
}

static weft_status before_backward(weft_hook_event *event)
{
    weft_i_unit *unit = event->user;
    if (weft_i_eye_open)
        return weft_i_unit_captured_fill(unit, false);
    WEFT_TRY(begin_backward(unit));
    WEFT_TRY(weft_i_unit_fill(unit));
    return look_ahead(unit, index_of(unit->schedule, unit), -1);
}

/* A compiled function that is part of a captured backward fills the whole at its end once more. */
static weft_status empty_captured(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    const weft_i_unit_piece *p = user;
    (void)grad, (void)held;
    return weft_resize_storage(p->whole, 0);
}

static weft_status arrived(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    weft_i_unit_piece *p = user;
    weft_i_unit *unit = p->unit;
    (void)grad, (void)held;
    if (weft_i_eye_open) {
        WEFT_TRY(weft_i_unit_captured_gradient(p));
        return weft_i_backward_finally(empty_captured, p);
    }
    if (unit->reduced)
        return weft_i_fail(WEFT_ERR_STATE,
                           "weft_shard: parameter \"%s\" of %s got a gradient in a backward in "
                           "which those of its unit had been sent",
                           p->name, unit->name);
    WEFT_TRY(begin_backward(unit));
    unit->arrivals += !p->arrived;
    p->arrived = true;
    if (unit->arrivals < unit->training)
        return weft_i_engine_now()->outer ? WEFT_OK : weft_i_unit_empty_piece(p);
    return unit->sync ? send_unit(unit) : weft_i_unit_empty(unit);
}

/* Before its gradient is made, which so may lie where the whole did. */
static weft_status spent(void *user)
{
    return weft_i_unit_empty_piece(user);
}

/* ---- adding them ---- */

static weft_status add(weft_i_unit *unit, weft_hook_point point, unsigned flags,
                       weft_module_hook hook)
{
    int64_t number = weft_module_hook_add(unit->module, point, flags, hook, unit, WEFT_HOLD());
    if (number < 0)
        return (weft_status)number;
    unit->hook[unit->hooks++] = number;
    return WEFT_OK;
}

void weft_i_unit_drop_hooks(weft_i_unit *unit)
{
    while (unit->hooks)
        weft_module_hook_remove(unit->module, unit->hook[--unit->hooks]);
}

weft_status weft_i_unit_add_hooks(weft_i_unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        weft_i_unit_piece *p = &unit->piece[i];
        if (!p->trains)
            continue;
        p->hook = weft_accumulated_hook(p->whole, arrived, p, WEFT_HOLD());
        WEFT_TRY(p->hook < 0 ? (weft_status)p->hook : WEFT_OK);
        weft_i_leaf_on_spent(p->whole, spent, p);
    }
    WEFT_TRY(add(unit, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_PREPEND, before_forward));
    WEFT_TRY(add(unit, WEFT_HOOK_FORWARD, WEFT_HOOK_ALWAYS, after_forward));
    return add(unit, WEFT_HOOK_BACKWARD_PRE, WEFT_HOOK_PREPEND, before_backward);
}
