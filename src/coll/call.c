/* SPDX-License-Identifier: Apache-2.0 */
/* Running a call: entry with data or with places, dispatch, and the entry in the flight record. */
#include "coll/early.h"
#include "coll/list.h"
#include "coll/show.h"

#include "base/os.h"
#include "base/status.h"
#include "coll/peek.h"

#include <string.h>

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
    card->kind = (uint32_t)coll->kind;
    card->dtype = (uint32_t)coll->dtype;
    card->reduction = (uint32_t)coll->reduction;
    card->root = (uint32_t)coll->root;
    card->count = coll->count;
    card->offset = coll->reach ? coll->reach->offset : coll->list ? coll->digest : 0;
    card->block = coll->reach ? coll->reach->pairing->serial : 0;
    if (coll->list)
        put_tensors(card, coll->list);
    else
        put_shape(card, coll->in_tensor ? coll->in_tensor : coll->out_tensor);
}

/* The way that follows from the algorithm; -1 if it depends on where the operands lie. */
static int way_of(const weft_i_coll *coll)
{
    if (coll->reach)
        return WEFT_I_WAY_DIRECT;
    if (coll->algorithm == WEFT_I_ALGO_LARGE)
        return coll->list ? WEFT_I_WAY_PIPELINED : -1;
    return coll->algorithm == WEFT_I_ALGO_TINY ? WEFT_I_WAY_TINY : WEFT_I_WAY_STAGED;
}

/*
 * Opens the call's line in the flight record, once.  That takes a locked instruction, which waits
 * until all stores before it are in the cache, and theirs are lines of others.  So it comes before
 * an operand is copied into the stage; of a tiny one, while its arrival is on its way; and wherever
 * the call may have to wait before its entry.
 */
static void note(weft_i_coll *coll, int way)
{
    const weft_i_lane *lane = coll->group->lane;
    size_t bytes = coll->in_bytes ? coll->in_bytes : coll->out_bytes;
    if (!coll->number)
        coll->number = weft_i_record_begin_named(
            weft_i_group_record(coll->group), weft_i_coll_record_name(coll->kind), coll->group->id,
            bytes, weft_i_record_turn(lane ? lane->epoch + 1 : 1), way);
    else if (way >= 0)
        weft_i_record_way(weft_i_group_record(coll->group), coll->number, way);
}

/*
 * Copies this rank's own part of the result.  The others may be long in coming, if they share its
 * core.  Not if it is very long: a mismatch is told after that.
 */
static void copy_own(weft_i_coll *coll)
{
    enum { LONG = 4 << 20 };
    bool rooted = weft_i_kind_is(coll->kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT);
    bool taking =
        weft_i_kind_is(coll->kind, WEFT_I_PULLS) && (!rooted || coll->lane->me == coll->root);
    size_t part = coll->count * coll->item, mine = (size_t)coll->lane->me * part;
    if (!taking || coll->in_splits || !part || part > LONG)
        return;
    weft_i_coll_put(coll->out + (weft_i_kind_is(coll->kind, WEFT_I_PLACES_PARTS) ? mine : 0),
                    coll->in + (weft_i_kind_is(coll->kind, WEFT_I_HAS_PARTS) ? mine : 0), part);
    coll->own_done = true;
}

static void tell(void *who, weft_i_card *card, bool came)
{
    weft_i_coll *coll = who;
    weft_i_coll_put_card(card, coll);
    note(coll, way_of(coll));
    if (came && coll->flows)
        weft_i_show_flow(coll);
    if (came)
        copy_own(coll);
    if (came && coll->early)
        weft_i_early_take(coll);
}

weft_status weft_i_coll_enter_for(weft_i_coll *coll, int whom, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(weft_i_lane_next_payload(coll->lane), data, bytes);
    return weft_i_lane_enter(coll->lane, &coll->call, whom, coll->digest, coll->limit_ms, tell,
                             coll);
}

weft_status weft_i_coll_enter_with_data(weft_i_coll *coll, const void *data, size_t bytes)
{
    return weft_i_coll_enter_for(coll, WEFT_I_FOR_ALL, data, bytes);
}

