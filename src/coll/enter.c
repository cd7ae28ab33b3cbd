/* SPDX-License-Identifier: Apache-2.0 */
/* How a call enters; see enter.h. */
#include "coll/enter.h"

#include "base/status.h"
#include "coll/list.h"

/* ---- what is noted and told of a call ---- */

static void put_tensors(weft_i_card *card, const weft_i_list *list)
{
    card->dims = (uint32_t)list->count;
    for (size_t i = 0; i < list->count && i < WEFT_I_CARD_DIMS; i++) {
        const weft_i_list_item *item = &list->items[i];
        const weft_tensor *tensor = item->in_tensor ? item->in_tensor : item->out_tensor;
        card->dim[i] = weft_i_card_tensor(tensor ? (uint32_t)tensor->dtype : 0,
                                          item->bytes >> __builtin_ctzll(item->item));
    }
}

static void put_shape(weft_i_card *card, const weft_tensor *tensor)
{
    card->dims = tensor ? (uint32_t)tensor->ndim : 0;
    for (uint32_t i = 0; i < card->dims && i < WEFT_I_CARD_DIMS; i++)
        card->dim[i] = (uint32_t)tensor->dim[i];
}

void weft_i_coll_put_card(weft_i_card *card, const weft_i_coll *coll)
{
    card->kind = (uint32_t)coll->ask.kind;
    card->dtype = (uint32_t)coll->ask.dtype;
    card->reduction = (uint32_t)coll->ask.reduction;
    card->root = (uint32_t)coll->ask.root;
    card->count = coll->ask.count;
    card->offset = coll->reach ? coll->reach->offset : coll->list ? coll->digest : 0;
    card->block = coll->reach ? coll->reach->pairing->serial : 0;
    if (coll->list)
        put_tensors(card, coll->list);
    else
        put_shape(card, coll->in_tensor ? coll->in_tensor : coll->out_tensor);
}

int weft_i_enter_way(const weft_i_coll *coll)
{
    if (coll->reach)
        return WEFT_I_WAY_DIRECT;
    if (coll->algorithm == WEFT_I_ALGO_LARGE)
        return coll->list ? WEFT_I_WAY_PIPELINED : -1;
    return coll->algorithm == WEFT_I_ALGO_TINY ? WEFT_I_WAY_TINY : WEFT_I_WAY_STAGED;
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
    weft_i_coll_put_card(arrival.card, coll);
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
    weft_i_spot factor = {.factor = coll->ask.factor};
    bool scales = coll->ask.reduction == WEFT_PREMUL_SUM;
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &factor, scales ? sizeof factor : 0));
    weft_i_coll_read_factors(coll);
    return WEFT_OK;
}

weft_status weft_i_enter_eager(weft_i_coll *coll, bool gives, int whom)
{
    weft_i_spot factor = {.factor = coll->ask.factor};
    bool scales = coll->ask.reduction == WEFT_PREMUL_SUM;
    if (coll->algorithm == WEFT_I_ALGO_TINY)
        return weft_i_enter_with(coll, whom, coll->ask.in, gives ? coll->ask.in_bytes : 0);
    if (gives)
        weft_i_eager_put(coll);
    return weft_i_enter_with(coll, whom, &factor, scales ? sizeof factor : 0);
}

size_t weft_i_enter_bytes(const weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    return weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? part * (size_t)coll->group->size
                                                            : part;
}

/* Is this rank's input to be shown?  What others can touch where it is they need not be shown,
 * unless it is overwritten there. */
static bool is_shown(const weft_i_coll *coll, const weft_i_places *places, weft_i_gift gift)
{
    if (gift == WEFT_I_NEVER_SHOWN || coll->lane->peek == WEFT_I_PEEK_THREADS ||
        weft_i_enter_bytes(coll) > coll->shown_up_to)
        return false;
    bool in_place = coll->ask.kind == WEFT_I_ALL_REDUCE && coll->ask.in == coll->ask.out;
    return gift == WEFT_I_GIVES_NOTHING || !places->in || in_place;
}

static int way_of_places(const weft_i_places *places)
{
    return places->all_shown                   ? WEFT_I_WAY_STAGED
           : places->all_in || places->all_out ? WEFT_I_WAY_DIRECT
           : places->peek                      ? WEFT_I_WAY_PEEKED
                                               : WEFT_I_WAY_PIPELINED;
}

weft_status weft_i_enter_located(weft_i_coll *coll, weft_i_places *places, size_t transfer,
                                 weft_i_gift gift)
{
    weft_i_spot mine = weft_i_places_find(coll, places, transfer);
    mine.shown = is_shown(coll, places, gift);
    if (mine.shown && gift == WEFT_I_GIVES)
        weft_i_eager_put(coll);
    if (!mine.shown)
        weft_i_prefetch_prepare(coll, places);
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &mine, sizeof mine));
    weft_i_places_compare(coll, &mine, places);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number, way_of_places(places));
    return WEFT_OK;
}
