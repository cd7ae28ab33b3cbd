/* SPDX-License-Identifier: Apache-2.0 */
/* Filling whole calls, as the public functions of their names do (coll.c). */
#ifndef WEFT_COLL_COLL_H
#define WEFT_COLL_COLL_H

#include "coll/lane/request.h"

/* The rest of a call whose operands are both noted, by the facts of its kind. */
weft_status weft_i_request_finish(weft_i_coll *coll, weft_reduction op, int root);

/* all_reduce, reduce, all_gather, gather, scatter and reduce_scatter, by the facts of their kind.
 * Without a reduction WEFT_SUM, without a root 0. */
weft_status weft_i_request_plain(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *out,
                                 weft_tensor *in, weft_reduction op, int root, weft_group *group);

/* The root sends `in`; what it has of `out` is not touched. */
weft_status weft_i_request_broadcast(weft_i_coll *coll, weft_tensor *out, weft_tensor *in, int root,
                                     weft_group *group);
weft_status weft_i_request_all_to_all(weft_i_coll *coll, weft_tensor *out, weft_tensor *in,
                                      const int64_t *out_splits, const int64_t *in_splits,
                                      weft_group *group);
/* Lists: `kind` is WEFT_I_ALL_REDUCE_LIST or another of its kin, all_to_all excepted.  The caller
 * drops coll->list, also on failure. */
weft_status weft_i_request_list(weft_i_coll *coll, weft_i_coll_kind kind, weft_tensor *const *out,
                                weft_tensor *const *in, int count, weft_reduction op,
                                weft_group *group);
weft_status weft_i_request_all_to_all_list(weft_i_coll *coll, weft_tensor *const *out,
                                           weft_tensor *const *in, weft_group *group);

#endif