weft_status weft_i_coll_enter_with_factor(weft_i_coll *coll)
{
    weft_i_spot factor = {.factor = coll->factor};
    WEFT_TRY(weft_i_coll_enter_with_data(coll, &factor, sizeof factor));
    weft_i_coll_read_factors(coll);
    return WEFT_OK;
}

/* Where a tensor lies in symmetric memory of the group: its pairing, there as long as the tensor,
 * and the offset of its data. */
static weft_i_pairing *find_place(const weft_group *group, weft_tensor *tensor, uint32_t *serial,
                                  uint64_t *offset)
{
    const weft_i_lease *lease = weft_i_block_lease_of(tensor);
    weft_i_pairing *pairing = lease ? weft_i_pairing_find(lease->block, group) : NULL;
    if (pairing) {
        *serial = pairing->serial;
        *offset = (uint64_t)(weft_i_tensor_data(tensor) - lease->block->segment->base);
    }
    return pairing;
}

/* What decides the algorithm: the bytes a rank shows, as all of them know it. */
static size_t shown_bytes(const weft_i_coll *coll)
{
    size_t part = coll->count * coll->item;
    return weft_i_kind_is(coll->kind, WEFT_I_HAS_PARTS) ? part * (size_t)coll->group->size : part;
}

/* What can be done with everybody's operands?  The same on all ranks. */
static void compare_places(const weft_i_coll *coll, const weft_i_spot *mine, weft_i_places *places)
{
    bool threads = coll->lane->peek == WEFT_I_PEEK_THREADS;
    places->all_in = threads || mine->in_serial;
    places->all_out = threads || mine->out_serial;
    places->all_shown = mine->shown;
    for (int rank = 0; rank < coll->lane->size; rank++) {
        const weft_i_spot *spot = weft_i_coll_spot(coll, rank);
        places->all_in &= threads ? spot->in_address != 0 : spot->in_serial == mine->in_serial;
        places->all_out &= threads ? spot->out_address != 0 : spot->out_serial == mine->out_serial;
        places->all_shown &= spot->shown;
    }
}

/* Is this rank's input to be shown?  What others can touch where it is they need not be shown,
 * unless it is overwritten there. */
static bool is_shown(const weft_i_coll *coll, const weft_i_places *places, weft_i_gift gift)
{
    if (gift == WEFT_I_NEVER_SHOWN || coll->lane->peek == WEFT_I_PEEK_THREADS ||
        shown_bytes(coll) > coll->shown_up_to)
        return false;
    bool in_place = coll->kind == WEFT_I_ALL_REDUCE && coll->in == coll->out;
    return gift == WEFT_I_GIVES_NOTHING || !places->in || in_place;
}

static int way_of_places(const weft_i_places *places)
{
    return places->all_shown                   ? WEFT_I_WAY_STAGED
           : places->all_in || places->all_out ? WEFT_I_WAY_DIRECT
           : places->peek                      ? WEFT_I_WAY_PEEKED
                                               : WEFT_I_WAY_PIPELINED;
}

weft_status weft_i_coll_enter_with_places(weft_i_coll *coll, weft_i_places *places, size_t transfer,
                                          weft_i_gift gift)
{
    weft_i_spot mine = {.factor = coll->factor,
                        .in_address = (uintptr_t)coll->in,
                        .out_address = (uintptr_t)coll->out};
    places->in = find_place(coll->group, coll->in_tensor, &mine.in_serial, &mine.in_offset);
    places->out = find_place(coll->group, coll->out_tensor, &mine.out_serial, &mine.out_offset);
    places->peek =
        coll->lane->peek == WEFT_I_PEEK_KERNEL && transfer && transfer >= coll->single_from;
    mine.shown = is_shown(coll, places, gift);
    mine.attempt = ++coll->lane->attempts ? coll->lane->attempts : ++coll->lane->attempts;
    if (mine.shown && gift == WEFT_I_GIVES)
        weft_i_show_input(coll);
    if (!mine.shown)
        weft_i_early_prepare(coll, places);
    WEFT_TRY(weft_i_coll_enter_with_data(coll, &mine, sizeof mine));
    compare_places(coll, &mine, places);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number, way_of_places(places));
    return WEFT_OK;
}

