/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting calls.  A group that collects holds the filled calls and their tensors; closing makes
 * one list of them (list.h) and posts it.  The first failure is kept, and then nothing is launched.
 */
#include "coll/calls/coalesce.h"
#include "base/os/assert.h"

#include "coll/calls/traced.h"
#include "coll/calls/work.h"
#include "coll/lane/list.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/lane/request.h"
#include "weft/coalesce.h"

#include <stdio.h>

typedef struct coalesce {
    weft_i_object object;
    pthread_t owner; /* whose calls are collected */
    bool traced;     /* by a capture: what is collected are stand-ins */
    weft_i_coll *calls;
    size_t count, room;
    weft_status failure; /* of the first call that failed */
    char message[512];
} coalesce;

static void destroy(weft_i_object *object)
{
    coalesce *c = (coalesce *)object;
    for (size_t i = 0; i < c->count; i++) {
        weft_i_object_drop(c->calls[i].in_tensor);
        weft_i_object_drop(c->calls[i].out_tensor);
    }
    WEFT_OS->free(c->calls);
    weft_i_object_free(object);
}

bool weft_i_coalesce_is_mine(const weft_group *group)
{
    return pthread_equal(((const coalesce *)group->floor[WEFT_I_FLOOR_COALESCE])->owner,
                         pthread_self());
}

static weft_status check_kind(const coalesce *c, const weft_i_coll *coll)
{
    const weft_i_coll *first = c->calls;
    if (weft_i_kind_list_of(coll->ask.kind) < 0)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: group \"%s\" collects calls (weft_coalesce_open); only all_reduce, "
                           "all_gather and reduce_scatter can be collected",
                           coll->ask.op, coll->group->name);
    if (!c->count)
        return WEFT_OK;
    if (first->ask.kind != coll->ask.kind)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: group \"%s\" collects calls to %s, all must be of one kind",
                           coll->ask.op, coll->group->name, first->ask.op);
    if (first->ask.reduction != coll->ask.reduction)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: group \"%s\" collects calls with reduction %s, and this one has %s",
                           coll->ask.op, coll->group->name,
                           weft_reduction_name(first->ask.reduction),
                           weft_reduction_name(coll->ask.reduction));
    if (first->ask.reduction == WEFT_PREMUL_SUM &&
        !(first->ask.factor <= coll->ask.factor && first->ask.factor >= coll->ask.factor))
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: group \"%s\" collects calls with premul factor %g, and this one "
                           "has %g",
                           coll->ask.op, coll->group->name, first->ask.factor, coll->ask.factor);
    return WEFT_OK;
}

static weft_status append(coalesce *c, const weft_i_coll *coll)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 8;
        weft_i_coll *wider = WEFT_OS->resize(c->calls, room * sizeof *wider);
        if (!wider)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory to collect %zu calls",
                               coll->ask.op, c->count + 1);
        c->calls = wider;
        c->room = room;
    }
    WEFT_ASSERT(c->count < c->room);
    c->calls[c->count++] = *coll;
    weft_i_object_hold(coll->in_tensor);
    weft_i_object_hold(coll->out_tensor);
    return WEFT_OK;
}

/* Keeps the first failure. */
static weft_status note(coalesce *c, weft_status status)
{
    if (status == WEFT_ERR_NO_MEMORY && c->traced) /* the graph lacks a call */
        weft_i_eye_open->broken(weft_i_eye_open);
    if (status < 0 && c->failure == WEFT_OK) {
        c->failure = status;
        snprintf(c->message, sizeof c->message, "%s", weft_last_error());
    }
    return status;
}

static weft_status refuse_older(const char *op)
{
    char what[128];
    snprintf(what, sizeof what, "%s of a group that has collected calls since before the capture",
             op);
    return weft_i_not_captured(what);
}

weft_status weft_i_coalesce_add(const weft_i_coll *coll, weft_status filled)
{
    coalesce *c = coll->group->floor[WEFT_I_FLOOR_COALESCE];
    if (weft_i_eye_open && !c->traced)
        return refuse_older(coll->ask.op);
    if (filled == WEFT_OK)
        filled = check_kind(c, coll);
    if (filled == WEFT_OK)
        filled = append(c, coll);
    return note(c, filled);
}

weft_status weft_i_coalesce_refuse(const weft_i_coll *coll, weft_status filled)
{
    return note(coll->group->floor[WEFT_I_FLOOR_COALESCE],
                filled < 0
                    ? filled
                    : weft_i_fail(WEFT_ERR_STATE,
                                  "%s: group \"%s\" collects calls, and closing it gives the work "
                                  "for all of them: use the form that is not posted",
                                  coll->ask.op, coll->group->name));
}

/* ---- in a capture ---- */

