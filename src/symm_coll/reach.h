/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reaches: where the counterparts of a symmetric operand lie on all ranks.  The registration and
 * the offset in it are part of the call's digest, so that after the entry the counterpart on every rank
 * is known to be at the same place.
 */
#ifndef WEFT_SYMM_COLL_REACH_H
#define WEFT_SYMM_COLL_REACH_H

#include "coll/lane/call.h"

/* WEFT_ERR_TYPE unless the operand is symmetric memory. */
weft_status weft_i_reach_check(const char *op, const char *which, const weft_tensor *x);

/*
 * All ranks agree, on the lane, that they are about to meet for this call: ranks that call something
 * else, or whose operand has met already, are a mismatch instead of a long wait.
 */
weft_status weft_i_reach_agree(const weft_tensor *x, weft_i_coll_kind kind, uint32_t digest,
                               weft_group *group);

/*
 * The reach of a checked operand; adds it to the digest of the filled call.  Meets the other ranks
 * if the operand has not met in the group yet: the last step before the call runs.
 */
weft_status weft_i_reach_open(weft_i_coll *coll, weft_tensor *x, weft_i_reach *out);
void weft_i_reach_close(weft_i_reach *reach);

/* Opens the reach of `x`, runs the filled call with it, closes it. */
weft_status weft_i_reach_run(weft_i_coll *coll, weft_tensor *x);

/* Byte `at` of the counterpart of `rank`. */
static inline char *weft_i_reach_of(const weft_i_reach *reach, int rank, size_t at)
{
    return reach->registration->blocks[rank]->base + reach->offset + at;
}

/* Points lane->sources at byte `at` of the counterpart on every rank. */
static inline void weft_i_reach_aim(const weft_i_coll *coll, const weft_i_reach *reach, size_t at)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] = weft_i_reach_of(reach, rank, at);
}

/* Do two ranges of bytes share any? */
static inline bool weft_i_reach_overlap(const char *a, size_t a_bytes, const char *b,
                                        size_t b_bytes)
{
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

#endif
