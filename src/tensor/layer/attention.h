/* SPDX-License-Identifier: Apache-2.0 */
/* Attention put together from products and softmax: for devices on which the row does not run, and
 * for gradients of gradients. */
#ifndef WEFT_TENSOR_ATTENTION_H
#define WEFT_TENSOR_ATTENTION_H

#include "tensor/op/op.h"

/* The arguments of the row, at these places. */
enum {
    WEFT_I_ATTENTION_Q,
    WEFT_I_ATTENTION_K,
    WEFT_I_ATTENTION_V,
    WEFT_I_ATTENTION_MASK,
    WEFT_I_ATTENTION_OFFSET,
    WEFT_I_ATTENTION_SEED,
    WEFT_I_ATTENTION_CAUSAL,
    WEFT_I_ATTENTION_SCALE,
    WEFT_I_ATTENTION_DROPOUT,
    WEFT_I_ATTENTION_ARGS
};

/* Each head of x [..., heads, rows, width] as often as it takes to have `heads`; and the sum of the
 * copies of each of `heads`. */
weft_tensor *weft_i_attention_repeat(weft_tensor *x, int64_t heads);
weft_tensor *weft_i_attention_fold(weft_tensor *x, int64_t heads);

/* What is not seen, a tensor of bool that broadcasts to the scores; `*none`: all is seen. */
weft_tensor *weft_i_attention_hidden(const weft_i_arg *args, bool *none);
/* The weights [..., heads, queries, keys], without dropout; `hidden` may be NULL. */
weft_tensor *weft_i_attention_weights(const weft_i_arg *args, weft_tensor *hidden);
/* The result of the whole; dropout draws from the thread's generator. */
weft_tensor *weft_i_attention_composed(const weft_i_arg *args);

#endif
