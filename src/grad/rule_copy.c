/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of moving elements. */
#include "grad/rules.h"

/* What was there before is gone. */
weft_status weft_i_copy_back(weft_i_back *c)
{
    c->grad[1] = NEEDS(1) ? c->g[0] : NULL;
    return WEFT_OK;
}

weft_status weft_i_request_back(weft_i_back *c)
{
    (void)c;
    return WEFT_OK;
}
