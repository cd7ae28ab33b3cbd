/* SPDX-License-Identifier: Apache-2.0 */
/* How a call enters; see enter.h. */
#include "coll/lane/enter.h"

#include "base/os/place.h"
#include "base/report/status.h"
#include "coll/lane/list.h"
#include "coll/lane/prefetch.h"

#include <stdio.h>

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

void weft_i_coll_put_signature(weft_i_signature *signature, const weft_i_coll *coll)
{
    signature->kind = (uint32_t)coll->ask.kind;
    signature->dtype = (uint32_t)coll->ask.dtype;
    signature->reduction = (uint32_t)coll->ask.reduction;
    signature->root = (uint32_t)coll->ask.root;
    signature->count = coll->ask.count;
    signature->offset = coll->reach ? coll->reach->offset : coll->list ? coll->digest : 0;
    signature->block = coll->reach ? coll->reach->registration->serial : 0;
    if (coll->list) {
        put_tensors(signature, coll->list);
        return;
    }
    const weft_tensor *tensor = coll->in_tensor ? coll->in_tensor : coll->out_tensor;
    signature->dims = tensor ? (uint32_t)tensor->ndim : 0;
    for (uint32_t i = 0; i < signature->dims && i < WEFT_I_SIGNATURE_DIMS; i++)
        signature->dim[i] = (uint32_t)tensor->dim[i];
}

/* What only a trace shows. */
WEFT_I_COLD void weft_i_enter_details(weft_i_record *record, uint64_t number, uint64_t posted,
                                      size_t count, int dtype, int reduction)
{
    weft_i_record_detail detail = {.posted = posted, .count = count, .dtype = dtype};
    if (reduction >= 0)
        snprintf(detail.reduction, sizeof detail.reduction, "%.8s",
                 weft_reduction_name((weft_reduction)reduction));
    weft_i_record_note(record, number, &detail);
}

/*
 * Opening a line takes a locked instruction, which waits until all earlier stores are in the cache.
 * Stores into bounce buffers go to lines that others hold, so the line is opened before them.  An
 * inline call opens it while its arrival travels, and every call before it may have to wait.
 */
WEFT_I_HOT void weft_i_enter_open(weft_i_coll *coll, int way, int turn)
{
    size_t bytes = coll->ask.in_bytes ? coll->ask.in_bytes : coll->ask.out_bytes;
    weft_i_record *record = weft_i_group_record(coll->group);
    coll->number = weft_i_record_begin_named(record, weft_i_coll_record_name(coll->ask.kind),
                                             coll->group->id, bytes, turn, way);
    if (weft_i_record_wants_details(record))
        weft_i_enter_details(record, coll->number, coll->posted, coll->ask.count,
                             coll->ask.item ? (int)coll->ask.dtype : -1,
                             coll->fold ? (int)coll->ask.reduction : -1);
}

/* ---- eager data ---- */

/* Before the arrival: copies the input into the eager buffer of the next entry, unless it goes
 * chunk by chunk. */
static void put_eager(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    char *buffer = coll->is_short ? weft_i_lane_short(lane, lane->me, lane->epoch + 1)
                                  : weft_i_lane_eager(lane, lane->me, lane->epoch + 1);
    coll->flows = !coll->is_short && weft_i_eager_is_chunked(coll);
    if (coll->flows)
        return;
    WEFT_ASSERT(coll->ask.in_bytes <= (coll->is_short ? WEFT_I_SHORT : WEFT_I_EAGER));
    if (!weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS)) {
        weft_i_coll_put(buffer, coll->ask.in, coll->ask.in_bytes);
        return;
    }
    /* All but the part that only this rank reads. */
    size_t part = coll->ask.count * coll->ask.item;
    size_t first = (size_t)lane->me * part, end = first + part;
    weft_i_coll_put(buffer, coll->ask.in, first);
    weft_i_coll_put(buffer + end, coll->ask.in + end, coll->ask.in_bytes - end);
}

weft_status weft_i_eager_take(weft_i_coll *coll, int rank, char *to)
{
    size_t bytes = coll->ask.count * coll->ask.item;
    if (rank == coll->lane->me) {
        weft_i_coll_put_own(coll, to, coll->ask.in, bytes);
        return WEFT_OK;
    }
    if (coll->is_short || !weft_i_eager_is_chunked(coll)) {
        weft_i_coll_put(to, weft_i_eager_of(coll, rank), bytes);
        return WEFT_OK;
    }
    weft_i_fifo fifo = weft_i_fifo_eager(coll->lane->epoch, bytes);
    return weft_i_fifo_read(coll, &fifo, rank, to);
}

/* ---- entering ---- */

/*
 * Copies this rank's own part of the result.  The others may be long in coming, if they share its
 * core.  Not if it is very long: a mismatch is told after that.
 */
