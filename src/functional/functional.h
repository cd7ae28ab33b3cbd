/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the run functions of the functional collectives share.  How their inputs stay safe though
 * the operation runs later: one that is small, or not contiguous, is copied when the operation is
 * posted; any other is claimed (tensor/object/claim.h), so that a write to it waits.
 */
#ifndef WEFT_FUNCTIONAL_FUNCTIONAL_H
#define WEFT_FUNCTIONAL_FUNCTIONAL_H

#include "coll/lane/request.h"
#include "functional/ops.h"
#include "functional/pending.h"
#include "tune/tune.h"

/* Does copying so many bytes cost less than it may cost a writer to wait? */
static inline bool weft_i_functional_copies(size_t bytes)
{
    return bytes <= weft_i_tune_same(WEFT_I_TUNE_COPY, WEFT_I_BARRIER);
}

/* The group of the call (its last argument); NULL and an error if it is a name only. */
weft_group *weft_i_functional_group(const weft_i_op_call *call);

/* `x` with a reference of the caller, or a contiguous copy of it if it is not contiguous or
 * `apart`.
 */
weft_tensor *weft_i_functional_contiguous(weft_tensor *x, bool apart);

/* The same with part r of dimension `dim` as row r: what rank r gets lies in one piece.  A copy,
 * unless it lies so already. */
weft_tensor *weft_i_functional_by_parts(weft_tensor *x, int dim, int parts);

/* Copies the elements of one tensor to another of the same dtype and shape, `to` contiguous. */
weft_status weft_i_functional_copy(weft_tensor *to, weft_tensor *from);

/* Entries before dimension `dim`. */
static inline int64_t weft_i_functional_outer(const weft_tensor *x, int dim)
{
    int64_t outer = 1;
    for (int i = 0; i < dim; i++)
        outer *= x->dim[i];
    return outer;
}

static inline size_t weft_i_functional_bytes(const weft_tensor *x)
{
    return (size_t)weft_i_tensor_numel(x) * weft_dtype_size(x->dtype);
}

#endif
