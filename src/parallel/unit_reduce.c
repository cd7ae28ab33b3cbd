/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of a unit on their way: from those of the wholes, by a reduce_scatter, to those of the
 * shards; with copies by an all_reduce over them too.  Both take the mean.  Behind the gradients goes
 * a row with a number for each piece, 1 if this rank has a gradient: its mean says on all ranks
 * whether one was missing anywhere.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "parallel/unit.h"
#include "parallel/unused.h"
#include "weft/coll.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdio.h>

static weft_shape shape_of(weft_tensor *like, int64_t rows)
{
    weft_shape shape = weft_tensor_shape(like);
    shape.dim[0] = rows;
    return shape;
}

/* The gradient of the whole as it is sent: where it lies, or a copy with rows of zeros behind. */
static weft_tensor *sent_of(const weft_i_unit *unit, weft_i_unit_piece *p)
{
    int64_t rows = p->rows * unit->ranks;
    weft_tensor *g = weft_grad(p->whole);
    if (g && weft_tensor_size(g, 0) == rows && weft_tensor_is_contiguous(g))
        return g;
    weft_tensor *padded = weft_zeros(weft_tensor_dtype(p->whole), weft_tensor_device(p->whole),
                                     shape_of(p->whole, rows));
    if (padded && g && weft_copy(weft_narrow(padded, 0, 0, weft_tensor_size(g, 0)), g) < 0)
        return NULL;
    return padded;
}

/* A row of zeros and ones for each rank of the group: each gets the mean of its own. */
static weft_tensor *presence_of(const weft_i_unit *unit)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(unit->ranks, unit->count));
    for (int i = 0; i < unit->count && x; i++) {
        bool has = weft_grad(unit->piece[i].whole) != NULL;
        if (weft_fill(weft_narrow(x, 1, i, 1), has) < 0)
            return NULL;
    }
    return weft_to(x, WEFT_F32, weft_tensor_device(unit->piece[0].room));
}

static weft_status post(weft_i_unit *unit, weft_tensor **out, weft_tensor **in)
{
    int n = 0;
    for (int i = 0; i < unit->count; i++) {
        weft_i_unit_piece *p = &unit->piece[i];
        if (!p->trains)
            continue;
        in[n] = sent_of(unit, p);
        out[n] = weft_empty(weft_tensor_dtype(p->whole), weft_tensor_device(p->whole),
                            shape_of(p->whole, p->rows));
        if (!in[n] || !out[n])
            return weft_last_status();
        p->reduced = weft_keep(out[n++]);
    }
    in[n] = presence_of(unit);
    out[n] =
        in[n] ? weft_empty(WEFT_F32, weft_tensor_device(in[n]), WEFT_SHAPE(unit->count)) : NULL;
    if (!out[n])
        return weft_last_status();
    unit->present = weft_keep(out[n++]);
    weft_work *work = weft_reduce_scatter_list_start(out, in, n, WEFT_AVG, unit->group);
    unit->scatter = work ? weft_keep(work) : NULL;
    return work ? WEFT_OK : weft_last_status();
}

static weft_status let_go(weft_i_unit *unit)
{
    for (int i = 0; i < unit->count; i++)
        if (unit->piece[i].trains)
            WEFT_TRY(weft_set_grad(unit->piece[i].whole, NULL));
    return WEFT_OK;
}

weft_status weft_i_unit_send(weft_i_unit *unit)
{
    unit->reduced = true;
    if (!unit->training)
        return WEFT_OK;
    weft_tensor **list = WEFT_OS->alloc((size_t)(2 * unit->count + 2) * sizeof *list);
    weft_status status = list ? weft_scope_open() : WEFT_ERR_NO_MEMORY;
    if (!list)
        weft_i_fail(status, "no memory for %d gradients", unit->count);
    if (status >= 0) {
        WEFT_NO_GRAD
        {
            status = post(unit, list, list + unit->count + 1);
        }
        weft_scope_close();
    }
    WEFT_OS->free(list);
    if (status >= 0)
        status = let_go(unit);
    return status < 0 ? weft_i_explain(status, "sending the gradients of %s", unit->name) : WEFT_OK;
}

static weft_status wait_for(weft_work **work)
{
    weft_status status = *work ? weft_work_wait(*work, WEFT_DEFAULT) : WEFT_OK;
    weft_release(*work);
    *work = NULL;
    return status;
}

