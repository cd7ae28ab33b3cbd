/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists: the object, and the algorithms of the list forms.  A small list is packed into one eager
 * chunk and shown whole at the entry.  A large one goes through the bounce buffer piece by piece,
 * one sync each; a chunk is written again two pieces later, when all ranks have passed the sync that
 * follows its last use.
 */
#include "coll/lane/list.h"
#include "base/os/assert.h"
#include "coll/lane/enter.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/lane/pipeline.h"
#include "coll/lane/request.h"

#include <stdlib.h>

enum { ALIGN = 16 };

/* ---- the object ---- */

static void destroy(weft_i_object *object)
{
    weft_i_list *list = (weft_i_list *)object;
    for (size_t i = 0; i < list->count; i++) {
        weft_i_object_drop(list->items[i].in_tensor);
        weft_i_object_drop(list->items[i].out_tensor);
    }
    weft_i_object_free(object);
}

weft_i_list *weft_i_list_new(size_t room)
{
    return weft_i_object_new_unscoped(
        WEFT_I_LIST, sizeof(weft_i_list) + room * sizeof(weft_i_list_item), destroy);
}

static weft_status note_device(weft_i_coll *coll, const weft_i_coll *one)
{
    bool first = true;
    char a[16], b[16];
    if (!one->in_tensor && !one->out_tensor)
        return WEFT_OK;
    for (size_t i = 0; i < coll->list->count && first; i++)
        first = !coll->list->items[i].in_tensor && !coll->list->items[i].out_tensor;
    if (!first && coll->ask.device != one->ask.device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: tensor %zu is on %s, those before it on %s",
                           coll->ask.op, coll->list->count, weft_device_name(one->ask.device, a),
                           weft_device_name(coll->ask.device, b));
    coll->ask.device = one->ask.device;
    return WEFT_OK;
}

weft_status weft_i_list_add(weft_i_coll *coll, const weft_i_coll *one)
{
    weft_i_list *list = coll->list;
    WEFT_TRY(note_device(coll, one));
    size_t bytes = one->ask.count * one->ask.item;
    WEFT_ASSERT(list->bytes % ALIGN == 0);
    list->items[list->count++] =
        (weft_i_list_item){.in_tensor = weft_i_object_hold(one->in_tensor),
                           .out_tensor = weft_i_object_hold(one->out_tensor),
                           .in = one->ask.in,
                           .out = one->ask.out,
                           .dtype = one->ask.dtype,
                           .item = one->ask.item,
                           .bytes = bytes,
                           .out_bytes = one->ask.out_bytes,
                           .start = list->bytes,
                           .fold = one->fold};
    list->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    list->digest = weft_i_digest(list->digest, one->digest);
    coll->ask.reduction = one->ask.reduction;
    coll->ask.factor = one->ask.factor;
    return WEFT_OK;
}

typedef struct range {
    const char *begin, *end;
    bool written;
} range;

