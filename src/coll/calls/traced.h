/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain collectives while the thread captures: each becomes its functional form and a copy into the
 * caller's tensor, so that a graph has one kind of collective.  A list becomes one collective of the
 * list and a copy for each of its tensors.  Those that have no such form, and all that return a
 * work handle, refuse (weft_i_request_check_group).
 */
#ifndef WEFT_COLL_TRACED_H
#define WEFT_COLL_TRACED_H

#include "symm/kind.h"
#include "weft/coll.h"

/* The functional form of each. */
typedef struct weft_i_traced_forms {
    weft_status (*all_reduce)(weft_tensor *out, weft_tensor *in, weft_reduction op,
                              weft_group *group);
    weft_status (*all_gather)(weft_tensor *out, weft_tensor *in, weft_group *group);
    weft_status (*reduce_scatter)(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                  weft_group *group);
    weft_status (*all_to_all)(weft_tensor *out, weft_tensor *in, const int64_t *out_splits,
                              const int64_t *in_splits, weft_group *group);
    weft_status (*broadcast)(weft_tensor *x, int root, weft_group *group);

    /* all_reduce, all_gather and reduce_scatter of lists. */
    weft_status (*list)(weft_i_coll_kind kind, weft_tensor *const *out, weft_tensor *const *in,
                        int count, weft_reduction op, weft_group *group);
    weft_status (*all_to_all_list)(weft_tensor *const *out, weft_tensor *const *in,
                                   weft_group *group);

    /* A tensor for each rank (weft/parts.h). */
    weft_status (*all_gather_parts)(weft_tensor *const *out, weft_tensor *in, weft_group *group);
    weft_status (*reduce_scatter_parts)(weft_tensor *out, weft_tensor *const *in, weft_reduction op,
                                        weft_group *group);
} weft_i_traced_forms;

/* Given by the floor that has them (functional/traced.h); whoever opens captures sees to it. */
extern const weft_i_traced_forms *weft_i_traced;

#endif
