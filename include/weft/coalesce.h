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
 * and do nothing yet.  All of them must be of one kind, with one reduction and one premul factor.
 * Every other operation of weft/coll.h, weft/parts.h and weft/object.h on the group fails with
 * WEFT_ERR_STATE.  Calls on other groups, and by other threads, run as usual.
 */
#ifndef WEFT_COALESCE_H
#define WEFT_COALESCE_H

#include "weft/group.h"
#include "weft/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to collect.  Local.  WEFT_ERR_STATE if the group collects already. */
WEFT_API weft_status weft_coalesce_open(weft_group *group);

/*
 * Ends collecting and posts what was collected as one operation; returns its work.  Operands must
 * not be touched until it is done.  Outputs must not overlap operands of other calls.  If any
 * call in between failed, nothing is posted, and the result is NULL with the error of the first
 * one that failed.
 */
WEFT_API weft_work *weft_coalesce_close(weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
