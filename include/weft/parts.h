/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives whose parts are tensors of their own: a list has one tensor for each rank of the
 * group, in rank order.  Counts may differ from part to part, dtypes may not.  As in weft/coll.h,
 * `_into` blocks, `_start` posts; a part may be this rank's other operand itself (in place), but
 * operands must not overlap otherwise.  If a rank gives another count than one who takes it
 * expects, all get WEFT_ERR_MISMATCH, and the message names both.
 *
 * (weft_all_gather_list_into and its kin in weft/coll.h are something else: several operations as
 * one.)
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

/* The same at `root` only.  Elsewhere `out` must be NULL. */
WEFT_API weft_status weft_gather_parts_into(weft_tensor *const *out, weft_tensor *in, int root,
                                            weft_group *group);

/* out = part `rank` of root's list.  `in` must be NULL elsewhere. */
WEFT_API weft_status weft_scatter_parts_into(weft_tensor *out, weft_tensor *const *in, int root,
                                             weft_group *group);

/* Rank r gets the reduction of everybody's in[r]. */
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
