/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object collectives: byte strings as streams (gatherv.h).  A rank's table row holds the lengths of
 * what it shows and, last, the most that it is ready to receive.  All ranks read the same rows, so
 * they agree on what is too much before anybody allocates.  A rank that cannot allocate after that
 * takes part to the end without storing anything, and so fails alone.
 */
#include "coll/calls/coalesce.h"
#include "coll/calls/run.h"
#include "coll/calls/work.h"
#include "coll/device/carrier.h"
#include "coll/lane/request.h"
#include "parts/gatherv.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "symm/backend.h"
#include "weft/object.h"

#include <limits.h>

struct weft_blobs {
    weft_i_object object;
    int count;
    weft_bytes *items;
    char *bytes; /* what the items point into */
};

/* What one call shows and receives; weft_i_coll's plan. */
typedef struct parcel {
    const weft_bytes *list; /* shown by this rank */
    size_t count;           /* of the list */
    size_t size;            /* its total */
    size_t most;            /* of it that one rank receives */
    weft_blobs *result;
    size_t begin, end; /* scatter: this rank's part of root's stream */
    bool alone;        /* a fake group: everybody would show what we show */
} parcel;

/* ---- the list ---- */

static void destroy(weft_i_object *object)
{
    weft_blobs *blobs = (weft_blobs *)object;
    WEFT_OS->free(blobs->items);
    WEFT_OS->free(blobs->bytes);
    weft_i_object_free(object);
}

int weft_blobs_count(const weft_blobs *blobs)
{
    return blobs ? blobs->count : 0;
}

weft_bytes weft_blobs_get(const weft_blobs *blobs, int index)
{
    return blobs && index >= 0 && index < blobs->count ? blobs->items[index]
                                                       : (weft_bytes){NULL, 0};
}

/* Room for `count` strings of `bytes` in all; at least one byte, so that data is never NULL. */
static bool make_room(weft_blobs *blobs, size_t count, size_t bytes)
{
    blobs->items = WEFT_OS->alloc((count ? count : 1) * sizeof *blobs->items);
    blobs->bytes = WEFT_OS->alloc(bytes ? bytes : 1);
    return blobs->items && blobs->bytes;
}

/* Not WEFT_ERR_NO_MEMORY, which would say that nothing has happened: the others have succeeded. */
static weft_status fail_memory(const weft_i_coll *coll, size_t bytes)
{
    return weft_i_fail(WEFT_ERR_CANCELLED,
                       "%s in group \"%s\": rank %d has no memory for the %zu bytes it was sent",
                       coll->ask.op, coll->group->name, coll->group->rank, bytes);
}

/* ---- what the ranks tell each other ---- */

static const parcel *parcel_of(const weft_i_coll *coll)
{
    return coll->plan;
}

/* Broadcasts show how many strings there are, their lengths, and then them. */
static weft_i_run run_of(const weft_i_coll *coll, size_t index)
{
    const parcel *p = parcel_of(coll);
    if (coll->ask.kind == WEFT_I_BROADCAST_OBJECT) {
        if (index == 0)
            return (weft_i_run){&p->count, sizeof p->count};
        if (index <= p->count)
            return (weft_i_run){&p->list[index - 1].length, sizeof p->list->length};
        index -= p->count + 1;
    }
    return (weft_i_run){p->list[index].data, p->list[index].length};
}

static size_t own_limit(void)
{
    return (size_t)weft_i_env_number_or_default(WEFT_I_ENV_OBJECT_LIMIT);
}

static void write_row(const weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    const parcel *p = parcel_of(coll);
    uint64_t *row = weft_i_lane_splits(lane, lane->me);
    for (int rank = 0; rank < lane->size; rank++)
        row[rank] = 0;
    if (coll->ask.kind == WEFT_I_SCATTER_OBJECT)
        for (size_t i = 0; i < p->count; i++)
            row[i] = p->list[i].length;
    else
        row[lane->me] = p->size;
    row[lane->size] = own_limit();
    weft_i_lane_show_splits(lane);
}

/* What `rank` shows; of a scatter, what the root shows for it. */
static size_t shown_by(const weft_i_coll *coll, int rank)
{
    const parcel *p = parcel_of(coll);
    if (p->alone && coll->ask.kind == WEFT_I_SCATTER_OBJECT)
        return p->count ? p->list[rank].length : 0;
    if (p->alone)
        return coll->ask.kind != WEFT_I_BROADCAST_OBJECT || rank == coll->ask.root ? p->size : 0;
    int row = coll->ask.kind == WEFT_I_SCATTER_OBJECT ? coll->ask.root : rank;
    return weft_i_lane_splits(coll->lane, row)[rank];
}

