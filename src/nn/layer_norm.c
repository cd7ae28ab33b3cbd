/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, over the last dimension. */
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

static const double EPSILON = 1e-5;

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_layer_norm(x, 1, weft_i_module_tensor(self, 0), weft_i_module_tensor(self, 1),
                           EPSILON);
}

weft_module *weft_nn_layer_norm(int64_t width)
{
    if (width < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_layer_norm: of %lld features",
                           (long long)width);
    weft_module *module = weft_i_module_new_kind("layer_norm", forward, NULL);
    weft_status status = module ? WEFT_OK : weft_last_status();
    if (status >= 0)
        status = weft_i_layer_full(module, "weight", WEFT_SHAPE(width), 1);
    if (status >= 0)
        status = weft_i_layer_full(module, "bias", WEFT_SHAPE(width), 0);
    return weft_i_layer_made(module, status);
}
