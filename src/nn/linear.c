/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers. */
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

#include <math.h>

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_linear(x, weft_i_module_tensor(self, 0), weft_i_module_tensor(self, 1));
}

static weft_module *new_linear(const char *what, int64_t in, int64_t out, bool bias)
{
    if (in < 1 || out < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: from %lld to %lld features", what,
                           (long long)in, (long long)out);
    double bound = 1 / sqrt((double)in);
    weft_module *module = weft_i_module_new_kind("linear", forward, NULL);
    weft_status status = module ? WEFT_OK : weft_last_status();
    if (status >= 0)
        status = weft_i_layer_uniform(module, "weight", WEFT_SHAPE(out, in), bound);
    if (status >= 0 && bias)
        status = weft_i_layer_uniform(module, "bias", WEFT_SHAPE(out), bound);
    return weft_i_layer_made(module, status);
}

weft_module *weft_nn_linear(int64_t in, int64_t out)
{
    return new_linear("weft_nn_linear", in, out, true);
}

weft_module *weft_nn_linear_plain(int64_t in, int64_t out)
{
    return new_linear("weft_nn_linear_plain", in, out, false);
}
