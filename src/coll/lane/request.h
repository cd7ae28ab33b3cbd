/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling a call from what the user gave.  Each function checks one thing and notes it in the call.
 * Nothing here changes the group, so a refused call leaves everything as it was.  An operand that
 * is still under way is waited for.  Streams of a device are not ordered here: whoever gives the
 * operands to a stream does that (weft_i_storage_touch, weft_i_carrier_touch).
 */
#ifndef WEFT_COLL_REQUEST_H
#define WEFT_COLL_REQUEST_H

#include "coll/lane/call.h"
#include "symm/reach.h"
#include "tensor/object/eye.h"

/* First: names the operation, checks the group. */
weft_status weft_i_request_begin(weft_i_coll *coll, weft_i_coll_kind kind, weft_group *group);

weft_status weft_i_request_refuse_group(const char *op, weft_group *group);

static inline weft_status weft_i_request_check_group(const char *op, weft_group *group)
{
    WEFT_TRY(weft_i_not_captured(op));
    bool fine = group && weft_i_group_is_usable(group) &&
                weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) != WEFT_I_REACH_NONE;
    return fine ? WEFT_OK : weft_i_request_refuse_group(op, group);
}

weft_status weft_i_request_refuse_root(const char *op, const weft_group *group, int root);

static inline weft_status weft_i_request_check_root(const char *op, const weft_group *group,
                                                    int root)
{
    bool fine = root >= 0 && root < group->size;
    return fine ? WEFT_OK : weft_i_request_refuse_root(op, group, root);
}

/* A contiguous tensor inside its storage, not on meta, on which nothing is under way? */
static inline bool weft_i_request_is_fine(const weft_tensor *x)
{
    const weft_storage *storage = x->storage;
    /* The claims: pairs with the release of whoever took the last one off, see
     * weft_i_storage_unclaimed. */
    return x->packed && x->end <= storage->bytes && storage->device != WEFT_META &&
           atomic_load_explicit(&storage->claims, memory_order_acquire) == NULL;
}

/* Finds out what is wrong with an operand, or waits for what is under way on it.  It may be
 * anywhere but on meta. */
weft_status weft_i_request_check_anywhere(const char *op, const char *which,
                                          const weft_tensor *tensor);
weft_status weft_i_request_check_output(const char *op, const weft_tensor *tensor);
weft_status weft_i_request_check_contiguous(const char *op, const char *which,
                                            const weft_tensor *tensor);

/* Checks an operand and notes where its elements lie; they are contiguous. */
weft_status weft_i_request_operand(weft_i_coll *coll, weft_tensor *x, bool written);

static inline weft_status weft_i_request_input(weft_i_coll *coll, weft_tensor *in)
{
    return weft_i_request_operand(coll, in, false);
}

static inline weft_status weft_i_request_output(weft_i_coll *coll, weft_tensor *out)
{
    return weft_i_request_operand(coll, out, true);
}

/* Input and output may share bytes only if byte `in_at` of one is byte `out_at` of the other. */
weft_status weft_i_request_check_overlap(const weft_i_coll *coll, size_t in_at, size_t out_at);

/* `larger` bytes are one part of `smaller` bytes for each rank. */
weft_status weft_i_request_check_counts(const weft_i_coll *coll, size_t larger, size_t smaller,
                                        const char *which);

/* The same of other calls; both numbers are bytes of whole elements. */
weft_status weft_i_request_check_total(const char *op, const char *which, size_t larger,
                                       size_t smaller, int size, weft_dtype dtype);

/* The operands, of one dtype, should have as many elements, but do not. */
weft_status weft_i_request_fail_unequal(const char *op, const weft_tensor *in,
                                        const weft_tensor *out);

/* After the operands: the dtype must be known.  The factor is weft_i_request_premul. */
weft_status weft_i_request_reduction(weft_i_coll *coll, weft_reduction op);

double weft_i_request_premul(void);
/* For a while; the old one. */
double weft_i_request_swap_premul(double factor);

/* The last step of every filling: what the ranks must agree on. */
weft_status weft_i_request_accept(weft_i_coll *coll, size_t part_bytes);

/* Bytes of one row: elements of dim 0; of a 1-d tensor an element. */
size_t weft_i_request_row_bytes(const weft_tensor *x);

#endif
