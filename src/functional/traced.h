/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-ins of plain collectives share: traced.c has one tensor a call, traced_list.c
 * several. */
#ifndef WEFT_FUNCTIONAL_TRACED_H
#define WEFT_FUNCTIONAL_TRACED_H

#include "fabric/group/group.h"
#include "symm/kind.h"
#include "tensor/object/tensor.h"
#include "weft/coll.h"

/* Both as the capture sees them; of one dtype. */
weft_status weft_i_traced_see(const char *what, weft_tensor **out, weft_tensor **in,
                              const weft_group *group);

/* Whether two contiguous tensors share bytes. */
bool weft_i_traced_overlap(const weft_tensor *a, const weft_tensor *b);

/* Layout, devices, and that they share bytes only if byte `in_at` of the input is byte `out_at` of
 * the output: then it works in place. */
weft_status weft_i_traced_check(const char *what, const weft_tensor *out, const weft_tensor *in,
                                size_t in_at, size_t out_at);

/* The same for a kind, with its counts. */
weft_status weft_i_traced_check_kind(weft_i_coll_kind kind, const weft_tensor *out,
                                     const weft_tensor *in, const weft_group *group);

/* `in` with a first dimension that divides among the ranks, if it can: itself, or a view that
 * belongs to the scope. */
weft_tensor *weft_i_traced_rows(weft_tensor *in, const weft_group *group);

/* Copies what a row gave to the caller's tensor, and drops it. */
weft_status weft_i_traced_put(weft_tensor *out, weft_tensor *made);

/* Gives the plain forms what stands for them (coll/calls/traced.h).  Whoever opens captures calls it
 * from a constructor, so that a static library has it too. */
void weft_i_traced_give(void);

/* ---- traced_list.c: forms of several tensors ---- */

weft_status weft_i_traced_list(weft_i_coll_kind kind, weft_tensor *const *out,
                               weft_tensor *const *in, int count, weft_reduction op,
                               weft_group *group);
weft_status weft_i_traced_all_to_all_list(weft_tensor *const *out, weft_tensor *const *in,
                                          weft_group *group);
weft_status weft_i_traced_all_gather_parts(weft_tensor *const *out, weft_tensor *in,
                                           weft_group *group);
weft_status weft_i_traced_reduce_scatter_parts(weft_tensor *out, weft_tensor *const *in,
                                               weft_reduction op, weft_group *group);

#endif
