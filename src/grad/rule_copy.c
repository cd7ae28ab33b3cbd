/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of moving elements. */
#include "grad/rules.h"

/* What was there before is gone. */
weft_status weft_i_copy_back(weft_i_back *c)
{
    c->grad[1] = NEEDS(1) ? c->g[0] : NULL;
    return WEFT_OK;
}

weft_status weft_i_fill_back(weft_i_back *c)
{
    (void)c;
    return WEFT_OK;
}

/* Gradients do not come back from another device: meta has none. */
weft_status weft_i_to_refuse(const weft_i_op_call *call)
{
    weft_device from = weft_i_tensor_device(call->args[0].tensor);
    if (from == (weft_device)call->args[2].integer)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "to: gradients do not pass from one device to another; detach the tensor "
                       "(weft_detach)");
}

weft_status weft_i_to_back(weft_i_back *c)
{
    c->grad[0] = c->g[0];
    return WEFT_OK;
}
