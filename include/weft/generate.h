/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Generation: tokens are drawn one after the other, each from what a model makes of those before it.
 *
 *     weft_tensor *cache = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(layers, 2, 1, heads, length, width));
 *     weft_generate_opts opts = WEFT_GENERATE_OPTS;
 *     opts.sample.temperature = 0.8;
 *     opts.sample.top_k = 40;
 *     weft_tensor *text = weft_generate(model, cache, prompt, 200, &opts);
 *
 * Ranks that computed the same logits, as those of weft_parallelize do, draw the same tokens.  Weights of
 * 8 and 4 bits: weft/quantize.h.  docs/generate.md has an example.
 */
// clang-format on
#ifndef WEFT_GENERATE_H
#define WEFT_GENERATE_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a token is chosen.  Start from WEFT_SAMPLE_OPTS. */
typedef struct weft_sample_opts {
    size_t size; /* of this struct */
    double
        temperature; /* logits are divided by it; 0: always the largest, the first of equal ones */
    int64_t top_k;   /* how many of the largest may be drawn, or 0 for all */
} weft_sample_opts;
#define WEFT_SAMPLE_OPTS                                              \
    {                                                                 \
        sizeof(weft_sample_opts), 1 /*temperature*/, 0 /*top_k: all*/ \
    }

/*
 * Draws a class for each row of the logits, floats [classes] or [rows, classes], with the thread's
 * generator (weft_seed).  The result is i64 [1] or [rows, 1].  NaN is WEFT_ERR_NUMERIC where the thread
 * is not capturing.
 */
WEFT_API weft_tensor *weft_sample(weft_tensor *logits, const weft_sample_opts *opts);

/* Start from WEFT_GENERATE_OPTS. */
typedef struct weft_generate_opts {
    size_t size; /* of this struct */
    weft_sample_opts sample;
    uint64_t seed; /* the same seed gives the same tokens; the thread's generator stays as it is */
    int64_t stop;  /* the token that ends a row and is repeated to fill the result, or -1 */
    /* Called with each column of tokens, [batch, 1] on the CPU, as soon as it is there, or NULL.  A negative
     * status ends the call with that status. */
    weft_status (*each)(weft_tensor *tokens, void *user);
    void *user;
} weft_generate_opts;
#define WEFT_GENERATE_OPTS                                                          \
    {                                                                               \
        sizeof(weft_generate_opts), WEFT_SAMPLE_OPTS, 0 /*seed*/, -1 /*stop*/, 0, 0 \
    }

/*
 * Goes on from `prompt`, integers [batch, time], with at most `count` tokens, and returns the new ones,
 * i64 [batch, at most count] on the CPU.  It ends early when all rows have met the stop token.
 *
 * `model` is called with three inputs, tokens [batch, n], the cache and a position (i64 [1]), and gives
 * logits [batch, n or 1, classes]: those after the last token are used.  First it gets the prompt, at
 * position 0, then one token of each row at a time.  It writes what it must remember of a token at
 * position p to place p of the last dimension but one of the cache, as weft_nn_grouped_attention does;
 * time + count - 1 places are needed.  Gradients are not recorded.  The model is in evaluation mode
 * during the call.
 */
WEFT_API weft_tensor *weft_generate(weft_module *model, weft_tensor *cache, weft_tensor *prompt,
                                    int64_t count, const weft_generate_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
