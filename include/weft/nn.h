/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules (weft/module.h) with the names, shapes and first values of PyTorch's.  Parameters
 * are f32 on the CPU and drawn from the thread's generator (weft_seed): with the same seed, the
 * same values.  Functions that take modules pass NULL through, so one check at the end is enough.
 */
#ifndef WEFT_NN_H
#define WEFT_NN_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [..., in] -> [..., out].  "weight" [out, in] and "bias" [out], uniform in +-1/sqrt(in). */
WEFT_API weft_module *weft_nn_linear(int64_t in, int64_t out);
/* Without a bias. */
WEFT_API weft_module *weft_nn_linear_plain(int64_t in, int64_t out);
/* Integers of any shape -> rows of "weight" [rows, width], normal (0, 1). */
WEFT_API weft_module *weft_nn_embedding(int64_t rows, int64_t width);
/* Over the last dimension, with "weight" of ones and "bias" of zeros. */
WEFT_API weft_module *weft_nn_layer_norm(int64_t width);
/* In training drops each element with probability p, 0 to 1, and multiplies the others by 1/(1 -
 * p); else nothing. */
WEFT_API weft_module *weft_nn_dropout(double p);

/* An operation of one tensor as a module: weft_nn_op(weft_relu). */
WEFT_API weft_module *weft_nn_op(weft_tensor *(*op)(weft_tensor *x));

/* One after the other; their names are "0", "1" ... */
WEFT_API weft_module *weft_nn_sequential_of(weft_module *const *modules, int count);
#define weft_nn_sequential(...)                                \
    weft_nn_sequential_of((weft_module *const[]){__VA_ARGS__}, \
                          (int)(sizeof((weft_module *[]){__VA_ARGS__}) / sizeof(weft_module *)))

/*
 * Causal self-attention of `heads` heads: x [batch, time, width] -> the same shape; what stands at
 * a time sees nothing later.  Children "query", "key", "value" and "out", linear with biases; `p`
 * is the dropout of the attention's weights.
 */
WEFT_API weft_module *weft_nn_attention(int64_t width, int heads, double p);

/*
 * The mean over all rows of -log softmax(logits)[label]: logits [..., classes], labels (integers)
 * of the shape before.  A label outside of the classes is WEFT_ERR_INVALID_ARG.
 */
WEFT_API weft_tensor *weft_cross_entropy(weft_tensor *logits, weft_tensor *labels);

#ifdef __cplusplus
}
#endif

#endif
