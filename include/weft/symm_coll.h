/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on symmetric memory: collectives with a fixed algorithm, exchanges whose sizes are in
 * memory, tiles, and one-sided transfers.  Most programs want weft/coll.h, which chooses the
 * algorithm itself.
 *
 * All except the one-sided ones are collectives.  Every rank of the group calls the same one, with
 * the same dtype, count and position of the symmetric operand in its block (a view is fine);
 * otherwise all ranks get WEFT_ERR_MISMATCH.  The first use of an operand in a group performs its
 * rendezvous, which is collective too.  WEFT_ERR_TYPE for ordinary memory where symmetric memory is
 * needed.  Any number of ranks, any dtype, any reduction that is defined for the dtype, and any
 * alignment will do.  Operands are contiguous unless stated otherwise.  Reductions fold in rank
 * order.  Floats of 8 and 16 bits accumulate in float32 and are rounded once, so all ranks get the
 * same bits.
 *
 * On CUDA devices all of them run on the current stream.  The multimem forms need multicast memory
 * there, and are WEFT_ERR_UNSUPPORTED with the reason where the memory has none.
 */
#ifndef WEFT_SYMM_COLL_H
#define WEFT_SYMM_COLL_H

#include "weft/coll.h"
#include "weft/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- every rank reads the `x` of all ranks, whole ---- */

/* The result is a new tensor like `x`, or it is written to `out`, which must not overlap `x`. */
WEFT_API weft_tensor *weft_symm_one_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                    weft_group *group);
WEFT_API weft_status weft_symm_one_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                       weft_reduction op, weft_group *group);

/* The same for ordinary memory: `local` is first copied to the start of `buffer`, which is
 * symmetric and at least as large. */
WEFT_API weft_tensor *weft_symm_one_shot_all_reduce_copy(weft_tensor *buffer, weft_tensor *local,
                                                         weft_reduction op, weft_group *group);
WEFT_API weft_status weft_symm_one_shot_all_reduce_copy_out(weft_tensor *out, weft_tensor *buffer,
                                                            weft_tensor *local, weft_reduction op,
                                                            weft_group *group);

/* ---- every rank reduces a slice for all ---- */

/* In place: each rank stores its slice into the `x` of all ranks. */
WEFT_API weft_status weft_symm_two_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                   weft_group *group);

/* Each rank stores its slice into its own `x`, then copies all slices to `out`.  This changes `x`:
 * the rank's own slice holds the result, the rest is as before.  On a device `x` is unchanged,
 * unless it is `out`. */
WEFT_API weft_status weft_symm_two_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                       weft_reduction op, weft_group *group);

/*
 * Rank r gets part r of all elements in their order or, with split_last_dim, part r of every row.
 * A part must consist of whole vectors, which are as wide as the position and size of `x` allow, at
 * most 16 bytes.  WEFT_ERR_INVALID_ARG if `x` cannot be divided so; weft_reduce_scatter_into takes
 * any count.
 */
WEFT_API weft_status weft_symm_reduce_scatter_out(weft_tensor *out, weft_tensor *x,
                                                  bool split_last_dim, weft_reduction op,
                                                  weft_group *group);

/* ---- blocks of one dimension ---- */

/*
 * Dimension `dim` of the contiguous `x` is cut into `blocks` blocks; block i ends before ends[i].  Each
 * is reduced to the rank owners[i], or, if `owners` is NULL, to rank i modulo the size of the group.
 * `out` has a contiguous result for each block of this rank, in their order.  `x` stays as it is.  All
 * ranks give the same blocks and owners.
 */
WEFT_API weft_status weft_symm_reduce_scatter_offset(weft_tensor *const *out, int outs,
                                                     weft_tensor *x, int dim, const int64_t *ends,
                                                     const int *owners, int blocks,
                                                     weft_reduction op, weft_group *group);

/*
 * Block j of dimension `scatter_dim` of `x` goes to rank j; block j of dimension `gather_dim` of `out`
 * is rank j's.  Both are contiguous, of up to 7 dimensions, and may be ordinary memory.
 */
WEFT_API weft_status weft_symm_all_to_all_nd(weft_tensor *out, weft_tensor *x, int scatter_dim,
                                             int gather_dim, weft_group *group);

/* ---- multicast ---- */

/*
 * On a device, the switch does these.  It adds f32, bf16 and f16 in its own order: in place, all
 * ranks get the same bits; in one shot, the last bit may differ.  Untested on hardware: until it has
 * run on several GPUs (scripts/gpu-check peers), it is known from a software driver alone.  WEFT_ERR_UNSUPPORTED on all ranks
 * if the memory has no multicast (weft_symm_describe says why), or if the switch cannot do the
 * reduction.  CPUs emulate multicast by reading from and writing to each rank in turn, and support
 * every dtype and reduction.
 */

WEFT_API weft_status weft_symm_multimem_all_reduce(weft_tensor *x, weft_reduction op,
                                                   weft_group *group); /* in place */
WEFT_API weft_tensor *weft_symm_multimem_one_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                             weft_group *group);
WEFT_API weft_status weft_symm_multimem_one_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                                weft_reduction op,
                                                                weft_group *group);
/* At `root` only; `out` may be NULL elsewhere. */
WEFT_API weft_status weft_symm_multimem_one_shot_reduce_out(weft_tensor *out, weft_tensor *x,
                                                            weft_reduction op, int root,
                                                            weft_group *group);
