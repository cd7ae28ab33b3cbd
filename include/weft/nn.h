/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules (weft/module.h) with the names, shapes and initial values of PyTorch's.
 * Parameters are f32 on the CPU, drawn from the thread's generator (weft_seed): the same seed gives
 * the same values.  Functions that take modules return NULL if one of them is NULL, so one check at
 * the end is enough.
 */
#ifndef WEFT_NN_H
#define WEFT_NN_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps x [..., in] to [..., out].  "weight" [out, in] and "bias" [out] start uniform in
 * +-1/sqrt(in). */
WEFT_API weft_module *weft_nn_linear(int64_t in, int64_t out);
/* Without a bias. */
WEFT_API weft_module *weft_nn_linear_plain(int64_t in, int64_t out);
/* Maps integers of any shape to rows of "weight" [rows, width], which starts normal (0, 1). */
WEFT_API weft_module *weft_nn_embedding(int64_t rows, int64_t width);
/* Normalises over the last dimension.  "weight" starts as ones, "bias" as zeros. */
WEFT_API weft_module *weft_nn_layer_norm(int64_t width);
/* In training, drops each element with probability p (0 to 1) and multiplies the others by 1/(1 -
 * p).  In evaluation, does nothing. */
WEFT_API weft_module *weft_nn_dropout(double p);

/* Makes a module of an operation on one tensor: weft_nn_op(weft_relu). */
WEFT_API weft_module *weft_nn_op(weft_tensor *(*op)(weft_tensor *x));

/* Calls the modules one after the other.  Their names are "0", "1" ... */
WEFT_API weft_module *weft_nn_sequential_of(weft_module *const *modules, int count);
#ifdef __cplusplus
}
static inline weft_module *weft_nn_sequential_list(std::initializer_list<weft_module *> list)
{
    return weft_nn_sequential_of(list.begin(), static_cast<int>(list.size()));
}
#define weft_nn_sequential(...) weft_nn_sequential_list({__VA_ARGS__})
extern "C" {
#else
#define weft_nn_sequential(...)                                \
    weft_nn_sequential_of((weft_module *const[]){__VA_ARGS__}, \
                          (int)(sizeof((weft_module *[]){__VA_ARGS__}) / sizeof(weft_module *)))
#endif

/*
 * Causal self-attention with `heads` heads: x [batch, time, width] gives the same shape, and no
 * position sees a later one.  The children "query", "key", "value" and "out" are linear with
 * biases.  `p` is the dropout of the attention weights.
 */
WEFT_API weft_module *weft_nn_attention(int64_t width, int heads, double p);

/*
 * The mean over all rows of -log softmax(logits)[label].  `logits` is [..., classes]; `labels`
 * (integers) has the same shape without the last dimension.  A label that is not a class is
 * WEFT_ERR_INVALID_ARG.
 */
WEFT_API weft_tensor *weft_cross_entropy(weft_tensor *logits, weft_tensor *labels);

#ifdef __cplusplus
}
#endif

#endif
