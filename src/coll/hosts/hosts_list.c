/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists between hosts.  Large tensors go as calls of their own would; small neighbours of one dtype
 * are packed one after the other, so that many of them take as many steps as one.
 */
#include "coll/hosts/hosts.h"

#include "coll/lane/list.h"

enum {
    PACKED = 1 << 20, /* bytes of tensors that are packed together */
    LARGE = 256 << 10 /* bytes of one that is not packed */
};

/* Items [first, end) of one dtype. */
typedef struct batch {
    weft_i_list_item *items;
    size_t first, end;
    size_t bytes; /* of one part of all of them */
    weft_dtype dtype;
    bool packed;
} batch;

/* The next items that go together; `parts` of each are packed. */
static bool next_batch(const weft_i_list *list, size_t parts, batch *b)
{
    b->items = (weft_i_list_item *)(uintptr_t)list->items;
    b->first = b->end;
    if (b->first == list->count)
        return false;
    b->dtype = list->items[b->first].dtype;
    b->bytes = list->items[b->end++].bytes;
    while (b->bytes * parts < LARGE && b->end < list->count) {
        const weft_i_list_item *item = &list->items[b->end];
        if (item->dtype != b->dtype || item->bytes * parts >= LARGE ||
            (b->bytes + item->bytes) * parts > PACKED)
            break;
        b->bytes += item->bytes;
        b->end++;
    }
    b->packed = b->end - b->first > 1;
    return true;
}

/* Part `part` of the inputs to `room`. */
static void pack(const batch *b, size_t part, char *room)
{
    for (size_t i = b->first; i < b->end; i++) {
        const weft_i_list_item *item = &b->items[i];
        weft_i_coll_put(room, item->in + part * item->bytes, item->bytes);
        room += item->bytes;
    }
}

static void unpack(const batch *b, size_t part, const char *room)
{
    for (size_t i = b->first; i < b->end; i++) {
        const weft_i_list_item *item = &b->items[i];
        weft_i_coll_put(item->out + part * item->bytes, room, item->bytes);
        room += item->bytes;
    }
}

/* `scratch`: of the sums of one batch. */
static weft_status enter(weft_i_coll *coll, size_t scratch)
{
    if (scratch)
        WEFT_TRY(weft_i_ferry_make_room(coll, 0, scratch));
    WEFT_TRY(weft_i_ferry_make_room(coll, 1, PACKED));
    return weft_i_hosts_enter(coll, NULL, 0);
}

weft_status weft_i_hosts_list_all_reduce(weft_i_coll *coll)
{
    WEFT_TRY(enter(coll, weft_i_hosts_sum_room(coll)));
    char *room = coll->lane->ferry->room[1];
    for (batch b = {0}; next_batch(coll->list, 1, &b);) {
        const weft_i_list_item *item = &b.items[b.first];
        if (b.packed)
            pack(&b, 0, room);
        weft_i_hosts_sum sum = {.in = b.packed ? room : item->in,
                                .out = b.packed ? room : item->out,
                                .count = b.bytes / weft_i_dtype_size(b.dtype),
                                .dtype = b.dtype,
                                .op = (weft_i_fold_op)coll->ask.reduction,
                                .root = -1};
        WEFT_TRY(weft_i_hosts_fold(coll, &sum));
        if (b.packed)
            unpack(&b, 0, room);
    }
    return WEFT_OK;
}

weft_status weft_i_hosts_list_reduce_scatter(weft_i_coll *coll)
{
    WEFT_TRY(enter(coll, weft_i_hosts_parts_room(coll)));
    size_t size = (size_t)coll->lane->size, me = (size_t)coll->lane->me;
    char *room = coll->lane->ferry->room[1];
    for (batch b = {0}; next_batch(coll->list, size, &b);) {
        const weft_i_list_item *item = &b.items[b.first];
        for (size_t rank = 0; b.packed && rank < size; rank++)
            pack(&b, rank, room + rank * b.bytes);
        weft_i_hosts_parts parts = {.in = b.packed ? room : item->in,
                                    .stride = b.bytes,
                                    .out = b.packed ? room + me * b.bytes : item->out,
                                    .count = b.bytes / weft_i_dtype_size(b.dtype),
                                    .dtype = b.dtype,
                                    .op = (weft_i_fold_op)coll->ask.reduction};
        WEFT_TRY(weft_i_hosts_fold_parts(coll, &parts));
        if (b.packed)
            unpack(&b, 0, room + me * b.bytes);
    }
    return WEFT_OK;
}

weft_status weft_i_hosts_list_all_gather(weft_i_coll *coll)
{
    WEFT_TRY(enter(coll, 0));
    size_t size = (size_t)coll->lane->size, me = (size_t)coll->lane->me;
    char *room = coll->lane->ferry->room[1];
    for (batch b = {0}; next_batch(coll->list, size, &b);) {
        const weft_i_list_item *item = &b.items[b.first];
        char *out = b.packed ? room : item->out;
        if (b.packed)
            pack(&b, 0, room + me * b.bytes);
        else
            weft_i_coll_put(out + me * b.bytes, item->in, b.bytes);
        WEFT_TRY(weft_i_hosts_all_gather(coll, out, b.bytes, b.bytes));
        for (size_t rank = 0; b.packed && rank < size; rank++)
            unpack(&b, rank, room + rank * b.bytes);
    }
    return WEFT_OK;
}
