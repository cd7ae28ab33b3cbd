/* SPDX-License-Identifier: Apache-2.0 */
/* Running posted collectives beside the current stream; see beside.h. */
#include "coll/beside.h"

#include "base/status.h"
#include "coll/list.h"
#include "tensor/storage.h"

/* The current stream is behind other uses of the operand, and they will be behind it. */
static weft_status use(const weft_tensor *operand, bool write, weft_stream *own,
                       weft_stream *before)
{
    if (!operand)
        return WEFT_OK;
    if (!operand->storage->ordered) /* nobody knows who used it */
        return weft_i_stream_after(own, before, false);
    return weft_i_storage_touch(operand->storage, write);
}

/* Operands of what is posted were left untouched: see weft_i_storage_defer. */
static weft_status use_all(const weft_i_coll *coll, weft_stream *own, weft_stream *before)
{
    if (!coll->in_tensor && !coll->out_tensor && !coll->list)
        return weft_i_stream_after(own, before, false);
    WEFT_TRY(use(coll->in_tensor, false, own, before));
    WEFT_TRY(use(coll->out_tensor, true, own, before));
    for (size_t i = 0; coll->list && i < coll->list->count; i++) {
        WEFT_TRY(use(coll->list->items[i].in_tensor, false, own, before));
        WEFT_TRY(use(coll->list->items[i].out_tensor, true, own, before));
    }
    return WEFT_OK;
}

weft_status weft_i_beside_stay(const weft_i_coll *coll)
{
    return use_all(coll, NULL, NULL); /* no operand is behind a stream that nobody knows */
}

weft_status weft_i_beside_begin(const weft_i_coll *coll, weft_stream **back)
{
    weft_device device = coll->ask.device;
    *back = NULL;
    weft_stream *current = weft_i_stream_current(device);
    if (!current)
        return weft_last_status();
    if (!current->own || !current->table->event_record || weft_i_stream_is_captured(current))
        return use_all(coll, current, current);
    weft_stream *own = weft_i_stream_beside(device);
    if (!own)
        return weft_last_status();
    if (own == current)
        return use_all(coll, current, current);
    *back = weft_i_object_hold(current);
    weft_status status = weft_stream_use(own);
    if (status >= 0)
        status = use_all(coll, own, current);
    if (status < 0) {
        weft_i_beside_end(*back, status);
        *back = NULL;
    }
    return status;
}

weft_status weft_i_beside_end(weft_stream *back, weft_status status)
{
    weft_status returned = back ? weft_stream_use(back) : WEFT_OK;
    weft_i_object_drop(back);
    return status < 0 ? status : returned;
}