static int by_begin(const void *left, const void *right)
{
    const range *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static size_t bytes_of(const weft_tensor *tensor)
{
    return tensor ? (size_t)weft_i_tensor_numel(tensor) * weft_dtype_size(tensor->dtype) : 0;
}

/* The ranges of an item: one if it works in place, else two.  Ends are taken from the tensors, in
 * and out may be of several parts. */
static size_t ranges_of(const weft_i_list_item *item, range *out)
{
    size_t in_bytes = bytes_of(item->in_tensor), out_bytes = bytes_of(item->out_tensor);
    range in = {item->in, in_bytes ? item->in + in_bytes : item->in, false};
    range to = {item->out, out_bytes ? item->out + out_bytes : item->out, true};
    size_t n = 0;
    if (in_bytes && out_bytes && in.begin < to.end && to.begin < in.end) {
        to.begin = in.begin < to.begin ? in.begin : to.begin;
        to.end = in.end > to.end ? in.end : to.end;
        in_bytes = 0;
    }
    if (in_bytes)
        out[n++] = in;
    if (out_bytes)
        out[n++] = to;
    return n;
}

weft_status weft_i_list_check_overlap(const weft_i_list *list, const char *op)
{
    if (list->count < 2)
        return WEFT_OK; /* one item was checked by itself */
    range *ranges = WEFT_OS->alloc(2 * list->count * sizeof *ranges);
    if (!ranges)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu tensors", op, list->count);
    size_t n = 0;
    for (size_t i = 0; i < list->count; i++)
        n += ranges_of(&list->items[i], ranges + n);
    qsort(ranges, n, sizeof *ranges, by_begin);
    bool clash = false;
    const char *end = NULL, *written_end = NULL; /* of what begins before */
    for (size_t i = 0; i < n; i++) {
        clash |= i && ranges[i].begin < (ranges[i].written ? end : written_end);
        if (!end || ranges[i].end > end)
            end = ranges[i].end;
        if (ranges[i].written && (!written_end || ranges[i].end > written_end))
            written_end = ranges[i].end;
    }
    WEFT_OS->free(ranges);
    return clash
               ? weft_i_fail(WEFT_ERR_INVALID_ARG,
                             "%s: an output overlaps an operand of another tensor of the list", op)
               : WEFT_OK;
}

weft_status weft_i_list_accept(weft_i_coll *coll)
{
    const weft_i_list *list = coll->list;
    WEFT_TRY(weft_i_list_check_overlap(list, coll->ask.op));
    coll->ask.dtype = WEFT_U8;
    coll->ask.in_bytes = list->bytes;
    WEFT_TRY(weft_i_request_accept(coll, list->bytes));
    coll->digest = weft_i_digest(weft_i_digest(coll->digest, list->count), list->digest);
    return WEFT_OK;
}

/* ---- the packed buffer ---- */

/* Bytes of one item within a range of the packed buffer. */
typedef struct stretch {
    const weft_i_list_item *item;
    size_t at;    /* in the item's part */
    size_t place; /* from the start of the range */
    size_t bytes;
} stretch;

/* The first item that ends after `from`. */
static size_t find(const weft_i_list *list, size_t from)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->items[middle].start + list->items[middle].bytes > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Steps through the stretches of [from, to); `next` is the item to look at, from `find`. */
static bool step(const weft_i_list *list, size_t from, size_t to, size_t *next, stretch *out)
{
    for (; *next < list->count && list->items[*next].start < to; ++*next) {
        const weft_i_list_item *item = &list->items[*next];
        if (!item->bytes)
            continue;
        size_t begin = item->start > from ? item->start : from;
        size_t end = weft_i_coll_min(item->start + item->bytes, to);
        *out = (stretch){item, begin - item->start, begin - from, end - begin};
        ++*next;
        return true;
    }
    return false;
}

#define FOR_STRETCHES(list_, from_, to_)   \
    size_t next_ = find((list_), (from_)); \
    for (stretch s; step((list_), (from_), (to_), &next_, &s);)

/* Unpacks [from, to) to part `part` of the outputs. */
static void unpack(const weft_i_list *list, size_t from, size_t to, int part, const char *room)
{
    WEFT_ASSERT(from <= to);
    FOR_STRETCHES(list, from, to)
    memcpy(s.item->out + (size_t)part * s.item->bytes + s.at, room + s.place, s.bytes);
}

/* Where the list, or a piece of it, lies in a rank's bounce buffer. */
static char *chunk_of(const weft_i_coll *coll, int rank, uint64_t turn)
{
    return coll->algorithm == WEFT_I_ALGO_RENDEZVOUS
               ? weft_i_lane_chunk(coll->lane, rank, turn)
               : weft_i_lane_eager(coll->lane, rank, (uint32_t)turn);
}

/* Folds [from, to), which lies at `at` in everybody's chunk: to `room`, or to the outputs if it is
 * NULL. */
static void fold_range(weft_i_coll *coll, uint64_t turn, size_t from, size_t to, size_t at,
                       char *room)
{
    weft_i_lane *lane = coll->lane;
    FOR_STRETCHES(coll->list, from, to)
    {
        for (int rank = 0; rank < lane->size; rank++)
            lane->sources[rank] = chunk_of(coll, rank, turn) + at + s.place;
        lane->targets[0] = room ? room + s.place : s.item->out + s.at;
        s.item->fold(lane->targets, 1, lane->sources, lane->size, s.bytes / s.item->item,
                     lane->factors);
    }
}

/* ---- algorithms ---- */

/* Packs the parts of [from, to) into my chunk, `stride` bytes apart. */
static void put_in_chunk(const weft_i_coll *coll, uint64_t turn, size_t from, size_t to, int parts,
                         size_t stride)
{
    char *chunk = chunk_of(coll, coll->lane->me, turn);
    WEFT_ASSERT(to >= from && (parts == 1 || to - from <= stride));
    for (size_t part = 0; part < (size_t)parts; part++) {
        FOR_STRETCHES(coll->list, from, to)
        memcpy(chunk + part * stride + s.place, s.item->in + part * s.item->bytes + s.at, s.bytes);
    }
}

/* What a rank takes of [from, to), which lies in everybody's chunk, `stride` bytes from part to
 * part. */
typedef void taking(weft_i_coll *coll, uint64_t turn, size_t from, size_t to, size_t stride);

typedef struct showing {
    int parts;
    size_t piece;
    taking *take;
} showing;

static void put_shown(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const showing *s = arg;
    put_in_chunk(coll, turn, piece.first, piece.first + piece.count, s->parts, s->piece);
}

static void fold_list(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    (void)arg;
    weft_i_lane *lane = coll->lane;
    weft_i_span mine = weft_i_coll_slice(piece.count, lane->size, lane->me, 1);
    size_t from = piece.first + mine.first;
    fold_range(coll, turn, from, from + mine.count, mine.first,
               weft_i_lane_result(lane, lane->me, turn));
}

static void collect_list(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    (void)arg;
    weft_i_lane *lane = coll->lane;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_span slice = weft_i_coll_slice(piece.count, lane->size, rank, 1);
        size_t from = piece.first + slice.first;
        unpack(coll->list, from, from + slice.count, 0, weft_i_lane_result(lane, rank, turn));
    }
}

