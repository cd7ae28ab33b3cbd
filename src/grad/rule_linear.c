/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a linear layer: two products of matrices, and a sum over rows. */
#include "grad/rules.h"
#include "weft/quantize.h"

/* [..., n] -> [rows, n] */
static weft_tensor *flat(weft_tensor *x)
{
    return x ? weft_reshape(x, WEFT_SHAPE(-1, weft_tensor_size(x, -1))) : NULL;
}

static weft_tensor *sum_rows(weft_tensor *g)
{
    int dims[WEFT_MAX_DIMS], count = weft_tensor_ndim(g) - 1;
    for (int i = 0; i < count; i++)
        dims[i] = i;
    return count ? weft_sum(g, dims, count, false) : g;
}

weft_status weft_i_linear_back(weft_i_back *c)
{
    weft_tensor *g = c->g[0];
    if (NEEDS(0) && !(c->grad[0] = weft_matmul(g, weft_i_back_x(c, 1))))
        return weft_last_status();
    WEFT_TRY(weft_i_back_spent(c, 1));
    if (NEEDS(1) &&
        !(c->grad[1] = weft_mm(weft_transpose(flat(g), 0, 1), flat(weft_i_back_x(c, 0)))))
        return weft_last_status();
    if (NEEDS(2) && !(c->grad[2] = sum_rows(g)))
        return weft_last_status();
    return WEFT_OK;
}

/* The weight stands still: what has codes is not trained. */
weft_status weft_i_quantized_linear_back(weft_i_back *c)
{
    weft_tensor *g = c->g[0];
    if (NEEDS(2))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "quantized_linear: scales have no gradient");
    if (NEEDS(0) &&
        !(c->grad[0] = weft_matmul(
              g, weft_dequantize(weft_i_back_x(c, 1), weft_i_back_x(c, 2), weft_tensor_dtype(g)))))
        return weft_last_status();
    if (NEEDS(3) && !(c->grad[3] = sum_rows(g)))
        return weft_last_status();
    return WEFT_OK;
}
