/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives.  All ranks of a group call the same collective with the same shapes.  The operands
 * are contiguous tensors of any dtype, number of elements (zero included) and alignment.
 * Symmetric memory (weft/symm.h) that has met in the group is used in place, without a copy, from
 * the size on where that is faster (512 B to 64 KiB, by kind and ranks; `weft info --algo`).
 *
 * All ranks get the same bits.  Reductions fold the inputs in the order of the ranks.  Floats of 8
 * and 16 bits accumulate in float32 and are rounded once.
 *
 * An `_into` function writes to the caller's tensors and returns when it is done, or after the
 * group's time limit.  The output may be the input itself (in place).  Otherwise the two must not
 * overlap.  A `_start` function posts the same operation and returns work to wait for
 * (weft/work.h).
 *
 * Each rank shows the others what it calls: the number of calls before this one, the kind, the
 * shape and the dtype.  If the ranks call different things, all of them get WEFT_ERR_MISMATCH.
 * A rank that does not wait, such as the root of a small broadcast, learns of the mismatch later: at
 * its next collective that waits, at the next weft_group_barrier, or after 16 calls.  It learns of a
 * death within 2 (n - 1) such calls in a group of n ranks, or after 16.  weft_finish compares no calls.
 *
 * The first operation of a group sets up the memory that later ones use.  It waits until every rank
 * has begun its first operation in the group.  This also holds for a posted operation, and for a
 * send or a receive (weft/p2p.h).
 */
#ifndef WEFT_COLL_H
#define WEFT_COLL_H

#include "weft/group.h"
#include "weft/tensor.h"
#include "weft/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_reduction {
    WEFT_SUM,
    WEFT_AVG, /* the sum divided by the number of ranks; integers are rounded towards zero */
    WEFT_PRODUCT,
    WEFT_MIN, /* NaN wins in MIN and MAX */
    WEFT_MAX,
    WEFT_BAND, /* bitwise, for integers and bool */
    WEFT_BOR,
    WEFT_BXOR,
    WEFT_PREMUL_SUM, /* each rank first multiplies its input by a factor: weft_set_premul */
    WEFT_REDUCTIONS  /* how many there are */
} weft_reduction;

WEFT_API const char *weft_reduction_name(weft_reduction reduction); /* "sum" */

/* Sets the factor by which this rank multiplies its input for WEFT_PREMUL_SUM.  It holds for later
 * calls of this thread.  A thread starts with 1.  Only floats have this reduction. */
WEFT_API void weft_set_premul(double factor);

/* Every rank gets the reduction of all inputs.  `out` and `in` have the same dtype and count. */
WEFT_API weft_status weft_all_reduce_into(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                          weft_group *group);

/* Only `root` gets the reduction.  On other ranks `out` may be NULL. */
WEFT_API weft_status weft_reduce_into(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                      int root, weft_group *group);

/* Copies `x` of `root` to `x` of all other ranks: to where it is, so it takes one tensor. */
WEFT_API weft_status weft_broadcast_in_place(weft_tensor *x, int root, weft_group *group);

/* Puts the inputs of all ranks one after the other into `out`, which has the count of `in` times
 * the number of ranks.  weft_gather_into does so on `root` only. */
WEFT_API weft_status weft_all_gather_into(weft_tensor *out, weft_tensor *in, weft_group *group);
WEFT_API weft_status weft_gather_into(weft_tensor *out, weft_tensor *in, int root,
                                      weft_group *group);

/* Rank r gets part r of root's `in`. */
WEFT_API weft_status weft_scatter_into(weft_tensor *out, weft_tensor *in, int root,
                                       weft_group *group);

/* Rank r gets part r of the reduction of all inputs. */
WEFT_API weft_status weft_reduce_scatter_into(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                              weft_group *group);

/*
 * Part q of `in` goes to rank q, and part q of `out` comes from rank q.  Splits say how many rows
 * (entries of dimension 0) each part has.  Without splits, both NULL, the parts are equal.
 */
WEFT_API weft_status weft_all_to_all_into(weft_tensor *out, weft_tensor *in,
                                          const int64_t *out_splits, const int64_t *in_splits,
                                          weft_group *group);

/* The same with a tensor for each part: in[q] goes to rank q, and out[q] comes from rank q.  Their
 * counts may differ, their dtypes may not. */
WEFT_API weft_status weft_all_to_all_list_into(weft_tensor *const *out, weft_tensor *const *in,
                                               weft_group *group);

/* Several tensors in one operation.  Each item works as in the plain form, but the ranks meet once
 * for the whole list.  Dtypes may be mixed.  No output may overlap an operand of another item. */
WEFT_API weft_status weft_all_reduce_list_into(weft_tensor *const *out, weft_tensor *const *in,
                                               int count, weft_reduction op, weft_group *group);
WEFT_API weft_status weft_all_gather_list_into(weft_tensor *const *out, weft_tensor *const *in,
                                               int count, weft_group *group);
WEFT_API weft_status weft_reduce_scatter_list_into(weft_tensor *const *out, weft_tensor *const *in,
                                                   int count, weft_reduction op, weft_group *group);

/* ---- the same, posted ---- */

WEFT_API weft_work *weft_all_reduce_start(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                          weft_group *group);
WEFT_API weft_work *weft_reduce_start(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                      int root, weft_group *group);
WEFT_API weft_work *weft_broadcast_start(weft_tensor *x, int root, weft_group *group);
WEFT_API weft_work *weft_all_gather_start(weft_tensor *out, weft_tensor *in, weft_group *group);
WEFT_API weft_work *weft_gather_start(weft_tensor *out, weft_tensor *in, int root,
                                      weft_group *group);
WEFT_API weft_work *weft_scatter_start(weft_tensor *out, weft_tensor *in, int root,
                                       weft_group *group);
WEFT_API weft_work *weft_reduce_scatter_start(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                              weft_group *group);
WEFT_API weft_work *weft_all_to_all_start(weft_tensor *out, weft_tensor *in,
                                          const int64_t *out_splits, const int64_t *in_splits,
                                          weft_group *group);
WEFT_API weft_work *weft_all_to_all_list_start(weft_tensor *const *out, weft_tensor *const *in,
                                               weft_group *group);
WEFT_API weft_work *weft_all_reduce_list_start(weft_tensor *const *out, weft_tensor *const *in,
                                               int count, weft_reduction op, weft_group *group);
WEFT_API weft_work *weft_all_gather_list_start(weft_tensor *const *out, weft_tensor *const *in,
                                               int count, weft_group *group);
WEFT_API weft_work *weft_reduce_scatter_list_start(weft_tensor *const *out, weft_tensor *const *in,
                                                   int count, weft_reduction op, weft_group *group);
WEFT_API weft_work *weft_barrier_start(weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
