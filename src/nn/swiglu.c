/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU: the gated two layers of today's transformers (Shazeer, 2020). */
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"

enum { GATE, UP, DOWN, LAYERS };

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    weft_tensor *gate = weft_module_call(self->entries[GATE].child, x);
    weft_tensor *up = gate ? weft_module_call(self->entries[UP].child, x) : NULL;
    weft_tensor *wide = up ? weft_mul(weft_silu(gate), up) : NULL;
    return wide ? weft_module_call(self->entries[DOWN].child, wide) : NULL;
}

weft_module *weft_nn_swiglu(int64_t width, int64_t hidden)
{
    static const char *const names[LAYERS] = {"gate_proj", "up_proj", "down_proj"};
    if (width < 1 || hidden < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_swiglu: %lld features, %lld hidden ones",
                           (long long)width, (long long)hidden);
    weft_module *module = weft_i_module_new_kind("swiglu", forward, NULL);
    weft_status status = module ? WEFT_OK : weft_last_status();
    for (int i = 0; i < LAYERS && status >= 0; i++) {
        weft_module *layer =
            i == DOWN ? weft_nn_linear_plain(hidden, width) : weft_nn_linear_plain(width, hidden);
        status = weft_module_add(module, names[i], layer);
        weft_release(layer);
    }
    return weft_i_layer_made(module, status);
}
