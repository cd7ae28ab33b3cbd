/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functional collectives.  They never change their inputs.  They return fresh contiguous tensors,
 * and they return at once.  The first use of a result waits for it, in any thread: an operation,
 * reading an element, asking for its memory, printing it.  Asking for its shape or taking a view
 * does not wait.  If the operation failed, every use of the result returns its error.
 *
 *     weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, world);
 *     ... compute something else ...
 *     weft_tensor *y = weft_add(sum, b);                        // waits here
 *
 * All ranks of the group make the same calls in the same order.  Results belong to the current
 * scope of the rank.  Operands may have any layout and dtype, and may have no elements or no
 * dimensions.  You may write to `x` after the call: the write waits if it has to.  Writing through
 * a pointer taken before the call does not wait, so leave that memory alone until the result has
 * been waited for.  Ranks are ranks of the group.
 *
 * On meta tensors the same calls give shape, dtype, strides and errors, and nothing is sent.  A
 * stand-in for the group is enough (weft_group_stand_in).
 *
 * All return NULL on failure (the list forms return a status), and also if an input is NULL.
 */
#ifndef WEFT_FUNCTIONAL_H
#define WEFT_FUNCTIONAL_H

#include "weft/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reduction of the `x` of all ranks.  Shape and bits are the same on all ranks. */
WEFT_API weft_tensor *weft_all_reduce(weft_tensor *x, weft_reduction op, weft_group *group);

/* The `x` of all ranks, concatenated along `dim` in rank order.  Tensors without dimensions give a
 * vector. */
WEFT_API weft_tensor *weft_all_gather_tensor(weft_tensor *x, int dim, weft_group *group);

/* This rank's part of the reduction, cut along `dim`.  The number of ranks must divide the size of
 * that dimension. */
WEFT_API weft_tensor *weft_reduce_scatter_tensor(weft_tensor *x, weft_reduction op, int dim,
                                                 weft_group *group);

/*
 * Exchanges rows (entries of dimension 0): in_splits[q] rows go to rank q, and out_splits[q] rows
 * come from rank q, in rank order.  Both have one entry per rank.  If both are NULL, the parts are
 * equal.  If the splits of two ranks contradict each other, all ranks get WEFT_ERR_MISMATCH.
 */
WEFT_API weft_tensor *weft_all_to_all_single(weft_tensor *x, const int64_t *out_splits,
                                             const int64_t *in_splits, weft_group *group);

/* The `x` of rank `src`, on all ranks.  The others' `x` gives only shape and dtype. */
WEFT_API weft_tensor *weft_broadcast(weft_tensor *x, int src, weft_group *group);

/* The `x` of rank m goes to rank src_dst[m].  `src_dst` is a permutation of the ranks. */
WEFT_API weft_tensor *weft_permute_tensor(weft_tensor *x, const int *src_dst, weft_group *group);

/*
 * Waits for `x` and returns it.  If there is nothing to wait for, returns at once.  If the
 * operation failed, returns NULL with its error.  After that the tensor may be used again, but its
 * content is undefined.
 */
WEFT_API weft_tensor *weft_wait_tensor(weft_tensor *x);

/* The same for `count` tensors, at least 1: waits for all of them.  out[i] becomes in[i]; if one has
 * failed, all become NULL, and the error is that of the first such tensor. */
WEFT_API weft_status weft_wait_tensors(weft_tensor **out, weft_tensor *const *in, int count);

/*
 * Several tensors in one operation.  `in` has `count` tensors, at least 1.  `out` gets as many
 * results, all or none.
 */
WEFT_API weft_status weft_all_reduce_coalesced(weft_tensor **out, weft_tensor *const *in, int count,
                                               weft_reduction op, weft_group *group);
/* Along dimension 0. */
WEFT_API weft_status weft_all_gather_into_tensor_coalesced(weft_tensor **out,
                                                           weft_tensor *const *in, int count,
                                                           weft_group *group);
/* Tensor i is cut along dimension dims[i]; if `dims` is NULL, all are cut along dimension 0. */
WEFT_API weft_status weft_reduce_scatter_tensor_coalesced(weft_tensor **out, weft_tensor *const *in,
                                                          int count, weft_reduction op,
                                                          const int *dims, weft_group *group);
/* in[q] goes to rank q, and out[q] comes from rank q.  out[q] has the shape shapes[q], or that of
 * in[q] if `shapes` is NULL. */
WEFT_API weft_status weft_all_to_all(weft_tensor **out, weft_tensor *const *in,
                                     const weft_shape *shapes, weft_group *group);

/*
 * In place, or into the caller's tensor.  These are asynchronous like the others; the tensor that
 * is written is the result.  They return `x` or `out`.
 */
WEFT_API weft_tensor *weft_all_reduce_(weft_tensor *x, weft_reduction op, weft_group *group);
WEFT_API weft_tensor *weft_broadcast_(weft_tensor *x, int src, weft_group *group);
WEFT_API weft_status weft_all_reduce_coalesced_(weft_tensor *const *x, int count, weft_reduction op,
                                                weft_group *group);
WEFT_API weft_tensor *weft_all_gather_into_tensor_out(weft_tensor *out, weft_tensor *x, int dim,
                                                      weft_group *group);
WEFT_API weft_tensor *weft_reduce_scatter_tensor_out(weft_tensor *out, weft_tensor *x,
                                                     weft_reduction op, int dim, weft_group *group);

/* Returns how many results of this rank, in all its groups, have not been waited for yet.  Does not
 * wait. */
WEFT_API int weft_unwaited(const weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