static size_t least_limit(const weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    size_t least = parcel_of(coll)->alone ? own_limit() : SIZE_MAX;
    for (int rank = 0; lane && rank < lane->size; rank++)
        least = weft_i_coll_min(least, weft_i_lane_splits(lane, rank)[lane->size]);
    return least;
}

/* Is it too much for whoever receives the most?  Every rank comes to the same answer. */
static weft_status check_limit(const weft_i_coll *coll)
{
    bool scatters = coll->ask.kind == WEFT_I_SCATTER_OBJECT;
    size_t limit = least_limit(coll), left = limit, most = 0;
    int who = 0;
    bool fits = true;
    for (int rank = 0; rank < coll->group->size; rank++) {
        size_t bytes = shown_by(coll, rank);
        if (bytes > most) {
            most = bytes;
            who = rank;
        }
        fits = fits && bytes <= left;
        left -= fits && !scatters ? bytes : 0;
    }
    if (fits)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_LIMIT,
                       "%s in group \"%s\": a rank would receive more than %zu bytes "
                       "(WEFT_OBJECT_LIMIT); the longest, %zu bytes, %s rank %d",
                       coll->ask.op, coll->group->name, limit, most,
                       scatters ? "is for" : "comes from", who);
}

/* ---- receiving ---- */

static void take_strings(weft_i_coll *coll, const weft_i_piece *piece)
{
    const weft_blobs *result = parcel_of(coll)->result;
    size_t at = 0;
    for (int rank = 0; rank < result->count; rank++) {
        size_t length = result->items[rank].length;
        if (length > piece->from)
            memcpy(result->bytes + at + piece->from, weft_i_piece_of(piece, rank),
                   weft_i_coll_min(length, piece->to) - piece->from);
        at += length;
    }
}

static void take_stream(weft_i_coll *coll, const weft_i_piece *piece)
{
    memcpy(parcel_of(coll)->result->bytes + piece->from, weft_i_piece_of(piece, coll->ask.root),
           piece->to - piece->from);
}

static void take_share(weft_i_coll *coll, const weft_i_piece *piece)
{
    const parcel *p = parcel_of(coll);
    size_t from = p->begin > piece->from ? p->begin : piece->from;
    size_t to = weft_i_coll_min(p->end, piece->to);
    if (from < to)
        memcpy(p->result->bytes + (from - p->begin),
               weft_i_piece_of(piece, coll->ask.root) + (from - piece->from), to - from);
}

static void take_nothing(weft_i_coll *coll, const weft_i_piece *piece)
{
    (void)coll;
    (void)piece;
}

/* What a rank of a fake group takes: its own string for everybody's, its own list or part of it;
 * nothing of a root that is not there. */
static void take_own(const weft_i_coll *coll)
{
    const parcel *p = parcel_of(coll);
    char *to = p->result->bytes;
    if (coll->ask.kind == WEFT_I_BROADCAST_OBJECT)
        for (size_t i = 0; p->size && i < 1 + 2 * p->count; i++) {
            weft_i_run run = run_of(coll, i);
            weft_i_coll_put(to, run.data, run.bytes);
            to += run.bytes;
        }
    const weft_bytes *mine = p->list;
    if (coll->ask.kind == WEFT_I_SCATTER_OBJECT && p->count)
        mine += coll->group->rank;
    for (int i = 0; i < p->result->count; i++)
        if (p->result->items[i].length) {
            memcpy(to, mine->data, mine->length);
            to += mine->length;
        }
}

/* Takes part to the end; keeps what could be kept. */
static weft_status take_or_fail(weft_i_coll *coll, weft_i_gatherv *stream, size_t longest,
                                weft_i_taking *take, bool room, size_t bytes)
{
    if (parcel_of(coll)->alone && room)
        take_own(coll);
    else if (!parcel_of(coll)->alone)
        WEFT_TRY(weft_i_gatherv_take(coll, stream, longest, room ? take : take_nothing));
    return room ? WEFT_OK : fail_memory(coll, bytes);
}