static void copy_own(weft_i_coll *coll)
{
    enum { LONG = 4 << 20 };
    WEFT_ASSERT(weft_i_kind_is(coll->ask.kind, WEFT_I_PULLS));
    bool rooted = weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT);
    bool taking = !rooted || coll->lane->me == coll->ask.root;
    size_t part = coll->ask.count * coll->ask.item, mine = (size_t)coll->lane->me * part;
    if (!taking || coll->ask.in_splits || !part || part > LONG)
        return;
    weft_i_coll_put(
        coll->ask.out + (weft_i_kind_is(coll->ask.kind, WEFT_I_PLACES_PARTS) ? mine : 0),
        coll->ask.in + (weft_i_kind_is(coll->ask.kind, WEFT_I_HAS_PARTS) ? mine : 0), part);
    coll->own_done = true;
}

/*
 * A small call writes one line, which the others have read.  Fetching it back takes as long as a
 * hop, so it begins before the next call, which is likely to be as small.  Of several lines this
 * would be the first only, and they come faster together, when they are written.
 */
static weft_status await(weft_i_coll *coll, weft_i_arrival *arrival)
{
    enum { LITTLE = 64 - sizeof(uint64_t) };
    weft_i_lane *lane = coll->lane;
    weft_status status = weft_i_lane_await(lane, &coll->label, arrival, coll->ask.limit_ms);
    if (coll->algorithm == WEFT_I_ALGO_INLINE && weft_i_enter_bytes(coll) <= LITTLE)
        weft_i_os_own_line(weft_i_lane_next_payload(lane, lane->me));
    return status;
}

/* Waiting for others is not counted for a trial. */
WEFT_I_APART static weft_status await_in_trial(weft_i_coll *coll, weft_i_arrival *arrival)
{
    int64_t came = WEFT_OS->clock_ns();
    weft_status status = weft_i_lane_await(coll->lane, &coll->label, arrival, coll->ask.limit_ms);
    coll->trial_began += WEFT_OS->clock_ns() - came;
    return status;
}

weft_status weft_i_enter_with(weft_i_coll *coll, int whom, const void *data, size_t bytes)
{
    weft_i_lane *lane = coll->lane;
    weft_i_arrival arrival;
    lane->entry.looks = coll->algorithm == WEFT_I_ALGO_RENDEZVOUS ? 1 : WEFT_I_LOOKS;
    if (bytes)
        memcpy(weft_i_lane_next_payload(lane, lane->me), data, bytes);
    weft_i_lane_arrive(lane, &coll->label, whom, coll->digest, &arrival);
    weft_i_coll_put_signature(arrival.signature, coll);
    if (coll->algorithm == WEFT_I_ALGO_INLINE)
        weft_i_enter_note_way(coll);
    WEFT_ASSERT(coll->number || !weft_i_group_record(coll->group));
    if (arrival.came && coll->flows) {
        weft_i_fifo fifo = weft_i_fifo_eager(lane->epoch + 1, coll->ask.in_bytes);
        weft_i_fifo_write(coll, &fifo, coll->ask.in, -1); /* there is room: it cannot fail */
    }
    if (arrival.came && weft_i_kind_is(coll->ask.kind, WEFT_I_PULLS))
        copy_own(coll);
    if (arrival.came && coll->prefetch)
        weft_i_prefetch_take(coll);
    return coll->trial ? await_in_trial(coll, &arrival) : await(coll, &arrival);
}

static weft_status enter_with_factor(weft_i_coll *coll, int whom)
{
    weft_i_location factor = {.factor = coll->ask.factor};
    bool scales = coll->ask.reduction == WEFT_PREMUL_SUM;
    return weft_i_enter_with(coll, whom, &factor, scales ? sizeof factor : 0);
}

weft_status weft_i_enter(weft_i_coll *coll)
{
    WEFT_TRY(enter_with_factor(coll, WEFT_I_FOR_ALL));
    weft_i_coll_read_factors(coll);
    return WEFT_OK;
}

weft_status weft_i_enter_eager(weft_i_coll *coll, bool gives, int whom)
{
    if (coll->algorithm == WEFT_I_ALGO_INLINE)
        return weft_i_enter_with(coll, whom, coll->ask.in, gives ? coll->ask.in_bytes : 0);
    if (gives)
        put_eager(coll);
    return enter_with_factor(coll, whom);
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

weft_status weft_i_enter_located(weft_i_coll *coll, weft_i_locations *locations, size_t transfer,
                                 weft_i_gift gift)
{
    weft_i_location mine = weft_i_locations_find(coll, locations, transfer);
    mine.shown = is_shown(coll, locations, gift);
    if (mine.shown && gift == WEFT_I_GIVES)
        put_eager(coll);
    if (!mine.shown && weft_i_kind_is(coll->ask.kind, WEFT_I_PULLS))
        weft_i_prefetch_prepare(coll, locations);
    WEFT_TRY(weft_i_enter_with(coll, WEFT_I_FOR_ALL, &mine, sizeof mine));
    weft_i_locations_compare(coll, &mine, locations);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number, locations->way);
    return WEFT_OK;
}
