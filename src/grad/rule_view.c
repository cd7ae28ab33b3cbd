/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of views. */
#include "grad/rules.h"

weft_status weft_i_view_back(weft_i_back *c)
{
    return (c->grad[0] = weft_reshape(c->g[0], SHAPE(0))) ? WEFT_OK : weft_last_status();
}
