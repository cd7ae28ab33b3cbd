/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: leaves that modules train. */
#include "nn/module.h"

#include "weft/view.h"

weft_tensor *weft_parameter(weft_tensor *x, bool required)
{
    weft_tensor *param = weft_detach(x);
    if (!param)
        return NULL;
    if (required && weft_require_grad(param, true) < 0) {
        weft_release(param);
        return NULL;
    }
    param->parameter = true;
    return param;
}

bool weft_is_parameter(const weft_tensor *x)
{
    return x && x->head.kind == WEFT_I_TENSOR && x->parameter;
}