static weft_status gather(weft_i_coll *coll, weft_i_gatherv *stream)
{
    weft_blobs *result = parcel_of(coll)->result;
    int size = coll->group->size;
    bool wanted = coll->ask.kind == WEFT_I_ALL_GATHER_OBJECT || coll->group->rank == coll->ask.root;
    size_t total = 0, longest = 0;
    for (int rank = 0; rank < size; rank++) {
        size_t bytes = shown_by(coll, rank);
        total += bytes;
        longest = bytes > longest ? bytes : longest;
    }
    bool room = !wanted || make_room(result, (size_t)size, total);
    size_t at = 0;
    for (int rank = 0; wanted && room && rank < size; rank++) {
        result->items[rank] = (weft_bytes){result->bytes + at, shown_by(coll, rank)};
        at += result->items[rank].length;
    }
    result->count = wanted && room ? size : 0;
    return take_or_fail(coll, stream, longest, take_strings, room, total);
}

static weft_status scatter(weft_i_coll *coll, weft_i_gatherv *stream, parcel *p)
{
    size_t total = 0;
    for (int rank = 0; rank < coll->group->size; rank++) {
        if (rank == coll->group->rank)
            p->begin = total;
        total += shown_by(coll, rank);
    }
    size_t mine = shown_by(coll, coll->group->rank);
    p->end = p->begin + mine;
    bool room = make_room(p->result, 1, mine);
    if (room) {
        p->result->items[0] = (weft_bytes){p->result->bytes, mine};
        p->result->count = 1;
    }
    return take_or_fail(coll, stream, total, take_share, room, mine);
}

/* Finds the strings in the stream of a broadcast. */
static weft_status unpack(const weft_i_coll *coll, weft_blobs *result, size_t bytes)
{
    size_t count = 0, at, end, sum = 0;
    if (bytes >= sizeof count)
        memcpy(&count, result->bytes, sizeof count);
    at = end = sizeof count + count * sizeof(size_t);
    bool sound = count <= INT_MAX && bytes >= end;
    if (sound) {
        WEFT_OS->free(result->items);
        result->items = WEFT_OS->alloc((count ? count : 1) * sizeof *result->items);
        if (!result->items)
            return fail_memory(coll, count * sizeof *result->items);
    }
    for (size_t i = 0; sound && i < count; i++) {
        size_t length;
        memcpy(&length, result->bytes + (1 + i) * sizeof length, sizeof length);
        sound = length <= bytes - end - sum;
        result->items[i] = (weft_bytes){result->bytes + at + sum, length};
        sum += sound ? length : 0;
    }
    if (!sound || sum != bytes - end)
        return weft_i_fail(WEFT_ERR_PROTOCOL,
                           "%s in group \"%s\": the list of rank %d does not add up", coll->ask.op,
                           coll->group->name, coll->ask.root);
    result->count = (int)count;
    return WEFT_OK;
}

static weft_status broadcast(weft_i_coll *coll, weft_i_gatherv *stream)
{
    weft_blobs *result = parcel_of(coll)->result;
    size_t bytes = shown_by(coll, coll->ask.root);
    bool room = make_room(result, 0, bytes);
    WEFT_TRY(take_or_fail(coll, stream, bytes, take_stream, room, bytes));
    bool none = parcel_of(coll)->alone && !bytes; /* a root that is not there gives an empty list */
    return none ? WEFT_OK : unpack(coll, result, bytes);
}

static weft_status receive(weft_i_coll *coll, weft_i_gatherv *stream, parcel *p)
{
    WEFT_TRY(check_limit(coll));
    if (coll->ask.kind == WEFT_I_BROADCAST_OBJECT)
        return broadcast(coll, stream);
    return coll->ask.kind == WEFT_I_SCATTER_OBJECT ? scatter(coll, stream, p)
                                                   : gather(coll, stream);
}

static weft_status run_object(weft_i_coll *coll)
{
    parcel *p = (parcel *)(uintptr_t)coll->plan; /* the caller's, who waits for us */
    weft_i_gatherv stream = {.run = run_of, .runs = p->count};
    if (coll->ask.kind == WEFT_I_BROADCAST_OBJECT && coll->group->rank == coll->ask.root)
        stream.runs = 1 + 2 * p->count;
    if (p->most > own_limit())
        stream.runs = 0; /* refused in any case: a nonsense length must not be read */
    write_row(coll);
    WEFT_TRY(weft_i_gatherv_enter(coll, &stream));
    weft_i_lane_read_splits(coll->lane);
    return receive(coll, &stream, p);
}

