/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives whose parts are separate tensors.  A list has one tensor for each rank of the group,
 * in rank order.  Counts may differ between parts, dtypes may not.  As in weft/coll.h, `_into`
 * blocks and `_start` posts.  A part may be this rank's other operand itself (in place); otherwise
 * operands must not overlap.  If a rank sends a different count than the receiver expects, all
 * ranks get WEFT_ERR_MISMATCH, and the message names both.
 *
 * (weft_all_gather_list_into and similar functions in weft/coll.h are different: they combine
 * several operations into one.)
 */
#ifndef WEFT_PARTS_H
#define WEFT_PARTS_H

#include "weft/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[r] = the input of rank r, on all ranks. */
WEFT_API weft_status weft_all_gather_parts_into(weft_tensor *const *out, weft_tensor *in,
                                                weft_group *group);

/* The same on `root` only.  On other ranks `out` must be NULL. */
WEFT_API weft_status weft_gather_parts_into(weft_tensor *const *out, weft_tensor *in, int root,
                                            weft_group *group);

/* Rank r gets part r of root's list.  On other ranks `in` must be NULL. */
WEFT_API weft_status weft_scatter_parts_into(weft_tensor *out, weft_tensor *const *in, int root,
                                             weft_group *group);

/* Rank r gets the reduction of the in[r] of all ranks. */
WEFT_API weft_status weft_reduce_scatter_parts_into(weft_tensor *out, weft_tensor *const *in,
                                                    weft_reduction op, weft_group *group);

/* ---- the same, posted ---- */

WEFT_API weft_work *weft_all_gather_parts_start(weft_tensor *const *out, weft_tensor *in,
                                                weft_group *group);
WEFT_API weft_work *weft_gather_parts_start(weft_tensor *const *out, weft_tensor *in, int root,
                                            weft_group *group);
WEFT_API weft_work *weft_scatter_parts_start(weft_tensor *out, weft_tensor *const *in, int root,
                                             weft_group *group);
WEFT_API weft_work *weft_reduce_scatter_parts_start(weft_tensor *out, weft_tensor *const *in,
                                                    weft_reduction op, weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