/* `out` is the symmetric operand.  It has the shape of `x`, with dimension 0 multiplied by the
 * number of ranks.  `x` may be any memory. */
WEFT_API weft_status weft_symm_multimem_all_gather_out(weft_tensor *out, weft_tensor *x,
                                                       weft_group *group);

/* ---- low contention: return at once; the result is there when the work is done ---- */

/*
 * The result is a new tensor, with dimension 0 multiplied (all_gather) or divided (reduce_scatter)
 * by the number of ranks.  The others read a symmetric `x` in place; an ordinary one goes through
 * the group's bounce buffer.  All ranks must do the same.  `*work` is for weft_work_wait, and is
 * NULL on failure.  Do not write `x` before the work is done.
 */
WEFT_API weft_tensor *weft_symm_low_contention_all_gather(weft_tensor *x, weft_group *group,
                                                          weft_work **work);
WEFT_API weft_tensor *weft_symm_low_contention_reduce_scatter(weft_tensor *x, weft_reduction op,
                                                              weft_group *group, weft_work **work);

/* ---- all_to_all with sizes in symmetric memory ---- */

/*
 * Splits count rows (entries of dimension 0) in int64 tensors, so no rank needs to know in advance
 * what it will receive.  `in` and `in_splits` are symmetric.  `out_splits_offsets` [2, n] receives
 * the number of rows that came (row 0) and where in `out` they start (row 1).  Rows of `out`
 * between and after them are not touched.  If a split is negative, or exceeds the rows of `in` or
 * `out` on any rank, all ranks get WEFT_ERR_INVALID_ARG and nothing is written.
 *
 * vdev: in_splits [size] gives the rows for each rank, one after the other.  `out` is in rank
 * order.
 */
WEFT_API weft_status weft_symm_all_to_all_vdev(weft_tensor *out, weft_tensor *out_splits_offsets,
                                               weft_tensor *in, weft_tensor *in_splits,
                                               weft_group *group);

/*
 * Each rank has n experts.  in_splits [size * n] lists experts 0 to n - 1 of rank 0, then those of
 * rank 1, and so on.  `out` is ordered by expert and, within an expert, by source rank (entry e *
 * size + source).  The rows of each expert are padded to a multiple of `major_align` (1 or more),
 * and to at least that many even if there are none.
 */
WEFT_API weft_status weft_symm_all_to_all_vdev_2d(weft_tensor *out, weft_tensor *out_splits_offsets,
                                                  weft_tensor *in, weft_tensor *in_splits,
                                                  int64_t major_align, weft_group *group);

/* The reverse: in_splits_offsets [2, n * size] is what vdev_2d has written.  `out` is packed by
 * source rank and, within it, by expert (entry source * n + e). */
WEFT_API weft_status weft_symm_all_to_all_vdev_2d_offset(weft_tensor *out,
                                                         weft_tensor *out_splits_offsets,
                                                         weft_tensor *in,
                                                         weft_tensor *in_splits_offsets,
                                                         weft_group *group);

/* ---- tiles: 2-d, any strides ---- */

/* Reduces the `in_tile` of all ranks into the `out_tile` of `root`, which has the same shape.  On
 * other ranks `out_tile` is NULL.  `out_tile` is `in_tile` itself, or does not overlap it. */
WEFT_API weft_status weft_symm_tile_reduce(weft_tensor *out_tile, weft_tensor *in_tile,
                                           weft_reduction op, int root, weft_group *group);

/* Tile i is reduced to rank roots[i].  A rank is the root of at most one tile; a rank that is the
 * root of none passes NULL as `out_tile`. */
WEFT_API weft_status weft_symm_multi_root_tile_reduce(weft_tensor *out_tile,
                                                      weft_tensor *const *in_tiles,
                                                      const int *roots, int count,
                                                      weft_reduction op, weft_group *group);

/* ---- one-sided: `peer` need not call anything ---- */

/*
 * Copies between a contiguous tensor and the memory of `peer` that corresponds to the handle's
 * tensor, starting at `offset` (in elements of the copied tensor's dtype).  Nothing orders the copy
 * with what the peer does, so put barriers or signals around it.  A put has returned when the tensor may
 * be written again; to a peer on another host it may still be on its way.
 */
WEFT_API weft_status weft_symm_put(weft_symm *mem, int peer, weft_tensor *from, int64_t offset);
WEFT_API weft_status weft_symm_get(weft_tensor *to, weft_symm *mem, int peer, int64_t offset);

/* Puts, then signals `peer` on the channel.  A rank that has waited for the signal sees the data.
 * If only the signal fails (WEFT_ERR_TIMEOUT: the previous one has not been taken), the data has
 * been written. */
WEFT_API weft_status weft_symm_put_with_signal(weft_symm *mem, int peer, weft_tensor *from,
                                               int64_t offset, int channel, int64_t timeout_ms);

/* weft_symm_wait_signal, by the name that PyTorch gives the other end of put_with_signal. */
static inline weft_status weft_symm_wait_for_signal(weft_symm *mem, int peer, int channel,
                                                    int64_t timeout_ms)
{
    return weft_symm_wait_signal(mem, peer, channel, timeout_ms);
}

#ifdef __cplusplus
}
#endif

#endif
