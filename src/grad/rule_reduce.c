/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of reductions. */
#include "grad/rules.h"

/* A gradient of the reduced shape, with the dimensions that went put back as size 1. */
static weft_tensor *with_dims(weft_i_back *c, weft_tensor *g)
{
    weft_shape shape = SHAPE(0);
    const weft_i_arg *dims = ARG(1);
    for (size_t i = 0; i < dims->count; i++)
        shape.dim[dims->integers[i] < 0 ? dims->integers[i] + shape.ndim : dims->integers[i]] = 1;
    for (int i = 0; !dims->count && i < shape.ndim; i++)
        shape.dim[i] = 1;
    return weft_reshape(g, shape);
}

/* The engine repeats it. */
weft_status weft_i_sum_back(weft_i_back *c)
{
    return (c->grad[0] = with_dims(c, c->g[0])) ? WEFT_OK : weft_last_status();
}
