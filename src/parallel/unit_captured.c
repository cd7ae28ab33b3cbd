/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a unit does while a function is captured: the same, in operations that a program repeats.  There
 * is no state to look at between them, so each parameter is gathered where it is needed, without
 * prefetch; the passes put gathers and scatters together, and move them.
 */
#include "base/report/status.h"
#include "parallel/unit.h"
#include "weft/functional.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

typedef struct writing {
    weft_tensor *whole, *values;
} writing;

static weft_status write_whole(void *argument)
{
    writing *w = argument;
    return weft_copy(w->whole, w->values);
}

static weft_status fill(const weft_i_unit *unit, weft_i_unit_piece *p)
{
    weft_tensor *all = weft_all_gather_tensor(p->own, 0, unit->group);
    writing w = {p->whole, weft_narrow(all, 0, 0, weft_tensor_size(p->whole, 0))};
    WEFT_TRY(weft_resize_storage(p->whole, (int64_t)weft_tensor_bytes(p->room)));
    return w.values ? weft_tensor_preserve_version(&p->whole, 1, write_whole, &w)
                    : weft_last_status();
}

weft_status weft_i_unit_captured_fill(weft_i_unit *unit, bool bind)
{
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        for (int i = 0; i < unit->count && status >= 0; i++)
            status = fill(unit, &unit->piece[i]);
    }
    return status >= 0 && bind ? weft_i_unit_bind(unit, true) : status;
}

weft_status weft_i_unit_captured_empty(weft_i_unit *unit, bool bind)
{
    if (bind)
        WEFT_TRY(weft_i_unit_bind(unit, false));
    for (int i = 0; i < unit->count; i++)
        WEFT_TRY(weft_resize_storage(unit->piece[i].whole, 0));
    return WEFT_OK;
}

static weft_tensor *reduced_of(const weft_i_unit *unit, weft_i_unit_piece *p, weft_tensor *g)
{
    int64_t rows = weft_tensor_size(p->whole, 0), missing = p->rows * unit->ranks - rows;
    if (missing) {
        weft_shape shape = weft_tensor_shape(p->whole);
        shape.dim[0] = missing;
        weft_tensor *both[] = {g, weft_zeros(weft_tensor_dtype(g), weft_tensor_device(g), shape)};
        g = weft_cat(both, 2, 0);
    }
    g = weft_reduce_scatter_tensor(g, WEFT_AVG, 0, unit->group);
    if (unit->copies)
        g = weft_all_reduce(g, WEFT_AVG, unit->copies);
    return weft_narrow(g, 0, 0, weft_tensor_size(p->shard, 0));
}

weft_status weft_i_unit_captured_gradient(weft_i_unit_piece *p)
{
    weft_i_unit *unit = p->unit;
    weft_tensor *g = weft_grad(p->whole), *old = weft_grad(p->shard);
    weft_tensor *mine = g ? reduced_of(unit, p, g) : NULL;
    if (!mine)
        return weft_last_status();
    if (old)
        mine = weft_add(old, mine);
    WEFT_TRY(mine ? weft_set_grad(p->shard, mine) : weft_last_status());
    WEFT_TRY(weft_set_grad(p->whole, NULL));
    return weft_resize_storage(p->whole, 0);
}
