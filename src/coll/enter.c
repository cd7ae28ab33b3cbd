/* SPDX-License-Identifier: Apache-2.0 */
/* How a call enters; see enter.h. */
#include "coll/enter.h"

#include "base/status.h"
#include "coll/list.h"

/* ---- what is noted and told of a call ---- */

static void put_tensors(weft_i_signature *signature, const weft_i_list *list)
{
    signature->dims = (uint32_t)list->count;
    for (size_t i = 0; i < list->count && i < WEFT_I_SIGNATURE_DIMS; i++) {
        const weft_i_list_item *item = &list->items[i];
        const weft_tensor *tensor = item->in_tensor ? item->in_tensor : item->out_tensor;
        signature->dim[i] = weft_i_signature_tensor(tensor ? (uint32_t)tensor->dtype : 0,
                                                    item->bytes >> __builtin_ctzll(item->item));
    }
}

static void put_shape(weft_i_signature *signature, const weft_tensor *tensor)
{
    signature->dims = tensor ? (uint32_t)tensor->ndim : 0;
    for (uint32_t i = 0; i < signature->dims && i < WEFT_I_SIGNATURE_DIMS; i++)
        signature->dim[i] = (uint32_t)tensor->dim[i];
}

void weft_i_coll_put_signature(weft_i_signature *signature, const weft_i_coll *coll)
{
    signature->kind = (uint32_t)coll->ask.kind;
    signature->dtype = (uint32_t)coll->ask.dtype;
    signature->reduction = (uint32_t)coll->ask.reduction;
    signature->root = (uint32_t)coll->ask.root;
    signature->count = coll->ask.count;
    signature->offset = coll->reach ? coll->reach->offset : coll->list ? coll->digest : 0;
    signature->block = coll->reach ? coll->reach->registration->serial : 0;
    if (coll->list)
        put_tensors(signature, coll->list);
    else
        put_shape(signature, coll->in_tensor ? coll->in_tensor : coll->out_tensor);
}

int weft_i_enter_way(const weft_i_coll *coll)
{
    if (coll->reach)
        return WEFT_I_WAY_ZERO_COPY;
    if (coll->algorithm == WEFT_I_ALGO_RENDEZVOUS)
        return coll->list ? WEFT_I_WAY_PIPELINED : -1;
    return coll->algorithm == WEFT_I_ALGO_INLINE ? WEFT_I_WAY_INLINE : WEFT_I_WAY_EAGER;
}

/*
 * Opening a line takes a locked instruction.  That waits until all earlier stores are in the cache,
 * and stores into bounce buffers go to lines that others hold.  So the line is opened before an
 * operand is copied there.  An inline call opens it while its arrival travels, and every call
 * before it may have to wait.
 */
void weft_i_enter_note(weft_i_coll *coll, int way)
{
    const weft_i_lane *lane = coll->group->lane;
    size_t bytes = coll->ask.in_bytes ? coll->ask.in_bytes : coll->ask.out_bytes;
    if (!coll->number)
        coll->number = weft_i_record_begin_named(
            weft_i_group_record(coll->group), weft_i_coll_record_name(coll->ask.kind),
            coll->group->id, bytes, weft_i_record_turn(lane ? lane->epoch + 1 : 1), way);
    else if (way >= 0)
        weft_i_record_way(weft_i_group_record(coll->group), coll->number, way);
}

/* ---- entering ---- */

/*
 * Copies this rank's own part of the result.  The others may be long in coming, if they share its
 * core.  Not if it is very long: a mismatch is told after that.
 */
static void copy_own(weft_i_coll *coll)
{
    enum { LONG = 4 << 20 };
    bool rooted = weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT);
    bool taking = weft_i_kind_is(coll->ask.kind, WEFT_I_PULLS) &&
                  (!rooted || coll->lane->me == coll->ask.root);
    size_t part = coll->ask.count * coll->ask.item, mine = (size_t)coll->lane->me * part;
    if (!taking || coll->ask.in_splits || !part || part > LONG)
        return;
    weft_i_coll_put(
        coll->ask.out + (weft_i_kind_is(coll->ask.kind, WEFT_I_PLACES_PARTS) ? mine : 0),
        coll->ask.in + (weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? mine : 0), part);
    coll->own_done = true;
}

weft_status weft_i_enter_with(weft_i_coll *coll, int whom, const void *data, size_t bytes)
{
    weft_i_lane *lane = coll->lane;
    weft_i_arrival arrival;
    if (bytes)
        memcpy(weft_i_lane_next_payload(lane), data, bytes);
    weft_i_lane_arrive(lane, &coll->call, whom, coll->digest, &arrival);
    weft_i_coll_put_signature(arrival.signature, coll);
    weft_i_enter_note(coll, weft_i_enter_way(coll));
    if (arrival.came && coll->flows)
        weft_i_eager_put_chunks(coll);
    if (arrival.came)
        copy_own(coll);
    if (arrival.came && coll->prefetch)
        weft_i_prefetch_take(coll);
    return weft_i_lane_await(lane, &coll->call, &arrival, coll->ask.limit_ms);
}

weft_status weft_i_enter(weft_i_coll *coll)
{
    weft_i_location factor = {.factor = coll->ask.factor};
    bool scales = coll->ask.reduction == WEFT_PREMUL_SUM;
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &factor, scales ? sizeof factor : 0));
    weft_i_coll_read_factors(coll);
    return WEFT_OK;
}

weft_status weft_i_enter_eager(weft_i_coll *coll, bool gives, int whom)
{
    weft_i_location factor = {.factor = coll->ask.factor};
    bool scales = coll->ask.reduction == WEFT_PREMUL_SUM;
    if (coll->algorithm == WEFT_I_ALGO_INLINE)
        return weft_i_enter_with(coll, whom, coll->ask.in, gives ? coll->ask.in_bytes : 0);
    if (gives)
        weft_i_eager_put(coll);
    return weft_i_enter_with(coll, whom, &factor, scales ? sizeof factor : 0);
}

/* Is this rank's input to be shown?  What others can touch where it is they need not be shown,
 * unless it is overwritten there. */
static bool is_shown(const weft_i_coll *coll, const weft_i_locations *locations, weft_i_gift gift)
{
    if (gift == WEFT_I_NEVER_SHOWN || coll->lane->cma == WEFT_I_CMA_THREADS ||
        weft_i_enter_bytes(coll) > coll->shown_up_to)
        return false;
    bool in_place = coll->ask.kind == WEFT_I_ALL_REDUCE && coll->ask.in == coll->ask.out;
    return gift == WEFT_I_GIVES_NOTHING || !locations->in || in_place;
}

static int way_of_locations(const weft_i_locations *locations)
{
    return locations->all_shown                      ? WEFT_I_WAY_EAGER
           : locations->all_in || locations->all_out ? WEFT_I_WAY_ZERO_COPY
           : locations->cma                          ? WEFT_I_WAY_CMA
                                                     : WEFT_I_WAY_PIPELINED;
}

weft_status weft_i_enter_located(weft_i_coll *coll, weft_i_locations *locations, size_t transfer,
                                 weft_i_gift gift)
{
    weft_i_location mine = weft_i_locations_find(coll, locations, transfer);
    mine.shown = is_shown(coll, locations, gift);
    if (mine.shown && gift == WEFT_I_GIVES)
        weft_i_eager_put(coll);
    if (!mine.shown)
        weft_i_prefetch_prepare(coll, locations);
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &mine, sizeof mine));
    weft_i_locations_compare(coll, &mine, locations);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number, way_of_locations(locations));
    return WEFT_OK;
}
