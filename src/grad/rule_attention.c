/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of attention: a row of its own; or, where it is recorded to be differentiated again,
 * products and softmax. */
#include "grad/rules.h"
#include "tensor/layer/attention.h"
#include "tensor/op/ops.h"

enum {
    Q = WEFT_I_ATTENTION_Q,
    K = WEFT_I_ATTENTION_K,
    V = WEFT_I_ATTENTION_V,
    MASK = WEFT_I_ATTENTION_MASK
};

static weft_status by_row(weft_i_back *c)
{
    weft_tensor *outs[4] = {NULL};
    weft_i_arg args[WEFT_I_ATTENTION_ARGS + 5] = {
        WEFT_I_TENSOR_ARG(weft_i_back_g(c, 0)), WEFT_I_OPTIONAL_ARG(c->g[1]),
        WEFT_I_TENSOR_ARG(c->y[0]), WEFT_I_TENSOR_ARG(c->y[1])};
    for (int i = 0; i < WEFT_I_ATTENTION_ARGS; i++)
        args[4 + i] = *ARG(i);
    args[4 + WEFT_I_ATTENTION_ARGS] = WEFT_I_INTEGER_ARG(NEEDS(MASK));
    WEFT_TRY(weft_i_op_apply_list(&weft_i_op_attention_grad, outs, args));
    for (int i = Q; i <= MASK; i++)
        c->grad[i] = NEEDS(i) ? outs[i] : NULL;
    return WEFT_OK;
}

/* g, those of the scores: softmax's, and that of lse, which is the weights. */
static weft_tensor *scores_grad(const weft_i_back *c, weft_tensor *weights, weft_tensor *hidden,
                                weft_tensor *g, weft_tensor *v)
{
    weft_tensor *grad = weft_matmul(g, weft_transpose(v, -2, -1));
    if (hidden)
        grad = UNLESS(hidden, grad);
    grad = weft_softmax_grad(grad, weights, -1);
    if (!c->g[1])
        return grad;
    weft_tensor *lse_grad = weft_to_dtype(weft_unsqueeze(c->g[1], -1), weft_tensor_dtype(g));
    return weft_add(grad, weft_mul(weights, lse_grad));
}

static weft_status by_parts(weft_i_back *c)
{
    bool none;
    weft_tensor *q = ARG(Q)->tensor, *k = ARG(K)->tensor, *v = ARG(V)->tensor;
    int64_t heads = q->dim[q->ndim - 3], key_heads = k->dim[k->ndim - 3];
    double scale = ARG(WEFT_I_ATTENTION_SCALE)->number;
    if (ARG(WEFT_I_ATTENTION_DROPOUT)->number > 0)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "attention: with dropout it has no second gradient (create_graph)");
    weft_tensor *hidden = weft_i_attention_hidden(c->arg, &none), *g = weft_i_back_g(c, 0);
    weft_tensor *weights = hidden || none ? weft_i_attention_weights(c->arg, hidden) : NULL;
    weft_tensor *wide_k = weft_i_attention_repeat(k, heads);
    weft_tensor *wide_v = weft_i_attention_repeat(v, heads);
    if (!weights || !g || !wide_k || !wide_v)
        return weft_last_status();
    if (NEEDS(V))
        WEFT_TRY(GIVE(
            V, weft_i_attention_fold(weft_matmul(weft_transpose(weights, -2, -1), g), key_heads)));
    weft_tensor *slope = scores_grad(c, weights, hidden, g, wide_v);
    if (NEEDS(Q))
        WEFT_TRY(GIVE(Q, weft_mul_scalar(weft_matmul(slope, wide_k), scale)));
    if (NEEDS(K) && slope)
        WEFT_TRY(GIVE(K, weft_i_attention_fold(
                             weft_mul_scalar(weft_matmul(weft_transpose(slope, -2, -1), q), scale),
                             key_heads)));
    return NEEDS(MASK) ? GIVE(MASK, slope) : slope ? WEFT_OK : weft_last_status();
}

weft_status weft_i_attention_back(weft_i_back *c)
{
    return weft_grad_mode_now() == WEFT_GRAD_RECORDING ? by_parts(c) : by_row(c);
}
