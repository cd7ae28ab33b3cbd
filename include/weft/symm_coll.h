/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on symmetric memory: collectives that say how they work, exchanges whose sizes lie in
 * memory, tiles, and one-sided transfers.  weft/coll.h chooses an algorithm by itself and is what
 * most programs want; these are for those who know better.
 *
 * All but the one-sided ones are collectives: every rank of the group calls the same one, with the
 * same dtype, count and place of the symmetric operand in its block (a view is fine); if not, all
 * get WEFT_ERR_MISMATCH. An operand that has not met in the group is rendezvoused at its first use,
 * which is collective as well.  WEFT_ERR_TYPE for ordinary memory where symmetric memory is needed.
 * Any number of ranks, any dtype, any reduction that has a meaning for it, any alignment.
 * Operands are contiguous unless said otherwise; reductions fold in rank order, and floats of 8
 * and 16 bits accumulate in float32 and are rounded once, so all ranks get the same bits.
 *
 * On CUDA devices the one_shot, two_shot, reduce_scatter and low_contention forms run on the current
 * stream.  The others are WEFT_ERR_UNSUPPORTED there.
 */
#ifndef WEFT_SYMM_COLL_H
#define WEFT_SYMM_COLL_H

#include "weft/coll.h"
#include "weft/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- every rank reads all of everybody's `x` ---- */

/* The result is a new tensor like `x`, or goes to `out`, which must not overlap `x`. */
WEFT_API weft_tensor *weft_symm_one_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                    weft_group *group);
WEFT_API weft_status weft_symm_one_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                       weft_reduction op, weft_group *group);

/* The same for ordinary memory: `local` is first copied to the start of `buffer`, which is
 * symmetric and not smaller. */
WEFT_API weft_tensor *weft_symm_one_shot_all_reduce_copy(weft_tensor *buffer, weft_tensor *local,
                                                         weft_reduction op, weft_group *group);
WEFT_API weft_status weft_symm_one_shot_all_reduce_copy_out(weft_tensor *out, weft_tensor *buffer,
                                                            weft_tensor *local, weft_reduction op,
                                                            weft_group *group);

/* ---- every rank reduces a slice for all ---- */

/* In place: each rank stores its slice into everybody's `x`. */
WEFT_API weft_status weft_symm_two_shot_all_reduce(weft_tensor *x, weft_reduction op,
                                                   weft_group *group);

/* Each rank stores its slice into its own `x`, then copies all slices to `out`.  `x` is changed: it
 * holds the result in the rank's own slice and what it held elsewhere.  On a device `x` stays as it
 * is, unless it is `out`. */
WEFT_API weft_status weft_symm_two_shot_all_reduce_out(weft_tensor *out, weft_tensor *x,
                                                       weft_reduction op, weft_group *group);

/*
 * Rank r gets part r: of all elements in their order, or (split_last_dim) of every row.  A part
 * must be whole vectors as wide as the place and size of `x` allow, at most 16 bytes:
 * WEFT_ERR_INVALID_ARG if `x` is not divisible so. weft_reduce_scatter_into takes any count.
 */
WEFT_API weft_status weft_symm_reduce_scatter_out(weft_tensor *out, weft_tensor *x,
                                                  bool split_last_dim, weft_reduction op,
                                                  weft_group *group);

/* ---- multicast ---- */

/*
 * On a device by its switch, which adds f32, bf16 and f16 in an order of its own: in place all ranks
 * get the same bits, in one shot they may differ in the last.  WEFT_ERR_UNSUPPORTED, on all ranks, if
 * the memory has no multicast (weft_symm_describe says why), or for what the switch cannot add.  CPUs
 * emulate it by reading from and writing to each rank in turn, and take every dtype and reduction.
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
/* `out` is the symmetric operand, of the shape of `x` with dim 0 times the size; `x` may be
 * anywhere. */
WEFT_API weft_status weft_symm_multimem_all_gather_out(weft_tensor *out, weft_tensor *x,
                                                       weft_group *group);

/* ---- low contention: return at once; the result is there when the work is done ---- */

