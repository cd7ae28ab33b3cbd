/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token files: text as numbers of 16 or 32 bits, one after the other, which are mapped.
 *
 *     weft_tokens_opts opts = WEFT_TOKENS_OPTS_INIT;
 *     opts.batch = 32, opts.length = 1024;
 *     weft_tokens *tokens = weft_tokens_open("train.bin", &opts);
 *     for (int64_t step = 0; step < steps; step++)
 *         weft_tokens_batch(tokens, step, weft_rank(world), weft_size(world), &x, &labels);
 *
 * A batch follows from its number, the seed and the file alone, and the ranks divide it.  So there is
 * nothing to be saved but the number, and a job that goes on with more or fewer ranks gets the same
 * batches.
 */
#ifndef WEFT_TOKENS_H
#define WEFT_TOKENS_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tokens weft_tokens;

typedef struct weft_tokens_opts {
    size_t size;      /* of this struct */
    weft_dtype dtype; /* of a token: WEFT_U16 or WEFT_U32 */
    size_t skip;      /* bytes before the first, such as a header */
    int64_t batch;    /* sequences of a batch, of all ranks together */
    int64_t length;   /* tokens of a sequence */
    int64_t symbols;  /* how many different tokens there are: others are an error; 0: anything */
    bool shuffle;     /* the sequences of an epoch come in another order each time */
    uint64_t seed;
} weft_tokens_opts;
#define WEFT_TOKENS_OPTS_INIT                                               \
    {                                                                       \
        sizeof(weft_tokens_opts), WEFT_U16, 0, 8 /*batch*/, 256, 0, true, 0 \
    }

/*
 * Opens a file, a handle in the current scope.  It must not be shortened meanwhile.  It is cut into
 * sequences; what is left at its end is left out.  WEFT_ERR_NOT_FOUND if there is no such file;
 * WEFT_ERR_INVALID_ARG if it has fewer tokens than a batch takes, or a part of one.
 */
WEFT_API weft_tokens *weft_tokens_open(const char *path, const weft_tokens_opts *opts);

/* The number of tokens, and of whole batches of an epoch; 0 for NULL. */
WEFT_API int64_t weft_tokens_count(const weft_tokens *tokens);
WEFT_API int64_t weft_tokens_batches(const weft_tokens *tokens);

/*
 * Part `part` of `parts` of batch `number`, from 0 on and through all epochs: `x` [batch / parts,
 * length], and `labels`, of the same shape, with the token behind each; i64, on the CPU.  `labels` may be
 * NULL.  `parts` divides the batch.  WEFT_ERR_INVALID_ARG if a token is no symbol, with its place in
 * the file.
 */
WEFT_API weft_status weft_tokens_batch(const weft_tokens *tokens, int64_t number, int part,
                                       int parts, weft_tensor **x, weft_tensor **labels);

#ifdef __cplusplus
}
#endif

#endif
