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

#endif
