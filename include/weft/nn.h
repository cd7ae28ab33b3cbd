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
/* Divides by the root of the mean square over the last dimension.  "weight" starts as ones. */
WEFT_API weft_module *weft_nn_rms_norm(int64_t width, double epsilon);
/* down_proj(silu(gate_proj(x)) * up_proj(x)): three linear layers without biases, over `hidden`
 * features. */
WEFT_API weft_module *weft_nn_swiglu(int64_t width, int64_t hidden);
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

/* How weft_nn_grouped_attention is made.  Start from WEFT_NN_ATTENTION_OPTS. */
typedef struct weft_nn_attention_opts {
    size_t size;        /* of this struct */
    int64_t head_width; /* 0: width / heads */
    double rotary;      /* base of the rotary embedding of queries and keys, or 0 */
    double dropout;     /* of the attention weights, in training */
    bool bias;          /* of queries, keys and values */
} weft_nn_attention_opts;
#define WEFT_NN_ATTENTION_OPTS                                                \
    {                                                                         \
        sizeof(weft_nn_attention_opts), 0, 0 /*rotary*/, 0 /*dropout*/, false \
    }

/*
 * Causal self-attention in which `heads` query heads share `key_heads` key heads.  The children are
 * the linear layers "q_proj", "k_proj", "v_proj" and "o_proj".  Without a cache it is called with x
 * [batch, time, width].  With one, weft_module_call_list takes x, keys, values and position: keys and
 * values [batch, key heads, length, head width] are yours, and the new ones are written to them in
 * place, without gradients; position is a tensor of one integer, where x begins, which you move on
 * after the last layer.  Since it is a tensor, a compiled function goes on with it.
 */
WEFT_API weft_module *weft_nn_grouped_attention(int64_t width, int heads, int key_heads,
                                                const weft_nn_attention_opts *opts);

/*
 * Calls the module without keeping what its gradient needs: that is computed again, by a second call
 * with the same input and the same random numbers, when backward comes to it.  Its parameters must
 * not have been written until then.  In a capture, and where nothing is recorded, it is
 * weft_module_call.
 */
WEFT_API weft_tensor *weft_nn_recompute(weft_module *module, weft_tensor *x);

/*
 * Fills a tensor, usually a parameter, with initial values, by the names of torch.nn.init:
 * "constant" (`scale` itself), "uniform" (+-scale), "normal" (deviation `scale`), and
 * "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal" (`scale` is the gain, and
 * the tensor [out, in, ...]).  The values depend on name, scale, seed and shape alone; the thread's
 * generator stays as it is.
 */
WEFT_API weft_status weft_nn_init(weft_tensor *x, const char *name, double scale, uint64_t seed);

/*
 * The mean over all rows of -log softmax(logits)[label].  `logits` is [..., classes]; `labels`
 * (integers) has the same shape without the last dimension.  A label that is not a class is
 * WEFT_ERR_INVALID_ARG.
 */
WEFT_API weft_tensor *weft_cross_entropy(weft_tensor *logits, weft_tensor *labels);

/* Start from WEFT_LINEAR_CROSS_ENTROPY_OPTS. */
typedef struct weft_linear_cross_entropy_opts {
    size_t size;      /* of this struct */
    int64_t ignore;   /* rows with this label are left out */
    double smoothing; /* this part of the label goes to all classes evenly */
    double z_loss;    /* times the square of the logarithm of a row's sum of exponentials: added */
} weft_linear_cross_entropy_opts;
#define WEFT_LINEAR_CROSS_ENTROPY_OPTS                                              \
    {                                                                               \
        sizeof(weft_linear_cross_entropy_opts), -100, 0 /*smoothing*/, 0 /*z_loss*/ \
    }

/*
 * The cross entropy of the logits weft_linear(x, weight, NULL), without storing them: x [..., width],
 * weight [classes, width], labels [...].  A chunk of rows at a time becomes logits, and at once the
 * gradients of x and weight, if backward will want them.  The mean, over the rows that are not left
 * out, is f32 (f64 of f64); 0 if there are none.  A label that is neither a class nor `ignore` is
 * WEFT_ERR_INVALID_ARG.  On devices without a kernel it is put together from a product and
 * log_softmax.
 */
WEFT_API weft_tensor *weft_linear_cross_entropy(weft_tensor *x, weft_tensor *weight,
                                                weft_tensor *labels,
                                                const weft_linear_cross_entropy_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
