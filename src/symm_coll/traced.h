/* SPDX-License-Identifier: Apache-2.0 */
/* What operations on symmetric memory become while the thread captures. */
#ifndef WEFT_SYMM_COLL_TRACED_H
#define WEFT_SYMM_COLL_TRACED_H

#include "tensor/op/op.h"
#include "weft/coll.h"

/*
 * Operations on symmetric memory that have a row for it: `row` on `x`, or on `x` and then `local`.
 * The result, a new tensor; the second form copies it to `out` (of which the first dimension, or all
 * of it, may be `x` itself).
 */
weft_tensor *weft_i_traced_symm(const weft_i_op *row, weft_tensor *x, weft_tensor *local,
                                weft_reduction op, weft_group *group);
weft_status weft_i_traced_symm_out(const weft_i_op *row, weft_tensor *out, weft_tensor *x,
                                   weft_tensor *local, weft_reduction op, weft_group *group);
/* The same with a flag before the reduction (split_last). */
weft_status weft_i_traced_symm_scatter(weft_tensor *out, weft_tensor *x, bool split_last,
                                       weft_reduction op, weft_group *group);

/* Gathers: a new tensor and work that is done, since a graph waits by itself; or into `out`. */
weft_tensor *weft_i_traced_symm_gather(weft_tensor *x, weft_group *group, weft_work **work);
weft_status weft_i_traced_symm_gather_out(weft_tensor *out, weft_tensor *x, weft_group *group);

#endif
