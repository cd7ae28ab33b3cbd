/* SPDX-License-Identifier: Apache-2.0 */
/* Running posted collectives beside the current stream; see beside.h. */
#include "coll/device/beside.h"

#include "base/report/status.h"
#include "coll/lane/list.h"
#include "tensor/object/storage.h"

static bool is_unordered(const weft_tensor *x)
{
    return x && !x->storage->ordered;
}

/* Does the call use memory of which nobody knows what uses it?  Pointers and memory that was
 * wrapped are such. */
static bool uses_unordered(const weft_i_coll *coll)
{
    const weft_i_list *list = coll->list;
    bool any = (!coll->in_tensor && !coll->out_tensor && !list) || is_unordered(coll->in_tensor) ||
               is_unordered(coll->out_tensor);
    for (size_t i = 0; !any && list && i < list->count; i++)
        any = is_unordered(list->items[i].in_tensor) || is_unordered(list->items[i].out_tensor);
    return any;
}

weft_status weft_i_beside_begin(const weft_i_coll *coll, weft_stream **back)
{
    weft_device device = coll->ask.device;
    *back = NULL;
    weft_stream *current = weft_i_stream_current(device);
    if (!current)
        return weft_last_status();
    if (!current->own || !current->table->event_record || weft_i_stream_is_captured(current))
        return WEFT_OK;
    weft_stream *own = weft_i_stream_beside(device);
    if (!own)
        return weft_last_status();
    if (own == current)
        return WEFT_OK;
    *back = weft_i_object_hold(current);
    weft_status status = weft_stream_use(own);
    if (status >= 0 && uses_unordered(coll))
        status = weft_i_stream_after(own, current, false);
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