/* A scope that the capture leaves open would collect stand-ins for ever. */
static void drop_traced(void *object, const char *name, void *old)
{
    weft_group *group = object;
    coalesce *c = group->floor[WEFT_I_FLOOR_COALESCE];
    (void)name, (void)old;
    if (!c || !c->traced || !weft_i_coalesce_is_mine(group))
        return;
    group->floor[WEFT_I_FLOOR_COALESCE] = NULL;
    weft_i_object_drop(c);
}

static weft_status trace(coalesce *c, weft_group *group)
{
    weft_i_eye *eye = weft_i_eye_open;
    WEFT_TRY(eye->undo(eye, group, drop_traced, "collected calls", NULL));
    c->traced = true;
    eye->collecting++;
    return WEFT_OK;
}

/* The collected calls as one functional collective and its copies. */
static weft_status write_down(const coalesce *c, weft_group *group)
{
    weft_tensor **out = WEFT_OS->alloc((2 * c->count + 1) * sizeof *out), **in = out + c->count;
    if (!out)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "coalesce_close: no memory for %zu calls", c->count);
    for (size_t i = 0; i < c->count; i++) {
        out[i] = c->calls[i].out_tensor;
        in[i] = c->calls[i].in_tensor;
    }
    weft_i_coll none = {.ask.kind = WEFT_I_ALL_REDUCE, .ask.factor = 1};
    const weft_i_request *first = c->count ? &c->calls->ask : &none.ask;
    double now = weft_i_request_swap_premul(first->factor); /* that of the calls */
    weft_status status = weft_i_traced->list((weft_i_coll_kind)weft_i_kind_list_of(first->kind),
                                             out, in, (int)c->count, first->reduction, group);
    weft_i_request_swap_premul(now);
    WEFT_OS->free(out);
    return status;
}

static weft_work *launch_traced(const coalesce *c, weft_group *group)
{
    weft_work *work = NULL;
    if (write_down(c, group) >= 0)
        work = weft_i_work_new_p2p(NULL, 0); /* of nothing: it is over */
    if (!work && weft_last_status() == WEFT_ERR_NO_MEMORY)
        weft_i_eye_open->broken(weft_i_eye_open);
    return work;
}

/* ---- public ---- */

weft_status weft_coalesce_open(weft_group *group)
{
    WEFT_TRY(weft_i_group_usable(group));
    if (group->floor[WEFT_I_FLOOR_COALESCE])
        return weft_i_fail(WEFT_ERR_STATE, "coalesce_open: group \"%s\" collects calls already",
                           group->name);
    coalesce *c = weft_i_object_new_unscoped(WEFT_I_COALESCE, sizeof *c, destroy);
    if (!c && weft_i_eye_open)
        weft_i_eye_open->broken(weft_i_eye_open);
    if (!c)
        return weft_last_status();
    c->owner = pthread_self();
    if (weft_i_eye_open && trace(c, group) < 0) {
        weft_i_object_drop(c);
        return weft_last_status();
    }
    group->floor[WEFT_I_FLOOR_COALESCE] = c;
    return WEFT_OK;
}

/* One call of everything that was collected. */
static weft_status fill(weft_i_coll *coll, const coalesce *c, weft_group *group)
{
    weft_i_coll_kind kind = c->count ? (weft_i_coll_kind)weft_i_kind_list_of(c->calls->ask.kind)
                                     : WEFT_I_ALL_REDUCE_LIST;
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    coll->list = weft_i_list_new(c->count);
    if (!coll->list)
        return weft_last_status();
    for (size_t i = 0; i < c->count; i++)
        WEFT_TRY(weft_i_list_add(coll, &c->calls[i]));
    return weft_i_list_accept(coll);
}

static weft_work *launch(const coalesce *c, weft_group *group)
{
    if (c->failure < 0)
        return weft_i_null(c->failure, "coalesce_close: nothing was launched in group \"%s\": %s",
                           group->name, c->message);
    if (c->traced)
        return launch_traced(c, group);
    weft_i_coll coll = {0};
    weft_status filled = fill(&coll, c, group);
    weft_work *work = filled < 0 ? NULL : weft_i_work_enqueue(&coll, NULL);
    weft_i_object_drop(coll.list); /* the work holds it */
    return work;
}

weft_work *weft_coalesce_close(weft_group *group)
{
    weft_status usable = weft_i_group_usable(group);
    coalesce *c = weft_i_coalesce_is_open(group) ? group->floor[WEFT_I_FLOOR_COALESCE] : NULL;
    if (c && weft_i_eye_open && !c->traced)
        return refuse_older("coalesce_close"), NULL;
    if (c)
        group->floor[WEFT_I_FLOOR_COALESCE] = NULL;
    if (c && c->traced)
        weft_i_eye_open->collecting--;
    if (usable < 0) {
        weft_i_object_drop(c); /* its tensors may hold the group */
        return NULL;
    }
    if (!c)
        return weft_i_null(WEFT_ERR_STATE,
                           "coalesce_close: group \"%s\" does not collect calls of this thread",
                           group->name);
    weft_work *work = launch(c, group);
    weft_i_object_drop(c);
    return work;
}
