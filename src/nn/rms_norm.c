/* SPDX-License-Identifier: Apache-2.0 */
/* RMS norm, over the last dimension (Zhang and Sennrich, 2019). */
#include "base/os/os.h"
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    return weft_rms_norm(x, 1, weft_i_module_tensor(self, 0), *(const double *)user);
}

weft_module *weft_nn_rms_norm(int64_t width, double epsilon)
{
    if (width < 1 || !(epsilon >= 0))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_rms_norm: of %lld features, epsilon %g",
                           (long long)width, epsilon);
    double *own = WEFT_OS->alloc(sizeof *own);
    if (!own)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_rms_norm: no memory");
    *own = epsilon;
    weft_module *module = weft_i_module_new_kind("rms_norm", forward, own);
    weft_status status =
        module ? weft_i_layer_full(module, "weight", WEFT_SHAPE(width), 1) : weft_last_status();
    return weft_i_layer_made(module, status);
}
