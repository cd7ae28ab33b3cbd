/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: tensors that share the storage and the version counter of another, with other shape,
 * strides or offset.  No elements are copied (weft_reshape and weft_flatten copy where a view is
 * impossible).  Names and rules are those of PyTorch.  `dim` may count from the end.  Every
 * function returns a new tensor of the current scope, NULL on failure, and passes NULL through.
 */
#ifndef WEFT_VIEW_H
#define WEFT_VIEW_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same elements in another shape; one size may be -1.  Fails if the strides do not allow it
 * without a copy. */
WEFT_API weft_tensor *weft_view(weft_tensor *x, weft_shape shape);
/* As weft_view, but copies where it must. */
WEFT_API weft_tensor *weft_reshape(weft_tensor *x, weft_shape shape);
/* Joins the dimensions from `start` to `end`, both included; copies where it must. */
WEFT_API weft_tensor *weft_flatten(weft_tensor *x, int start, int end);
/* The same bytes as elements of another dtype; the last dimension grows or shrinks with the element
 * size. */
WEFT_API weft_tensor *weft_view_dtype(weft_tensor *x, weft_dtype dtype);

/* Drops dimension `dim` if its size is 1; else a view of the same shape. */
WEFT_API weft_tensor *weft_squeeze(weft_tensor *x, int dim);
WEFT_API weft_tensor *weft_unsqueeze(weft_tensor *x, int dim);
WEFT_API weft_tensor *weft_transpose(weft_tensor *x, int a, int b);
/* Moves dimension `from` to place `to`; the others keep their order. */
WEFT_API weft_tensor *weft_movedim(weft_tensor *x, int from, int to);
/* Dimension i of the result is dimension dims[i] of x; `dims` has as many entries as x has
 * dimensions. */
WEFT_API weft_tensor *weft_permute(weft_tensor *x, const int *dims);
/* Repeats dimensions of size 1 without memory, and puts new ones in front; -1 keeps a size. */
WEFT_API weft_tensor *weft_expand(weft_tensor *x, weft_shape shape);

/* Elements start, start + step ... below end along `dim`; negative bounds count from the end,
 * others are clamped. */
WEFT_API weft_tensor *weft_slice(weft_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
/* `length` elements from `start`, which must exist. */
WEFT_API weft_tensor *weft_narrow(weft_tensor *x, int dim, int64_t start, int64_t length);
/* Element `index` along `dim`; that dimension goes. */
WEFT_API weft_tensor *weft_select(weft_tensor *x, int dim, int64_t index);
/*
 * Pieces of `size` along `dim`, the last one smaller if it does not divide; or `chunks` pieces of
 * equal size rounded up.  *count is the room in `out` and becomes the number of pieces.  Fails
 * without making any if there is no room.
 */
WEFT_API weft_status weft_split(weft_tensor *x, int64_t size, int dim, weft_tensor **out,
                                size_t *count);
WEFT_API weft_status weft_chunk(weft_tensor *x, int64_t chunks, int dim, weft_tensor **out,
                                size_t *count);

/* Any shape, strides and offset (in elements of the storage) that lie inside the storage. */
WEFT_API weft_tensor *weft_as_strided(weft_tensor *x, weft_shape shape, const int64_t *strides,
                                      int64_t offset);

/* An alias that gradients do not pass; shares storage and version counter. */
WEFT_API weft_tensor *weft_detach(weft_tensor *x);
/* An alias with a version counter of its own: writes through it are not seen by x. */
WEFT_API weft_tensor *weft_data(weft_tensor *x);

#ifdef __cplusplus
}
#endif

#endif