/* A single copy that fails leaves the others in the middle of the operation. */
static weft_status check_copied(const weft_i_coll *coll, weft_status status)
{
    if (status < 0)
        weft_i_group_spoil(coll->group,
                           weft_status_scope(status) < WEFT_SCOPE_GROUP ? WEFT_OK : status);
    return status;
}

weft_status weft_i_coll_fetch(const weft_i_coll *coll, const weft_i_places *places, int rank,
                              size_t at, char *to, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, to, coll->in + at, bytes);
    else if (coll->early && weft_i_early_has(coll, rank))
        return WEFT_OK;
    else if (places->all_in)
        weft_i_coll_put(to, weft_i_coll_in_of(coll, places, rank) + at, bytes);
    else
        return check_copied(coll,
                            weft_i_peek(coll->lane, &coll->call, rank, to,
                                        weft_i_coll_spot(coll, rank)->in_address + at, bytes));
    return WEFT_OK;
}

weft_status weft_i_coll_fetch_result(const weft_i_coll *coll, int rank, size_t at, char *to,
                                     size_t bytes)
{
    return check_copied(coll, weft_i_peek(coll->lane, &coll->call, rank, to,
                                          weft_i_coll_spot(coll, rank)->out_address + at, bytes));
}

void weft_i_coll_deliver(const weft_i_coll *coll, const weft_i_places *places, int rank, size_t at,
                         const char *from, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, coll->out + at, from, bytes);
    else
        weft_i_coll_put(weft_i_coll_out_of(coll, places, rank) + at, from, bytes);
}

/* A call that only has to be agreed on. */
weft_status weft_i_coll_barrier(weft_i_coll *coll)
{
    return weft_i_coll_enter_with_data(coll, NULL, 0);
}

static weft_status (*const runners[WEFT_I_COLL_KINDS])(weft_i_coll *coll) = {
#define COLL(name_, text_, record_, as_, runner_, facts_) [WEFT_I_##name_] = runner_,
#include "coll/kinds.def"
#undef COLL
};

static void choose(weft_i_coll *coll)
{
    bool crowded = coll->lane->mode != WEFT_I_WAIT_SPIN;
    coll->algorithm = weft_i_choose(coll->kind, coll->group->size, crowded, shown_bytes(coll));
    /* The factor travels beside the arrival word, where tiny data would be; lists are packed in
     * the stage. */
    if (coll->algorithm == WEFT_I_ALGO_TINY && (coll->reduction == WEFT_PREMUL_SUM || coll->list))
        coll->algorithm = WEFT_I_ALGO_STAGED;
    if (coll->algorithm == WEFT_I_ALGO_LARGE) {
        coll->single_from = weft_i_choose_single(coll->kind, coll->group->size, crowded);
        coll->shown_up_to = weft_i_choose_shown(coll->kind, coll->group->size, crowded);
    }
    coll->digest = weft_i_digest(coll->digest, (uint64_t)coll->algorithm ^ coll->single_from << 2);
}

static weft_status run_on_lane(weft_i_coll *coll)
{
    if (!coll->group->lane)
        note(coll, -1);
    weft_status status = weft_i_lane_of(coll->group, &coll->lane);
    if (status < 0)
        return weft_i_explain(status, "%s, the first of its group", coll->call.op);
    if (!weft_i_lane_has_room(coll->lane)) {
        note(coll, -1);
        WEFT_TRY(weft_i_lane_make_room(coll->lane, &coll->call, coll->limit_ms));
    }
    choose(coll);
    if (coll->algorithm != WEFT_I_ALGO_TINY)
        note(coll, way_of(coll));
    return runners[coll->kind](coll);
}

weft_status weft_i_coll_run(weft_i_coll *coll)
{
    weft_status status;
    if (weft_i_native_has(coll->group)) {
        note(coll, -1);
        status = weft_i_native_run(coll);
    } else {
        status = run_on_lane(coll);
        note(coll, -1); /* one that never came to its entry */
    }
    weft_i_record_end(weft_i_group_record(coll->group), coll->number, status);
    return status;
}