/* No backend carries them itself, but one without peers need not. */
static weft_status carry_object(const weft_i_coll *call, const weft_i_carrier *carrier)
{
    if (!call->group->world->fake)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: backend %s carries no byte strings",
                           call->label.op, carrier->backend->name);
    weft_i_coll coll = *call;
    parcel *p = (parcel *)(uintptr_t)coll.plan; /* the caller's, who waits for us */
    p->alone = true;
    return receive(&coll, NULL, p);
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_ALL_GATHER_OBJECT, run_object);
    weft_i_kind_run(WEFT_I_GATHER_OBJECT, run_object);
    weft_i_kind_run(WEFT_I_BROADCAST_OBJECT, run_object);
    weft_i_kind_run(WEFT_I_SCATTER_OBJECT, run_object);
    weft_i_carrier_run_objects(carry_object);
}

/* ---- public ---- */

static weft_status check_bytes(const char *op, const weft_bytes *list, size_t count, size_t *total)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!list[i].data && list[i].length)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: string %zu has %zu bytes at NULL", op, i,
                               list[i].length);
        if (list[i].length > (size_t)PTRDIFF_MAX - *total)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: string %zu has %zu bytes, more than there is memory", op, i,
                               list[i].length);
        *total += list[i].length;
    }
    return WEFT_OK;
}

/* Root's list: given there, and nowhere else. */
static weft_status check_list(const weft_i_coll *coll, const weft_bytes *list, int count)
{
    bool root = coll->group->rank == coll->ask.root;
    if (root && (count < 0 || (count && !list)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a list of %d strings at %p", coll->ask.op,
                           count, (const void *)list);
    if (!root && list)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: only the root, rank %d, gives a list; on rank %d it must be NULL",
                           coll->ask.op, coll->ask.root, coll->group->rank);
    return WEFT_OK;
}

static weft_status fill(weft_i_coll *coll, parcel *p)
{
    WEFT_TRY(check_bytes(coll->ask.op, p->list, p->count, &p->size));
    if (coll->ask.kind == WEFT_I_BROADCAST_OBJECT && coll->group->rank == coll->ask.root)
        p->size += (1 + p->count) * sizeof(size_t);
    p->most = p->size;
    for (size_t i = 0; coll->ask.kind == WEFT_I_SCATTER_OBJECT && i < p->count; i++)
        p->most = i && p->list[i].length <= p->most ? p->most : p->list[i].length;
    coll->ask.dtype = WEFT_U8;
    coll->plan = p;
    WEFT_TRY(weft_i_request_accept(coll, 0));
    coll->ask.in_bytes = p->size; /* for the flight record */
    return WEFT_OK;
}

static weft_blobs *run(weft_i_coll *coll, parcel *p)
{
    weft_status filled = fill(coll, p);
    if (weft_i_coalesce_is_open(coll->group))
        filled = weft_i_coalesce_add(coll, filled); /* refuses it */
    if (filled < 0)
        return NULL;
    p->result = weft_i_object_new(WEFT_I_BLOBS, sizeof *p->result, destroy);
    if (p->result && weft_i_work_now(coll) == WEFT_OK)
        return p->result;
    weft_release(p->result);
    return NULL;
}

weft_blobs *weft_all_gather_object(weft_bytes mine, weft_group *group)
{
    weft_i_coll coll;
    parcel p = {.list = &mine, .count = 1};
    return weft_i_request_begin(&coll, WEFT_I_ALL_GATHER_OBJECT, group) < 0 ? NULL : run(&coll, &p);
}

static weft_status begin_rooted(weft_i_coll *coll, weft_i_coll_kind kind, int root,
                                weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    WEFT_TRY(weft_i_request_check_root(coll->ask.op, group, root));
    coll->ask.root = root;
    return WEFT_OK;
}

weft_blobs *weft_gather_object(weft_bytes mine, int root, weft_group *group)
{
    weft_i_coll coll;
    parcel p = {.list = &mine, .count = 1};
    return begin_rooted(&coll, WEFT_I_GATHER_OBJECT, root, group) < 0 ? NULL : run(&coll, &p);
}

weft_blobs *weft_broadcast_object(const weft_bytes *list, int count, int root, weft_group *group)
{
    weft_i_coll coll;
    if (begin_rooted(&coll, WEFT_I_BROADCAST_OBJECT, root, group) < 0 ||
        check_list(&coll, list, count) < 0)
        return NULL;
    parcel p = {.list = list, .count = group->rank == root ? (size_t)count : 0};
    return run(&coll, &p);
}

weft_blobs *weft_scatter_object(const weft_bytes *list, int root, weft_group *group)
{
    weft_i_coll coll;
    if (begin_rooted(&coll, WEFT_I_SCATTER_OBJECT, root, group) < 0 ||
        check_list(&coll, list, group->size) < 0)
        return NULL;
    parcel p = {.list = list, .count = group->rank == root ? (size_t)group->size : 0};
    return run(&coll, &p);
}
