/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout, and the operation it is. */
#include "nn/dropout.h"

#include "base/os/os.h"
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

/* What stays is a draw of [0, 1) that is at least p. */
weft_tensor *weft_i_dropout(weft_tensor *x, double p)
{
    if (!x)
        return NULL;
    weft_tensor *draw = weft_rand(WEFT_F32, weft_tensor_device(x), weft_tensor_shape(x));
    double factor = p < 1 ? 1 / (1 - p) : 0;
    return weft_mul(
        x, weft_mul_scalar(weft_to_dtype(weft_ge_scalar(draw, p), weft_tensor_dtype(x)), factor));
}

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    const double *p = user;
    return self->training && *p > 0 ? weft_i_dropout(x, *p) : x;
}

weft_module *weft_nn_dropout(double p)
{
    if (!(p >= 0 && p <= 1))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_dropout: with probability %g", p);
    double *own = WEFT_OS->alloc(sizeof *own);
    if (!own)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_dropout: no memory");
    *own = p;
    return weft_i_module_new_kind("dropout", forward, own);
}
