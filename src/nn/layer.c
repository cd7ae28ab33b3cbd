/* SPDX-License-Identifier: Apache-2.0 */
/* How a layer gets its parameters. */
#include "nn/layer.h"

#include "weft/op.h"

/* Takes the values over: the scope's tensor goes, the parameter over the same memory stays. */
static weft_status add(weft_module *module, const char *name, weft_tensor *values)
{
    weft_tensor *param = weft_parameter(values, true);
    weft_status status = weft_module_add_param(module, name, param);
    weft_release(param);
    weft_release(values);
    return status;
}

weft_status weft_i_layer_uniform(weft_module *module, const char *name, weft_shape shape,
                                 double bound)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, shape);
    if (!x || weft_uniform(x, -bound, bound) < 0) {
        weft_release(x);
        return weft_last_status();
    }
    return add(module, name, x);
}

weft_status weft_i_layer_normal(weft_module *module, const char *name, weft_shape shape)
{
    return add(module, name, weft_randn(WEFT_F32, WEFT_CPU, shape));
}

weft_status weft_i_layer_full(weft_module *module, const char *name, weft_shape shape, double value)
{
    return add(module, name, weft_full(WEFT_F32, WEFT_CPU, shape, value));
}

weft_module *weft_i_layer_made(weft_module *module, weft_status status)
{
    if (status >= 0)
        return module;
    weft_release(module);
    return NULL;
}
