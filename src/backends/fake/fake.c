/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend fake: collectives of a rank without peers.  Nothing is communicated; a rank finds its own
 * input wherever another rank's would be, and a reduction folds nothing.
 */
#include "base/report/status.h"
#include "symm/backend.h"

#include <stdio.h>
#include <string.h>

static int probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "one rank that pretends to have peers (weft_fake_init)");
    return 1;
}

/* Copies, unless the bytes are where they belong already.  Empty operands may have no address. */
static void put(char *to, size_t to_at, const char *from, size_t from_at, size_t bytes)
{
    if (bytes && to + to_at != from + from_at)
        memmove(to + to_at, from + from_at, bytes);
}

/* The own input in every part; one of them may be the input itself. */
static void fill_parts(const weft_i_request *request, const weft_i_operands *item)
{
    for (int rank = 0; rank < request->size; rank++)
        put(item->out, (size_t)rank * item->in_bytes, item->in, 0, item->in_bytes);
}

/* This rank's part of the own input. */
static void take_part(const weft_i_request *request, const weft_i_operands *item)
{
    put(item->out, 0, item->in, (size_t)request->rank * item->out_bytes, item->out_bytes);
}

/* What would come from a rank is what goes to it; where more is expected, zeros. */
static void swap_parts(const weft_i_request *request, const weft_i_operands *item)
{
    size_t in_at = 0, out_at = 0;
    for (int rank = 0; rank < request->size; rank++) {
        size_t in_bytes = (size_t)request->in_splits[rank] * request->row;
        size_t out_bytes = (size_t)request->out_splits[rank] * request->row;
        size_t both = in_bytes < out_bytes ? in_bytes : out_bytes;
        put(item->out, out_at, item->in, in_at, both);
        if (out_bytes > both)
            memset(item->out + out_at + both, 0, out_bytes - both);
        in_at += in_bytes;
        out_at += out_bytes;
    }
}

/* The same where each rank has tensors of its own. */
static void swap_item(const weft_i_operands *item)
{
    size_t both = item->in_bytes < item->out_bytes ? item->in_bytes : item->out_bytes;
    put(item->out, 0, item->in, 0, both);
    if (item->out_bytes > both)
        memset(item->out + both, 0, item->out_bytes - both);
}

/* Each rank's part of a gather is the own input, cut short or filled up with zeros if it has
 * another size. */
static void fill_own_parts(const weft_i_request *request)
{
    const weft_i_operands *mine = &request->items[request->rank];
    for (size_t i = 0; i < request->items_count; i++) {
        weft_i_operands item = request->items[i];
        item.in = mine->in;
        item.in_bytes = mine->in_bytes;
        swap_item(&item);
    }
}

/* Those with an item for each rank. */
static bool pretend_parts(const weft_i_request *request)
{
    switch (request->kind) {
    case WEFT_I_GATHER_PARTS:
        if (request->rank != request->root)
            return true;
        /* fall through */
    case WEFT_I_ALL_GATHER_PARTS:
        fill_own_parts(request);
        return true;
    case WEFT_I_SCATTER_PARTS:
        if (request->rank != request->root)
            return true;
        /* fall through */
    case WEFT_I_REDUCE_SCATTER_PARTS:
        swap_item(&request->items[request->rank]);
        return true;
    default:
        return false;
    }
}

static void pretend(const weft_i_request *request, const weft_i_operands *item)
{
    bool root = request->rank == request->root;
    switch (weft_i_kinds[request->kind].as) { /* lists: item by item, as the plain kind */
    case WEFT_I_ALL_REDUCE:
        put(item->out, 0, item->in, 0, item->in_bytes);
        break;
    case WEFT_I_REDUCE:
        put(item->out, 0, item->in, 0, root ? item->in_bytes : 0);
        break;
    case WEFT_I_ALL_GATHER:
        fill_parts(request, item);
        break;
    case WEFT_I_GATHER:
        if (root)
            fill_parts(request, item);
        break;
    case WEFT_I_SCATTER:
        if (root)
            take_part(request, item);
        break;
    case WEFT_I_REDUCE_SCATTER:
        take_part(request, item);
        break;
    case WEFT_I_ALL_TO_ALL:
    case WEFT_I_ALL_TO_ALL_ND:
        if (request->in_splits)
            swap_parts(request, item);
        else
            swap_item(item);
        break;
    default: /* the others leave their operands as they are */
        break;
    }
}

static weft_status collective(void *carrier, const weft_i_request *request)
{
    (void)carrier;
    bool parts = pretend_parts(request);
    for (size_t i = 0; !parts && i < request->items_count; i++)
        pretend(request, &request->items[i]);
    return WEFT_OK;
}

static const weft_i_carry carry = {.collective = collective};

extern const weft_i_backend weft_i_backend_fake;
const weft_i_backend weft_i_backend_fake = {
    .name = "fake",
    .sharing = 0, /* nobody chooses it: a world of its own names it */
    .probe = probe,
    .carry = &carry,
};
