/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several tensors as one operand.  Their parts lie one after the other in an imagined packed
 * buffer, each from a multiple of 16 bytes on, so that no element lies across the border of a piece
 * or slice; what goes through the bounce buffer are pieces of that buffer.
 */
#ifndef WEFT_COLL_LIST_H
#define WEFT_COLL_LIST_H

#include "coll/lane/call.h"

typedef struct weft_i_list_item {
    weft_tensor *in_tensor, *out_tensor; /* held */
    char *in, *out;
    weft_dtype dtype;
    size_t item;             /* bytes of an element */
    size_t bytes, out_bytes; /* of one part; for all_to_all what goes to a rank, and what comes */
    size_t start;            /* in the packed buffer */
    weft_i_fold fold;
} weft_i_list_item;

struct weft_i_list {
    weft_i_object object;
    size_t count;
    size_t bytes;    /* of the packed buffer */
    uint32_t digest; /* of the digests of the calls that were added */
    weft_i_list_item items[];
};

/* An empty list with room for `room` items. */
weft_i_list *weft_i_list_new(size_t room);

/* Appends the operands of a filled call to the list of `coll`, which reduces as it does; all are on
 * one device. */
weft_status weft_i_list_add(weft_i_coll *coll, const weft_i_coll *one);

/* WEFT_ERR_INVALID_ARG if an output shares bytes with an operand of another item. */
weft_status weft_i_list_check_overlap(const weft_i_list *list, const char *op);

/* The last step of filling a call with a list. */
weft_status weft_i_list_accept(weft_i_coll *coll);

/* The algorithms: packed into pieces, one entry for all of them. */
weft_i_runner weft_i_list_all_reduce, weft_i_list_all_gather, weft_i_list_reduce_scatter;

#endif
