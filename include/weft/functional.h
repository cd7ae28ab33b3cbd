/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functional collectives: they never change their inputs, return fresh contiguous tensors, and
 * return at once.  Whatever uses the result first waits for it, in any thread: an operation, reading
 * an element, asking for its memory, printing it.  Asking about its shape does not wait, and taking
 * a view does not either.  If the operation failed, every use of the result returns its error.
 *
 *     weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, world);
 *     ... compute something else ...
 *     weft_tensor *y = weft_add(sum, b);                        // waits here
 *
 * All ranks of the group make the same calls in the same order.  A rank's results belong to its
 * current scope.  Operands may have any layout and dtype, and no elements or dimensions at all.  `x`
 * may be written after the call, because the write waits if it must.  Writing through a pointer
 * that was taken before the call does not wait: leave that memory alone until somebody has waited
 * for the result.  Ranks are ranks of the group.
 *
 * On meta tensors the same calls give shape, dtype, strides and errors, and nothing is sent; a
 * stand-in for the group will do (weft_group_stand_in).
 *
 * All return NULL (the list forms a status) on failure and pass NULL through.
 */
#ifndef WEFT_FUNCTIONAL_H
#define WEFT_FUNCTIONAL_H

#include "weft/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reduction of everybody's x: same shape, same bits on all ranks. */
WEFT_API weft_tensor *weft_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group);

/* Everybody's x one after the other along `dim`, in rank order.  One element each makes a vector.
 */
WEFT_API weft_tensor *weft_all_gather_tensor(weft_tensor *x, int dim, weft_group *group);

/* This rank's part of the reduction along `dim`, whose size the ranks must divide. */
WEFT_API weft_tensor *weft_reduce_scatter_tensor(weft_tensor *x, weft_reduction op, int dim,
                                                 weft_group *group);

/*
 * Rows of dimension 0: in_splits[q] of them go to rank q, out_splits[q] come from rank q, in rank
 * order.  Both have one entry a rank; both NULL: equal parts.  Ranks whose splits contradict each
 * other all get WEFT_ERR_MISMATCH.
 */
WEFT_API weft_tensor *weft_all_to_all_single(weft_tensor *x, const int64_t *out_splits,
                                             const int64_t *in_splits, weft_group *group);

/* x of rank `src`, on all ranks.  Of what the others pass, only shape and dtype matter. */
WEFT_API weft_tensor *weft_broadcast(weft_tensor *x, int src, weft_group *group);

/* Rank m's x goes to rank src_dst[m]; `src_dst` is a permutation of the ranks. */
WEFT_API weft_tensor *weft_permute_tensor(weft_tensor *x, const int *src_dst, weft_group *group);

/*
 * Waits and returns x itself, at once if there is nothing to wait for.  If the operation failed,
 * returns NULL with its error.  After that the tensor may be used again; its content is undefined.
 */
WEFT_API weft_tensor *weft_wait_tensor(weft_tensor *x);

/*
 * Several tensors as one operation.  `count` (at least 1) of `in`; `out` gets as many results, all
 * or none.
 */
WEFT_API weft_status weft_all_reduce_coalesced(weft_tensor **out, weft_tensor *const *in, int count,
                                               weft_reduction op, weft_group *group);
/* Along dimension 0. */
WEFT_API weft_status weft_all_gather_into_tensor_coalesced(weft_tensor **out,
                                                           weft_tensor *const *in, int count,
                                                           weft_group *group);
/* Tensor i along dimension dims[i]; NULL: all along dimension 0. */
WEFT_API weft_status weft_reduce_scatter_tensor_coalesced(weft_tensor **out, weft_tensor *const *in,
                                                          int count, weft_reduction op,
                                                          const int *dims, weft_group *group);
/* in[q] goes to rank q; out[q], of shape shapes[q] (NULL: that of in[q]), comes from rank q. */
WEFT_API weft_status weft_all_to_all(weft_tensor **out, weft_tensor *const *in,
                                     const weft_shape *shapes, weft_group *group);

/*
 * In place, and to a tensor of the caller: asynchronous as the others, the tensor counts as the
 * result.  Return x, or out.
 */
WEFT_API weft_tensor *weft_all_reduce_(weft_tensor *x, weft_reduction op, weft_group *group);
WEFT_API weft_tensor *weft_broadcast_(weft_tensor *x, int src, weft_group *group);
WEFT_API weft_status weft_all_reduce_coalesced_(weft_tensor *const *x, int count, weft_reduction op,
                                                weft_group *group);
WEFT_API weft_tensor *weft_all_gather_into_tensor_out(weft_tensor *out, weft_tensor *x, int dim,
                                                      weft_group *group);
WEFT_API weft_tensor *weft_reduce_scatter_tensor_out(weft_tensor *out, weft_tensor *x,
                                                     weft_reduction op, int dim, weft_group *group);

/* How many results of this rank, in all its groups, nobody has waited for yet.  Does not wait. */
WEFT_API int weft_unwaited(const weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
