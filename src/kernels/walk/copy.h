/* SPDX-License-Identifier: Apache-2.0 */
/* Strided copies that convert, and fills. */
#ifndef WEFT_KERNELS_COPY_H
#define WEFT_KERNELS_COPY_H

#include "base/share/dtype.h"
#include "kernels/walk/loop.h"

/* loop operand 0 = (dtype to) operand 1 (dtype from), element by element; the operands' memory does
 * not overlap. */
void weft_i_copy(const weft_i_loop *loop, weft_dtype to, weft_dtype from);

/* Every element of operand 0 becomes the element at `value`, which has the same dtype. */
void weft_i_fill(const weft_i_loop *loop, weft_dtype dtype, const void *value);

/*
 * `n` elements of `from` at `in`, `stride` bytes apart, as adjacent elements of `to`.  Returns `in`
 * itself if nothing has to be done, else `buffer`, which has room for them.
 */
const void *weft_i_load_run(weft_dtype to, void *buffer, weft_dtype from, const char *in,
                            int64_t stride, size_t n);

/* The reverse: adjacent elements of `from` go to `out`, converted to `to`. */
void weft_i_store_run(weft_dtype to, char *out, int64_t stride, weft_dtype from, const void *in,
                      size_t n);

#endif
