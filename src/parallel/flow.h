/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How values go in and out of layers that are cut over ranks.  All ranks compute one loss together, so
 * a value that all of them have whole has one gradient, which all of them have whole:
 *
 *     way      forward                     backward
 *     enter    nothing                     all_reduce: each rank knows what its part did with it
 *     sum      all_reduce                  nothing
 *     join     all_gather                  this rank's part
 *     split    this rank's part            all_gather
 *     gather   all_gather                  reduce_scatter: into cut layers, out of parts of a sequence
 *     scatter  reduce_scatter              all_gather
 *
 * The last two are those of weft/functional.h.
 */
#ifndef WEFT_PARALLEL_FLOW_H
#define WEFT_PARALLEL_FLOW_H

#include "weft/group.h"
#include "weft/tensor.h"

weft_tensor *weft_i_flow_enter(weft_tensor *x, weft_group *group);
weft_tensor *weft_i_flow_sum(weft_tensor *x, weft_group *group);
weft_tensor *weft_i_flow_join(weft_tensor *x, int dim, weft_group *group);
/* `what` begins the message if the ranks do not divide the dimension. */
weft_tensor *weft_i_flow_split(const char *what, weft_tensor *x, int dim, weft_group *group);

/* Of indices into all classes: those of this rank's `own` ones, counted from its first, and 0 for the
 * others; `inside` gets which are its own.  Indices that are of nobody are WEFT_ERR_INVALID_ARG, where
 * the host sees them. */
weft_tensor *weft_i_flow_own_indices(const char *what, weft_tensor *indices, int64_t own,
                                     weft_group *group, weft_tensor **inside);
/* x where `inside`, zeros elsewhere. */
weft_tensor *weft_i_flow_only(weft_tensor *inside, weft_tensor *x);

#endif
