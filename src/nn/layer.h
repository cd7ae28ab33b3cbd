/* SPDX-License-Identifier: Apache-2.0 */
/* How a layer gets its parameters. */
#ifndef WEFT_NN_LAYER_H
#define WEFT_NN_LAYER_H

#include "nn/module.h"

/* A parameter, f32 on the CPU: uniform in +-bound, normal (0, 1), or of one value. */
weft_status weft_i_layer_uniform(weft_module *module, const char *name, weft_shape shape,
                                 double bound);
weft_status weft_i_layer_normal(weft_module *module, const char *name, weft_shape shape);
weft_status weft_i_layer_full(weft_module *module, const char *name, weft_shape shape,
                              double value);

/* The last line of a layer's maker: the module, or NULL if something failed. */
weft_module *weft_i_layer_made(weft_module *module, weft_status status);

/* Of a linear layer: whether its weight was encoded; its bias, or NULL; x times its weight, plus that bias. */
bool weft_i_linear_is_coded(const weft_module *module);
weft_tensor *weft_i_linear_bias(const weft_module *module);
weft_tensor *weft_i_linear_product(const weft_module *module, weft_tensor *x, weft_tensor *bias);
/* Codes and scales take the place of the weight; fails only where there is no room for an entry. */
weft_status weft_i_linear_encode(weft_module *module, weft_tensor *codes, weft_tensor *scales);

/* Of a module that weft_nn_attention made. */
int weft_i_attention_heads(const weft_module *module);

#endif