static void take_shown(weft_i_coll *coll, const void *arg, uint64_t turn, weft_i_span piece)
{
    const showing *s = arg;
    s->take(coll, turn, piece.first, piece.first + piece.count, s->piece);
}

/* A small list is taken whole; a large one goes through `line`, whose steps on what was put are
 * given. */
static weft_status run(weft_i_coll *coll, int parts, taking *take, weft_i_pipeline line)
{
    const weft_i_lane *lane = coll->lane;
    size_t total = coll->list->bytes;
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS) {
        put_in_chunk(coll, lane->epoch + 1, 0, total, parts, total);
        WEFT_TRY(weft_i_enter(coll));
        take(coll, lane->epoch, 0, total, total);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_enter(coll));
    showing s = {parts, WEFT_I_CHUNK / (size_t)parts / ALIGN * ALIGN, take};
    line.total = total;
    line.piece = s.piece;
    line.put = put_shown;
    line.arg = &s;
    return weft_i_pipeline_run(coll, &line);
}

static void take_all(weft_i_coll *coll, uint64_t turn, size_t from, size_t to, size_t stride)
{
    (void)stride;
    const weft_i_lane *lane = coll->lane;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        unpack(coll->list, from, to, rank, chunk_of(coll, rank, turn));
    }
}

static void take_mine(weft_i_coll *coll, uint64_t turn, size_t from, size_t to, size_t stride)
{
    fold_range(coll, turn, from, to, (size_t)coll->lane->me * stride, NULL);
}

static void take_sum(weft_i_coll *coll, uint64_t turn, size_t from, size_t to, size_t stride)
{
    (void)stride;
    fold_range(coll, turn, from, to, 0, NULL);
}

weft_status weft_i_list_all_reduce(weft_i_coll *coll)
{
    return run(coll, 1, take_sum, (weft_i_pipeline){.take = fold_list, .collect = collect_list});
}

weft_status weft_i_list_all_gather(weft_i_coll *coll)
{
    return run(coll, 1, take_all, (weft_i_pipeline){.take = take_shown});
}

weft_status weft_i_list_reduce_scatter(weft_i_coll *coll)
{
    return run(coll, coll->lane->size, take_mine, (weft_i_pipeline){.take = take_shown});
}
