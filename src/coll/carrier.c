/* SPDX-License-Identifier: Apache-2.0 */
/* Handing calls to a backend; see carrier.h. */
#include "coll/carrier.h"

#include "base/os.h"
#include "base/status.h"
#include "coll/list.h"

/* A list has the bytes of one part.  Which side has one for each rank follows from the kind.  Rows
 * of one tensor have its dtype. */
static weft_i_operands operands_of(const weft_i_coll *coll, const weft_i_list_item *item)
{
    const weft_tensor *tensor = item->in_tensor    ? item->in_tensor
                                : item->out_tensor ? item->out_tensor
                                                   : coll->in_tensor;
    bool parts = weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS);
    return (weft_i_operands){.in = item->in,
                             .out = item->out,
                             .in_bytes = item->bytes * (parts ? (size_t)coll->group->size : 1),
                             .out_bytes = item->out_bytes,
                             .dtype = tensor ? tensor->dtype : coll->ask.dtype};
}

static weft_status hand_over(const weft_i_coll *coll, const weft_i_operands *items, size_t count)
{
    const weft_i_backend *carrier = weft_i_carrier_of(coll->group);
    weft_i_request request = coll->ask;
    request.items = items;
    request.items_count = count;
    weft_status status = carrier->collective(&request);
    return status == WEFT_ERR_UNSUPPORTED
               ? weft_i_fail(status, "%s: backend %s does not carry it", request.op, carrier->name)
               : status;
}

static weft_status hand_over_list(const weft_i_coll *coll)
{
    const weft_i_list *list = coll->list;
    weft_i_operands *items = WEFT_OS->alloc((list->count + 1) * sizeof *items);
    if (!items)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu tensors", coll->ask.op,
                           list->count);
    for (size_t i = 0; i < list->count; i++)
        items[i] = operands_of(coll, &list->items[i]);
    weft_status status = hand_over(coll, items, list->count);
    WEFT_OS->free(items);
    return status;
}

weft_status weft_i_carrier_run(const weft_i_coll *coll)
{
    weft_i_coll_kind kind = coll->ask.kind;
    WEFT_TRY(weft_i_group_check_revoked(&coll->call));
    if (kind != WEFT_I_SEND && kind != WEFT_I_RECV)
        WEFT_TRY(weft_i_group_check_mute(&coll->call));
    if (weft_i_kind_is(kind, WEFT_I_IS_OBJECT))
        return weft_i_carrier_run_object(coll);
    if (weft_i_kind_is(kind, WEFT_I_SYMMETRIC))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: backend %s has no operations on symmetric memory", coll->ask.op,
                           weft_i_carrier_of(coll->group)->name);
    if (coll->list)
        return hand_over_list(coll);
    weft_i_operands item = {coll->ask.in, coll->ask.out, coll->ask.in_bytes, coll->ask.out_bytes,
                            coll->ask.dtype};
    return hand_over(coll, &item, coll->in_tensor || coll->out_tensor);
}
