/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-ins of plain collectives share: traced.c has one tensor a call, traced_list.c
 * several. */
#ifndef WEFT_FUNCTIONAL_TRACED_H
#define WEFT_FUNCTIONAL_TRACED_H

#include "fabric/group.h"
#include "symm/kind.h"
#include "tensor/tensor.h"

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

#endif
