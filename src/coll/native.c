/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a backend carries itself: a checked call as the plain data of symm/backend.h. */
#include "coll/list.h"

#include "base/os.h"
#include "base/status.h"

/* 1 + the backend's kind; 0: an operation on symmetric memory, which only lanes carry. */
static const int kinds[WEFT_I_COLL_KINDS] = {
    [WEFT_I_BARRIER] = 1 + WEFT_I_NATIVE_BARRIER,
    [WEFT_I_ALL_REDUCE] = 1 + WEFT_I_NATIVE_ALL_REDUCE,
    [WEFT_I_REDUCE] = 1 + WEFT_I_NATIVE_REDUCE,
    [WEFT_I_BROADCAST] = 1 + WEFT_I_NATIVE_BROADCAST,
    [WEFT_I_ALL_GATHER] = 1 + WEFT_I_NATIVE_ALL_GATHER,
    [WEFT_I_GATHER] = 1 + WEFT_I_NATIVE_GATHER,
    [WEFT_I_SCATTER] = 1 + WEFT_I_NATIVE_SCATTER,
    [WEFT_I_REDUCE_SCATTER] = 1 + WEFT_I_NATIVE_REDUCE_SCATTER,
    [WEFT_I_ALL_TO_ALL] = 1 + WEFT_I_NATIVE_ALL_TO_ALL,
    [WEFT_I_SEND] = 1 + WEFT_I_NATIVE_SEND,
    [WEFT_I_RECV] = 1 + WEFT_I_NATIVE_RECV,
    [WEFT_I_ALL_REDUCE_LIST] = 1 + WEFT_I_NATIVE_ALL_REDUCE,
    [WEFT_I_ALL_GATHER_LIST] = 1 + WEFT_I_NATIVE_ALL_GATHER,
    [WEFT_I_REDUCE_SCATTER_LIST] = 1 + WEFT_I_NATIVE_REDUCE_SCATTER,
    [WEFT_I_ALL_TO_ALL_LIST] = 1 + WEFT_I_NATIVE_ALL_TO_ALL_LIST,
    [WEFT_I_ALL_GATHER_PARTS] = 1 + WEFT_I_NATIVE_ALL_GATHER_PARTS,
    [WEFT_I_GATHER_PARTS] = 1 + WEFT_I_NATIVE_GATHER_PARTS,
    [WEFT_I_SCATTER_PARTS] = 1 + WEFT_I_NATIVE_SCATTER_PARTS,
    [WEFT_I_REDUCE_SCATTER_PARTS] = 1 + WEFT_I_NATIVE_REDUCE_SCATTER_PARTS,
    [WEFT_I_FIRST_USE] = 1 + WEFT_I_NATIVE_BARRIER,
    [WEFT_I_LOW_CONTENTION_ALL_GATHER] = 1 + WEFT_I_NATIVE_ALL_GATHER,
    [WEFT_I_LOW_CONTENTION_REDUCE_SCATTER] = 1 + WEFT_I_NATIVE_REDUCE_SCATTER,
};

/* The operands as the call has them, not as its tensors do: an input may be a part of the output's
 * tensor (functional_run.c). */
static weft_i_native_item item_of(const weft_i_coll *coll)
{
    return (weft_i_native_item){.in = coll->in,
                                .out = coll->out,
                                .in_bytes = coll->in_bytes,
                                .out_bytes = coll->out_bytes,
                                .dtype = coll->dtype};
}

/* A list has the bytes of one part; which side has one for each rank follows from the kind.  Rows
 * of one tensor have its dtype. */
static weft_i_native_item item_in_list(const weft_i_coll *coll, const weft_i_list_item *item)
{
    const weft_tensor *tensor = item->in_tensor    ? item->in_tensor
                                : item->out_tensor ? item->out_tensor
                                                   : coll->in_tensor;
    size_t size = (size_t)coll->group->size;
    weft_i_native_item plain = {.in = item->in,
                                .out = item->out,
                                .in_bytes = item->bytes,
                                .out_bytes = item->out_bytes,
                                .dtype = tensor ? tensor->dtype : coll->dtype};
    if (coll->kind == WEFT_I_REDUCE_SCATTER_LIST)
        plain.in_bytes *= size;
    return plain;
}

static weft_status hand_over(const weft_i_coll *coll, const weft_i_native_item *items, size_t count)
{
    const weft_i_backend *carrier = coll->group->world->carrier;
    weft_i_native call = {.op = coll->call.op,
                          .kind = (weft_i_native_kind)(kinds[coll->kind] - 1),
                          .rank = coll->group->rank,
                          .size = coll->group->size,
                          .root = coll->root,
                          .reduction = (int)coll->reduction,
                          .factor = coll->factor,
                          .items = items,
                          .count = count,
                          .in_splits = coll->in_splits,
                          .out_splits = coll->out_splits,
                          .row = coll->row,
                          .limit_ms = coll->limit_ms};
    return carrier->collective(&call);
}

static weft_status hand_over_list(const weft_i_coll *coll)
{
    const weft_i_list *list = coll->list;
    weft_i_native_item *items = WEFT_OS->alloc((list->count + 1) * sizeof *items);
    if (!items)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu tensors", coll->call.op,
                           list->count);
    for (size_t i = 0; i < list->count; i++)
        items[i] = item_in_list(coll, &list->items[i]);
    weft_status status = hand_over(coll, items, list->count);
    WEFT_OS->free(items);
    return status;
}

weft_status weft_i_native_run(const weft_i_coll *coll)
{
    WEFT_TRY(weft_i_group_check_revoked(&coll->call));
    bool pair = coll->kind == WEFT_I_SEND || coll->kind == WEFT_I_RECV;
    if (!pair)
        WEFT_TRY(weft_i_group_check_mute(&coll->call));
    if (weft_i_kind_is(coll->kind, WEFT_I_IS_OBJECT))
        return weft_i_native_object(coll);
    if (!kinds[coll->kind])
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: backend %s has no operations on symmetric memory", coll->call.op,
                           ((const weft_i_backend *)coll->group->world->carrier)->name);
    if (coll->list)
        return hand_over_list(coll);
    weft_i_native_item item = item_of(coll);
    return hand_over(coll, &item, coll->in_tensor || coll->out_tensor);
}