static weft_status post_average(weft_i_unit *unit, weft_tensor **list)
{
    int n = 0;
    for (int i = 0; i < unit->count; i++)
        if (unit->piece[i].reduced)
            list[n++] = unit->piece[i].reduced;
    list[n++] = unit->present;
    weft_work *work = weft_all_reduce_list_start(list, list, n, WEFT_AVG, unit->copies);
    unit->average = work ? weft_keep(work) : NULL;
    return work ? WEFT_OK : weft_last_status();
}

weft_status weft_i_unit_receive(weft_i_unit *unit)
{
    if (!unit->scatter)
        return WEFT_OK;
    weft_status status = wait_for(&unit->scatter);
    if (status < 0 || !unit->copies)
        return status < 0 ? weft_i_explain(status, "the gradients of %s", unit->name) : WEFT_OK;
    weft_tensor **list = WEFT_OS->alloc((size_t)(unit->count + 1) * sizeof *list);
    status = list ? weft_scope_open() : WEFT_ERR_NO_MEMORY;
    if (!list)
        weft_i_fail(status, "no memory for %d gradients", unit->count);
    if (status >= 0) {
        status = post_average(unit, list);
        weft_scope_close();
    }
    WEFT_OS->free(list);
    return status < 0 ? weft_i_explain(status, "the gradients of %s", unit->name) : WEFT_OK;
}

/* ---- delivering ---- */

static weft_status add_to_shard(weft_i_unit_piece *p)
{
    weft_tensor *old = weft_grad(p->shard);
    weft_tensor *mine = weft_narrow(p->reduced, 0, 0, weft_tensor_size(p->shard, 0));
    if (!mine)
        return weft_last_status();
    return old ? weft_add_into(old, old, mine) : weft_set_grad(p->shard, mine);
}

static const char *name_of(const void *pieces, int i)
{
    return ((const weft_i_unit_piece *)pieces)[i].name;
}

static void forget(weft_i_unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        weft_release(unit->piece[i].reduced);
        unit->piece[i].reduced = NULL;
    }
    weft_release(unit->present);
    unit->present = NULL;
}

static weft_status deliver(weft_i_unit *unit, bool *missing)
{
    weft_tensor *shares = weft_to(unit->present, WEFT_F32, WEFT_CPU);
    WEFT_TRY(shares ? WEFT_OK : weft_last_status());
    for (int i = 0; i < unit->count; i++) {
        weft_i_unit_piece *p = &unit->piece[i];
        double share = p->reduced ? weft_item(shares, i) : 1;
        *missing |= share < 1;
        if (p->reduced && share > 0)
            WEFT_TRY(add_to_shard(p));
    }
    return WEFT_OK;
}

static weft_status refuse_missing(weft_i_unit *unit)
{
    char where[2 * WEFT_NAME_MAX];
    bool *has = WEFT_OS->alloc((size_t)unit->count + 1);
    if (!has)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_shard: no memory for %d names", unit->count);
    for (int i = 0; i < unit->count; i++)
        has[i] = !unit->piece[i].trains || unit->piece[i].arrived;
    snprintf(where, sizeof where, " of %s", unit->name);
    weft_status status = weft_i_refuse_unused("weft_shard", unit->group, unit->count, has, name_of,
                                              unit->piece, where);
    WEFT_OS->free(has);
    return status;
}

weft_status weft_i_unit_deliver(weft_i_unit *unit)
{
    bool missing = false;
    weft_status status = weft_i_unit_receive(unit);
    if (!unit->present)
        return status;
    if (status >= 0)
        status = wait_for(&unit->average);
    if (status >= 0 && (status = weft_scope_open()) >= 0) {
        WEFT_NO_GRAD
        {
            status = deliver(unit, &missing);
        }
        weft_scope_close();
    }
    forget(unit);
    if (status < 0)
        return weft_i_explain(status, "the gradients of %s", unit->name);
    return missing && !unit->unused ? refuse_missing(unit) : WEFT_OK;
}

void weft_i_unit_abandon(weft_i_unit *unit)
{
    wait_for(&unit->scatter);
    wait_for(&unit->average);
    forget(unit);
    let_go(unit);
    weft_i_unit_empty(unit);
    weft_i_unit_bind(unit, false);
    unit->backward = unit->reduced = false;
    unit->arrivals = 0;
}
