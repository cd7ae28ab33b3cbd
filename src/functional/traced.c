/* SPDX-License-Identifier: Apache-2.0 */
/* Plain collectives as functional ones, for captures; see coll/traced.h. */
#include "coll/traced.h"

#include "fabric/group.h"
#include "tensor/eye.h"
#include "tensor/tensor.h"
#include "weft/functional.h"
#include "weft/op.h"
#include "weft/view.h"

/* Both as the capture sees them, checked. */
static weft_status see(const char *what, weft_tensor **out, weft_tensor **in,
                       const weft_group *group)
{
    *out = weft_i_see(*out);
    *in = weft_i_see(*in);
    if (!*out || !*in || !group)
        return weft_i_missing("%s: the %s is NULL", what,
                              !*out  ? "output"
                              : !*in ? "input"
                                     : "group");
    if ((*out)->dtype != (*in)->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is of %s, the output of %s", what,
                           weft_dtype_name((*in)->dtype), weft_dtype_name((*out)->dtype));
    return WEFT_OK;
}

/* Copies the result, which is released, to a tensor that may have another shape of as many
 * elements. */
weft_status weft_i_traced_put(weft_tensor *out, weft_tensor *result)
{
    if (!result)
        return weft_last_status();
    weft_tensor *shaped = weft_view(result, weft_i_tensor_shape(out));
    weft_status status = shaped ? weft_copy(out, shaped) : weft_last_status();
    weft_release(shaped);
    weft_release(result);
    return status;
}

weft_status weft_i_traced_all_reduce(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                     weft_group *group)
{
    WEFT_TRY(see("all_reduce", &out, &in, group));
    return weft_i_traced_put(out, weft_all_reduce(in, op, group));
}

weft_status weft_i_traced_all_gather(weft_tensor *out, weft_tensor *in, weft_group *group)
{
    WEFT_TRY(see("all_gather", &out, &in, group));
    return weft_i_traced_put(out, weft_all_gather_tensor(in, 0, group));
}

/* The plain form takes elements in their order, whatever the shape. */
weft_status weft_i_traced_reduce_scatter(weft_tensor *out, weft_tensor *in, weft_reduction op,
                                         weft_group *group)
{
    WEFT_TRY(see("reduce_scatter", &out, &in, group));
    if (in->ndim && in->dim[0] % group->size == 0)
        return weft_i_traced_put(out, weft_reduce_scatter_tensor(in, op, 0, group));
    weft_tensor *flat = weft_view(in, WEFT_SHAPE(in->numel));
    weft_status status =
        flat ? weft_i_traced_put(out, weft_reduce_scatter_tensor(flat, op, 0, group))
             : weft_last_status();
    weft_release(flat);
    return status;
}

weft_status weft_i_traced_all_to_all(weft_tensor *out, weft_tensor *in, const int64_t *out_splits,
                                     const int64_t *in_splits, weft_group *group)
{
    WEFT_TRY(see("all_to_all", &out, &in, group));
    return weft_i_traced_put(out, weft_all_to_all_single(in, out_splits, in_splits, group));
}
