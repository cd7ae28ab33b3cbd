/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of 8 and 4 bits, for generation: a row is cut into blocks, each block has a scale (f32), and an
 * element is a small integer, its code, times that scale.  A block's largest magnitude has the largest
 * code, 127 or 7: an element is off by half a scale at most, 1/254 or 1/14 of that magnitude.  Writing
 * text reads every weight once for each token, so a quarter or an eighth of the bytes is that much less
 * to wait for.  docs/generate.md has the layout and figures.
 */
#ifndef WEFT_QUANTIZE_H
#define WEFT_QUANTIZE_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Gives the codes (out[0]) and scales (out[1], [rows, columns / block]) of floats x [rows, columns].
 * `bits` is 8 (codes are i8 [rows, columns]) or 4 (two codes to a byte: u8 [rows, columns / 2]).
 * `block` is a multiple of 32 that divides the columns; 32 or 64 are usual.  An infinity or NaN is
 * WEFT_ERR_NUMERIC.  It runs on the CPU; weft_to takes the results elsewhere.
 */
WEFT_API weft_status weft_quantize(weft_tensor *x, int bits, int64_t block, weft_tensor *out[2]);

/* The elements that codes and scales stand for, as floats of `dtype`.  The dtype of the codes says how
 * many bits they have, the shape of the scales how long a block is. */
WEFT_API weft_tensor *weft_dequantize(weft_tensor *codes, weft_tensor *scales, weft_dtype dtype);

/*
 * weft_linear(x, the weight that codes and scales stand for, bias), for floats x [..., columns] of 32
 * or 16 bits, whose dtype the result has.  The bias (or NULL) has this dtype too.  Sums are f32.  Up
 * to four rows of x are multiplied with the codes as they lie; for more, some rows of the weight at a
 * time become floats.  x and the bias get gradients, the weight does not.
 */
WEFT_API weft_tensor *weft_quantized_linear(weft_tensor *x, weft_tensor *codes, weft_tensor *scales,
                                            weft_tensor *bias);

/*
 * Replaces the weight of every linear layer of the module, and below it, by buffers "codes" and
 * "scales": the layers compute weft_quantized_linear from now on, and the weights are freed, unless
 * somebody else holds them.  Load the weights before, and cut layers over ranks (weft_parallelize)
 * before as well: each rank then encodes its own part.  Layers that are no linear ones, such as
 * embeddings, stay.  If one cannot be encoded the error names it, and nothing has changed;
 * WEFT_ERR_NOT_FOUND if there is no linear layer.  WEFT_ERR_UNSUPPORTED for layers under weft_shard
 * or weft_replicate, and those that take or give parts of a sequence.
 */
WEFT_API weft_status weft_quantize_module(weft_module *module, int bits, int64_t block);

#ifdef __cplusplus
}
#endif

#endif
