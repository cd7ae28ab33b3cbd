/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a unit: filled by a gather, emptied after use; see unit.h. */
#include "parallel/unit.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "weft/coll.h"
#include "weft/grad.h"

/* How many bytes the room of a piece needs. */
static size_t bytes_of(const weft_i_unit_piece *p)
{
    return weft_tensor_bytes(p->room);
}

static weft_status resize_piece(weft_i_unit_piece *p, bool full)
{
    weft_storage *storage = weft_tensor_storage(p->room);
    size_t bytes = full ? bytes_of(p) : 0;
    weft_status status =
        weft_storage_bytes(storage) == bytes ? WEFT_OK : weft_storage_resize(storage, bytes);
    return status < 0 ? weft_i_explain(status, "parameter \"%s\" of a sharded unit", p->name)
                      : WEFT_OK;
}

static weft_status resize(weft_i_unit *unit, bool full)
{
    weft_status first = WEFT_OK;
    for (int i = 0; i < unit->count && (first >= 0 || !full); i++) {
        weft_status status = resize_piece(&unit->piece[i], full);
        first = first < 0 ? first : status;
    }
    return first;
}

static weft_status post(weft_i_unit *unit, weft_tensor **out, weft_tensor **in)
{
    for (int i = 0; i < unit->count; i++) {
        out[i] = unit->piece[i].room;
        in[i] = unit->piece[i].own;
    }
    weft_work *work = weft_all_gather_list_start(out, in, unit->count, unit->group);
    unit->gather = work ? weft_keep(work) : NULL;
    return work ? WEFT_OK : weft_last_status();
}

/* A part that was moved elsewhere would be gathered as it was before. */
static weft_status check_places(const weft_i_unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        const weft_i_unit_piece *p = &unit->piece[i];
        if (weft_tensor_storage(p->shard) != weft_tensor_storage(p->own))
            return weft_i_fail(WEFT_ERR_STATE,
                               "parameter \"%s\" was given other memory after it was sharded; "
                               "weft_module_to comes before weft_shard",
                               p->name);
    }
    return WEFT_OK;
}

static weft_status start(weft_i_unit *unit)
{
    WEFT_TRY(check_places(unit));
    weft_tensor **list = WEFT_OS->alloc((size_t)(2 * unit->count + 1) * sizeof *list);
    weft_status status = list ? weft_scope_open() : WEFT_ERR_NO_MEMORY;
    if (!list)
        weft_i_fail(status, "no memory for %d parameters", unit->count);
    if (status >= 0) {
        WEFT_NO_GRAD
        {
            status = resize(unit, true);
            if (status >= 0)
                status = post(unit, list, list + unit->count);
        }
        weft_scope_close();
    }
    WEFT_OS->free(list);
    return status;
}

weft_status weft_i_unit_start_gather(weft_i_unit *unit)
{
    if (unit->state != WEFT_I_UNIT_EMPTY)
        return WEFT_OK;
    weft_status status = unit->count ? start(unit) : WEFT_OK;
    if (status < 0) {
        resize(unit, false);
        return weft_i_explain(status, "gathering the parameters of %s", unit->name);
    }
    unit->state = unit->count ? WEFT_I_UNIT_GATHERING : WEFT_I_UNIT_FULL;
    return WEFT_OK;
}

static weft_status await_gather(weft_i_unit *unit)
{
    if (unit->state != WEFT_I_UNIT_GATHERING)
        return WEFT_OK;
    weft_status status = weft_work_wait(unit->gather, WEFT_DEFAULT);
    weft_release(unit->gather);
    unit->gather = NULL;
    unit->state = WEFT_I_UNIT_FULL;
    return status;
}

weft_status weft_i_unit_fill(weft_i_unit *unit)
{
    WEFT_TRY(weft_i_unit_start_gather(unit));
    weft_status status = await_gather(unit);
    if (status >= 0)
        return WEFT_OK;
    resize(unit, false);
    unit->state = WEFT_I_UNIT_EMPTY;
    return weft_i_explain(status, "gathering the parameters of %s", unit->name);
}

weft_status weft_i_unit_empty(weft_i_unit *unit)
{
    weft_status waited = await_gather(unit);
    if (unit->state == WEFT_I_UNIT_EMPTY && !unit->captured)
        return waited;
    weft_status status = resize(unit, false);
    if (status >= 0)
        unit->state = WEFT_I_UNIT_EMPTY;
    return waited < 0 ? waited : status;
}

weft_status weft_i_unit_empty_piece(weft_i_unit_piece *piece)
{
    weft_i_unit *unit = piece->unit;
    if (unit->captured || (unit->state != WEFT_I_UNIT_FULL && unit->state != WEFT_I_UNIT_PARTLY))
        return WEFT_OK;
    WEFT_TRY(resize_piece(piece, false));
    unit->state = WEFT_I_UNIT_PARTLY;
    return WEFT_OK;
}

weft_status weft_i_unit_bind(weft_i_unit *unit, bool whole)
{
    for (int i = 0; i < unit->sites; i++) {
        weft_i_site *at = &unit->site[i];
        weft_i_unit_piece *p = &unit->piece[at->piece];
        WEFT_TRY(weft_module_bind(at->module, at->key, whole ? p->whole : p->shard));
    }
    return WEFT_OK;
}
