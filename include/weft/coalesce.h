/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coalescing: several calls become one operation, with one entry and one check for all of them.
 *
 *     weft_coalesce_open(group);
 *     for (int i = 0; i < n; i++)
 *         weft_all_reduce_into(grad[i], grad[i], WEFT_SUM, group);
 *     weft_work_wait(weft_coalesce_close(group), WEFT_DEFAULT);
 *
 * Between the two, calls of this thread to weft_all_reduce_into, weft_all_gather_into and
 * weft_reduce_scatter_into on that group are collected: they check their arguments, return WEFT_OK
 * and do nothing yet.  All of them must be of the same kind, with the same reduction and the same
 * premul factor.  Every other operation of weft/coll.h, weft/parts.h and weft/object.h on the group
 * fails with WEFT_ERR_STATE.  Calls on other groups, or from other threads, run as usual.
 */
#ifndef WEFT_COALESCE_H
#define WEFT_COALESCE_H

#include "weft/group.h"
#include "weft/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts collecting.  Local.  WEFT_ERR_STATE if the group is collecting already. */
WEFT_API weft_status weft_coalesce_open(weft_group *group);

/*
 * Stops collecting, posts what was collected as one operation, and returns its work.  Do not touch
 * the operands until the work is done.  Outputs must not overlap operands of other calls.  If any
 * call in between failed, nothing is posted, and the function returns NULL with the error of the
 * first call that failed.
 */
WEFT_API weft_work *weft_coalesce_close(weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
