/* SPDX-License-Identifier: Apache-2.0 */
/* Attention put together from products and softmax, with a matrix of all queries and keys. */
#include "tensor/layer/attention.h"

#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>
#include <stdatomic.h>

#define T(x_) WEFT_I_TENSOR_ARG(x_)
#define N(x_) WEFT_I_NUMBER_ARG(x_)

static weft_tensor *tensor_at(const weft_i_arg *args, int i)
{
    return args[i].kind == WEFT_I_ARG_TENSOR ? args[i].tensor : NULL;
}

weft_tensor *weft_i_attention_repeat(weft_tensor *x, int64_t heads)
{
    int at = x->ndim - 3;
    if (x->dim[at] == heads)
        return x;
    weft_shape whole = weft_i_tensor_shape(x), wide = {x->ndim + 1, {0}};
    for (int i = 0; i < x->ndim; i++)
        wide.dim[i + (i > at)] = x->dim[i];
    wide.dim[at + 1] = heads / x->dim[at];
    whole.dim[at] = heads;
    return weft_reshape(weft_expand(weft_unsqueeze(x, at + 1), wide), whole);
}

weft_tensor *weft_i_attention_fold(weft_tensor *x, int64_t heads)
{
    if (!x)
        return NULL;
    int at = x->ndim - 3;
    if (x->dim[at] == heads)
        return x;
    weft_shape wide = {x->ndim + 1, {0}};
    for (int i = 0; i < x->ndim; i++)
        wide.dim[i + (i > at)] = x->dim[i];
    wide.dim[at] = heads;
    wide.dim[at + 1] = x->dim[at] / heads;
    return weft_sum(weft_reshape(x, wide), (int[]){at + 1}, 1, false);
}

/* Where a key is later than the query. */
static weft_tensor *later(const weft_i_arg *args)
{
    weft_tensor *q = args[WEFT_I_ATTENTION_Q].tensor, *k = args[WEFT_I_ATTENTION_K].tensor;
    weft_device device = weft_i_tensor_device(q);
    int64_t queries = q->dim[q->ndim - 2], keys = k->dim[k->ndim - 2];
    weft_tensor *query = weft_arange(WEFT_I64, device, 0, (double)queries, 1);
    weft_tensor *key = weft_arange(WEFT_I64, device, 0, (double)keys, 1);
    weft_tensor *last = WEFT_I_APPLY(add, T(weft_view(query, WEFT_SHAPE(queries, 1))),
                                     args[WEFT_I_ATTENTION_OFFSET]);
    return weft_gt(weft_view(key, WEFT_SHAPE(1, keys)), last);
}

weft_tensor *weft_i_attention_hidden(const weft_i_arg *args, bool *none)
{
    weft_tensor *mask = tensor_at(args, WEFT_I_ATTENTION_MASK), *hidden = NULL;
    bool causal = args[WEFT_I_ATTENTION_CAUSAL].integer != 0;
    *none = !mask && !causal;
    if (mask)
        hidden = mask->dtype == WEFT_BOOL ? weft_logical_not(mask)
                                          : weft_eq_scalar(weft_detach(mask), -INFINITY);
    if (!causal)
        return hidden;
    weft_tensor *other = later(args);
    return mask ? weft_logical_or(hidden, other) : other;
}

weft_tensor *weft_i_attention_weights(const weft_i_arg *args, weft_tensor *hidden)
{
    static const double LOW = -1e30; /* e^(LOW - x) is 0, and LOW - LOW is a number */
    weft_tensor *q = args[WEFT_I_ATTENTION_Q].tensor,
                *mask = tensor_at(args, WEFT_I_ATTENTION_MASK);
    weft_tensor *k = weft_i_attention_repeat(args[WEFT_I_ATTENTION_K].tensor, q->dim[q->ndim - 3]);
    weft_tensor *scaled = weft_mul_scalar(q, args[WEFT_I_ATTENTION_SCALE].number);
    weft_tensor *scores = weft_matmul(scaled, k ? weft_transpose(k, -2, -1) : NULL);
    if (weft_i_dtype_is_small_float(q->dtype))
        scores = weft_to_dtype(scores, WEFT_F32);
    if (mask && mask->dtype != WEFT_BOOL)
        scores = weft_add(scores,
                          WEFT_I_APPLY(where, T(weft_eq_scalar(mask, -INFINITY)), N(0), T(mask)));
    if (hidden)
        scores = WEFT_I_APPLY(where, T(hidden), N(LOW), T(scores));
    weft_tensor *weights = weft_softmax(scores, -1);
    if (hidden)
        weights = WEFT_I_APPLY(where, T(hidden), N(0), T(weights));
    return weft_to_dtype(weights, q->dtype);
}

static void tell(weft_device device)
{
    static atomic_bool told; /* relaxed: at worst it is said twice */
    char name[16];
    if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
        weft_i_log(WEFT_LOG_INFO,
                   "attention: no kernel of its own on %s; it is put together from products and "
                   "softmax, with a matrix of all queries and keys (said once)",
                   weft_device_name(device, name));
}

weft_tensor *weft_i_attention_composed(const weft_i_arg *args)
{
    bool none;
    weft_tensor *q = args[WEFT_I_ATTENTION_Q].tensor;
    double p = args[WEFT_I_ATTENTION_DROPOUT].number;
    tell(weft_i_tensor_device(q));
    weft_tensor *hidden = weft_i_attention_hidden(args, &none);
    weft_tensor *weights = hidden || none ? weft_i_attention_weights(args, hidden) : NULL;
    if (weights && p > 0) {
        weft_tensor *draw =
            weft_rand(WEFT_F32, weft_i_tensor_device(q), weft_i_tensor_shape(weights));
        weft_tensor *kept = weft_to_dtype(weft_ge_scalar(draw, p), q->dtype);
        weights = weft_mul(weights, weft_mul_scalar(kept, p < 1 ? 1 / (1 - p) : 0));
    }
    weft_tensor *v = args[WEFT_I_ATTENTION_V].tensor;
    return weights ? weft_matmul(weights, weft_i_attention_repeat(v, q->dim[q->ndim - 3])) : NULL;
}
