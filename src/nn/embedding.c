/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings. */
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_embedding(weft_i_module_tensor(self, 0), x);
}

weft_module *weft_nn_embedding(int64_t rows, int64_t width)
{
    if (rows < 1 || width < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_embedding: %lld rows of %lld",
                           (long long)rows, (long long)width);
    weft_module *module = weft_i_module_new_kind("embedding", forward, NULL);
    weft_status status = module ? weft_i_layer_normal(module, "weight", WEFT_SHAPE(rows, width))
                                : weft_last_status();
    return weft_i_layer_made(module, status);
}
