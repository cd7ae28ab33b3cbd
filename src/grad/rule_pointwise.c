/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of element-wise rows whose arguments are tensors or numbers. */
#include "grad/rules.h"
#include "tensor/op/ops.h"

#include <math.h>

#define TENSOR(x_) WEFT_I_TENSOR_ARG(x_)
#define NUMBER(x_) WEFT_I_NUMBER_ARG(x_)

static bool is_number(const weft_i_arg *arg)
{
    return arg->kind == WEFT_I_ARG_NUMBER;
}

/* ---- quotients ---- */

weft_status weft_i_div_back(weft_i_back *c)
{
    weft_tensor *share = WEFT_I_APPLY(div, TENSOR(c->g[0]), *ARG(1));
    if (NEEDS(0))
        WEFT_TRY(GIVE(0, share));
    if (!NEEDS(1))
        return WEFT_OK;
    return GIVE(1, weft_neg(weft_mul(share, WEFT_I_APPLY(div, *ARG(0), *ARG(1)))));
}

/* ---- powers ---- */

/* b a^(b - 1), and 0 for b = 0 also where a = 0. */
static weft_tensor *base_grad(const weft_i_back *c)
{
    weft_tensor *g = c->g[0], *a = ARG(0)->tensor, *b = ARG(1)->tensor;
    if (!is_number(ARG(1)))
        return weft_mul(
            g, UNLESS(weft_eq_scalar(b, 0), weft_mul(b, weft_pow(a, weft_sub_scalar(b, 1)))));
    double power = ARG(1)->number;
    return power == 0   ? weft_zeros_like(g)
           : power == 1 ? g
           : power == 2 ? weft_mul(g, weft_mul_scalar(a, 2))
                        : weft_mul(g, weft_mul_scalar(weft_pow_scalar(a, power - 1), power));
}

/* a^b log a, and 0 where that is the limit: a = 0 and b >= 0. */
static weft_tensor *exponent_grad(const weft_i_back *c)
{
    weft_tensor *b = ARG(1)->tensor;
    weft_tensor *y = weft_mul(c->g[0], WEFT_I_APPLY(pow, *ARG(0), *ARG(1)));
    if (!is_number(ARG(0))) {
        weft_tensor *a = ARG(0)->tensor;
        weft_tensor *limit = weft_logical_and(weft_eq_scalar(a, 0), weft_ge_scalar(b, 0));
        return UNLESS(limit, weft_mul(y, weft_log(a)));
    }
    double base = ARG(0)->number;
    weft_tensor *grad = weft_mul_scalar(y, log(base));
    return base == 0 ? UNLESS(weft_ge_scalar(b, 0), grad) : grad;
}

weft_status weft_i_pow_back(weft_i_back *c)
{
    if (NEEDS(0))
        WEFT_TRY(GIVE(0, base_grad(c)));
    return NEEDS(1) ? GIVE(1, exponent_grad(c)) : WEFT_OK;
}

/* ---- the larger, the smaller ---- */

/* Equal arguments share the gradient; `loses` tells where an argument is not the result. */
static weft_status extreme_back(weft_i_back *c, const weft_i_op *loses)
{
    weft_tensor *g = c->g[0], *equal = WEFT_I_APPLY(eq, *ARG(0), *ARG(1));
    weft_tensor *shared = weft_where(equal, weft_mul_scalar(g, 0.5), g);
    for (int i = 0; i < 2; i++) {
        weft_i_arg pair[] = {*ARG(i), *ARG(1 - i)};
        if (NEEDS(i))
            WEFT_TRY(GIVE(i, UNLESS(weft_i_op_apply(loses, NULL, pair), shared)));
    }
    return WEFT_OK;
}

weft_status weft_i_maximum_back(weft_i_back *c)
{
    return extreme_back(c, &weft_i_op_lt);
}

weft_status weft_i_minimum_back(weft_i_back *c)
{
    return extreme_back(c, &weft_i_op_gt);
}
