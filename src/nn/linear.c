/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers.  The weight is the first entry; once it is encoded, its codes are, and the scales the
 * last. */
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/quantize.h"

#include <math.h>
#include <string.h>

bool weft_i_linear_is_coded(const weft_module *module)
{
    return module->count > 0 && module->entries[0].kind == WEFT_I_ENTRY_BUFFER;
}

weft_tensor *weft_i_linear_bias(const weft_module *module)
{
    int tensors = weft_i_linear_is_coded(module) ? 3 : 2;
    return module->count < tensors ? NULL : weft_i_module_tensor(module, 1);
}

weft_tensor *weft_i_linear_product(const weft_module *module, weft_tensor *x, weft_tensor *bias)
{
    weft_tensor *first = weft_i_module_tensor(module, 0);
    if (!weft_i_linear_is_coded(module))
        return weft_linear(x, first, bias);
    return weft_quantized_linear(x, first, weft_i_module_tensor(module, module->count - 1), bias);
}

weft_status weft_i_linear_encode(weft_module *module, weft_tensor *codes, weft_tensor *scales)
{
    WEFT_TRY(weft_module_add_buffer(module, "scales", scales));
    weft_i_entry *entry = &module->entries[0];
    weft_i_object_drop(entry->tensor);
    strcpy(entry->name, "codes");
    entry->kind = WEFT_I_ENTRY_BUFFER;
    entry->tensor = weft_i_object_hold(codes);
    return WEFT_OK;
}

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_i_linear_product(self, x, weft_i_linear_bias(self));
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
