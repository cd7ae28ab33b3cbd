/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives.  All ranks of a group call the same one with the same shapes; each takes any dtype,
 * any count (0 too), any alignment.  Operands may lie anywhere; in symmetric memory (weft/symm.h)
 * that was rendezvoused in the group they are used in place, without a copy.  Results have
 * identical bits on all ranks: reductions fold in rank order, and floats of 8 and 16 bits
 * accumulate in float32 and are rounded once.
 *
 * `_into` functions block and write to the caller's tensors; an output may be its input itself (in
 * place), but must not overlap it otherwise.  `_start` functions post the same operation and return
 * work to wait for (weft/work.h). Every call carries its order, kind, shape and dtype to the other
 * ranks: if they differ, all get WEFT_ERR_MISMATCH. All block for the group's time limit at most.
 * Operands must be contiguous.
 *
 * The first operation of a group makes what all of them share: that one, also if it is posted, a
 * send or a receive (weft/p2p.h), waits until every rank of the group has called its first.
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
    WEFT_AVG, /* the sum divided by the number of ranks; integers are cut towards zero */
    WEFT_PRODUCT,
    WEFT_MIN, /* NaN wins in MIN and MAX */
    WEFT_MAX,
    WEFT_BAND, /* bits: integers and bool */
    WEFT_BOR,
    WEFT_BXOR,
    WEFT_PREMUL_SUM, /* each rank's input is multiplied by its factor first: weft_set_premul */
    WEFT_REDUCTIONS  /* how many there are */
} weft_reduction;

WEFT_API const char *weft_reduction_name(weft_reduction reduction); /* "sum" */

/* The factor of this rank for WEFT_PREMUL_SUM in calls of this thread from now on; 1 at first.
 * Floats only. */
WEFT_API void weft_set_premul(double factor);

/* Every rank gets the reduction of all inputs.  out and in: same dtype and count. */
WEFT_API weft_status weft_all_reduce_into(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                          weft_group *group);

/* The same, at `root` only; `out` may be NULL elsewhere. */
WEFT_API weft_status weft_reduce_into(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                      int root, weft_group *group);

/* `x` of `root` becomes everybody's. */
WEFT_API weft_status weft_broadcast_into(weft_tensor *x, int root, weft_group *group);

/* out = the inputs of all ranks one after the other: count of `out` is the count of `in` times the
 * size. */
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
 * Part q of `in` goes to rank q; part q of `out` comes from rank q.  Splits count rows (elements of
 * dim 0; elements of 1-d tensors); NULL means equal parts.
 */
WEFT_API weft_status weft_all_to_all_into(weft_tensor *out, weft_tensor *in,
                                          const int64_t *out_splits, const int64_t *in_splits,
                                          weft_group *group);

/* The list form: in[q] goes to rank q, out[q] comes from rank q; counts may differ, dtypes may not.
 */
WEFT_API weft_status weft_all_to_all_list_into(weft_tensor *const *out, weft_tensor *const *in,
                                               weft_group *group);

/* Several tensors as one operation: item by item as the plain forms, but one entry and one check
 * for the list.  Dtypes may be mixed; no output may overlap an operand of another item. */
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