/*
 * New tensors with dim 0 times (divided by) the size.  A symmetric `x` is read in place by the
 * others, an ordinary one goes through the group's bounce buffer; all ranks do alike.  `*work` is
 * for weft_work_wait; NULL on failure. `x` must not be written before the work is done.
 */
WEFT_API weft_tensor *weft_symm_low_contention_all_gather(weft_tensor *x, weft_group *group,
                                                          weft_work **work);
WEFT_API weft_tensor *weft_symm_low_contention_reduce_scatter(weft_tensor *x, weft_reduction op,
                                                              weft_group *group, weft_work **work);

/* ---- all_to_all with sizes in symmetric memory ---- */

/*
 * Splits are rows (of dim 0), written to int64 tensors by whoever knows them: no rank needs to know
 * what it will receive.  `in` and `in_splits` are symmetric.  `out_splits_offsets` [2, n] receives
 * how many rows came (row 0) and from which row of `out` on they lie (row 1).  Rows of `out`
 * between and after them are not touched. If splits are negative, or more than there are rows in
 * `in` or `out` of any rank, all ranks get WEFT_ERR_INVALID_ARG and nothing is written.
 *
 * vdev: in_splits [size], rows for each rank one after the other; `out` in order of ranks.
 */
WEFT_API weft_status weft_symm_all_to_all_vdev(weft_tensor *out, weft_tensor *out_splits_offsets,
                                               weft_tensor *in, weft_tensor *in_splits,
                                               weft_group *group);

/*
 * Each rank has n experts.  in_splits [size * n]: for rank 0 its experts 0 to n - 1, then for rank
 * 1, and so on.  `out` comes by experts, in each by source rank (entry e * size + source); each
 * expert takes a multiple of `major_align` (1 or more) rows, at least that many even if empty.
 */
WEFT_API weft_status weft_symm_all_to_all_vdev_2d(weft_tensor *out, weft_tensor *out_splits_offsets,
                                                  weft_tensor *in, weft_tensor *in_splits,
                                                  int64_t major_align, weft_group *group);

/* The way back: in_splits_offsets [2, n * size], as written by vdev_2d; `out` comes packed by
 * source rank, in each by expert (entry source * n + e). */
WEFT_API weft_status weft_symm_all_to_all_vdev_2d_offset(weft_tensor *out,
                                                         weft_tensor *out_splits_offsets,
                                                         weft_tensor *in,
                                                         weft_tensor *in_splits_offsets,
                                                         weft_group *group);

/* ---- tiles: 2-d, any strides ---- */

/* Reduces everybody's `in_tile` to the `out_tile` of `root`, of the same shape; NULL elsewhere.
 * `out_tile` is `in_tile` itself, or lies apart from it. */
WEFT_API weft_status weft_symm_tile_reduce(weft_tensor *out_tile, weft_tensor *in_tile,
                                           weft_reduction op, int root, weft_group *group);

/* Tile i goes to rank roots[i]; a rank is root of at most one.  Ranks that are root of none give a
 * NULL `out_tile`. */
WEFT_API weft_status weft_symm_multi_root_tile_reduce(weft_tensor *out_tile,
                                                      weft_tensor *const *in_tiles,
                                                      const int *roots, int count,
                                                      weft_reduction op, weft_group *group);

/* ---- one-sided: `peer` need not call anything ---- */

/*
 * Copies between a contiguous tensor and the memory of `peer` that corresponds to the handle's
 * tensor, from `offset` elements (of the copied tensor's dtype) on.  Nothing orders it with what
 * the peer does: bracket it with barriers or signals.
 */
WEFT_API weft_status weft_symm_put(weft_symm *mem, int peer, weft_tensor *from, int64_t offset);
WEFT_API weft_status weft_symm_get(weft_tensor *to, weft_symm *mem, int peer, int64_t offset);

/* Puts, then signals `peer` on the channel: who has waited for the signal sees the data.  If the
 * signal fails (WEFT_ERR_TIMEOUT: the last one is not taken) the data has been written. */
WEFT_API weft_status weft_symm_put_with_signal(weft_symm *mem, int peer, weft_tensor *from,
                                               int64_t offset, int channel, int64_t timeout_ms);
WEFT_API weft_status weft_symm_wait_for_signal(weft_symm *mem, int peer, int channel,
                                               int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
